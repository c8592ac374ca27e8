"""The contexts of calls that plugins were given: a third-party plugin acts in its own name, or within one of these.

A plugin gets copies. The host holds the original as long as the call, the request or the run is active for which it was
made; after that the copies are worth nothing.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from pydantic import BaseModel

from tavern_host.contracts.calls import CallContext, Principal, new_id
from tavern_host.contracts.wire import SharingModel

_given: WeakValueDictionary[str | None, CallContext] = WeakValueDictionary()
"""The originals by id."""


def hand_over(call: CallContext) -> CallContext:
    """Return the copy of a context for a plugin, which may pass it on as long as the host holds `call`."""
    _given[call.id] = call
    return call.model_copy(update={"principal": call.principal.model_copy()})


def handed_over(argument: Any) -> Any:
    """Return an argument for a plugin: a context, or a model with one as `call`, with the plugin's copy of it; a model
    without values that the host's own parts share."""
    if type(argument) is CallContext:
        return hand_over(argument)
    if isinstance(argument, SharingModel):
        argument = argument.owned()
    if isinstance(argument, BaseModel) and type(call := vars(argument).get("call")) is CallContext:
        return argument.model_copy(update={"call": hand_over(call)})
    return argument


def passed_on(call: CallContext, plugin: Principal) -> CallContext | None:
    """Return the context of what a plugin does with `call`: its own, one that it was given, or a child of that.

    None for any other. The deadline is not later, and the depth not less, than those of the one that was given; the
    agent's run and the admission are that one's.
    """
    given = _given.get(call.id) or _given.get(call.parent_id)
    changed: dict[str, Any] = {"via": plugin.id, "agent_run_id": None, "admission": None}
    if given is not None:
        changed |= {"agent_run_id": given.agent_run_id, "admission": given.admission}
    if call.principal != plugin:
        if given is None or given.principal != call.principal:
            return None
        deadlines = [deadline for deadline in (given.deadline, call.deadline) if deadline is not None]
        changed |= {"deadline": min(deadlines, default=None), "depth": max(given.depth, call.depth)}
        changed |= {"id": new_id("call"), "parent_id": call.id}
    return call.model_copy(update=changed)
