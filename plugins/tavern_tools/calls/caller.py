"""One call of a tool, from its request to its result, from top to bottom: found, validated, authorised, approved,
called, checked and recorded.

Chains and texts are in `chains.py`, calls that outlive their request in `tasks/`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from datetime import timedelta
from typing import Any

from pydantic import JsonValue

from tavern_agents.api.callaccounts import CALL_ACCOUNTS
from tavern_host import clock
from tavern_host.context import PluginContext
from tavern_host.contracts.accounts import SettledWork, WorkFilter, is_to_settle, require_admitted
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import InvalidInput, TavernError, describe, error_info
from tavern_host.contracts.tools import ToolDefinition
from tavern_llm.api.spans import span
from tavern_tools import State
from tavern_tools.api.toolcalls import ToolApproval, ToolCallRequest, ToolErrorType, ToolResult, ToolScope, reporting_to
from tavern_tools.api.tools import ToolFilter
from tavern_tools.calls.audit import CallAudit, Updates
from tavern_tools.calls.authority import Authority
from tavern_tools.calls.call import UNKNOWN, Call, Output, Verdict
from tavern_tools.calls.limits import Limits
from tavern_tools.calls.questions import ANSWER, question_of
from tavern_tools.calls.result_cache import ResultCache
from tavern_tools.calls.results import checked, checked_again, failed, spent, waiting
from tavern_tools.calls.runners import Runners
from tavern_tools.calls.statistics import Statistics
from tavern_tools.catalog.failures import ToolFailure, failure_of
from tavern_tools.catalog.registry import Registry, Tool
from tavern_tools.tasks.progress import Progress
from tavern_tools.tasks.tasks import Tasks

_BEFORE, _AFTER = "tavern_before_tool_call", "tavern_after_tool_call"
_TRANSIENT = frozenset(
    {
        *(ToolErrorType.EXECUTION, ToolErrorType.SCRIPT, ToolErrorType.DEPENDENCY, ToolErrorType.RESOURCE),
        *(ToolErrorType.TIMEOUT, ToolErrorType.SERVICE_UNAVAILABLE, ToolErrorType.RATE_LIMITED, ToolErrorType.OUTPUT),
    }
)
"""Failures after which a retry may succeed."""
RETRY_DELAY = 0.5
"""Seconds before the first retry; twice as long before each further one."""


class Caller:
    """Makes calls for one host. A failed call is a result, never an exception."""

    def __init__(self, context: PluginContext, registry: Registry, runners: Runners) -> None:
        self._context = context
        self._registry = registry
        self._runners = runners
        self._authority = Authority(context)
        self._limits = Limits()
        self._cache = ResultCache(
            lambda: context.settings.revision, int(context.settings.get("cacheMegabytes", 32)) * 2**20
        )
        self._audit = CallAudit(context)
        self._updates = Updates(context)
        self.statistics = Statistics(context)
        self._tally = context.own(State).calls
        self._max_bytes = int(float(context.settings.get("maxResultMegabytes", 10)) * 1e6)
        self._working: dict[Call, asyncio.Task[Any]] = {}
        self._prefix = f"toolcall_{secrets.token_hex(6)}"
        self._numbers = itertools.count(1)
        self.tasks = Tasks(context, self)

    async def call(self, request: ToolCallRequest, scope: ToolScope | None, context: CallContext) -> ToolResult:
        """Return the result of a call, entered before and after in the account of the agent's run that makes it.
        Without a `scope`, that of the call that it is made in holds."""
        if context.agent_run_id is None or not self._context.services.has(CALL_ACCOUNTS):
            return await self._tried(request, scope, context)
        accounts = self._context.services.get(CALL_ACCOUNTS)
        try:
            entry = await accounts.begin(request, call=context)
            if entry is None:
                return await self._tried(request, scope, context)
            if entry.result is not None:
                return entry.result
            result = await self._tried(request, scope, context, entry.scope)
            return await accounts.end(entry.number, result, call=context)
        except TavernError as error:  # the account cannot be written
            return failed(request, failure_of(error.info))

    async def _tried(
        self,
        request: ToolCallRequest,
        scope: ToolScope | None,
        context: CallContext,
        inventory: ToolScope | None = None,
    ) -> ToolResult:
        """Return the result of a call, retried as often as `request.retry` says."""
        scope = scope or self._scope_within(context)
        if inventory is not None and (scope is None or scope.allowed is None):
            said = {} if scope is None else {"streams": scope.streams, "callback": scope.callback}
            asked = [*inventory.approval, *([] if scope is None else scope.approval)]
            scope, inventory = inventory.model_copy(update={**said, "approval": asked}), None
        result = await self.make(self._new(request, scope, context, inventory=inventory))
        delay = RETRY_DELAY
        for attempt in range(request.retry):
            if result.error is None or result.error.type not in _TRANSIENT:
                break
            await asyncio.sleep(delay)
            delay *= 2
            result = await self.make(self._new(request, scope, context, inventory=inventory))
            result = result.model_copy(update={"attempts": attempt + 2})
        return result

    async def try_out(self, tool: Tool, request: ToolCallRequest, context: CallContext) -> ToolResult:
        """Return the result of a call of a tool that is not in the catalog, by the rules for one of its id."""
        call = self._new(request, self._scope_within(context), context)
        call.tool = tool
        return await self.make(call)

    async def callable_tools(self, context: CallContext) -> list[ToolDefinition]:
        """Return the tools that may be called with this context now."""
        scope = self._scope_within(context)
        catalog = await self._registry.catalog()
        asked = None if scope is None or scope.allowed is None else ToolFilter(ids=scope.allowed)
        found = [catalog.get(tool.id) for tool in catalog.listed(asked) if tool.unavailable is None]
        return [tool.definition for tool in found if self._authority.may_call(tool, context.principal, scope)]

    # --- the stages of a call, in their order ---------------------------------------------------------

    async def make(self, call: Call) -> ToolResult:
        """Take a call through its stages, and return its result."""
        name = call.request.tool_id[:200]
        about = {"tool.name": name, "tool.call.id": call.request.request_id, "tool.type": "function"}
        with span("execute_tool", name, call.context, about) as tell:
            result = await self._made(call)
            if call.request.repairs:
                result = result.model_copy(update={"warnings": [*call.request.repairs, *result.warnings]})
            tell({"tavern.tool.status": result.status, "error.type": result.error.type.value if result.error else None})
            return result

    async def _made(self, call: Call) -> ToolResult:
        try:
            await self._find(call)
            verdict = await self._authorise(call)
            definition = call.tool.definition
            if call.progress is None and (verdict.kind == "approve" or definition.is_async or call.tool.asks_a_person):
                return await self._park(call, verdict)
            if call.tool.definition.rate_limit is not None:
                self._limits.check(call)
            await self._audit.begin(call)
        except Exception as error:
            return await self._deny(call, self._failure(call, error, was_begun=False))
        self._updates.begin(call)
        ended: ToolResult | None = None
        outcome: str = ToolErrorType.INTERRUPTED  # the caller was cancelled
        try:
            result = await self._call(call)
            ended = await self._check(call, result) if self._context.hooks.implemented(_AFTER) else result
            # The audit log says what the tool did, or else why plugins withheld it.
            shown = result.error or ended.error
            outcome = "cached" if result.cached else ended.status if shown is None else shown.type.value
            return ended
        finally:
            self._record(call, ended, ended.status if ended is not None else "cancelled", outcome)

    async def _find(self, call: Call) -> None:
        """Find the tool, unless it is one that is tried out, and put the arguments as it gets them into the request:
        those of action text are converted, those of a task were when it was queued."""
        if call.request.refused is not None:
            raise ToolFailure(ToolErrorType.NOT_UNDERSTOOD, call.request.refused)
        if call.tool is UNKNOWN:
            call.tool = await self._registry.find(call.request.tool_id)
        is_text = call.progress is None and call.request.protocol is not None
        bound = call.tool.bind(call.request.arguments, text=is_text)
        if bound.arguments is not call.request.arguments:
            call.request = call.request.model_copy(update={"arguments": bound.arguments})
            call.coercions = bound.coercions

    async def _authorise(self, call: Call) -> Verdict:
        """Return whether the call may be made as plugins change it, who may veto it; that of a task was seen by them
        when it was queued. Raises `ToolFailure` where it is denied."""
        if call.context.admission is not None:
            await require_admitted(self._context.services, call.context)
        if call.progress is None and self._context.hooks.implemented(_BEFORE):
            answer = await self._context.hooks.filter(_BEFORE, call.request, call=call.context)
            if answer.arguments != call.request.arguments:
                bound = call.tool.bind(answer.arguments)
                call.request = call.request.model_copy(update={"arguments": bound.arguments})
        return self._authority.authorise(call)

    async def _park(self, call: Call, verdict: Verdict) -> ToolResult:
        """Make a task of a call that waits for an approval, or whose tool is asynchronous, and return that it waits."""
        if call.tool.draft:
            message = (
                f"{call.context.principal} may call {call.tool.definition.id} with an approval only: save it first"
            )
            raise ToolFailure(ToolErrorType.PERMISSION_DENIED, message)
        approval, question = None, None
        if call.tool.asks_a_person:
            arguments = {name: value for name, value in call.request.arguments.items() if name != ANSWER}
            call.request = call.request.model_copy(update={"arguments": arguments})
            question, verdict = question_of(arguments), self._authority.asking(arguments.get("seconds"))
        if verdict.kind == "approve":
            now = clock.now()
            expires_at = now + timedelta(seconds=verdict.expires_in)
            approval = ToolApproval(
                reason=verdict.reason,
                requested_at=now,
                expires_at=expires_at,
                default=verdict.default,
                question=question,
            )
        task = await self.tasks.submit(call.request, call.tool, call.context, call.scope, approval)
        return waiting(call.request, task, call.coercions)

    async def _call(self, call: Call) -> ToolResult:
        """Run the tool in its turn, or take the cached result; what goes wrong becomes the call's result."""
        tool, key = call.tool, None
        try:
            if tool.definition.cache is not None:
                key = self._cache.key(tool, call.request.arguments, call.context.principal)
                if key is not None and (cached := self._cache.get(key)) is not None:
                    about = {**call.request.about, "coercions": [*call.coercions], "duration_ms": spent(call)}
                    return cached.model_copy(update=about)
            if tool.definition.concurrency is None:
                output = await self._run(call)
            else:
                async with self._limits.turn(tool):
                    output = await self._run(call)
            result = checked(call, output, self._max_bytes)
            if key is not None:  # before plugins, which may look at who calls, change it
                self._cache.put(key, tool, result)
            return result
        except (Exception, asyncio.CancelledError) as error:
            failure = self._failure(call, error, was_begun=True)
            return failed(call.request, failure, call.coercions, duration_ms=spent(call))

    async def _run(self, call: Call) -> Output:
        """Run the tool of a call that may be stopped meanwhile."""
        if call.progress is not None:
            await call.progress.begin()
        if (task := asyncio.current_task()) is not None:
            self._working[call] = task
        try:
            return await self._runners.run(call)
        except asyncio.CancelledError:
            if call.stopped is None or task is None:
                raise
            task.uncancel()
            raise ToolFailure(ToolErrorType.CANCELLED, call.stopped) from None
        finally:
            self._working.pop(call, None)

    async def _check(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result as plugins change it, or that they withhold it."""
        try:
            answer = await self._context.hooks.filter(_AFTER, result, request=call.request, call=call.context)
            about = {"tool_id": result.tool_id, "index": result.index, "block": result.block}
            answer = answer.model_copy(update={**about, "request_id": result.request_id})
            return checked_again(answer, self._max_bytes)
        except ToolFailure as failure:
            return failed(call.request, failure, result.coercions)
        except TavernError as error:
            return failed(call.request, failure_of(error.info), result.coercions)

    async def _deny(self, call: Call, failure: ToolFailure) -> ToolResult:
        """Record a call that is not made, and return why."""
        await self._audit.deny(call, failure)
        result = failed(call.request, failure, call.coercions)
        self._record(call, result, "denied")
        return result

    def _record(self, call: Call, ended: ToolResult | None, status: str, outcome: str | None = None) -> None:
        """Record how a call ended, one that was made with its outcome; without a result it was cancelled."""
        call.milliseconds = spent(call)
        self._updates.end(call, ended)
        if outcome is not None:
            self._audit.end(call, outcome)
        self.statistics.count(call, ended)
        self._tally.add(call.tool.definition.id, status, seconds=call.milliseconds / 1000)

    # --- calls of tasks -------------------------------------------------------------------------------

    async def make_of_task(
        self, request: ToolCallRequest, context: CallContext, scope: ToolScope | None, progress: Progress
    ) -> ToolResult:
        """Make the call of a task, which is authorised once more: the rules may have changed since it was queued."""
        with reporting_to(progress.report):
            return await self.make(self._new(request, scope, context, progress=progress))

    async def may_decide(self, principal: Principal, tool_id: str, arguments: dict[str, JsonValue] | None) -> bool:
        """Return whether a principal may approve calls of a tool, with these arguments where they are given."""
        if arguments is not None:
            with contextlib.suppress(ToolFailure):  # there is no such tool any more
                arguments = (await self._registry.find(tool_id)).parameters.complete(arguments)
        return self._authority.may_decide(principal, tool_id, arguments)

    async def bind(self, tool_id: str, arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Return arguments as a tool gets them. Raises `InvalidInput` for those that it does not allow."""
        try:
            return (await self._registry.find(tool_id)).bind(arguments).arguments
        except ToolFailure as failure:
            raise InvalidInput(failure.message, **failure.details) from None

    async def end_work(self, which: WorkFilter, by: CallContext) -> list[SettledWork]:
        """End the tasks and streams that a filter means, and the calls in flight that are part of nothing else that it
        means."""
        catalog = await self._registry.catalog()
        plugins = {tool.id: tool.plugin for tool in catalog.listed(None)}

        async def is_meant(tool_id: str, context: CallContext) -> bool:
            about = {"tool": tool_id, "plugin": plugins.get(tool_id)}
            return await is_to_settle(self._context.services, which, context, **about)

        streams, stopped = self._context.own(State).streams, 0
        ended = [await self.tasks.end_work(is_meant, by), await streams.end_work(is_meant, by)]
        for call, task in list(self._working.items()):
            context, is_free = call.context, which.kind in ("tool", "plugin")
            if call.progress is not None or not (is_free or (context.run_id is None and context.agent_run_id is None)):
                continue
            if await is_meant(call.tool.definition.id, context) and call in self._working:
                call.stopped = f"it was stopped by {by.principal}"
                task.cancel()
                stopped += 1
        return [*ended, SettledWork(kind="tool calls", stopped=stopped)]

    def _scope_within(self, context: CallContext) -> ToolScope | None:
        """Return the scope of the call that a call is made in: what its caller may not do, its tool may not."""
        return self._runners.scopes.get(context.id) or self._runners.scopes.get(context.parent_id or "")

    def _new(self, request: ToolCallRequest, scope: ToolScope | None, context: CallContext, **more: Any) -> Call:
        return Call(f"{self._prefix}{next(self._numbers):x}", request, context, scope, time.perf_counter(), **more)

    def _failure(self, call: Call, error: BaseException, *, was_begun: bool) -> ToolFailure:
        """Return the failure that an error is. Raises the error where it means that the call itself is cancelled."""
        if isinstance(error, ToolFailure):
            return error
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise error
            what = f"{call.tool.definition.id} was cancelled from within; nobody had asked for that"
            return ToolFailure(ToolErrorType.EXECUTION, what)
        if not isinstance(error, TavernError):
            self._context.log.error("a tool call failed: %s", describe(error), exc_info=error)
        failure = failure_of(error_info(error))
        if isinstance(error, InvalidInput) and (not was_begun or call.tool.definition.kind == "service"):
            failure.type = ToolErrorType.PARAMETER_VALIDATION  # a method gets the arguments as they are
        return failure
