"""Nodes and edges as a patch gives them, and as a workflow has them; which slots a node has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from tavern_assistant.patches.operations import Refused
from tavern_assistant.patches.working_copy import Item
from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.workflows import Workflow, WorkflowNode
from tavern_workflows.api import dataflow
from tavern_workflows.api.workflows import LOOP_ZONE, NODE_GROUP

Resolve = Callable[[str, str], str]
"""Returns the id of the node that an id or a localId names; the second argument is where it stands."""

_VALUES = ("inputValues", "configValues")


class Slots:
    """Which inputs and outputs the nodes of a document have, as far as that is known here.

    Those of a group are known where the workflow is checked, those of `core:GroupInput` and `core:GroupOutput` are the
    keys of the interface.
    """

    def __init__(self, document: Item, definitions: Mapping[str, NodeDefinition]) -> None:
        self._document = document
        self.definitions = definitions

    def of(self, node: Item) -> tuple[dataflow.Slots, dataflow.Slots, bool]:
        """Return the inputs and outputs of a node, and whether it may have others."""
        interface = {key: self._document.get(key, {}) for key in ("interfaceInputs", "interfaceOutputs")}
        try:
            whole = Workflow.model_validate(interface)
            valid = WorkflowNode.model_validate({"id": "", "type": "", **node})
        except ValidationError:
            return {}, {}, True
        inputs, outputs, dynamic = dataflow.slots_of(valid, self.definitions.get(valid.type), whole)
        is_known = valid.type in self.definitions and valid.type != NODE_GROUP
        return inputs, outputs, dynamic or not (is_known or inputs or outputs)

    def is_multi(self, key: str, node: Item) -> bool:
        """Return whether an input of a node takes several edges."""
        slot = self.of(node)[0].get(key)
        return slot is not None and bool(slot.multi)


def new_node(value: Item, slots: Slots, resolve: Resolve) -> Item:
    """Return a node as a workflow has it, without an id. Raises `Refused`."""
    item = {**value}
    if not isinstance(item.get("type"), str):
        raise Refused("missing_type", "a node needs its `type`", "the type has its namespace, such as core:Text")
    parent = item.pop("parentLocalId", item.get("parentNode"))
    if parent is not None:
        item["parentNode"] = resolve(_text(parent, "parentNode"), "parentNode")
    refuse(item, ("localId", "sourceLocalId", "targetLocalId"), "a node")
    data = item.pop("data", None)
    for key in _VALUES:
        if key in item and not isinstance(item[key], dict):
            raise Refused("bad_value", f"`{key}` is an object of values by key", "write {} for none")
    if data is not None:
        _spread(item, data, slots.definitions.get(item["type"]))
    return item


def _spread(item: Item, data: Any, definition: NodeDefinition | None) -> None:
    """Put the values of `data` where a node has them: into its configuration, or its inputs."""
    if not isinstance(data, dict):
        raise Refused("bad_value", "`data` is an object of values by key", "write inputValues and configValues")
    schema = (definition.config_schema or {}) if definition is not None else {}
    config = {*schema, definition.mode_config_key if definition is not None else None}
    if item["type"] == NODE_GROUP:
        config.add(dataflow.GROUP_REFERENCE)
    for key, value in data.items():
        if key in _VALUES and isinstance(value, dict):
            into, values = key, value
        else:
            into, values = "configValues" if key in config or item["type"] == LOOP_ZONE else "inputValues", {key: value}
        there = item.get(into, {})
        if twice := values.keys() & there.keys():
            raise Refused("given_twice", f"{min(twice)!r} is in `data` and in `{into}`", "give it once")
        item[into] = {**there, **values}


def new_edge(value: Item, slots: Slots, resolve: Resolve, node: Callable[[str], Item]) -> Item:
    """Return an edge as a workflow has it, without an id. `node` returns a node by its id. Raises `Refused`."""
    item = {**value}
    for end in ("target", "source"):
        local, written = item.pop(f"{end}LocalId", None), item.pop(end, None)
        if (local is None) == (written is None):
            hint = f"`{end}` is the id of a node that is there, `{end}LocalId` the localId of one that the patch adds"
            raise Refused("bad_end", f"an edge needs `{end}` or `{end}LocalId`, and not both", hint)
        name = f"{end}LocalId" if written is None else end
        item[end] = resolve(_text(local if written is None else written, name), name)
        handle = item.get(f"{end}Handle")
        if not isinstance(handle, str) or not handle:
            inputs, outputs, _ = slots.of(node(item[end]))
            keys = inputs if end == "target" else outputs
            hint = f"{'inputs' if end == 'target' else 'outputs'} of the node: {listed(keys)}"
            raise Refused("missing_handle", f"an edge needs `{end}Handle`, the key of a slot", hint)
    refuse(item, ("localId", "parentLocalId"), "an edge")
    return item


def refuse(item: Item, keys: Iterable[str], what: str) -> None:
    """Raise `Refused` for keys that something does not have."""
    for key in keys:
        if key in item:
            raise Refused("bad_member", f"{what} has no `{key}`", "leave it out")


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise Refused("bad_value", f"`{name}` is the id of a node, a text", "")
    return value


def listed(names: Iterable[str]) -> str:
    """Return names as a hint lists them."""
    found = list(names)
    return ", ".join(found[:20]) + (" …" if len(found) > 20 else "") if found else "none"
