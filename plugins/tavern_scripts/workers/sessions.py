"""Variables that live on between calls: each session is a Python interpreter that stays in its sandbox. What it keeps
never leaves that, and goes with it. There are no sessions of JavaScript."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import secrets
import shutil
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.scripts import (
    SandboxLaunch,
    SandboxMount,
    SandboxOutput,
    ScriptBackend,
    ScriptErrorType,
    ScriptUsage,
)
from tavern_scripts.launches import FILES, OUTPUT, RUNNERS, SCRIPT
from tavern_scripts.results.refusal import Refused
from tavern_scripts.sandbox.processes import to_the_end
from tavern_scripts.workers.kept import Kept
from tavern_scripts.workers.warm import early_variables, split_argv

MAX_NAME = 100
"""How many characters a session's name has at most."""

_RUNNER_FILES = Path(__file__).parent.parent / "runners"
_REMEMBERED = 1_000
"""Of how many sessions that ended it is known why."""

_STATUS = 1 << 20
"""How many bytes the account of a call has beside its result."""

_MARK = 16
_PLACES = (SCRIPT, OUTPUT, FILES, "/tmp")
"""What is called otherwise in a sandbox that has the host's paths: it is told by its arguments."""

_NAMES = ("stdout", "stderr", "channel")

Outlet = Literal["stdout", "stderr", "channel"]
Key = tuple[str, str]


@dataclass(frozen=True)
class SessionLimits:
    """How many sessions there are at most, each owner having half of them; for how many seconds one may wait for its
    next call; how many seconds of the CPU all its calls together may use."""

    most: int = 8
    idle: float = 900.0
    cpu: float = 600.0


class Sessions:
    """The sessions of one host. Each has an owner, and nobody else can use it."""

    def __init__(self, make_folder: Callable[[], Path], limits: Callable[[], SessionLimits]) -> None:
        """`make_folder` returns a new folder that others may look into."""
        self._make_folder = make_folder
        self._limits = limits
        self._sessions: dict[Key, Session] = {}
        self._gone: OrderedDict[Key, str] = OrderedDict()
        self._watching: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def open(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    async def run(
        self, backend: ScriptBackend, launch: SandboxLaunch, stdin: AsyncIterator[bytes], *, owner: str, name: str
    ) -> AsyncGenerator[SandboxOutput, None]:
        """Run code in a session, which begins if there is none, and yield what `backend.run(launch, stdin)` would.

        Calls in one session are one after another. A call that fails leaves the variables as they are; one that is
        ended from outside, or ends the interpreter, takes them with it, and the next call says so on stderr. Raises
        `InvalidInput` for what no session can run, `Refused` where there are too many.
        """
        call = Call.of(launch, name)
        session = await self._turn((owner, name), backend, call)
        try:
            why = self._gone.pop((owner, name), None)
            if why is not None:
                said = f"the session {name!r} begins anew, without the variables of earlier calls: {why}\n"
                yield SandboxOutput(kind="stderr", data=said.encode())
            async with contextlib.aclosing(session.call(call, stdin)) as outputs:
                async for output in outputs:
                    yield output
        finally:
            session.turn.release()
            self._note_end((owner, name), session)

    async def close(self) -> None:
        """End all sessions."""
        self._is_closed = True
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait({watching})
        sessions = [*self._sessions.values()]
        self._sessions.clear()
        await asyncio.gather(*(session.end("scripts were stopped") for session in sessions))

    async def _turn(self, key: Key, backend: ScriptBackend, call: Call) -> Session:
        """Return the session with its turn taken."""
        while True:
            session = await self._session(key, backend, call)
            await session.turn.acquire()
            if not session.why_ended:
                return session
            session.turn.release()
            self._note_end(key, session)

    async def _session(self, key: Key, backend: ScriptBackend, call: Call) -> Session:
        if self._is_closed:
            raise Refused(ScriptErrorType.RESOURCE, "there are no sessions any more: scripts are being stopped")
        session = self._sessions.get(key)
        if session is not None:
            return session
        limits = self._limits()
        await self._make_room(key[0], limits)
        session = self._sessions[key] = Session(backend, call, limits.cpu, self._make_folder)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name="end idle sessions")
        return session

    async def _make_room(self, owner: str, limits: SessionLimits) -> None:
        """End the owner's own session that waits for the longest time, where there are too many. Raises `Refused`."""
        if limits.most < 1:
            raise InvalidInput("this host keeps no sessions of code; leave the session out")
        own = [key for key in self._sessions if key[0] == owner]
        share = math.ceil(limits.most / 2)
        if len(own) < share and len(self._sessions) < limits.most:
            return
        idle = [key for key in own if not self._sessions[key].turn.locked()]
        if not idle:
            message = (
                f"there are as many sessions as there may be ({limits.most}, {share} of one owner); try again later"
            )
            raise Refused(ScriptErrorType.RESOURCE, message)
        oldest = min(idle, key=lambda key: self._sessions[key].since)
        await self._end(oldest, "another session was begun, and there may be no more of them")

    async def _watch(self) -> None:
        """End sessions that wait too long, as long as there are any."""
        while self._sessions:
            idle = self._limits().idle
            oldest = time.monotonic() - idle
            waiting = {key: session for key, session in self._sessions.items() if not session.turn.locked()}
            for key, session in waiting.items():
                if session.since <= oldest:
                    await self._end(key, f"there was no call for {idle:g} s")
            soonest = min(
                (session.since - oldest for session in waiting.values() if session.since > oldest), default=idle
            )
            await asyncio.sleep(max(0.02, min(soonest, idle)))

    async def _end(self, key: Key, why: str) -> None:
        session = self._sessions.get(key)
        if session is not None and not session.turn.locked():
            await session.end(why)
            self._note_end(key, session)

    def _note_end(self, key: Key, session: Session) -> None:
        if not session.why_ended or self._sessions.get(key) is not session:
            return
        del self._sessions[key]
        if session.had_calls:
            self._gone[key] = session.why_ended
            while len(self._gone) > _REMEMBERED:
                self._gone.popitem(last=False)


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
        """Return what is to be run. Raises `InvalidInput` where no session can."""
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


