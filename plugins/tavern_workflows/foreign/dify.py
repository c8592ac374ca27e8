"""Apps of Dify, in its DSL: those that have a graph. Iterations and loops hold their nodes as what lies in them."""

from __future__ import annotations

import json
from typing import Any

from tavern_host.contracts.errors import InvalidInput
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

_NOTE = "custom-note"
_ABOUT = ("type", "title", "desc", "selected", "isInIteration", "isInLoop", "iteration_id", "loop_id")
"""Fields of a node that are no values of it."""


def read_dify(document: dict[str, Any]) -> ForeignGraph:
    """Return the graph of an app. Raises `InvalidInput` for one that has none."""
    app, flow = object_in(document.get("app")), object_in(document.get("workflow"))
    inner = object_in(flow.get("graph"))
    if not isinstance(inner.get("nodes"), list):
        mode = text_of(app.get("mode"), 40) or "unknown"
        raise InvalidInput(f"a Dify app of the mode {mode!r} has no graph; make an agent with its prompt and model")
    graph = ForeignGraph("Dify", "dify", text_of(app.get("name")), text_of(app.get("description"), 2000), 1.2)
    by_key: dict[str, ForeignNode] = {}
    for entry in objects_in(inner.get("nodes")):
        data = object_in(entry.get("data"))
        place = pair_of(entry.get("position"))
        size = pair_of({"x": entry.get("width"), "y": entry.get("height")})
        if entry.get("type") == _NOTE:
            graph.notes.append(ForeignNote(_note_text(data.get("text")), place, size))
            continue
        key, kind = key_of(entry.get("id")), text_of(data.get("type"), 200) or "unknown"
        node = ForeignNode(key, kind, text_of(data.get("title")), place, parent=key_of(entry.get("parentId")) or None)
        node.values = {slot_key(name): value for name, value in data.items() if name not in _ABOUT}
        graph.nodes.append(node)
        by_key[key] = node
    for edge in objects_in(inner.get("edges"), "edges", MAX_LINKS):
        source, target = by_key.get(key_of(edge.get("source"))), by_key.get(key_of(edge.get("target")))
        if source is None or target is None:
            graph.without_effect.append("an edge leads to a node that is not there")
            continue
        output, into = slot_key(edge.get("sourceHandle") or "source"), slot_key(edge.get("targetHandle") or "target")
        source.outputs[output], target.inputs[into] = "*", "*"
        graph.links.append(ForeignLink(source.key, output, target.key, into))
    _say_what_stays(document, flow, graph)
    return graph


def _say_what_stays(document: dict[str, Any], flow: dict[str, Any], graph: ForeignGraph) -> None:
    variables = [
        *objects_in(flow.get("environment_variables"), "variables"),
        *objects_in(flow.get("conversation_variables"), "variables"),
    ]
    if names := [text_of(one.get("name"), 60) for one in variables]:
        graph.without_effect.append(f"variables of the app: {', '.join(names)[:300]}")
    packages = [text_of(object_in(one.get("value")).get("marketplace_plugin_unique_identifier"), 80) for one in
                objects_in(document.get("dependencies"), "dependencies")]  # fmt: skip
    if names := [one.partition(":")[0] for one in packages if one]:
        graph.without_effect.append(f"plugins of Dify: {', '.join(names)[:300]}")
    if any(one.get("enabled") for one in object_in(flow.get("features")).values() if isinstance(one, dict)):
        graph.without_effect.append("features of its chat window (openers, uploads, speech …)")


def _note_text(value: Any) -> str:
    """Return the words of a note, which is a document of the editor Lexical."""
    try:
        root = json.loads(text_of(value, MAX_TEXT))
    except (ValueError, RecursionError):
        return text_of(value, MAX_TEXT)
    lines: list[str] = []
    waiting = [object_in(object_in(root).get("root"))]
    while waiting:
        part = waiting.pop(0)
        children = objects_in(part.get("children"), "parts of a note")
        words = "".join(text_of(one.get("text"), MAX_TEXT) for one in children)
        lines += [words] if words else []
        waiting = children + waiting
    return "\n".join(lines)[:MAX_TEXT]
