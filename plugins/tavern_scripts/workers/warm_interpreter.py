"""One Python interpreter that waits in its sandbox for a script, and runs one. Which launches it can stand in for is
distinguished by their shape; when it is started and thrown away is decided elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tavern_host import clock
from tavern_scripts.api.scripts import SandboxLaunch, SandboxMount, SandboxOutput, ScriptBackend, ScriptLimits
from tavern_scripts.workers.launches import RUNNERS
from tavern_scripts.workers.sandboxed_program import SandboxedProgram

MAX_FILES = 16
MAX_BYTES = 512 << 10
"""How much a folder may hold that is copied to where a waiting interpreter sees it."""

_RUNNER_FILES = Path(__file__).parent.parent / "runners"
_PYTHON = re.compile(r"python3?(\.\d+)?t?")
_WITH_VALUE = ("-X", "-W")
_EARLY = re.compile(r"PYTHON|LD_|GLIBC_|LANG$|LANGUAGE$|LC_|MALLOC_|TMPDIR$|TZ$|HOME$|PATH$")
"""Variables that act when an interpreter starts, or while it imports."""

_HEAD_START = 2.0
"""How many seconds of the CPU an interpreter has for itself before its script begins; it gives back what is left."""

Place = tuple[str, str]
"""Where something is mounted and in which mode."""


@dataclass(frozen=True)
class LaunchShape:
    """What is fixed when a sandbox starts: launches of one shape can take each other's place. Sources of mounts and the
    time by the clock are not part of it."""

    command: tuple[str, ...]
    places: tuple[Place, ...]
    environment: tuple[tuple[str, str], ...]
    limits: ScriptLimits

    @property
    def words(self) -> list[str]:
        """Paths that differ in a sandbox with the host's paths: they are passed as arguments."""
        return [*(target for target, _ in self.places), "/tmp"]

    def launch(self, folder: Path) -> SandboxLaunch:
        """Return the launch of an interpreter that waits; what it will see is put into folders below `folder`."""
        mounts = [
            SandboxMount(target=target, source=str(folder / str(number)), mode="read" if mode == "read" else "staged")
            for number, (target, mode) in enumerate(self.places)
        ]
        return SandboxLaunch(
            argv=[*self.command, f"{RUNNERS}/zygote.py", *self.words],
            environment=dict(self.environment),
            mounts=[*mounts, SandboxMount(target=RUNNERS, source=str(_RUNNER_FILES))],
            limits=self.limits.model_copy(update={"cpu": self.limits.cpu + _HEAD_START}),
            channel=True,
        )


def shape_of(launch: SandboxLaunch) -> LaunchShape | None:
    """Return the shape of a launch of a Python script, or None where only a start of its own will do: with a network,
    with an environment of dependencies, with folders that are large or were written to before."""
    command, rest = split_argv(launch.argv)
    if not rest or launch.proxy is not None or not launch.address_space:
        return None
    places: list[Place] = []
    for mount in launch.mounts:
        if mount.target.startswith(f"{RUNNERS}/"):
            if mount.mode != "read" or Path(mount.source).parent != _RUNNER_FILES:
                return None
        elif _is_empty(mount) if mount.mode == "staged" else _is_small(mount.source):
            places.append((mount.target, mount.mode))
        else:
            return None
    limits = launch.limits.model_copy(update={"wall": 0.0})
    return LaunchShape(tuple(command), tuple(sorted(places)), early_variables(launch), limits)


def early_variables(launch: SandboxLaunch) -> tuple[tuple[str, str], ...]:
    """Return the variables that cannot be given to an interpreter that runs already."""
    return tuple(sorted((name, value) for name, value in launch.environment.items() if _EARLY.match(name)))