class Session:
    """An interpreter that stays. Only who has the `turn` calls it."""

    def __init__(self, backend: ScriptBackend, first: Call, cpu: float, make_folder: Callable[[], Path]) -> None:
        self.turn = asyncio.Lock()
        self.since = time.monotonic()
        self.why_ended = ""
        self.had_calls = False
        self._backend = backend
        self._fixed = first.fixed
        self._cpu = cpu
        self._make_folder = make_folder
        self._folder: Path | None = None
        self._kept: Kept | None = None
        self._calls = 0
        self._early: dict[str, bytes] = {}

    async def call(self, call: Call, stdin: AsyncIterator[bytes]) -> AsyncGenerator[SandboxOutput, None]:
        """Run code and yield what comes out. Ends the session where it is closed before the call is over."""
        if call.fixed != self._fixed:
            raise InvalidInput(
                "the session was begun with another interpreter, other limits or dependencies; use another session"
            )
        is_over = False
        try:
            kept = self._kept or await self._start(call)
            await asyncio.to_thread(self._place_files, call.files)
            given = b"".join([data async for data in stdin])
            listener = _Listener(call, secrets.token_bytes(_MARK), self._early)
            self._calls += 1
            self.had_calls = True
            began = time.monotonic()
            kept.tell(_frame(call, listener.mark, self._calls, len(given)))
            kept.tell(given)
            while not listener.is_over:
                output = await kept.next()
                if output is None or output.kind == "ended":
                    for rest in listener.rest():
                        yield rest
                    ended = output or SandboxOutput(kind="ended", exit_code=-9)
                    self.why_ended = _why(ended)
                    yield _measured(ended, len(given), listener, time.monotonic() - began)
                    return
                for heard in listener.feed(output):
                    yield heard
            self._early = listener.early
            is_over = True
            ended, results = listener.end()
            for heard in results:
                yield heard
            yield _measured(ended, len(given), listener, time.monotonic() - began)
        except BadAccount as error:
            self.why_ended = str(error)
            raise Refused(ScriptErrorType.SCRIPT, f"the session was ended: {error}") from None
        finally:
            if is_over:
                self.since = time.monotonic()
                kept.listen()
            else:
                await to_the_end(self.end("a call was ended before it was over"))

    async def end(self, why: str) -> None:
        """End the interpreter with all that it began; `why` counts where it has not ended by itself."""
        self.why_ended = self.why_ended or why
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _start(self, call: Call) -> Kept:
        folder = self._folder = await asyncio.to_thread(self._make_folder)
        for name in ("script", "output", "files"):
            (folder / name).mkdir()
            (folder / name).chmod(0o755)
        first = call.launch
        launch = first.model_copy(
            update={
                "argv": [*call.command, f"{RUNNERS}/session.py", *_PLACES],
                "mounts": [
                    *(mount for mount in call.mounts if not mount.target.startswith(f"{RUNNERS}/")),
                    SandboxMount(target=SCRIPT, source=str(folder / "script")),
                    SandboxMount(target=OUTPUT, source=str(folder / "output"), mode="staged"),
                    SandboxMount(target=FILES, source=str(folder / "files")),
                    SandboxMount(target=RUNNERS, source=str(_RUNNER_FILES)),
                ],
                "limits": first.limits.model_copy(update={"cpu": max(self._cpu, first.limits.cpu)}),
                "channel": True,
            }
        )
        kept = self._kept = Kept(self._backend, launch)
        output = await kept.next()
        if output is None or output.kind != "channel":
            said = output.data.decode(errors="replace").strip() if output is not None else ""
            raise Refused(
                ScriptErrorType.SECURITY, f"the sandbox of the session could not be made: {said or 'it ended'}"
            )
        return kept

    def _place_files(self, source: Path | None) -> None:
        """Let the files of this call be seen, and none of earlier ones."""
        assert self._folder is not None
        target = self._folder / "files"
        for entry in [*target.iterdir()]:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        if source is not None:
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)


