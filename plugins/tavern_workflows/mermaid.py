"""A workflow's graph as the text of a Mermaid flowchart, with a subgraph for each loop. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tavern_host.contracts.workflows import Workflow, WorkflowNode
from tavern_workflows.api.dataflow import group_reference
from tavern_workflows.api.workflows import NODE_GROUP
from tavern_workflows.graph import Placed, ordered

_LABEL = 80


def mermaid(workflow: Workflow) -> Iterator[str]:
    """Yield the lines of a flowchart. Nodes are numbered in the order of `ordered`, whatever their ids are; edges to
    missing nodes are drawn to a node of their own."""
    placed = ordered(workflow)
    names = {item.node.id: f"n{number}" for number, item in enumerate(placed)}
    zones = {item.zone for item in placed if item.zone is not None}
    yield "flowchart LR"
    depth = 0
    for item in placed:
        while depth > item.depth:
            yield f"{'  ' * depth}end"
            depth -= 1
        name = names[item.node.id]
        margin = "  " * (item.depth + 1)
        if item.node.id in zones:
            yield f"{margin}subgraph {name} [{_text(_label(item))}]"
            depth = item.depth + 1
        else:
            first, last = ("[[", "]]") if item.node.type == NODE_GROUP else ("[", "]")
            yield f"{margin}{name}{first}{_text(_label(item))}{last}"
    for level in range(depth, 0, -1):
        yield f"{'  ' * level}end"
    for end in [end for edge in workflow.edges for end in (edge.source, edge.target)]:
        if end not in names:
            names[end] = f"n{len(names)}"
            yield f"  {names[end]}({_text(f'{end} is missing')})"
    for edge in workflow.edges:
        label = _text(f"{edge.source_handle} → {edge.target_handle}")
        yield f"  {names[edge.source]} -->|{label}| {names[edge.target]}"
    for item in placed:
        if item.node.bypassed:
            yield f"  style {names[item.node.id]} stroke-dasharray: 4"


def _label(item: Placed) -> str:
    node: WorkflowNode = item.node
    shown = f"{node.display_name} ({node.id})" if node.display_name and node.display_name != node.id else node.id
    group = f" of {group_reference(node)}" if node.type == NODE_GROUP else ""
    return f"{shown}: {node.type}{group}"


def _text(text: str) -> str:
    """Return a text in quotes; Mermaid writes special characters as entity codes: `#quot;`, `#35;`."""
    line = " ".join(text.split())
    line = line if len(line) <= _LABEL else line[: _LABEL - 1] + "…"
    for character in '#"<>`':  # the number sign first: the codes hold one
        line = line.replace(character, "#quot;" if character == '"' else f"#{ord(character)};")
    return f'"{line}"'
