"""Variables that live on between calls: each session is a Python interpreter that stays in its sandbox. What it keeps
never leaves that, and goes with it. There are no sessions of JavaScript."""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from cachetools import LRUCache

from tavern_host import clock
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput
from tavern_scripts.api.piped_program import to_the_end
from tavern_scripts.api.scripts import SandboxLaunch, SandboxMount, SandboxOutput, ScriptBackend, ScriptErrorType
from tavern_scripts.results.refusal import Refused
from tavern_scripts.workers.launches import FILES, OUTPUT, RUNNERS, SCRIPT
from tavern_scripts.workers.sandboxed_program import SandboxedProgram
from tavern_scripts.workers.session_call import MARK, PLACES, BadReport, Call, CallOutput, frame_of, measured

_RUNNER_FILES = Path(__file__).parent.parent / "runners"
_REMEMBERED = 1_000
"""Of how many sessions that ended it is known why."""

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
        self._gone: LRUCache[Key, str] = LRUCache(_REMEMBERED)
        self._watching: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def open(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    async def run(
        self,
        backend: ScriptBackend,
        launch: SandboxLaunch,
        stdin: AsyncIterator[bytes],
        *,
        owner: str,
        name: str,
        context: CallContext | None = None,
    ) -> AsyncGenerator[SandboxOutput, None]:
        """Run code in a session, which begins if there is none, and yield what `backend.run(launch, stdin)` would.

        Calls in one session are one after another. A call that fails leaves the variables as they are; one that is
        ended from outside, or ends the interpreter, takes them with it, and the next call says so on stderr. Raises
        `InvalidInput` for what no session can run, `Refused` where there are too many.
        """
        call = Call.of(launch, name)
        session = await self._turn((owner, name), backend, call)
        session.context = context
        try:
            why = self._gone.pop((owner, name), None)
            if why is not None:
                said = f"the session {name!r} was restarted, without the variables of earlier calls: {why}\n"
                yield SandboxOutput(kind="stderr", data=said.encode())
            async with contextlib.aclosing(session.call(call, stdin)) as outputs:
                async for output in outputs:
                    yield output
        finally:
            session.turn.release()
            self._note_end((owner, name), session)

    async def end_work(self, is_meant: Callable[[CallContext], Awaitable[bool]], why: str) -> int:
        """End the sessions whose last call is chosen; return how many there were."""
        ended = 0
        for key, session in [*self._sessions.items()]:
            if session.context is not None and await is_meant(session.context) and self._sessions.get(key) is session:
                await session.end(why)
                self._note_end(key, session)
                ended += 1
        return ended

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
            oldest = clock.monotonic() - idle
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


class Session:
    """An interpreter that stays. Only who has the `turn` calls it."""

    def __init__(self, backend: ScriptBackend, first: Call, cpu: float, make_folder: Callable[[], Path]) -> None:
        self.turn = asyncio.Lock()
        self.context: CallContext | None = None
        self.since = clock.monotonic()
        self.why_ended = ""
        self.had_calls = False
        self._backend = backend
        self._fixed = first.fixed
        self._cpu = cpu
        self._make_folder = make_folder
        self._folder: Path | None = None
        self._kept: SandboxedProgram | None = None
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
            content = b"".join([data async for data in stdin])
            listener = CallOutput(call, secrets.token_bytes(MARK), self._early)
            self._calls += 1
            self.had_calls = True
            began = time.perf_counter()
            kept.tell(frame_of(call, listener.mark, self._calls, len(content)))
            kept.tell(content)
            while not listener.is_over:
                output = await kept.next()
                if output is None or output.kind == "ended":
                    for rest in listener.rest():
                        yield rest
                    ended = output or SandboxOutput(kind="ended", exit_code=-9)
                    self.why_ended = _why(ended)
                    yield measured(ended, len(content), listener, time.perf_counter() - began)
                    return
                for heard in listener.feed(output):
                    yield heard
            self._early = listener.early
            is_over = True
            ended, results = listener.end()
            for heard in results:
                yield heard
            yield measured(ended, len(content), listener, time.perf_counter() - began)
        except BadReport as error:
            self.why_ended = str(error)
            raise Refused(ScriptErrorType.SCRIPT, f"the session was ended: {error}") from None
        finally:
            if is_over:
                self.since = clock.monotonic()
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

    async def _start(self, call: Call) -> SandboxedProgram:
        folder = self._folder = await asyncio.to_thread(self._make_folder)
        for name in ("script", "output", "files"):
            (folder / name).mkdir()
            (folder / name).chmod(0o755)
        first = call.launch
        launch = first.model_copy(
            update={
                "argv": [*call.command, f"{RUNNERS}/session.py", *PLACES],
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
        kept = self._kept = SandboxedProgram(self._backend, launch)
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


def _why(ended: SandboxOutput) -> str:
    if ended.reason is not None:
        return f"a call used up what it had ({ended.reason})"
    return f"its interpreter ended during a call (exit status {ended.exit_code})"
