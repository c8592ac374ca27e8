"""What the compiler needs to know of a node type in one of its modes, looked up once for all nodes of that kind."""

from __future__ import annotations

import marshal
from typing import Any

from tavern_engine.registry import NodeType
from tavern_host.contracts.dataflow import config_of, find_slot, literal_converter, slots_of
from tavern_host.contracts.nodes import NodeInstance, NodeRunner, SlotDefinition
from tavern_host.contracts.workflows import Workflow, WorkflowNode

Slots = dict[str, SlotDefinition]


class Kind:
    """A node type, in one mode and with one way to treat errors: its slots, defaults, and how it is run."""

    __slots__ = (
        "config",
        "defaults",
        "dynamic",
        "inputs",
        "instance",
        "is_asked",
        "is_direct",
        "is_plain",
        "node_type",
        "outputs",
        "runner",
        "token",
    )

    def __init__(self, node: WorkflowNode, node_type: NodeType, workflow: Workflow) -> None:
        definition = node_type.definition
        inputs, outputs, self.dynamic = slots_of(node, definition, workflow)
        self.inputs, self.outputs = dict(inputs), dict(outputs)
        self.node_type = node_type
        self.runner: NodeRunner = node_type.runner()
        self.config = config_of(definition, node.model_copy(update={"config_values": {}}))
        self.defaults: dict[str, Any] = {}
        for key, slot in self.inputs.items():
            if slot.default is not None:
                self.defaults[key] = _written(slot, slot.default)
        traits = definition.traits
        self.is_asked = traits.checks_change
        self.is_plain = not (traits.streams or traits.stateful or traits.wants_call or traits.placement == "process")
        self.is_direct = self.is_plain and not self.dynamic and self.inputs.keys() <= node_type.original.inputs.keys()
        self.instance: NodeInstance | None = None
        self.token: bytes | None = None
        if traits.cached:
            about = (definition.full_type, definition.version, node_type.plugin, node_type.version, sorted(self.inputs))
            self.token = marshal.dumps(about, 2)

    def values(self, node: WorkflowNode) -> dict[str, Any]:
        """Return the written value of each input that has one, else its default; null is no value. The dict must
        not be changed."""
        if not node.input_values:
            return self.defaults
        found = dict(self.defaults)
        for key, value in node.input_values.items():
            if value is None:
                continue
            slot = self.inputs.get(key)
            if slot is not None:
                found[key] = _written(slot, value)
            elif self.dynamic:
                named = find_slot(self.inputs, key)
                found[named[0] if named else key] = value
        return found


def relay_values(slot: SlotDefinition, value: Any) -> Any:
    """Return a value written for a slot as the slot's type has it."""
    return _written(slot, value)


def _written(slot: SlotDefinition, value: Any) -> Any:
    if slot.multi and not isinstance(value, list):
        value = [value]
    convert = literal_converter(slot)
    if convert is None:
        return value
    try:
        return [convert(each) for each in value] if slot.multi else convert(value)
    except (OverflowError, ValueError):  # a number that has no such form is passed as it was written
        return value
