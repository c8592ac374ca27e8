"""One call, step by step: found, checked, authorised, limited, carried out, recorded (DESIGN §5).

Chains and texts are in `chains.py`, calls that outlive their request in `tasks.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta

from pydantic import JsonValue

from tavern_host.context import PluginContext, ServiceMethod
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput, NotFound, TavernError, describe, error_info
from tavern_host.contracts.toolcalls import (
    ToolApproval,
    ToolCallRequest,
    ToolErrorType,
    ToolResult,
    ToolScope,
)
from tavern_tools.calls.authority import Authority, Verdict
from tavern_tools.calls.limits import Limits
from tavern_tools.calls.resultcache import ResultCache
from tavern_tools.calls.results import Given, done, failed, waiting
from tavern_tools.calls.runners import Runners, no_report, read_on
from tavern_tools.calls.trail import Trail
from tavern_tools.catalog.catalogue import Catalogue, Tool
from tavern_tools.catalog.failures import ToolFailure, failure_of, value_failure
from tavern_tools.catalog.nulls import leave_out_nulls
from tavern_tools.catalog.parameters import Bound
from tavern_tools.catalog.registry import Registry
from tavern_tools.tasks.progress import Report
from tavern_tools.tasks.tasks import Tasks

_BEFORE, _AFTER = "tavern_before_tool_call", "tavern_after_tool_call"
_AGAIN = frozenset(
    {
        *(ToolErrorType.EXECUTION, ToolErrorType.SCRIPT, ToolErrorType.DEPENDENCY, ToolErrorType.RESOURCE),
        *(ToolErrorType.TIMEOUT, ToolErrorType.SERVICE_UNAVAILABLE, ToolErrorType.RATE_LIMITED, ToolErrorType.OUTPUT),
    }
)
"""What may go better another time."""
_INTERRUPTED = ToolErrorType.INTERRUPTED.value
RETRY_DELAY = 0.5
"""Seconds before a call is made again; twice as long each time."""


class Caller:
    """Makes calls for one host. A failed call is a result, never a raise."""

    def __init__(self, context: PluginContext, registry: Registry, runners: Runners) -> None:
        self._context = context
        self._registry = registry
        self._runners = runners
        self._authority = Authority(context)
        self._limits = Limits()
        self._cache = ResultCache(int(context.settings.get("cacheMegabytes", 32)) * 2**20)
        self._trail = Trail(context)
        self._max_bytes = int(float(context.settings.get("maxResultMegabytes", 10)) * 1e6)
        self._timeout = float(context.settings.get("callTimeout", 120))
        self._prefix = f"toolcall_{secrets.token_hex(6)}"
        self._numbers = itertools.count(1)
        self._untold: dict[str, tuple[ToolCallRequest, CallContext]] = {}
        self._is_to_tell = False
        self._has_hooks, self._hooks_seen = False, -1
        self.tasks = Tasks(context, self._carry_out_task, self._authority.may_decide, self._check_edited)

    def call(
        self, request: ToolCallRequest, scope: ToolScope | None, call: CallContext
    ) -> Coroutine[None, None, ToolResult]:
        """Return the result of one call, tried again as often as `request.retry` says."""
        return self._call_again(request, scope, call) if request.retry else self._call_once(request, scope, call)

    async def _call_again(self, request: ToolCallRequest, scope: ToolScope | None, call: CallContext) -> ToolResult:
        result = await self._call_once(request, scope, call)
        delay = RETRY_DELAY
        for attempt in range(request.retry):
            if result.error is None or result.error.type not in _AGAIN:
                break
            await asyncio.sleep(delay)
            delay *= 2
            result = (await self._call_once(request, scope, call)).model_copy(update={"attempts": attempt + 2})
        return result

    async def _call_once(self, request: ToolCallRequest, scope: ToolScope | None, call: CallContext) -> ToolResult:
        began = time.perf_counter()
        call_id = f"{self._prefix}{next(self._numbers):x}"
        coercions: list[str] = []
        tool: Tool | None = None
        try:
            catalogue = self._registry.current()
            tool = catalogue.find(request.tool_id) if catalogue is not None else None
            if tool is None or tool.lack is not None:
                tool = _find(await self._registry.catalogue(), request.tool_id)
            if request.protocol is not None or not tool.parameters.takes(request.arguments):
                bound = _bind(tool, request.arguments, text=request.protocol is not None)
                coercions = bound.coercions
                request = request.model_copy(update={"arguments": bound.arguments})
            is_hooked = self._is_hooked()
            if is_hooked:
                request = await self._asked_before(tool, request, call)
            verdict = self._authority.decide(tool, request.arguments, call.principal, scope)
            if verdict.kind == "deny":
                raise ToolFailure(ToolErrorType.PERMISSION_DENIED, verdict.reason)
            if verdict.kind == "approve":
                return await self._parked(tool, request, scope, call, verdict, coercions)
            if tool.definition.is_async:
                callback = scope.callback if scope is not None else None
                return waiting(
                    request, await self.tasks.submit(request, tool, call, scope, callback=callback), coercions=coercions
                )
        except Exception as error:
            failure = self._failure(error)
            await self._refused(call_id, tool, request, call, failure)
            return failed(request, failure, coercions)
        if tool.reading is not None and not is_hooked and not self._trail.is_crowded:
            return await self._read(call_id, tool, tool.reading, request, call, coercions, began)
        return await self._carry_out(call_id, tool, request, scope, call, coercions, began)

    def _is_hooked(self) -> bool:
        """Return whether anybody wants to be asked about calls."""
        revision = self._context.hooks.revision
        if revision != self._hooks_seen:
            self._hooks_seen = revision
            self._has_hooks = any(map(self._context.hooks.implemented, (_BEFORE, _AFTER)))
        return self._has_hooks

    # --- before the call is made ----------------------------------------------------------------------

    async def _asked_before(self, tool: Tool, request: ToolCallRequest, call: CallContext) -> ToolCallRequest:
        if not self._context.hooks.implemented(_BEFORE):
            return request
        answer = await self._context.hooks.filter(_BEFORE, request, call=call)
        if answer.arguments == request.arguments:
            return request
        bound = _bind(tool, answer.arguments)
        return request.model_copy(update={"arguments": bound.arguments})

    async def _parked(
        self,
        tool: Tool,
        request: ToolCallRequest,
        scope: ToolScope | None,
        call: CallContext,
        verdict: Verdict,
        coercions: list[str],
    ) -> ToolResult:
        callback = scope.callback if scope is not None else None
        now = datetime.now(UTC)
        approval = ToolApproval(
            reason=verdict.reason,
            requested_at=now,
            expires_at=now + timedelta(seconds=verdict.expires_in),
            default=verdict.default,
        )
        return waiting(
            request, await self.tasks.park(request, tool, call, scope, approval, callback=callback), coercions=coercions
        )

    async def _refused(
        self, call_id: str, tool: Tool | None, request: ToolCallRequest, call: CallContext, failure: ToolFailure
    ) -> None:
        """Record that a call was not made, and tell of it."""
        subject = tool or request.tool_id
        await self._trail.denied(call_id, subject, request.arguments, call, f"{failure.type}: {failure.message}")
        self._tell_end(call_id, request, call, failed(request, failure), 0.0)

    async def _check_edited(self, tool_id: str, arguments: dict[str, JsonValue]) -> None:
        """Raise `InvalidInput` where the arguments that somebody approved are not those of the tool."""
        try:
            _bind(_find(await self._registry.catalogue(), tool_id), arguments)
        except ToolFailure as failure:
            raise InvalidInput(failure.message, **failure.details) from None

    # --- making the call ------------------------------------------------------------------------------

    async def _carry_out_task(
        self, request: ToolCallRequest, call: CallContext, scope: ToolScope | None, report: Report
    ) -> ToolResult:
        """Make a call that was authorised before, as a task."""
        began = time.perf_counter()
        call_id = f"{self._prefix}{next(self._numbers):x}"
        tool: Tool | None = None
        try:
            tool = _find(await self._registry.catalogue(), request.tool_id)
            bound = _bind(tool, request.arguments)
            request = request.model_copy(update={"arguments": bound.arguments})
            verdict = self._authority.decide(tool, request.arguments, call.principal, scope)
            if verdict.kind == "deny":  # the rules or the arguments are others than when it was accepted
                raise ToolFailure(ToolErrorType.PERMISSION_DENIED, verdict.reason)
        except Exception as error:
            failure = self._failure(error)
            await self._refused(call_id, tool, request, call, failure)
            return failed(request, failure)
        return await self._carry_out(call_id, tool, request, scope, call, [], began, report)

    async def _carry_out(
        self,
        call_id: str,
        tool: Tool,
        request: ToolCallRequest,
        scope: ToolScope | None,
        call: CallContext,
        coercions: list[str],
        began: float,
        report: Report = no_report,
    ) -> ToolResult:
        """Make a call that may be made; recorded before it begins, unless it only reads, and when it has ended."""
        arguments = request.arguments
        self._announce(call_id, request, call)
        outcome, has_begun = _INTERRUPTED, False
        result: ToolResult | None = None
        try:
            if (wait := self._limits.admit(tool, call.principal)) is not None:
                raise _too_often(tool, wait)
            await self._trail.begun(call_id, tool, arguments, call)
            has_begun = True
            key = self._cache.key(tool, arguments, call.principal)
            known = self._cache.get(key) if key is not None else None
            if known is not None:
                outcome = "cached"
                result = _as_answer(known, request, coercions, _since(began))
                if self._context.hooks.implemented(_AFTER):
                    result = await self._asked_after(result, request, call)
                return result
            turn = self._limits.turn(tool)
            if turn is None:
                given = await self._given(tool, request, scope, call, report)
            else:
                async with turn:
                    given = await self._given(tool, request, scope, call, report)
            result = done(request, *given, coercions, self._max_bytes, _since(began))
            if key is not None:  # before the hooks, which may look at who calls
                self._cache.put(key, tool, result)
            if self._context.hooks.implemented(_AFTER):
                result = await self._asked_after(result, request, call)
            outcome = result.status if result.error is None else result.error.type.value
        except (Exception, asyncio.CancelledError) as error:
            failure = self._failure(error, tool)
            if not has_begun:
                await self._refused(call_id, tool, request, call, failure)
                return failed(request, failure, coercions)
            result = failed(request, failure, coercions, duration_ms=_since(began))
            outcome = failure.type.value
            if self._context.hooks.implemented(_AFTER):
                result = await self._asked_after(result, request, call)
        finally:
            is_quick = self._untold.pop(call_id, None) is not None and tool.definition.read_only
            if has_begun:
                duration = _since(began)
                self._trail.ended(call_id, tool, arguments, call, outcome, duration)
                if not is_quick:
                    self._tell_end(call_id, request, call, result, duration)
        return result

    async def _read(
        self,
        call_id: str,
        tool: Tool,
        method: ServiceMethod,
        request: ToolCallRequest,
        call: CallContext,
        coercions: list[str],
        began: float,
    ) -> ToolResult:
        """As `_carry_out`, for a tool of which there is nothing to ask but its method, which only reads.

        Most such calls end at once. The method is stepped by hand, so that one that does needs no time limit and
        nothing that tells of it.
        """
        outcome, is_slow = _INTERRUPTED, False
        result: ToolResult | None = None
        try:
            reading = method(request.arguments, call)
            try:
                suspended_on = reading.send(None)
            except StopIteration as finished:
                value: JsonValue = finished.value
            else:
                is_slow = True
                self._announce(call_id, request, call)
                value = await read_on(tool, reading, suspended_on, call, self._timeout)
            if tool.output is not None:
                _check_output(tool, value)
            duration = _since(began)
            result = done(request, value, (), coercions, self._max_bytes, duration)
            outcome = "done"
        except (Exception, asyncio.CancelledError) as error:
            failure = self._failure(error, tool)
            duration = _since(began)
            result = failed(request, failure, coercions, duration_ms=duration)
            outcome = failure.type.value
        finally:
            if result is None:  # it was cancelled
                duration = _since(began)
            self._trail.ended(call_id, tool, request.arguments, call, outcome, duration)
            if is_slow and self._untold.pop(call_id, None) is None:
                self._tell_end(call_id, request, call, result, duration)
        return result

    async def _given(
        self, tool: Tool, request: ToolCallRequest, scope: ToolScope | None, call: CallContext, report: Report
    ) -> Given:
        given = await self._runners.run(tool, request.arguments, call, scope, report, self._timeout)
        _check_output(tool, given.structured)
        return given

    async def _asked_after(self, result: ToolResult, request: ToolCallRequest, call: CallContext) -> ToolResult:
        try:
            answer = await self._context.hooks.filter(_AFTER, result, request=request, call=call)
        except TavernError as error:
            return failed(request, failure_of(error.info), result.coercions)
        about = {"tool_id": result.tool_id, "index": result.index, "block": result.block}
        return answer.model_copy(update={**about, "request_id": result.request_id})

    def _failure(self, error: BaseException, carried_out: Tool | None = None) -> ToolFailure:
        """Return the failure that an error is, of a tool that was being carried out or of a call before that.

        Raises the error where it means that the call itself is cancelled.
        """
        if isinstance(error, ToolFailure):
            return error
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if carried_out is None or task is None or task.cancelling():
                raise error
            what = f"{carried_out.definition.id} was cancelled from within; nobody had asked for that"
            return ToolFailure(ToolErrorType.EXECUTION, what)
        if not isinstance(error, TavernError):
            self._context.log.error("a tool call failed: %s", describe(error), exc_info=error)
        failure = failure_of(error_info(error))
        if isinstance(error, InvalidInput) and (carried_out is None or carried_out.definition.kind == "service"):
            failure.type = ToolErrorType.PARAMETER_VALIDATION  # a method is given the arguments as they are
        return failure

    # --- what the world is told -----------------------------------------------------------------------

    def _announce(self, call_id: str, request: ToolCallRequest, call: CallContext) -> None:
        """Have it told that a call goes on, unless it has ended when the event loop has its next turn.

        A call that only reads and ends before is not told at all: the audit log has it.
        """
        self._untold[call_id] = request, call
        if not self._is_to_tell:
            self._is_to_tell = True
            asyncio.get_running_loop().call_soon(self._tell_running)

    def _tell_running(self) -> None:
        self._is_to_tell = False
        untold, self._untold = self._untold, {}
        for call_id, (request, call) in untold.items():
            self._tell(call_id, request, call, status="running")

    def _tell_end(
        self, call_id: str, request: ToolCallRequest, call: CallContext, result: ToolResult | None, duration_ms: float
    ) -> None:
        if result is None:
            message = "the call was cancelled"
            result = failed(request, ToolFailure(ToolErrorType.INTERRUPTED, message))
        more: dict[str, JsonValue] = {} if result.error is None else {"error": result.error.to_json()}
        if result.cached:
            more["cached"] = True
        self._tell(call_id, request, call, status=result.status, durationMs=duration_ms, **more)

    def _tell(self, call_id: str, request: ToolCallRequest, call: CallContext, **more: JsonValue) -> None:
        about = {"callId": call_id, "toolId": request.tool_id, "index": request.index, "caller": str(call.principal)}
        known = {"requestId": request.request_id, "runId": call.run_id, "traceId": call.trace_id}
        payload = {**about, **{key: value for key, value in known.items() if value is not None}, **more}
        self._context.events.publish("TOOL_CALL_UPDATE", payload)


def _find(catalogue: Catalogue, tool_id: str) -> Tool:
    try:
        tool = catalogue.get(tool_id)
    except NotFound as error:
        raise ToolFailure(ToolErrorType.TOOL_NOT_FOUND, error.message) from None
    if tool.lack is not None:
        message = f"{tool_id} cannot be called now: {tool.lack.reason}"
        raise ToolFailure(tool.lack.type, message, unavailable=tool.lack.reason)
    return tool


def _bind(tool: Tool, arguments: dict[str, JsonValue], *, text: bool = False) -> Bound:
    bound = tool.parameters.bind(arguments, text=text)
    if bound.problems:
        what = f"the arguments of {tool.definition.id} are not right"
        raise value_failure(ToolErrorType.PARAMETER_VALIDATION, what, bound.problems)
    return bound


def _check_output(tool: Tool, value: JsonValue) -> None:
    """Raise `ToolFailure` for a result that is not what its tool declares; see `leave_out_nulls` for a service's."""
    output = tool.output
    if output is None or output.allows(value):
        return
    if tool.definition.kind == "service" and leave_out_nulls(output, value):
        return
    what = f"the result of {tool.definition.id} is not what the tool declares"
    raise value_failure(ToolErrorType.OUTPUT, what, output.problems(value))


def _too_often(tool: Tool, wait: float) -> ToolFailure:
    rate = tool.definition.rate_limit
    allowed = f" {rate.calls} times in {rate.seconds:g} s" if rate is not None else ""
    message = f"{tool.definition.id} may be called{allowed} only; try again in {wait:.1f} s"
    return ToolFailure(ToolErrorType.RATE_LIMITED, message, retryAfter=round(wait, 3))


def _as_answer(known: ToolResult, request: ToolCallRequest, coercions: list[str], duration_ms: float) -> ToolResult:
    """Return the result of an earlier call as the answer to this one."""
    about = {"index": request.index, "block": request.block, "request_id": request.request_id}
    return known.model_copy(update={**about, "cached": True, "coercions": coercions, "duration_ms": duration_ms})


def _since(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 3)
