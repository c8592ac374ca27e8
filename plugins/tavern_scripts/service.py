"""The provider of `scriptExecution`: runs scripts, each in a sandbox of its own, and returns what came of them.

`policy/planner.py` decides what may be run, `sandbox` how it is isolated.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from tavern_host.context import PluginContext
from tavern_host.contracts.accounts import SettledWork, WorkFilter, is_to_settle
from tavern_host.contracts.calls import CallContext, new_id, system_call
from tavern_host.contracts.errors import InvalidInput, ServiceUnavailable, TavernError, describe
from tavern_scripts import State
from tavern_scripts.api.piped_program import to_the_end
from tavern_scripts.api.scripts import (
    BackendReport,
    PackagedProgram,
    ProgramPackage,
    ProgramRequest,
    RunnableLanguage,
    SandboxLaunch,
    SandboxOutput,
    ScriptBackend,
    ScriptEnforced,
    ScriptError,
    ScriptErrorType,
    ScriptEvent,
    ScriptExecution,
    ScriptLanguage,
    ScriptRequest,
    ScriptResult,
    ScriptUsage,
    SecurityContext,
)
from tavern_scripts.policy.languages import Interpreters
from tavern_scripts.policy.planner import Plan, Planner
from tavern_scripts.policy.policy import PolicyReader
from tavern_scripts.policy.script_files import ScriptFolder, approved_copy, has_compiled, is_open, open_copy
from tavern_scripts.results import project_files as projectio
from tavern_scripts.results.event_queue import EventQueue, Say, report_progress
from tavern_scripts.results.refusal import Refused
from tavern_scripts.results.run_state import RunState, enforced_by, new_state, result_of_run, result_of_task
from tavern_scripts.sandbox.backends import Sandboxes
from tavern_scripts.tool_calls.channel import CallChannel, WallClock
from tavern_scripts.tool_calls.offered_tools import ToolCalls
from tavern_scripts.workers.launches import Places, RunExtras, input_of, launch_of, pieces
from tavern_scripts.workers.pool import WarmPool
from tavern_scripts.workers.programs import launch_of_program
from tavern_scripts.workers.run_resources import RunResources
from tavern_scripts.workers.scratch import Scratch, remove
from tavern_scripts.workers.sessions import SessionLimits, Sessions

_RAN = "script.ran"


class Scripts(ScriptExecution):
    """The scripts of one host. `folders` are looked into for scripts in place of those of the operator's policy."""

    def __init__(self, context: PluginContext, *, folders: Sequence[ScriptFolder] = ()) -> None:
        self._context = context
        state = context.own(State)
        if not folders:
            state.scripts = self
        self._tally = state.runs
        policies = PolicyReader(context.settings, context.project.root)
        interpreters = Interpreters(self._inside)
        self._planner = Planner(context, policies, interpreters, folders)
        self._sandboxes = Sandboxes(context, self._planner.policy)
        self._extras = RunResources(context, interpreters)
        self._scratch = Scratch(context.data_dir / "runs")
        self._removing: set[asyncio.Future[None]] = set()
        self._turns = _RunLimiter()
        self._calls = ToolCalls(context)
        self._pool = WarmPool(
            self._scratch.make, context.log, size=lambda: self._lasting().warm, idle=lambda: self._lasting().idle
        )
        self._sessions = Sessions(self._scratch.make, lambda: self._lasting().sessions)

    async def end_work(self, which: WorkFilter, by: CallContext) -> list[SettledWork]:
        """End the sessions that a filter means; a script in progress ends with the call that it is part of."""
        is_meant = partial(is_to_settle, self._context.services, which)
        stopped = await self._sessions.end_work(is_meant, f"it was stopped by {by.principal}")
        return [SettledWork(kind="sessions of code", stopped=stopped)]

    async def close(self) -> None:
        """Leave nothing."""
        await self._sessions.close()
        await self._pool.close()
        await asyncio.gather(*self._removing)
        await asyncio.to_thread(self._scratch.close)

    async def execute(
        self,
        *,
        tool_id: str | None = None,
        script_path: str | None = None,
        code: str | None = None,
        language: ScriptLanguage | None = None,
        input_data: JsonValue = None,
        timeout_ms: int | None = None,
        files: list[str] | None = None,
        session: str | None = None,
        call: CallContext | None = None,
    ) -> ScriptResult:
        """Run a script; see the interface."""
        try:
            request = ScriptRequest(
                tool_id=tool_id,
                script_path=script_path,
                code=code,
                language=language,
                input_data=input_data,
                timeout_ms=timeout_ms,
                files=files or [],
                session=session,
            )
        except ValidationError as error:
            said = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise InvalidInput(f"no script can be run so: {said}") from None
        return await self.run(request, call=call)

    async def run(self, request: ScriptRequest, *, call: CallContext | None = None) -> ScriptResult:
        """Run a script; see the interface."""
        result: ScriptResult | None = None
        async with aclosing(self.stream(request, call=call)) as events:
            async for event in events:
                result = event.result or result
        assert result is not None
        return result

    async def stream(self, request: ScriptRequest, *, call: CallContext | None = None) -> Any:
        """Run a script and yield what happens; see the interface. Closing the iterator ends it."""
        feed = EventQueue()
        call = call or system_call(self._context.project.id)
        work = self._context.tasks.spawn(self._outcome(request, call, feed.say), name="run a script")
        try:
            async with aclosing(feed.until(work)) as events:
                async for event in events:
                    yield event
            yield ScriptEvent(kind="result", result=result_of_task(work))
        finally:
            work.cancel()
            await to_the_end(asyncio.wait([work]))

    async def install(self, wanted: ProgramPackage, *, call: CallContext | None = None) -> PackagedProgram:
        """Install the package of a program; see the interface."""
        chosen, policy = await self._sandboxes.chosen(), self._planner.policy()
        return await self._extras.program(wanted, chosen.backend, build_scripts=policy.build_scripts)

    async def converse(
        self, request: ProgramRequest, stdin: AsyncIterator[bytes], *, call: CallContext | None = None
    ) -> Any:
        """Run a program in the sandbox while its caller listens; see the interface."""
        call = call or system_call(self._context.project.id)
        try:
            chosen = await self._sandboxes.chosen()
            async with AsyncExitStack() as stack:
                launch = await launch_of_program(request, self._planner, self._extras, stack, call)
                about: dict[str, JsonValue] = {"backend": chosen.name, **request.model_dump(exclude={"environment"})}
                self._context.audit.record("script.program", subject=request.argv[0][:200], details=about, call=call)
                outputs = chosen.backend.run(launch, stdin)
                async with aclosing(outputs) as coming:  # type: ignore[type-var]
                    async for output in coming:
                        yield output
        except Refused as refused:
            raise ServiceUnavailable(str(refused)) from None

    async def review(self, request: ScriptRequest) -> ScriptEnforced:
        """Return the limits and grants that would be enforced; see the interface."""
        try:
            plan = await self._planner.plan(request)
        except Refused as refused:
            raise InvalidInput(str(refused)) from None
        try:
            chosen = await self._sandboxes.chosen(plan.interpreter.language)
        except Refused:
            return enforced_by(plan, "none", [])
        return enforced_by(plan, chosen.name, chosen.weaker)

    async def denied(self, asked: SecurityContext, *, config: dict[str, JsonValue] | None = None) -> list[str]:
        """Return the requests that would not be granted; see the interface."""
        try:
            return [*self._planner.granted(asked, config or {}, has_folder=True).denied]
        except Refused as refused:
            return [refused.error.message, *(refused.error.details or "").splitlines()]

    async def backends(self) -> list[BackendReport]:
        """Return the report on each sandbox; see the interface."""
        return await self._sandboxes.reports()

    async def _inside(self, language: RunnableLanguage) -> str | None:
        return await self._sandboxes.interpreter(language)

    # --- one run ------------------------------------------------------------------------------------

    async def _outcome(self, request: ScriptRequest, call: CallContext, say: Say) -> ScriptResult | TavernError:
        """Return the result of a run, or the error for its caller."""
        began = time.perf_counter()
        state: RunState | None = None
        output: JsonValue = None
        error: ScriptError | None = None
        try:
            plan = await self._planner.plan(request, remaining=call.remaining())
            chosen = await self._sandboxes.chosen(plan.interpreter.language)
            state = new_state(plan, chosen, say)
            async with self._calls.turn(call, self._turns.of(plan.policy.concurrent)):
                output = await self._run(state, chosen.backend, call, say)
        except Refused as refused:
            error = refused.error
        except TavernError as wrong:
            return wrong
        result = result_of_run(state, output, error, (time.perf_counter() - began) * 1000)
        self._record(request, result, state, call)
        backend = state.enforced.backend if state is not None else "none"
        self._tally.add(backend, "done" if error is None else "error", seconds=time.perf_counter() - began)
        return result

    async def _run(self, state: RunState, backend: ScriptBackend, call: CallContext, say: Say) -> JsonValue:
        """Return the output of a script. Raises `Refused` where it has none."""
        plan = state.plan
        data = input_of(plan.request.input_data, plan.limits)
        state.input = len(data)
        try:
            if plan.program.is_code and not plan.request.files:  # one file: changing to a thread takes longer
                folder, places = self._prepared(plan)
            else:
                folder, places = await asyncio.to_thread(self._prepared, plan)
        except OSError as error:
            message = f"{plan.called} could not be got ready: {error.strerror or error}"
            raise Refused(ScriptErrorType.SCRIPT, message) from None
        is_small = plan.program.is_code and places.files is None
        try:
            async with AsyncExitStack() as stack:
                extra = await self._extras.of(plan, places.script, backend, stack, call, report_progress(say))
                if plan.program.is_code:  # nothing has to be looked for in its folder
                    launch = _launch(plan, places, extra)
                else:
                    launch = await asyncio.to_thread(_launch, plan, places, extra)
                channel = await self._calls.channel(plan, call, stack)
                if channel is not None:
                    launch = await asyncio.to_thread(channel.attached_to, launch, folder, plan.interpreter.language)
                outputs = self._outputs(plan, backend, launch, data, call)
                ended = await self._listen(state, outputs, call, channel)
            output = state.outcome.result(ended)
            if ended.data:
                state.notes.append(ended.data.decode("utf-8", "replace"))
            is_small = not await self._take_over(state, places) and is_small
            return output
        except BaseException:
            is_small = False
            raise
        finally:
            if is_small:  # it takes longer than its script, and nobody waits for it
                self._remove_soon(folder)
            else:
                await to_the_end(asyncio.to_thread(remove, folder))

    def _outputs(
        self, plan: Plan, backend: ScriptBackend, launch: SandboxLaunch, data: bytes, call: CallContext
    ) -> AsyncIterator[SandboxOutput]:
        """Run what was prepared: the one place where a program begins."""
        session = plan.request.session
        if launch.calls is not None:
            return backend.run(launch, pieces(data))
        if session is None:
            return self._pool.run(backend, launch, pieces(data))
        if not plan.program.is_code:
            raise InvalidInput("a session keeps the variables of code, not of files; leave the session out")
        owner = f"{call.project or self._context.project.id}\n{call.principal.kind}\n{call.principal.id}"
        return self._sessions.run(backend, launch, pieces(data), owner=owner, name=session, context=call)

    def _lasting(self) -> WorkerLimits:
        """Return the limits of workers that outlive a run: none are allowed where the policy cannot be read."""
        try:
            policy = self._planner.policy()
        except Refused:
            return WorkerLimits(0, 1.0, SessionLimits(most=0))
        sessions = SessionLimits(policy.sessions, policy.session_idle, policy.session_cpu)
        return WorkerLimits(policy.warm, policy.warm_idle, sessions)

    async def _listen(
        self, state: RunState, outputs: AsyncIterator[SandboxOutput], call: CallContext, channel: CallChannel | None
    ) -> SandboxOutput:
        """Return how a program ended. Raises `Refused` where it took too long, or gave too much."""
        remaining = call.remaining()  # less than before, where it had to wait for its turn
        wall = state.plan.limits.wall if remaining is None else min(state.plan.limits.wall, remaining)
        ended: SandboxOutput | None = None
        began = time.perf_counter()
        try:
            async with asyncio.timeout(wall) as timer, aclosing(outputs) as coming:  # type: ignore[type-var]
                if channel is not None:
                    await channel.open(WallClock(timer, call, wall))
                async for output in coming:
                    if output.kind == "ended":
                        ended = output
                    else:
                        state.outcome.take(output)
        except (Refused, TavernError):
            raise
        except Exception as error:  # a sandbox of another plugin may fail in any way
            if isinstance(error, TimeoutError) and timer.expired():
                state.outcome.close()
                if channel is not None and channel.broken is not None:
                    raise channel.broken from None
                message = f"the script did not end within {wall:g} s, and was ended with all that it had begun"
                raise Refused(ScriptErrorType.TIMEOUT, message, state.outcome.errors()) from None
            self._context.log.exception("the sandbox %s failed", state.enforced.backend)
            message = f"the sandbox {state.enforced.backend} failed: {describe(error)}"
            raise Refused(ScriptErrorType.SECURITY, message) from None
        finally:
            if ended is None:
                state.usage = ScriptUsage(wall_ms=(time.perf_counter() - began) * 1000)
                state.outcome.close()
        if channel is not None and channel.broken is not None:
            raise channel.broken
        if ended is None:
            raise Refused(ScriptErrorType.SECURITY, "the sandbox ended without saying how the script did")
        state.usage = ended.usage
        return ended

    def _remove_soon(self, folder: Path) -> None:
        removing = asyncio.get_running_loop().run_in_executor(None, remove, folder)
        self._removing.add(removing)
        removing.add_done_callback(self._removing.discard)

    def _prepared(self, plan: Plan) -> tuple[Path, Places]:
        """Return a folder for a run and what is in it. Blocking. Raises as `_set_up`."""
        folder = self._scratch.make()
        try:
            return folder, self._set_up(plan, folder)
        except BaseException:
            remove(folder)
            raise

    def _set_up(self, plan: Plan, folder: Path) -> Places:
        """Make the folders of a run. Blocking. Raises `InvalidInput`, `NotFound`, `Refused`."""
        output = folder / "output"
        output.mkdir()
        kept = None
        if plan.script is None:
            script = folder / "script"
            script.mkdir()
            script.chmod(0o755)
            code = script / plan.program.name
            code.write_text(plan.request.code or "", encoding="utf-8", newline="")
            code.chmod(0o644)
        elif plan.hash is not None:
            script = approved_copy(plan.script, plan.hash, folder / "script")
        elif (os.geteuid() == 0 and not is_open(plan.script)) or (plan.request.plugin and has_compiled(plan.script)):
            script = open_copy(plan.script, folder / "script")
        else:
            script = plan.script.folder
        if plan.script is not None and plan.granted.writes:
            kept = self._kept(plan.script.folder, plan.granted.writes)
        files = None
        if plan.request.files:
            files = folder / "files"
            project_files = self._context.project.folder("files")
            projectio.copy_in(project_files, plan.request.files, files, most=plan.limits.scratch)
        return Places(script=script, output=output, kept=kept, files=files)

    def _kept(self, folder: Path, writes: Sequence[str]) -> Path:
        """Return where is kept what a script may write: nothing of it comes into the folder of the script itself."""
        name = sha256(os.fsencode(folder)).hexdigest()[:24]
        kept = self._context.data_dir / "kept" / name
        for one in writes:
            if not Path(os.path.realpath(kept / one)).is_relative_to(os.path.realpath(self._context.data_dir)):
                message = f"a link leads what is kept of {one} out of the project, and nothing is written there"
                raise Refused(ScriptErrorType.SECURITY, message)
            (kept / one).mkdir(parents=True, exist_ok=True)
        return kept

    async def _take_over(self, state: RunState, places: Places) -> bool:
        """Take over the files that a script left; return whether there was anything."""
        with os.scandir(places.output) as entries:
            if next(entries, None) is None:
                return False
        limits = state.plan.limits
        left = await to_the_end(
            asyncio.to_thread(
                projectio.copy_out,
                places.output,
                self._context.project.folder("files"),
                new_id("run"),
                most_files=state.plan.policy.most_files,
                most_bytes=limits.scratch,
            )
        )
        state.files = left.files
        state.notes += left.notes
        return True

    def _record(self, request: ScriptRequest, result: ScriptResult, state: RunState | None, call: CallContext) -> None:
        """Write into the audit log who ran what, and what came of it; neither code nor data."""
        named = request.script_path or request.command or "code"
        about: dict[str, JsonValue] = {
            "toolId": request.tool_id,
            "plugin": request.plugin,
            "language": state.plan.interpreter.language if state is not None else request.language,
            "script": named[:200],
            "success": result.success,
            "error": result.error.type.value if result.error is not None else None,
            "wallMs": round(result.usage.wall_ms, 1) if result.usage is not None else None,
        }
        if result.enforced is not None:
            about["backend"] = result.enforced.backend
            about["hosts"] = [*result.enforced.grants.hosts]
            about["denied"] = [*result.enforced.denied]
        details = {key: value for key, value in about.items() if value not in (None, [])}
        self._context.audit.record(_RAN, subject=request.tool_id or named[:200], details=details, call=call)


@dataclass(frozen=True)
class WorkerLimits:
    """How many interpreters wait for scripts, for how many seconds, and how many sessions there may be."""

    warm: int
    idle: float
    sessions: SessionLimits


class _RunLimiter:
    """Lets so many runs at once as the policy says at that moment."""

    def __init__(self) -> None:
        self._semaphore = asyncio.Semaphore(1)
        self._size = 0

    def of(self, size: int) -> asyncio.Semaphore:
        """Return the semaphore that a run waits for."""
        if size != self._size:
            self._semaphore, self._size = asyncio.Semaphore(size), size
        return self._semaphore


def _launch(plan: Plan, places: Places, extra: RunExtras) -> SandboxLaunch:
    return launch_of(plan.program, plan.interpreter, places, plan.granted, plan.limits, plan.config, extra)