class BadAccount(Exception):
    """What came out of a session's interpreter is not what its own program says."""


class _Listener:
    """Tells what belongs to one call from what comes out of an interpreter. `early` came before the call."""

    def __init__(self, call: Call, mark: bytes, early: dict[str, bytes]) -> None:
        self.mark = mark
        self.early: dict[str, bytes] = {}
        self.counts = dict.fromkeys(_NAMES, 0)
        self._call = call
        self._held = {name: early.get(name, b"") for name in _NAMES}
        self._over: set[str] = set()
        self._is_line_open = False
        self._account: Account | None = None

    @property
    def is_over(self) -> bool:
        """Whether all of the call has been heard."""
        return len(self._over) == len(_NAMES) and self._account is not None and self._account.is_complete

    def feed(self, output: SandboxOutput) -> list[SandboxOutput]:
        """Take what came out; return what of it is the call's. Raises `BadAccount`."""
        name, data = output.kind, output.data
        if name in self._over:
            if name == "channel" and self._account is not None and not self._account.is_complete:
                data = self._account.feed(data)
            self.early[name] = self.early.get(name, b"") + data
            if len(self.early[name]) > _STATUS:
                raise BadAccount("it wrote more than a session may while no call goes on")
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
            self._account = Account(self._call.output, limits.scratch, 2 * limits.output + _STATUS)
            rest = self._account.feed(rest)
        self.early[name] = rest
        return self._heard(name, data[:at])

    def rest(self) -> list[SandboxOutput]:
        """Return what was held back, where the interpreter has ended."""
        return [heard for name in _NAMES for heard in self._heard(name, self._held[name])]

    def end(self) -> tuple[SandboxOutput, list[SandboxOutput]]:
        """Return how the call ended, and its result, if it is not among what came out."""
        assert self._account is not None
        told = self._account.told
        limits = self._call.launch.limits
        ended = SandboxOutput(
            kind="ended",
            data=told.note.encode(),
            exit_code=told.exit,
            usage=ScriptUsage(wall_ms=0.0, cpu_ms=told.cpu * 1000),
        )
        if told.value is None or told.exit != 0:
            return ended, []
        if len(told.value) > limits.output:
            size = f"{len(told.value):,} bytes as JSON; at most {limits.output:,} are possible"
            raise Refused(ScriptErrorType.OUTPUT, f"the value of the last expression has {size}")
        if self._call.launch.channel:
            return ended, [] if self.counts["channel"] else self._heard("channel", told.value)
        return ended, self._heard("stdout", (b"\n" if self._is_line_open else b"") + told.value + b"\n")

    def _heard(self, name: str, data: bytes) -> list[SandboxOutput]:
        if not data or (name == "channel" and not self._call.launch.channel):
            return []
        self.counts[name] += len(data)
        if name == "stdout":
            self._is_line_open = not data.endswith(b"\n")
        return [SandboxOutput.model_validate({"kind": name, "data": data})]


