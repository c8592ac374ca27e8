"""Documents of workflows without the secrets among their values."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import JsonValue

from tavern_host.common.redaction import is_hidden, masked
from tavern_host.contracts.settings import MASK

_NODE_VALUES = ("inputValues", "configValues")


def masked_document(document: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a workflow's document with `MASK` in the place of each secret among the values of its nodes, and of its
    interface: what else it has is no value, whatever it is called."""
    found = dict(document)
    if isinstance(nodes := document.get("nodes"), list):
        found["nodes"] = [_masked_values(node, _NODE_VALUES) if isinstance(node, dict) else node for node in nodes]
    for key in ("interfaceInputs", "interfaceOutputs"):
        if isinstance(slots := document.get(key), dict):
            found[key] = {name: _masked_slot(name, slot) for name, slot in slots.items()}
    return found


def _masked_values(node: dict[str, JsonValue], keys: Collection[str]) -> dict[str, JsonValue]:
    return {key: masked(value) if key in keys and isinstance(value, dict) else value for key, value in node.items()}


def _masked_slot(name: str, slot: JsonValue) -> JsonValue:
    config = slot.get("config") if isinstance(slot, dict) else None
    if not isinstance(slot, dict) or not isinstance(config, dict) or not is_hidden(name, config.get("default")):
        return slot
    return {**slot, "config": {**config, "default": MASK}}
