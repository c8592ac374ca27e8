"""Workflows of n8n. Its nodes are linked by their names, and each has the slot `main`, and those of what an agent
uses."""

from __future__ import annotations

from typing import Any

from tavern_workflows.foreign.graph import (
    MAX_LINKS,
    MAX_TEXT,
    ForeignGraph,
    ForeignLink,
    ForeignNode,
    ForeignNote,
    object_in,
    objects_in,
    pair_of,
    slot_key,
    text_of,
)

_NOTE = "n8n-nodes-base.stickyNote"


def read_n8n(document: dict[str, Any]) -> ForeignGraph:
    """Return a workflow as it is exported or copied. Raises `InvalidInput`."""
    graph = ForeignGraph("n8n", "n8n", text_of(document.get("name")), spread=1.6)
    by_name: dict[str, ForeignNode] = {}
    secrets: set[str] = set()
    for entry in objects_in(document.get("nodes")):
        kind, name = text_of(entry.get("type"), 200) or "unknown", text_of(entry.get("name"))
        values = object_in(entry.get("parameters"))
        if kind == _NOTE:
            size = pair_of({"x": values.get("width", 240), "y": values.get("height", 160)})
            text = text_of(values.get("content"), MAX_TEXT)
            graph.notes.append(ForeignNote(text, pair_of(entry.get("position")), size))
            continue
        node = ForeignNode(name or f"node {len(graph.nodes)}", kind, name, pair_of(entry.get("position")))
        node.values = {slot_key(key): value for key, value in values.items()}
        node.bypassed = entry.get("disabled") is True
        secrets |= object_in(entry.get("credentials")).keys()
        if node.key in by_name:
            graph.without_effect.append(f"there are two nodes {name!r:.80}; the links of the second are the first's")
            node.key = f"{node.key} {len(graph.nodes)}"
        by_name[node.key] = node
        graph.nodes.append(node)
    for name, kinds in object_in(document.get("connections")).items():
        if (source := by_name.get(name)) is not None:
            _connect(source, object_in(kinds), by_name, graph)
    if secrets:
        graph.without_effect.append(f"credentials are not part of such a file: {', '.join(sorted(secrets))[:300]}")
    if object_in(document.get("pinData")):
        graph.without_effect.append("pinned data of nodes")
    return graph


def _connect(source: ForeignNode, kinds: dict[str, Any], by_name: dict[str, ForeignNode], graph: ForeignGraph) -> None:
    for kind, outputs in kinds.items():
        for place, targets in enumerate(outputs[:MAX_LINKS] if isinstance(outputs, list) else ()):
            output = slot_key(kind if place == 0 else f"{kind}_{place}")
            for target in objects_in(targets, "links", MAX_LINKS):
                node, index = by_name.get(text_of(target.get("node"))), target.get("index")
                if node is None:
                    said = text_of(target.get("node"), 80)
                    graph.without_effect.append(f"a link of {source.title!r:.80} leads to {said!r}, which is not there")
                    continue
                into = text_of(target.get("type"), 100) or "main"
                slot = slot_key(f"{into}_{index}" if type(index) is int and index > 0 else into)
                source.outputs[output], node.inputs[slot] = kind, into
                graph.links.append(ForeignLink(source.key, output, node.key, slot))
