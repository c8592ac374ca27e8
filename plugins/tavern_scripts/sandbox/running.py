"""Runs one program in a sandbox that is made from outside, and takes all of it away again. How the sandbox is made is
described by a `Recipe`; the maker reports the first process, then waits at a gate until its limits are in force."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tavern_host import clock
from tavern_scripts.api.piped_program import to_the_end
from tavern_scripts.api.scripts import SandboxLaunch, SandboxMount, SandboxOutput, ScriptUsage
from tavern_scripts.api.staging import Stage, StagingError, copy_out, fill, open_stage
from tavern_scripts.sandbox.cgroups import Group, Groups
from tavern_scripts.sandbox.guard import Guard
from tavern_scripts.sandbox.pipes import Channel, Outlets, feed, read_all
from tavern_scripts.sandbox.processes import Process
from tavern_scripts.sandbox.resources import limit
from tavern_scripts.sandbox.spawn import spawn
from tavern_scripts.sandbox.watch import Reason, Watch, tree

ARGUMENTS, GATE, INFO = 4, 5, 6
"""The descriptors that a maker of sandboxes finds its arguments, its gate and its outlet for reports at."""

CALLS = 7
"""The descriptor by which a program calls tools, if it was given any."""

_CPU_SIGNAL, _SIZE_SIGNAL = -24, -25
_PATIENCE = 10.0
"""How many seconds a maker may take until it reports, and until its file system is there."""

_COMPLAINT = 4096

_FAILED = (1, 126, 127)
"""How a maker ends that could not start the program."""


@dataclass(frozen=True)
class Recipe:
    """How one sandbox is made: `argv` is the maker, `arguments` what it reads, `gate` what lets it continue.

    `mark` is a folder in the sandbox's root once all is mounted; `places` are its own file systems, if it has any.
    `owner` is the user that pipes are given to. `complaint` are beginnings of the maker's own messages.
    """

    launch: SandboxLaunch
    argv: Sequence[str]
    arguments: bytes
    gate: bytes
    limits: Mapping[int, tuple[int, int]]
    mark: str
    places: Sequence[str]
    complaint: tuple[bytes, ...]
    groups: Groups | None = None
    owner: int | None = None
    guard: Guard | None = None
    open: Callable[[SandboxMount, str, int], Stage] = open_stage
    stop: int = signal.SIGKILL
    """The signal by which the first process ends all others: the kernel does it for the first of a pid namespace."""
    counted: bool = False
    """Whether processes are counted from outside."""


async def run_recipe(recipe: Recipe, stdin: AsyncIterator[bytes]) -> AsyncIterator[SandboxOutput]:
    """Run a program and yield what comes out; closing the iterator ends all of it."""
    box = _Box(recipe, stdin)
    try:
        broken = await box.start()
        if broken is None:
            if recipe.launch.lasting:
                yield SandboxOutput(kind="begun", pid=box.pid)
            async for name, data in box.read():
                yield SandboxOutput(kind=name, data=data)
            ended = await box.end()
        else:
            ended = box.ended(reason="broken", note=broken)
        await to_the_end(box.close())
        yield ended
    finally:
        await to_the_end(box.close())


class _Box:
    """What there is of one sandbox in this process."""

    def __init__(self, recipe: Recipe, stdin: AsyncIterator[bytes]) -> None:
        self._recipe = recipe
        self._stdin = stdin
        self._since = time.perf_counter()
        self._maker: Process | None = None
        self._first: Process | None = None
        self._info: asyncio.Task[bytes] | None = None
        self._gate: int | None = None
        self._input: int | None = None
        self._outlets: Outlets | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stages: list[Stage] = []
        self._group: Group | None = None
        self._is_in_group = False
        self._is_guarded = False
        self._shell: Process | None = None
        self._watch: Watch | None = None
        self._counts = {"input": 0, "stdout": 0, "stderr": 0, "channel": 0}
        self._complaint = b""
        self._is_closed = False

    async def start(self) -> str | None:
        """Make the sandbox and let the program begin; return what went wrong, if anything did."""
        recipe = self._recipe
        try:
            self._spawn()
        except OSError as error:
            return f"{recipe.argv[0]} could not be started: {error.strerror or error}"
        pid = await self._reported()
        if pid is None:
            return await self._complained()
        try:
            self._hold(pid)
            assert self._maker is not None
            self._maker.on_end(self._stop)
            if self._group is not None and not self._is_in_group:
                await to_the_end(asyncio.to_thread(self._group.add, pid))
            limit(pid, dict(recipe.limits))
            if any(mount.mode == "staged" for mount in recipe.launch.mounts):
                await self._stage(pid)
            self._open_gate()
        except (OSError, StagingError) as error:
            return f"the sandbox could not be made: {error}"
        self._begin(pid)
        return None

    @property
    def pid(self) -> int | None:
        """The first process in the sandbox, from which all others come."""
        return self._first.pid if self._first is not None else None

    async def read(self) -> AsyncIterator[tuple[Channel, bytes]]:
        """Yield what the program writes."""
        assert self._outlets is not None
        async for name, data in self._outlets:
            self._counts[name] += len(data)
            if name == "stderr" and len(self._complaint) < _COMPLAINT:
                self._complaint += data
            yield name, data

    async def end(self) -> SandboxOutput:
        """Wait for the end of the program and of all that it left running; copy out what it was to leave."""
        assert self._maker is not None and self._first is not None and self._watch is not None
        status = await self._maker.wait()
        self._stop()
        self._unguard()
        await self._first.wait()
        self._watch.finish()
        code = status if status is None or status <= 128 or status > 192 else 128 - status
        reason: Reason | None = self._watch.reason
        if reason is None and code is not None and code < 0:
            reason = _reason(code)
        if reason is None and code in _FAILED and self._is_complaint():
            return self.ended(reason="broken", note=self._complaint.decode(errors="replace").strip())
        notes = []
        if code == 0 and reason is None:
            written = [stage for stage in self._stages if _holds_any(stage.inside)]
            notes = [await to_the_end(asyncio.to_thread(copy_out, stage)) for stage in written]
        return self.ended(code=-9 if self._watch.reason else code, reason=reason, note="; ".join(filter(None, notes)))

    def ended(self, *, code: int | None = None, reason: Reason | None = None, note: str = "") -> SandboxOutput:
        """Return the final output."""
        counts = self._counts
        usage = ScriptUsage(
            wall_ms=(time.perf_counter() - self._since) * 1000,
            cpu_ms=self._watch.cpu_ms if self._watch is not None else None,
            peak_memory=self._watch.peak if self._watch is not None else None,
            input=counts["input"],
            output=counts["stdout"] + counts["channel"],
            log=counts["stderr"],
        )
        return SandboxOutput(kind="ended", data=note.encode(), exit_code=code, reason=reason, usage=usage)

    async def close(self) -> None:
        """Take everything away; again and again does no harm."""
        if self._is_closed:
            return
        if self._first is None and self._info is not None:  # a maker that is killed here would leave what it made
            with contextlib.suppress(OSError):
                pid = await self._reported()
                if pid is not None:
                    self._hold(pid)
        self._stop()
        if self._maker is not None and self._maker is not self._first:
            self._maker.kill()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for process in (self._maker, self._first):
            if process is not None:
                await _gone(process)
        if self._outlets is not None:
            self._outlets.close()
        for number in (self._gate, self._input):
            if number is not None:
                os.close(number)
        self._gate = self._input = None
        for stage in self._stages:
            stage.close()
        if self._group is not None:
            await self._group.remove()
        self._unguard()
        if self._shell is not None:
            await self._shell.wait()
        self._is_closed = True

    def _hold(self, pid: int) -> None:
        assert self._maker is not None
        self._first = self._maker if pid == self._maker.pid else Process(pid, child=False)

    def _unguard(self) -> None:
        if self._is_guarded and self._recipe.guard is not None:
            self._is_guarded = False
            self._shell = self._recipe.guard.let_go()

    def _stop(self) -> None:
        if self._first is not None:
            self._first.kill(self._recipe.stop)

    def _spawn(self) -> None:
        recipe = self._recipe
        theirs: dict[int, int] = {}
        ours: list[int] = []
        try:
            names: dict[Channel, int] = {"stdout": 1, "stderr": 2}
            if recipe.launch.channel:
                names["channel"] = 3
            outlets: dict[Channel, int] = {}
            for name, number in names.items():
                outlets[name], theirs[number] = _pipe(ours)
            info, theirs[INFO] = _pipe(ours)
            theirs[0], feeding = _pipe(ours, ours_is_writer=True)
            theirs[GATE], gate = _pipe(ours, ours_is_writer=True)
            theirs[ARGUMENTS] = _file(recipe.arguments)
            if recipe.launch.calls is not None:
                theirs[CALLS] = os.dup(recipe.launch.calls)
            if recipe.owner is not None:
                for number in (0, *names.values()):
                    os.fchown(theirs[number], recipe.owner, recipe.owner)
            if recipe.guard is not None:
                recipe.guard.hold()
                self._is_guarded = True
            with self._grouped():
                pid = spawn(recipe.argv, {}, theirs, name=recipe.guard.name if recipe.guard is not None else None)
            try:
                self._maker = Process(pid, child=True)
            except OSError:  # too many are open: with its gate closed the maker gives up
                os.close(gate)
                ours.remove(gate)
                os.waitpid(pid, 0)
                raise
            self._input, self._gate = feeding, gate
            self._outlets = Outlets(outlets)
            self._info = asyncio.ensure_future(read_all(info, 65536))
            ours.clear()
        finally:
            for number in (*ours, *theirs.values()):
                os.close(number)

    @contextlib.contextmanager
    def _grouped(self) -> Iterator[None]:
        """Make the control group, and start what is started in it if that is possible."""
        if self._recipe.groups is None:
            yield
            return
        self._group = self._recipe.groups.make(self._recipe.launch.limits.memory)
        with self._group.entered() as self._is_in_group:
            yield

    async def _reported(self) -> int | None:
        """Return the pid of the first process in the sandbox, or None where the maker ended without one."""
        assert self._info is not None
        try:
            async with asyncio.timeout(_PATIENCE):  # not wait_for, which in 3.11 may lose a cancellation
                text = await asyncio.shield(self._info)
            pid = json.loads(text)["child-pid"]
        except (ValueError, LookupError, TypeError, TimeoutError):
            return None
        return pid if isinstance(pid, int) else None

    async def _complained(self) -> str:
        """Return the maker's message when it failed."""
        assert self._maker is not None and self._outlets is not None
        self._maker.kill()
        said = b"".join([data async for name, data in self._outlets if name == "stderr"])[:_COMPLAINT]
        return said.decode(errors="replace").strip() or f"{self._recipe.argv[0]} ended before it made a sandbox"

    async def _stage(self, pid: int) -> None:
        root = f"/proc/{pid}/root"
        await self._mounted(f"{root}{self._recipe.mark}")
        for mount in self._recipe.launch.mounts:
            if mount.mode == "staged":
                stage = self._recipe.open(mount, root, self._recipe.launch.limits.scratch)
                self._stages.append(stage)
                if mount.filled:
                    await to_the_end(asyncio.to_thread(fill, stage))

    async def _mounted(self, mark: str) -> None:
        """Wait until the root folder is that of the sandbox and everything in it is mounted."""
        assert self._maker is not None
        until = clock.monotonic() + _PATIENCE
        while not os.access(mark, os.F_OK):
            if self._maker.has_ended or clock.monotonic() > until:
                raise StagingError(await self._complained())
            await asyncio.sleep(0.0005)

    def _open_gate(self) -> None:
        assert self._gate is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # the maker failed, and has said why
                os.write(self._gate, self._recipe.gate)
        finally:
            os.close(self._gate)
            self._gate = None

    def _begin(self, pid: int) -> None:
        assert self._first is not None and self._input is not None
        recipe = self._recipe
        places = [f"/proc/{pid}/root{place}" for place in recipe.places]
        staged = [stage.inside for stage in self._stages] if places else []
        self._watch = Watch(
            pid,
            recipe.launch.limits,
            self._group,
            self._stop,
            f"/proc/{pid}/root{recipe.mark}",
            places,
            staged,
            counted=recipe.counted,
            lasting=recipe.launch.lasting,
        )
        feeding, self._input = self._input, None
        self._tasks = [
            asyncio.ensure_future(self._watch.run()),
            asyncio.ensure_future(feed(feeding, self._counted())),
        ]

    async def _counted(self) -> AsyncIterator[bytes]:
        async for data in self._stdin:
            self._counts["input"] += len(data)
            yield data

    def _is_complaint(self) -> bool:
        silent = not self._counts["stdout"] and not self._counts["channel"]
        return silent and self._complaint.startswith(self._recipe.complaint)


async def _gone(process: Process) -> None:
    """Wait until a process has ended; one that should end all others and does not is ended with them."""
    try:
        async with asyncio.timeout(_PATIENCE):
            await process.wait()
    except TimeoutError:
        for pid in reversed(tree(process.pid)[1:]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        await process.wait()


def _holds_any(folder: int) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is not None


def _reason(code: int) -> Reason | None:
    if code == _CPU_SIGNAL:
        return "cpu"
    return "files" if code == _SIZE_SIGNAL else None


def _pipe(ours: list[int], *, ours_is_writer: bool = False) -> tuple[int, int]:
    """Return the reading and the writing end of a pipe, and note which of them is ours."""
    reading, writing = os.pipe()
    ours.append(writing if ours_is_writer else reading)
    return reading, writing


def _file(data: bytes) -> int:
    number = os.memfd_create("arguments", os.MFD_CLOEXEC)
    with open(number, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(number, 0, os.SEEK_SET)
    return number
