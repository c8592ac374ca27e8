"""One call in a session of code: what it needs, and what of the interpreter's output belongs to it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tavern_host.contracts.errors import InvalidInput
from tavern_scripts.api.scripts import SandboxLaunch, SandboxMount, SandboxOutput, ScriptErrorType, ScriptUsage
from tavern_scripts.results.refusal import Refused
from tavern_scripts.workers.launches import FILES, OUTPUT, SCRIPT
from tavern_scripts.workers.warm_interpreter import early_variables, split_argv

MAX_NAME = 100
"""How many characters a session's name has at most."""

_STATUS = 1 << 20
"""How many bytes the account of a call has beside its result."""

MARK = 16
PLACES = (SCRIPT, OUTPUT, FILES, "/tmp")
"""Paths that differ in a sandbox with the host's paths: they are passed as arguments."""

NAMES = ("stdout", "stderr", "channel")


@dataclass(frozen=True)
class Call:
    """One call: a piece of code, and what a session must have been made with to run it."""

    code: str
    launch: SandboxLaunch
    command: tuple[str, ...]
    argv: tuple[str, ...]
    mounts: tuple[SandboxMount, ...]
    output: Path | None
    files: Path | None

    @classmethod
    def of(cls, launch: SandboxLaunch, name: str) -> Call:
        """Return the call of a session for a launch. Raises `InvalidInput` where no session can run it."""
        if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
            raise InvalidInput(
                f"a session's name must have 1 to {MAX_NAME} characters that can be seen, found {name!r:.120}"
            )
        command, argv = split_argv(launch.argv)
        own = {mount.target: Path(mount.source) for mount in launch.mounts}
        if not argv or PurePosixPath(argv[0]).parent != PurePosixPath(SCRIPT) or SCRIPT not in own:
            raise InvalidInput("sessions keep the variables of Python code only; leave the session out")
        if launch.proxy is not None:
            raise InvalidInput("a session has no network; leave the session out, or the hosts")
        try:
            code = (own[SCRIPT] / PurePosixPath(argv[0]).name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"the code for a session cannot be read: {error}") from None
        mounts = tuple(mount for mount in launch.mounts if mount.target not in (SCRIPT, OUTPUT, FILES))
        return cls(code, launch, tuple(command), tuple(argv), mounts, own.get(OUTPUT), own.get(FILES))

    @property
    def fixed(self) -> tuple[object, ...]:
        """What cannot be changed while a session lives."""
        limits = self.launch.limits.model_copy(update={"wall": 0.0})
        return self.command, self.mounts, early_variables(self.launch), limits, self.launch.address_space


class BadReport(Exception):
    """What came out of a session's interpreter is not what its own program says."""


class CallOutput:
    """Tells what belongs to one call from what comes out of an interpreter. `early` came before the call."""

    def __init__(self, call: Call, mark: bytes, early: dict[str, bytes]) -> None:
        self.mark = mark
        self.early: dict[str, bytes] = {}
        self.counts = dict.fromkeys(NAMES, 0)
        self._call = call
        self._held = {name: early.get(name, b"") for name in NAMES}
        self._over: set[str] = set()
        self._is_line_open = False
        self._reader: CallReportReader | None = None

    @property
    def is_over(self) -> bool:
        """Whether all of the call has been heard."""
        return len(self._over) == len(NAMES) and self._reader is not None and self._reader.is_complete

    def feed(self, output: SandboxOutput) -> list[SandboxOutput]:
        """Take what came out; return what of it is the call's. Raises `BadReport`."""
        name, data = output.kind, output.data
        if name in self._over:
            if name == "channel" and self._reader is not None and not self._reader.is_complete:
                data = self._reader.feed(data)
            self.early[name] = self.early.get(name, b"") + data
            if len(self.early[name]) > _STATUS:
                raise BadReport("it wrote more than a session may between calls")
            return []
        data = self._held[name] + data
        at = data.find(self.mark)
        if at < 0:
            keep = _overlap(data, self.mark)
            self._held[name] = data[len(data) - keep :]
            return self._heard(name, data[: len(data) - keep])
        self._held[name] = b""
        self._over.add(name)
        rest = data[at + len(self.mark) :]
        if name == "channel":
            limits = self._call.launch.limits
            self._reader = CallReportReader(self._call.output, limits.scratch, 2 * limits.output + _STATUS)
            rest = self._reader.feed(rest)
        self.early[name] = rest
        return self._heard(name, data[:at])

    def rest(self) -> list[SandboxOutput]:
        """Return the output that was held back, where the interpreter has ended."""
        return [heard for name in NAMES for heard in self._heard(name, self._held[name])]

    def end(self) -> tuple[SandboxOutput, list[SandboxOutput]]:
        """Return how the call ended, and its result, if it is not among what came out."""
        assert self._reader is not None
        report = self._reader.report
        limits = self._call.launch.limits
        ended = SandboxOutput(
            kind="ended",
            data=report.note.encode(),
            exit_code=report.exit,
            usage=ScriptUsage(wall_ms=0.0, cpu_ms=report.cpu * 1000),
        )
        if report.value is None or report.exit != 0:
            return ended, []
        if len(report.value) > limits.output:
            size = f"{len(report.value):,} bytes as JSON; at most {limits.output:,} are possible"
            raise Refused(ScriptErrorType.OUTPUT, f"the value of the last expression has {size}")
        if self._call.launch.channel:
            return ended, [] if self.counts["channel"] else self._heard("channel", report.value)
        return ended, self._heard("stdout", (b"\n" if self._is_line_open else b"") + report.value + b"\n")

    def _heard(self, name: str, data: bytes) -> list[SandboxOutput]:
        if not data or (name == "channel" and not self._call.launch.channel):
            return []
        self.counts[name] += len(data)
        if name == "stdout":
            self._is_line_open = not data.endswith(b"\n")
        return [SandboxOutput.model_validate({"kind": name, "data": data})]


