"""Checks what the nodes of a workflow are to do when they fail: whether their policies can have the effect they say."""

from __future__ import annotations

from collections.abc import Iterator

from tavern_host.contracts.nodes import DataFlowType
from tavern_host.contracts.workflows import NodePolicy
from tavern_workflows.api.dataflow import coerce
from tavern_workflows.api.workflows import ERROR_OUTPUT, GROUP_INPUT, GROUP_OUTPUT, NODE_GROUP
from tavern_workflows.check_context import CheckContext, CheckedNode
from tavern_workflows.report import Finding, quoted, short

_WITHOUT = {
    GROUP_INPUT: "it cannot fail",
    GROUP_OUTPUT: "it cannot fail",
    NODE_GROUP: "set one on the nodes inside of the group",
}
_KEYS = ("retry", "retryDelay", "timeout", "onError", "defaults")


def policies(context: CheckContext) -> Iterator[Finding]:
    """Policies, or parts of them, that have no effect. `edges` must have run over the context."""
    for checked in context.nodes.values():
        policy = checked.node.policy
        if policy is None:
            continue
        path = ("nodes", checked.place, "policy")
        node = checked.node
        for key in policy.model_extra or {}:
            message = f"a policy has no {quoted(key)}{context.hints(key, _KEYS)}"
            yield Finding((*path, key), message, node.id, severity="warning")
        if node.type in _WITHOUT:
            message = f"a policy has no effect on a {node.type}: {_WITHOUT[node.type]}"
            yield Finding(path, message, node.id, severity="warning")
            continue
        if policy.retry and _streams(checked):
            message = "a node that streams is tried again only where it failed before its first item"
            yield Finding((*path, "retry"), message, node.id, severity="warning")
        if policy.on_error == "route" and node.id not in context.routed:
            message = f"errors go to the output {ERROR_OUTPUT!r}, and no edge takes them from there"
            yield Finding((*path, "onError"), message, node.id, ERROR_OUTPUT, "warning")
        yield from _defaults(context, checked, policy)


def _streams(checked: CheckedNode) -> bool:
    if checked.definition is not None and checked.definition.traits.streams:
        return True
    return any(slot.is_stream for slot in checked.outputs.values())


def _defaults(context: CheckContext, checked: CheckedNode, policy: NodePolicy) -> Iterator[Finding]:
    """Values for outputs that are not there, or of another type, or that are never used."""
    path = ("nodes", checked.place, "policy", "defaults")
    if policy.defaults and policy.on_error != "default":
        message = f"the defaults are not used: onError is {policy.on_error!r}, not 'default'"
        yield Finding(path, message, checked.node.id, severity="warning")
        return
    for key, value in policy.defaults.items():
        slot = checked.outputs.get(key)
        if slot is None:
            if checked.is_known and not checked.dynamic:
                message = f"{short(checked.node.type)} has no output {quoted(key)}{context.hints(key, checked.outputs)}"
                yield Finding((*path, key), message, checked.node.id, key, "warning")
            continue
        if value is None or (slot.is_stream and slot.data_flow_type is not DataFlowType.STRING):
            continue
        try:
            for item in value if slot.is_stream and isinstance(value, list) else [value]:
                coerce(slot, item)
        except ValueError as error:
            yield Finding((*path, key), str(error), checked.node.id, key, "warning")
