"""Flows of Langflow. Its nodes are components of Python, with the template of their fields; the code of a component
does not come, nor the value of a field that is a secret."""

from __future__ import annotations

import json
from typing import Any

from tavern_workflows.foreign.graph import (
    MAX_LINKS,
    MAX_TEXT,
    ForeignGraph,
    ForeignLink,
    ForeignNode,
    ForeignNote,
    key_of,
    object_in,
    objects_in,
    pair_of,
    slot_key,
    text_of,
)

_QUOTE = "œ"
"""Stands for a double quote in the handles of edges."""


def read_langflow(document: dict[str, Any]) -> ForeignGraph:
    """Return a flow as it is exported. Raises `InvalidInput`."""
    graph = ForeignGraph("Langflow", "langflow", text_of(document.get("name")))
    graph.description = text_of(document.get("description"), 2000)
    data = object_in(document.get("data"))
    hidden: set[str] = set()
    has_code = False
    by_key: dict[str, ForeignNode] = {}
    for entry in objects_in(data.get("nodes")):
        about = object_in(entry.get("data"))
        inner = object_in(about.get("node"))
        key, place = key_of(entry.get("id")), pair_of(entry.get("position"))
        if entry.get("type") == "noteNode":
            size = pair_of({"x": entry.get("width"), "y": entry.get("height")})
            graph.notes.append(ForeignNote(text_of(inner.get("description"), MAX_TEXT), place, size))
            continue
        node = ForeignNode(key, text_of(about.get("type"), 200) or "unknown", text_of(inner.get("display_name")), place)
        for name, field in object_in(inner.get("template")).items():
            if not isinstance(field, dict):
                continue
            if field.get("type") == "code" or name == "code":
                has_code = True
            elif field.get("password") is True or field.get("load_from_db") is True:
                hidden |= {name} if field.get("value") else set()
            elif field.get("value") not in (None, "", [], {}):
                node.values[slot_key(name)] = field["value"]
        for one in objects_in(inner.get("outputs"), "outputs"):
            node.outputs[slot_key(one.get("name"))] = _first(one.get("types"))
        graph.nodes.append(node)
        by_key[key] = node
    for edge in objects_in(data.get("edges"), "edges", MAX_LINKS):
        source, target = by_key.get(key_of(edge.get("source"))), by_key.get(key_of(edge.get("target")))
        if source is None or target is None:
            graph.without_effect.append("an edge leads to a node that is not there")
            continue
        begins, ends = _handle(edge, "sourceHandle"), _handle(edge, "targetHandle")
        output, slot = slot_key(begins.get("name") or "output"), slot_key(ends.get("fieldName") or "input")
        source.outputs.setdefault(output, "*")
        target.inputs[slot] = text_of(ends.get("type"), 100) or "*"
        graph.links.append(ForeignLink(source.key, output, target.key, slot))
    if has_code:
        graph.without_effect.append("the Python code of components")
    if hidden:
        graph.without_effect.append(f"secrets are left out: {', '.join(sorted(hidden))[:300]}")
    return graph


def _first(types: Any) -> str:
    return text_of(types[0], 100) if isinstance(types, list) and types else "*"


def _handle(edge: dict[str, Any], key: str) -> dict[str, Any]:
    found = object_in(edge.get("data")).get(key)
    if isinstance(found, dict):
        return found
    try:
        return object_in(json.loads(text_of(edge.get(key), 5000).replace(_QUOTE, '"')))
    except (ValueError, RecursionError):
        return {}
