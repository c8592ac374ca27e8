"""What the audit log says of calls of tools (`spec/000` §13): who called or wanted to call what, and how it ended.

- `tool.called`: a call that was allowed, with its arguments. Of a tool that changes nothing it is recorded when the
  call has ended, with its outcome; of any other it is on disk before the call is made.
- `tool.ended`: how a call ended that was recorded before it was made.
- `tool.denied`: a call that was not allowed, with its arguments and the reason; on disk before anybody is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from tavern_host.context import AuditForm, PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import TavernError
from tavern_tools.calls.authority import lent_permission
from tavern_tools.catalog.catalogue import Tool
from tavern_tools.tasks.secrets import secret_parameters

CALLED, ENDED, DENIED = "tool.called", "tool.ended", "tool.denied"

_TOOLS = 1024


@dataclass(frozen=True, slots=True)
class _Forms:
    """The entries of one tool, prepared. Keeps the tool, by whose identity they are remembered."""

    tool: Tool
    is_read_only: bool
    called: AuditForm
    ended: AuditForm


class Trail:
    """Records calls. What stands under a secret's name, or is marked as secret by the tool's schema, is masked."""

    def __init__(self, context: PluginContext) -> None:
        self._audit = context.audit
        self._log = context.log
        self._forms: dict[int, _Forms] = {}

    @property
    def is_crowded(self) -> bool:
        """Whether a call that only reads had better wait in `begun`."""
        return self._audit.is_crowded

    async def begun(self, call_id: str, tool: Tool, arguments: dict[str, JsonValue], call: CallContext) -> None:
        """Return when a call may be made that was allowed: when it is on disk, or at once where it changes nothing.

        Raises `ServiceUnavailable` where it cannot be recorded, and so must not be made; then nothing is to be said
        about its end.
        """
        forms = self._forms.get(id(tool)) or self._prepare(tool)
        if forms.is_read_only:
            if self._audit.is_crowded:
                await self._audit.written()
            return
        number = forms.called.record(call.principal, arguments, call=call_id, **_run(call))
        try:
            await self._audit.written(number)
        except BaseException:
            forms.ended.record(call.principal, {}, call=call_id, outcome="not made")
            raise

    def ended(
        self,
        call_id: str,
        tool: Tool,
        arguments: dict[str, JsonValue],
        call: CallContext,
        outcome: str,
        duration_ms: float,
    ) -> None:
        """Record how a call ended after `begun`, with the same arguments. Never waits."""
        forms = self._forms.get(id(tool)) or self._prepare(tool)
        principal = call.principal
        if not forms.is_read_only:
            forms.ended.record(principal, {}, call=call_id, outcome=outcome, ms=duration_ms)
        elif call.run_id is None:
            forms.called.record(principal, arguments, call=call_id, outcome=outcome, ms=duration_ms)
        else:
            forms.called.record(principal, arguments, call=call_id, run=call.run_id, outcome=outcome, ms=duration_ms)

    async def denied(
        self, call_id: str, tool: Tool | str, arguments: Mapping[str, JsonValue], call: CallContext, reason: str
    ) -> None:
        """Record that a call was not allowed, of a tool or of an id that no tool has; it is on disk when this returns.

        Where it cannot be written the call is denied all the same, and the log of the host says so.
        """
        secrets = [] if isinstance(tool, str) else secret_parameters(tool.definition.parameters)
        number = self._audit.record(
            DENIED,
            subject=tool if isinstance(tool, str) else tool.definition.id,
            details={"call": call_id, **_run(call), "reason": reason, "arguments": dict(arguments)},
            secrets=secrets,
            call=call,
        )
        try:
            await self._audit.written(number)
        except TavernError as error:
            self._log.error("a denied call of a tool may be missing in the audit log: %s", error.message)

    def _prepare(self, tool: Tool) -> _Forms:
        definition = tool.definition
        secrets = secret_parameters(definition.parameters)
        names = list(tool.parameters.properties)
        forms = _Forms(
            tool=tool,
            # what a project says of a method that acts is not believed
            is_read_only=definition.read_only and lent_permission(tool) is None,
            called=self._audit.form(CALLED, subject=definition.id, names=names, secrets=secrets),
            ended=self._audit.form(ENDED, subject=definition.id),
        )
        if len(self._forms) >= _TOOLS:
            self._forms.clear()
        self._forms[id(tool)] = forms
        return forms


def _run(call: CallContext) -> dict[str, JsonValue]:
    return {} if call.run_id is None else {"run": call.run_id}