def split_argv(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return an interpreter with its options, and the script with its arguments; neither where it is something else."""
    if not _PYTHON.fullmatch(PurePosixPath(argv[0]).name):
        return [], []
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        if argv[at] in ("-", "-c", "-m", "-i"):
            return [], []
        at += 2 if argv[at] in _WITH_VALUE else 1
    script = argv[at] if at < len(argv) else ""
    return ([*argv[:at]], [*argv[at:]]) if script.startswith("/") else ([], [])


def _is_empty(mount: SandboxMount) -> bool:
    if mount.filled:
        return False
    with contextlib.suppress(FileNotFoundError), os.scandir(mount.source) as entries:
        return next(entries, None) is None
    return True


def _is_small(folder: str) -> bool:
    """Return whether a folder holds a few small files and nothing else."""
    left = MAX_BYTES
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries):
                about = entry.stat(follow_symlinks=False)
                left -= about.st_size
                if not stat.S_ISREG(about.st_mode) or left < 0 or count >= MAX_FILES:
                    return False
    except OSError:
        return False
    return True


class WarmInterpreter:
    """An interpreter that was started for a shape; `folder` is its own and is removed with it."""

    def __init__(self, backend: ScriptBackend, shape: LaunchShape, folder: Path) -> None:
        self.kind = (backend, shape)
        self.since = clock.monotonic()
        self._folder = folder
        self._launch = shape.launch(folder)
        for mount in self._launch.mounts:
            if mount.target != RUNNERS:
                Path(mount.source).mkdir()
                Path(mount.source).chmod(0o755)
        self._kept = SandboxedProgram(backend, self._launch)
        self._cpu = 0.0
        self._has_begun = False
        self._early = b""

    @property
    def has_run(self) -> bool:
        """Whether a script began in it and has ended, with all of it but the folder."""
        return self._has_begun and self._kept.ended is not None

    @property
    def is_usable(self) -> bool:
        """Whether it waits as it should."""
        return self._kept.is_quiet

    async def wait(self) -> str:
        """Wait until it is ready; return why it never will be, or ''."""
        ready, output = await self._said("ready")
        if ready is None:
            return _why(output)
        self._cpu = float(ready["cpu"])
        self.since = clock.monotonic()
        self._kept.listen()
        return ""

    async def run(self, launch: SandboxLaunch, stdin: AsyncIterator[bytes]) -> AsyncGenerator[SandboxOutput, None]:
        """Run a script and yield what comes out; nothing, without reading `stdin`, where it did not begin."""
        began = time.perf_counter()
        try:
            self._hand_over(launch)
        except OSError:
            return
        self._kept.tell(_job(launch, self.kind[1]))
        begun, _ = await self._said("begun")
        if begun is None:
            return
        self._has_begun = True
        counts = {"input": 0, "stdout": 0, "stderr": 0, "channel": 0}
        self._kept.tell(_counted(stdin, counts))
        self._kept.tell(None)
        if self._early:
            counts["channel"] += len(self._early)
            yield SandboxOutput(kind="channel", data=self._early)
        while (output := await self._kept.next()) is not None:
            if output.kind != "ended":
                counts[output.kind] += len(output.data)
                yield output
                continue
            if output.exit_code == 0 and output.reason is None:
                self._hand_back(launch)
            yield self._corrected(output, launch, counts, time.perf_counter() - began)

    async def close(self) -> None:
        """End it, and remove its folder."""
        try:
            await self._kept.close()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _said(self, what: str) -> tuple[dict[str, float] | None, SandboxOutput | None]:
        """Return a line that it was to say on its channel; None, and what came instead, where it does not.

        What came after it already is kept: it is the script's.
        """
        line, newline, self._early = b"", b"", b""
        while not newline:
            output = await self._kept.next()
            if output is None or output.kind != "channel":
                return None, output
            part, newline, self._early = output.data.partition(b"\n")
            line += part
        try:
            said = json.loads(line)
        except ValueError:
            return None, None
        return (said, None) if said.get(what) is True else (None, None)

    def _hand_over(self, launch: SandboxLaunch) -> None:
        for mount, ours in self._pairs(launch):
            if mount.mode == "read":
                for file in Path(mount.source).iterdir():
                    shutil.copy(file, ours.source)

    def _hand_back(self, launch: SandboxLaunch) -> None:
        for mount, ours in self._pairs(launch):
            if mount.mode == "staged":
                Path(mount.source).mkdir(parents=True, exist_ok=True)
                for entry in Path(ours.source).iterdir():
                    shutil.move(entry, Path(mount.source, entry.name))

    def _pairs(self, launch: SandboxLaunch) -> list[tuple[SandboxMount, SandboxMount]]:
        own = {mount.target: mount for mount in self._launch.mounts}
        return [(mount, own[mount.target]) for mount in launch.mounts if mount.target in own]

    def _corrected(
        self, output: SandboxOutput, launch: SandboxLaunch, counts: Mapping[str, int], seconds: float
    ) -> SandboxOutput:
        """Return the end as that of a sandbox that was started for this script alone."""
        data = output.data
        for mount, ours in self._pairs(launch):
            data = data.replace(os.fsencode(ours.source), os.fsencode(mount.source))
        usage = output.usage
        if usage is not None:
            cpu = None if usage.cpu_ms is None else max(0.0, usage.cpu_ms - self._cpu * 1000)
            own = {"input": counts["input"], "output": counts["stdout"] + counts["channel"], "log": counts["stderr"]}
            usage = usage.model_copy(update={"wall_ms": seconds * 1000, "cpu_ms": cpu, **own})
        return output.model_copy(update={"data": data, "usage": usage})


def _job(launch: SandboxLaunch, shape: LaunchShape) -> bytes:
    command, script = split_argv(launch.argv)
    job = {
        "argv": script,
        "command": command,
        "places": shape.words,
        "environment": launch.environment,
        "folder": launch.folder,
        "channel": launch.channel,
        "cpu": launch.limits.cpu,
    }
    data = json.dumps(job).encode()
    return len(data).to_bytes(4, "big") + data


async def _counted(stdin: AsyncIterator[bytes], counts: dict[str, int]) -> AsyncIterator[bytes]:
    async for data in stdin:
        counts["input"] += len(data)
        yield data


def _why(output: SandboxOutput | None) -> str:
    if output is None:
        return "it ended"
    said = output.data.decode(errors="replace").strip()
    return said or f"it ended with {output.exit_code}, {output.reason or 'and said nothing'}"
