"""`tavern workflow show`: a workflow's graph as text, also of one that is broken, as far as it can be read.

What is wrong with it is told by the check; the order of nodes and the rails between them come from `graphorder.py` and
`graphrails.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from tavern_host import WORKFLOW_MANAGER, CommandOutput, InvalidInput, NotFound, PluginContext
from tavern_host.contracts.documents import read_document_file
from tavern_host.contracts.loops import zone_of
from tavern_host.contracts.nodes import SlotDefinition
from tavern_host.contracts.workflows import LOOP_ZONE, NODE_GROUP, Workflow, WorkflowEdge, WorkflowNode, WorkflowProblem
from tavern_workflows.graphorder import Placed, ordered
from tavern_workflows.graphrails import Rails, rails
from tavern_workflows.groups import reference
from tavern_workflows.shape import read

NARROWEST = 40
"""How many columns the drawing has at least."""

_MOST_NODES = 5000
_MOST_PROBLEMS = 20
_DEEPEST = 16
_VALUE = 200


async def show(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Draw the graph of a workflow, then say what is wrong with it."""
    name, document, workflow = await _find(str(arguments["workflow"]), context)
    width = arguments.get("width")
    width = width if isinstance(width, int) else 80
    if width < NARROWEST:
        raise InvalidInput(f"--width {width}: {NARROWEST} columns are needed at least")
    manager = context.services.get(WORKFLOW_MANAGER)
    groups = {key: stored.workflow for key, stored in (await manager.closure(workflow)).items()}
    problems = await manager.check(document)
    drawing = Drawing(groups, expand=bool(arguments.get("expand")), values=bool(arguments.get("values")))
    for line in drawing.page(name, workflow, width):
        yield CommandOutput(kind="text", text=line)
    for line in _problem_lines(problems):
        yield CommandOutput(kind="text", text=line)
    facts = graph_form(workflow, groups if arguments.get("expand") else {})
    yield CommandOutput(kind="result", data={"id": name, **facts, "problems": [p.to_json() for p in problems]})


async def _find(name: str, context: PluginContext) -> tuple[str, dict[str, Any], Workflow]:
    """Return the id, the document and what can be read of a workflow: a file's, or the stored one of that id."""
    path = Path(name)
    if not await asyncio.to_thread(path.is_file):
        try:
            stored = await context.services.get(WORKFLOW_MANAGER).get(name)
        except NotFound as error:
            raise NotFound(f"there is no file {name}, and {error.message}") from None
        except InvalidInput:  # it breaks the format: what can be read of its file is still shown
            path = context.project.workflows / f"{name}.json"
            if not await asyncio.to_thread(path.is_file):
                raise
        else:
            return stored.id, stored.workflow.model_dump(mode="json", exclude_unset=True), stored.workflow
    document = await asyncio.to_thread(read_document_file, path)
    identifier = document.get("id")
    return identifier if isinstance(identifier, str) and identifier else path.stem, document, read(document).workflow


def _problem_lines(problems: list[WorkflowProblem]) -> Iterator[str]:
    if not problems:
        return
    yield ""
    yield "1 problem:" if len(problems) == 1 else f"{len(problems):,} problems:"
    for problem in problems[:_MOST_PROBLEMS]:
        yield f"  {'' if problem.severity == 'error' else f'{problem.severity}: '}{problem}"
    if len(problems) > _MOST_PROBLEMS:
        yield f"  and {len(problems) - _MOST_PROBLEMS:,} more; `tavern workflow check` has all"


# --- the drawing ----------------------------------------------------------------------------------


