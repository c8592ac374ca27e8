"""What the assistant's model reads: the rules of patches, node types, the open workflow, the record of a run.

Pure: works on values that others have fetched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tavern_host.contracts.nodes import NodeDefinition, SlotDefinition

RULES = Path(__file__).with_name("rules.md").read_text(encoding="utf-8").strip()
PANEL_RULES = Path(__file__).with_name("panel_rules.md").read_text(encoding="utf-8").strip()
SCHEMA: dict[str, Any] = json.loads(Path(__file__).with_name("answer.schema.json").read_bytes())
"""What an answer is, for models that can be held to it."""

_DRAWN = frozenset({"position", "width", "height", "viewport", "inputConnectionOrders", "revision", "updatedAt"})
"""What says where a node stands, which is no business of the model's."""
_MOST_TEXT = 2_000
_MOST_SAID = 10


def situation(world: dict[str, Any], definitions: Iterable[NodeDefinition], request: str) -> str:
    """Return the description of a request's world, as the text of its message."""
    if world.get("panel") is not None:
        return _panel_situation(world, request)
    parts = ["\n".join(["Node types:", *map(described, definitions)])]
    workflow = world.get("workflow")
    if workflow is None:
        parts.append("No workflow is open: nothing can be changed, operations must be [].")
    else:
        parts.append(f"The workflow:\n{_json(_shortened(undrawn(workflow)))}")
    if selected := world.get("selected"):
        parts.append(f"Selected nodes: {', '.join(map(str, selected))}")
    if run := world.get("run"):
        parts.append(f"Its latest run, times in seconds:\n{_json(_shortened(run))}")
    return "\n\n".join([*parts, f"The creator asks:\n{request}"])


def _panel_situation(world: dict[str, Any], request: str) -> str:
    parts = [
        f"Workflows that may stand on the panel:\n{_json(_shortened(world.get('workflows') or []))}",
        f"Agents that may stand on it:\n{_json(_shortened(world.get('agents') or []))}",
        f"The panel:\n{_json(_shortened(world['panel']))}",
    ]
    if selected := world.get("selected"):
        parts.append(f"Selected elements: {', '.join(map(str, selected))}")
    return "\n\n".join([*parts, f"The creator asks:\n{request}"])


def conversation(history: list[Any], about: str, rules: str = RULES) -> list[dict[str, str]]:
    """Return the messages for the model: the rules, what was said before, and what the request is about."""
    said = [
        {"role": str(one["role"]), "content": str(one.get("content") or "")}
        for one in history
        if isinstance(one, dict) and one.get("role") in ("user", "assistant") and one.get("content")
    ]
    system = {"role": "system", "content": rules}
    return [system, *said[-_MOST_SAID:], {"role": "user", "content": about}]


def described(node: NodeDefinition) -> str:
    """Return a node type as a model reads it: its slots with their types, one line each."""
    name = f" ({node.display_name})" if node.display_name and node.display_name != node.type else ""
    lines = [f"{node.full_type}{name}: {node.description}"]
    for title, slots in (("in", node.inputs), ("out", node.outputs), ("config", node.config_schema or {})):
        lines += [f"  {title} {_slot(key, slot)}" for key, slot in slots.items()]
    for mode, has in (node.modes or {}).items() if node.mode_config_key else ():
        both = f"in {', '.join(has.inputs)}; out {', '.join(has.outputs)}"
        lines.append(f"  with {node.mode_config_key}={mode}: {both}")
    return "\n".join(lines)


def _slot(key: str, slot: SlotDefinition) -> str:
    config = slot.config or {}
    more = [name for name, has in (("several", slot.multi), ("stream", slot.is_stream)) if has]
    more += [f"default {_json(slot.default)[:80]}"] if slot.has_default and slot.default not in (None, "") else []
    if slot.required and not slot.has_default:
        more.append("required")
    choices = config.get("suggestions")
    if isinstance(choices, list) and choices:
        values = [one.get("value") if isinstance(one, dict) else one for one in choices[:12]]
        more.append(f"one of {_json(values)}")
    said = (slot.description or "").split("\n")[0][:160]
    notes, about = f" ({', '.join(more)})" if more else "", f": {said}" if said else ""
    return f"{key} {slot.data_flow_type.value}{notes}{about}"


def undrawn(value: Any) -> Any:
    """Return a workflow without what says where things stand, and without what says nothing."""
    if isinstance(value, dict):
        found = {key: undrawn(one) for key, one in value.items() if key not in _DRAWN}
        return {key: one for key, one in found.items() if one is not None and one != {} and one != []}
    return [undrawn(one) for one in value] if isinstance(value, list) else value


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _MOST_TEXT:
        return f"{value[:_MOST_TEXT]}… ({len(value)} characters)"
    if isinstance(value, dict):
        return {key: _shortened(one) for key, one in value.items()}
    return [_shortened(one) for one in value] if isinstance(value, list) else value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
