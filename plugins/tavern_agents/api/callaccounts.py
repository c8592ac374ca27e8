"""The account of the calls that are made on behalf of a run of an agent, wherever they are made."""

from __future__ import annotations

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts
from tavern_host.contracts.wire import Model
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult, ToolScope

_KEEP = "Keep the account of the calls that agents make."


class CallEntry(Model):
    """A call that was entered in an account under this `number`.

    Where there is a `result`, the call is not made: its limit is reached, or what came of it is known. Else it is made
    within the `scope`, whatever else its caller says, and its result entered.
    """

    number: int = 0
    scope: ToolScope | None = None
    result: ToolResult | None = None


class CallAccounts(ServiceInterface, name="callAccounts"):
    """Keeps what `CallContext.agent_run_id` refers to. Whoever carries out calls of tools asks it before and after each
    call that has one."""

    @acts("callAccounts:keep", _KEEP)
    async def begin(self, request: ToolCallRequest, *, call: CallContext | None = None) -> CallEntry | None:
        """Enter a call that is about to be made. None for one that has no account here, or is in it already."""

    @acts("callAccounts:keep", _KEEP)
    async def end(self, number: int, result: ToolResult, *, call: CallContext | None = None) -> ToolResult:
        """Enter the result of a call; return it, or, of a question to a person, what came of that once it is known."""

    @acts("callAccounts:keep", _KEEP)
    async def model_asked(self, iteration: int | None = None, *, call: CallContext | None = None) -> None:
        """Note that a node asks a model, in an iteration of a loop or in none: it is a step of the agent's run that it
        belongs to, or else of the workflow's."""


CALL_ACCOUNTS = ServiceKey(CallAccounts)
