"""Records calls of tools in the audit log, and publishes on the event bus what runs.

- `tool.called`: a call that was allowed, with its arguments. Of a tool that changes nothing it is recorded when the
  call has ended, with its outcome; of any other it is on disk before the call is made.
- `tool.ended`: how a call ended that was recorded before it was made.
- `tool.denied`: a call that was not allowed, with its arguments and the reason; on disk before it is answered.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import TavernError
from tavern_tools.api.toolcalls import ToolErrorType, ToolResult
from tavern_tools.calls.call import UNKNOWN, Call
from tavern_tools.calls.results import failed
from tavern_tools.catalog.failures import ToolFailure

CALLED, ENDED, DENIED = "tool.called", "tool.ended", "tool.denied"


class CallAudit:
    """Records calls. What stands under a secret's name, or is marked as secret by the tool's schema, is masked."""

    def __init__(self, context: PluginContext) -> None:
        self._audit = context.audit
        self._log = context.log

    async def begin(self, call: Call) -> None:
        """Return when a call that was allowed may be made: when it is on disk, or at once where it changes nothing.

        Raises `ServiceUnavailable` where it cannot be recorded, and so must not be made; then nothing is to be said
        about its end.
        """
        if call.tool.is_read_only:
            if self._audit.is_crowded:
                await self._audit.written()
            return
        number = self._record(CALLED, call, arguments=call.request.arguments)
        try:
            await self._audit.written(number)
        except BaseException:
            self._record(ENDED, call, outcome="not made")
            raise

    def end(self, call: Call, outcome: str) -> None:
        """Record how a call ended after `begin`. Never waits."""
        if call.tool.is_read_only:
            self._record(CALLED, call, outcome=outcome, ms=call.milliseconds, arguments=call.request.arguments)
        else:
            self._record(ENDED, call, outcome=outcome, ms=call.milliseconds)

    async def deny(self, call: Call, failure: ToolFailure) -> None:
        """Record that a call was not allowed, be it of an id that no tool has; it is on disk when this returns.

        Where it cannot be written the call is denied all the same, and the log of the host says so.
        """
        reason = f"{failure.type}: {failure.message}"
        number = self._record(DENIED, call, reason=reason, arguments=call.request.arguments)
        try:
            await self._audit.written(number)
        except TavernError as error:
            self._log.error("a denied call of a tool may be missing in the audit log: %s", error.message)

    def _record(self, action: str, call: Call, **facts: Any) -> int:
        details = {"call": call.id, **facts}
        if call.tool.draft:
            details["draft"] = True
        if call.context.run_id is not None:
            details["run"] = call.context.run_id
        subject = call.request.tool_id if call.tool is UNKNOWN else call.tool.definition.id
        secrets = call.tool.parameters.secrets
        return self._audit.record(action, subject=subject, details=details, secrets=secrets, call=call.context)


class Updates:
    """Publishes what becomes of calls, as the event `TOOL_CALL_UPDATE`.

    A call that only reads and ends before the event loop has its next turn is not published: the audit log has it.
    """

    def __init__(self, context: PluginContext) -> None:
        self._events = context.events
        self._untold: dict[str, Call] = {}
        self._is_scheduled = False

    def begin(self, call: Call) -> None:
        """Publish that a call runs; of one that only reads at the next turn of the event loop, if it runs then."""
        if not call.tool.definition.read_only:
            self._tell(call, status="running")
            return
        self._untold[call.id] = call
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._tell_running)

    def end(self, call: Call, result: ToolResult | None) -> None:
        """Publish how a call ended; without a result it was cancelled."""
        if self._untold.pop(call.id, None) is not None:
            return
        if result is None:
            result = failed(call.request, ToolFailure(ToolErrorType.INTERRUPTED, "the call was cancelled"))
        more: dict[str, JsonValue] = {} if result.error is None else {"error": result.error.to_json()}
        if result.cached:
            more["cached"] = True
        self._tell(call, status=result.status, durationMs=call.milliseconds, **more)

    def _tell_running(self) -> None:
        self._is_scheduled = False
        untold, self._untold = self._untold, {}
        for call in untold.values():
            self._tell(call, status="running")

    def _tell(self, call: Call, **more: JsonValue) -> None:
        request, context = call.request, call.context
        about = {"callId": call.id, "toolId": request.tool_id, "index": request.index, "caller": str(context.principal)}
        known = {"requestId": request.request_id, "runId": context.run_id, "traceId": context.trace_id}
        payload = {**about, **{key: value for key, value in known.items() if value is not None}, **more}
        self._events.publish_all([("TOOL_CALL_UPDATE", payload)])  # which, unlike `publish`, makes no copy to return