@dataclass(frozen=True)
class CallReport:
    """What an interpreter says of a call: its exit status, the value of its last expression, its seconds of the CPU."""

    exit: int
    value: bytes | None
    cpu: float
    note: str


class CallReportReader:
    """Reads the report at the end of a call: one line, then the files that it left, which are written to a folder."""

    def __init__(self, folder: Path | None, room: int, longest: int) -> None:
        self._folder = folder
        self._room = room
        self._longest = longest
        self._line: bytearray | None = bytearray()
        self._files: list[tuple[Path, int]] = []
        self._report: CallReport | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all was read."""
        return self._report is not None and not self._files

    @property
    def report(self) -> CallReport:
        """The report."""
        assert self._report is not None
        return self._report

    def feed(self, data: bytes) -> bytes:
        """Take what came; return what comes after the end. Raises `BadReport`."""
        if self._line is not None:
            line, newline, rest = data.partition(b"\n")
            self._line += line
            if len(self._line) > self._longest:
                raise BadReport("its report of a call is too long")
            if not newline:
                return b""
            self._read(bytes(self._line))
            self._line, data = None, rest
        while self._files and data:
            path, size = self._files[0]
            part, data = data[:size], data[size:]
            with path.open("ab") as file:
                file.write(part)
            if len(part) == size:
                self._files.pop(0)
            else:
                self._files[0] = (path, size - len(part))
        return data

    def _read(self, line: bytes) -> None:
        try:
            report: dict[str, Any] = json.loads(line)
            value, left = report["value"], report.get("left", 0)
            if not (value is None or isinstance(value, str)) or not isinstance(left, int):
                raise TypeError
            note = f"{left} files were not kept: they are too many, or too large" if left else ""
            code = None if value is None else value.encode("utf-8", "replace")
            self._report = CallReport(int(report["exit"]) & 0xFF, code, max(0.0, float(report["cpu"])), note)
            for path, size in report["files"]:
                self._expect(path, size)
        except (ValueError, TypeError, LookupError, RecursionError, OverflowError, OSError):
            raise BadReport("its report of a call makes no sense") from None

    def _expect(self, path: object, size: object) -> None:
        """Make a file, empty still. The folder is ours and nothing is in it but what was made here."""
        if not isinstance(path, str) or type(size) is not int or not 0 <= size <= self._room or self._folder is None:
            raise TypeError
        steps = path.split("/")
        if len(steps) > 32 or any(step in ("", ".", "..") or "\0" in step for step in steps):
            raise ValueError
        self._room -= size
        target = self._folder.joinpath(*steps)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb"):
            pass
        if size:
            self._files.append((target, size))


def frame_of(call: Call, mark: bytes, number: int, size: int) -> bytes:
    limits = call.launch.limits
    report = {
        "mark": mark.hex(),
        "code": call.code,
        "name": f"{SCRIPT}/call-{number}.py",
        "argv": call.argv,
        "places": PLACES,
        "environment": call.launch.environment,
        "channel": call.launch.channel,
        "cpu": limits.cpu,
        "output": OUTPUT,
        "room": limits.scratch,
        "input": size,
    }
    data = json.dumps(report).encode()
    return len(data).to_bytes(4, "big") + data


def measured(ended: SandboxOutput, input_size: int, listener: CallOutput, seconds: float) -> SandboxOutput:
    """Return the end of a call with what this call took, not the session."""
    counts = listener.counts
    usage = ScriptUsage(
        wall_ms=seconds * 1000,
        cpu_ms=ended.usage.cpu_ms if ended.usage is not None and listener.is_over else None,
        input=input_size,
        output=counts["stdout"] + counts["channel"],
        log=counts["stderr"],
    )
    return ended.model_copy(update={"usage": usage})


def _overlap(data: bytes, mark: bytes) -> int:
    """Return how many bytes at the end of the data could be the beginning of the mark."""
    for size in range(min(len(data), len(mark) - 1), 0, -1):
        if data.endswith(mark[:size]):
            return size
    return 0