@dataclass(frozen=True)
class Told:
    """What an interpreter says of a call: its exit status, the value of its last expression, its seconds of the CPU."""

    exit: int
    value: bytes | None
    cpu: float
    note: str


class Account:
    """Reads what is told at the end of a call: one line, then the files that it left, which are written to a folder."""

    def __init__(self, folder: Path | None, room: int, longest: int) -> None:
        self._folder = folder
        self._room = room
        self._longest = longest
        self._line: bytearray | None = bytearray()
        self._files: list[tuple[Path, int]] = []
        self._told: Told | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all was read."""
        return self._told is not None and not self._files

    @property
    def told(self) -> Told:
        """What was told."""
        assert self._told is not None
        return self._told

    def feed(self, data: bytes) -> bytes:
        """Take what came; return what comes after the end. Raises `BadAccount`."""
        if self._line is not None:
            line, newline, rest = data.partition(b"\n")
            self._line += line
            if len(self._line) > self._longest:
                raise BadAccount("what it told of a call is too long")
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
            told: dict[str, Any] = json.loads(line)
            value, left = told["value"], told.get("left", 0)
            if not (value is None or isinstance(value, str)) or not isinstance(left, int):
                raise TypeError
            note = f"{left} files were not kept: they are too many, or too large" if left else ""
            code = None if value is None else value.encode("utf-8", "replace")
            self._told = Told(int(told["exit"]) & 0xFF, code, max(0.0, float(told["cpu"])), note)
            for path, size in told["files"]:
                self._expect(path, size)
        except (ValueError, TypeError, LookupError, RecursionError, OverflowError, OSError):
            raise BadAccount("what it told of a call makes no sense") from None

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


def _frame(call: Call, mark: bytes, number: int, size: int) -> bytes:
    limits = call.launch.limits
    told = {
        "mark": mark.hex(),
        "code": call.code,
        "name": f"{SCRIPT}/call-{number}.py",
        "argv": call.argv,
        "places": _PLACES,
        "environment": call.launch.environment,
        "channel": call.launch.channel,
        "cpu": limits.cpu,
        "output": OUTPUT,
        "room": limits.scratch,
        "input": size,
    }
    data = json.dumps(told).encode()
    return len(data).to_bytes(4, "big") + data


def _measured(ended: SandboxOutput, given: int, listener: _Listener, seconds: float) -> SandboxOutput:
    """Return the end of a call with what this call took, not the session."""
    counts = listener.counts
    usage = ScriptUsage(
        wall_ms=seconds * 1000,
        cpu_ms=ended.usage.cpu_ms if ended.usage is not None and listener.is_over else None,
        input=given,
        output=counts["stdout"] + counts["channel"],
        log=counts["stderr"],
    )
    return ended.model_copy(update={"usage": usage})


def _why(ended: SandboxOutput) -> str:
    if ended.reason is not None:
        return f"a call used up what it had ({ended.reason})"
    return f"its interpreter ended during a call (exit status {ended.exit_code})"


def _overlap(data: bytes, mark: bytes) -> int:
    """Return how many bytes at the end of the data could be the beginning of the mark."""
    for size in range(min(len(data), len(mark) - 1), 0, -1):
        if data.endswith(mark[:size]):
            return size
    return 0