@dataclass
class Drawing:
    """Draws workflows; with `expand`, what is inside of groups; with `values`, what is written at nodes."""

    groups: Mapping[str, Workflow]
    expand: bool = False
    values: bool = False
    _drawn: int = field(default=0, init=False)

    def page(self, name: str, workflow: Workflow, width: int) -> Iterator[str]:
        """Yield the lines of a whole page about a workflow."""
        title = f"{_plain(workflow.name)} ({name})" if workflow.name and workflow.name != name else name
        yield _cut(f"{title}: {_count(len(workflow.nodes), 'node')}, {_count(len(workflow.edges), 'edge')}", width)
        if workflow.description:
            yield from _wrapped(_plain(workflow.description), width)
        for what, slots in (("Inputs", workflow.interface_inputs), ("Outputs", workflow.interface_outputs)):
            if slots:
                yield ""
                yield f"{what}:"
                yield from (_cut(f"  {line}", width) for line in _slot_lines(slots))
        yield ""
        yield from self._graph(workflow, width, prefix="", path=())

    def _graph(self, workflow: Workflow, width: int, prefix: str, path: tuple[str, ...]) -> Iterator[str]:
        """Yield the lines of the nodes of one workflow; `path` are the groups that it is inside of."""
        placed = ordered(workflow)
        self._drawn += len(placed)
        rows = {item.node.id: row for row, item in enumerate(placed)}
        links = [(rows[e.source], rows[e.target]) for e in workflow.edges if e.source in rows and e.target in rows]
        found = rails(len(placed), [link for link in links if link[0] < link[1]])
        lines = found or [Rails("", None, "●", " ")] * len(placed)
        into, astray = _edges_by_target(workflow, rows)
        layer = 0
        for row, (item, rail) in enumerate(zip(placed, lines, strict=True)):
            if item.depth == 0 and item.layer != layer:
                layer = item.layer
                room = max(0, width - len(rail.above) - 7 - len(str(layer)))
                yield f"{rail.above}  ── {layer} {'─' * room}".rstrip()
            if rail.join is not None:
                yield rail.join.rstrip()
            margin = "┆ " * item.depth
            room = max(NARROWEST // 2, width - len(rail.node) - 2 - len(margin))
            yield f"{rail.node}  {margin}{_cut(self._head(item, prefix), room)}"
            incoming = [(edge, rows.get(edge.source, -1) >= row) for edge in into.get(item.node.id, [])]
            for line in self._body(item, incoming, astray.get(item.node.id, []), room - 2):
                yield f"{rail.below}  {margin}  {line}"
            for line in self._inside(item.node, room - 4, prefix, path):
                yield f"{rail.below}  {margin}  ┊ {line}"

    def _head(self, item: Placed, prefix: str) -> str:
        node = item.node
        parts = [_plain(prefix + node.id)]
        if node.display_name and node.display_name != node.id:
            parts.append(f'"{_plain(node.display_name)}"')
        parts.append(_plain(node.type))
        if node.type == NODE_GROUP:
            group = reference(node)
            known = self.groups.get(group) if group is not None else None
            name = f' "{_plain(known.name)}"' if known is not None and known.name else ""
            parts.append(f"stands for {_plain(group)}{name}" if group is not None else "stands for nothing")
        if node.bypassed:
            parts.append("bypassed")
        return " · ".join(parts)

    def _body(
        self, item: Placed, incoming: list[tuple[WorkflowEdge, bool]], astray: list[WorkflowEdge], width: int
    ) -> Iterator[str]:
        """Yield what is to be said of a node beside its name: what it repeats, what comes in, what is written."""
        node = item.node
        if node.type == LOOP_ZONE:
            yield from _wrapped(_loop_line(node), width)
        by_slot: dict[str, list[str]] = {}
        for edge, is_back in incoming:
            source = f"{_plain(edge.source)}.{_plain(edge.source_handle)}"
            by_slot.setdefault(edge.target_handle, []).append(f"{source} ↺" if is_back else source)
        for slot, sources in by_slot.items():
            yield from _wrapped(f"{_plain(slot)} ← {', '.join(sources)}", width)
        for edge in astray:
            target = f"{_plain(edge.target)}.{_plain(edge.target_handle)}"
            yield from _wrapped(f"{_plain(edge.source_handle)} → {target}, which is not there", width)
        if self.values:
            for key, value in {**node.config_values, **node.input_values}.items():
                text = json.dumps(value, ensure_ascii=False)
                yield from _wrapped(f"{_plain(key)} = {text if len(text) <= _VALUE else text[:_VALUE] + ' …'}", width)

    def _inside(self, node: WorkflowNode, width: int, prefix: str, path: tuple[str, ...]) -> Iterator[str]:
        """Yield the lines of what a group stands for, where that is asked for and can be."""
        group = reference(node) if node.type == NODE_GROUP else None
        if group is None:
            return
        inner = self.groups.get(group)
        if inner is None:
            yield f"there is no workflow {_plain(group)} that can be read"
        elif group in path:
            yield "stands inside of itself"
        elif self.expand and (len(path) >= _DEEPEST or self._drawn + len(inner.nodes) > _MOST_NODES):
            yield "what is inside is not drawn: it would be too much"
        elif self.expand:
            yield from self._graph(inner, max(NARROWEST, width), f"{prefix}{node.id}/", (*path, group))


def _edges_by_target(
    workflow: Workflow, rows: Mapping[str, int]
) -> tuple[dict[str, list[WorkflowEdge]], dict[str, list[WorkflowEdge]]]:
    """Return the edges into each node, and by source those that lead to a node that is not there."""
    into: dict[str, list[WorkflowEdge]] = {}
    astray: dict[str, list[WorkflowEdge]] = {}
    for edge in workflow.edges:
        if edge.target in rows:
            into.setdefault(edge.target, []).append(edge)
        elif edge.source in rows:
            astray.setdefault(edge.source, []).append(edge)
    return into, astray


def _slot_lines(slots: Mapping[str, SlotDefinition]) -> Iterator[str]:
    width = min(24, max(len(_plain(key)) for key in slots))
    for key, slot in slots.items():
        kind = f"{slot.data_flow_type}{' stream' if slot.is_stream else ''}{' (several)' if slot.multi else ''}"
        facts = [f"{_plain(key):{width}}  {kind:8}"]
        if slot.display_name and slot.display_name not in (key, "*"):
            facts.append(f'"{_plain(slot.display_name)}"')
        if slot.required:
            facts.append("required")
        if slot.default is not None:
            text = json.dumps(slot.default, ensure_ascii=False)
            facts.append(f"= {text[:_VALUE]}")
        if slot.description:
            facts.append(_plain(slot.description))
        yield "  ".join(facts).rstrip()


def _loop_line(node: WorkflowNode) -> str:
    zone = zone_of(node.config_values)
    ends = [_count(zone.count, "iteration")] if zone.count is not None else []
    if zone.condition is not None:
        ends.append(f"{_plain(zone.condition)} being {str(zone.stop_when).lower()}")
    ends.append(f"{zone.maximum:,} at most")
    carried = [f"{_plain(key)} ({slot.data_flow_type})" for key, slot in zone.carried.items()]
    keeps = f"; carries {', '.join(carried)}" if carried else ""
    return f"repeats what is inside until {' or '.join(ends)}{keeps}"


# --- letters --------------------------------------------------------------------------------------


def _plain(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _cut(text: str, width: int) -> str:
    """Return a text in at most so many columns; letters of some scripts take two."""
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def _wrapped(text: str, width: int) -> Iterator[str]:
    """Yield a text in lines of so many columns, those after the first set in."""
    from rich.cells import cell_len, chop_cells

    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line.strip() else line + word
        if cell_len(longer) <= width:
            line = longer
        elif cell_len(word) <= width - 2:
            yield line
            line = f"  {word}"
        else:
            first = chop_cells(longer, width)[0]
            yield first
            *full, last = chop_cells(longer[len(first) :], width - 2)
            yield from (f"  {part}" for part in full)
            line = f"  {last}"
    if line.strip():
        yield line


# --- for programs ---------------------------------------------------------------------------------


def graph_form(workflow: Workflow, groups: Mapping[str, Workflow]) -> dict[str, JsonValue]:
    """Return a workflow's graph as JSON, each node with its layer; with those of its groups, by id."""
    form = _one_form(workflow)
    if groups:
        form["groups"] = {group: _one_form(inner) for group, inner in sorted(groups.items())}
    return form


def _one_form(workflow: Workflow) -> dict[str, JsonValue]:
    nodes: list[JsonValue] = []
    layers: list[JsonValue] = []
    outermost: dict[int, list[JsonValue]] = {}
    for item in ordered(workflow):
        facts = {
            "id": item.node.id,
            "type": item.node.type,
            "displayName": item.node.display_name,
            "layer": item.layer,
            "zone": item.zone,
            "group": reference(item.node) if item.node.type == NODE_GROUP else None,
            "bypassed": item.node.bypassed or None,
        }
        nodes.append({key: value for key, value in facts.items() if value is not None})
        if item.zone is None:
            outermost.setdefault(item.layer, []).append(item.node.id)
    layers.extend(outermost.values())
    return {
        "name": workflow.name,
        "layers": layers,
        "nodes": nodes,
        "edges": [edge.to_json() for edge in workflow.edges],
        "interfaceInputs": {key: slot.to_json() for key, slot in workflow.interface_inputs.items()},
        "interfaceOutputs": {key: slot.to_json() for key, slot in workflow.interface_outputs.items()},
    }
