"""`tavern workflow show`: a workflow's graph as a tree in the terminal, also of a broken one, as far as it can be read.

The tree shows what contains what: a loop its body, a group, if asked, the workflow behind it. Edges are lines at the
node that they lead to, so a node with many followers is shown once and referenced by them.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from tavern_host import WORKFLOW_MANAGER, CommandOutput, InvalidInput, NotFound, PluginContext
from tavern_host.contracts.documents import read_document_file
from tavern_host.contracts.nodes import SlotDefinition
from tavern_host.contracts.workflows import Workflow, WorkflowEdge, WorkflowNode
from tavern_importers.api.naming import require_kind
from tavern_workflows.api.dataflow import group_reference
from tavern_workflows.api.loops import zone_of
from tavern_workflows.api.workflows import LOOP_ZONE, NODE_GROUP, WorkflowProblem
from tavern_workflows.graph import Placed, graph_form, ordered
from tavern_workflows.mermaid import mermaid
from tavern_workflows.shape import read

if TYPE_CHECKING:
    from rich.tree import Tree

NARROWEST = 40
"""How many columns the tree has at least."""

_MOST_PROBLEMS = 20
_MOST_VALUE = 200


async def show(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show the graph of a workflow, as a tree or as Mermaid, then its problems; for Mermaid they go to stderr."""
    name, document, workflow = await _find(str(arguments["workflow"]), context)
    width = arguments.get("width")
    width = width if isinstance(width, int) else 80
    if width < NARROWEST:
        raise InvalidInput(f"--width {width}: {NARROWEST} columns are needed at least")
    manager = context.services.get(WORKFLOW_MANAGER)
    groups = {key: stored.workflow for key, stored in (await manager.closure(workflow)).items()}
    problems = await manager.check(document)
    expand, values = bool(arguments.get("expand")), bool(arguments.get("values"))
    is_mermaid = bool(arguments.get("mermaid"))

    def drawn() -> tuple[str, dict[str, JsonValue]]:
        """Return the text and the JSON of the graph; importing what orders it takes long."""
        tree = partial(page, name, workflow, groups, width, expand=expand, values=values)
        return "\n".join(mermaid(workflow)) if is_mermaid else tree(), graph_form(workflow, groups if expand else {})

    text, facts = await asyncio.to_thread(drawn)
    yield CommandOutput(kind="text", text=text)
    for line in _problem_lines(problems):
        yield CommandOutput(kind="progress" if is_mermaid else "text", text=line)
    yield CommandOutput(kind="result", data={"id": name, **facts, "problems": [p.to_json() for p in problems]})


async def _find(name: str, context: PluginContext) -> tuple[str, dict[str, Any], Workflow]:
    """Return the id, the document and the readable part of a workflow: a file's, or the stored one of that id."""
    path = Path(name)
    if not await asyncio.to_thread(path.is_file):
        try:
            stored = await context.services.get(WORKFLOW_MANAGER).get(name)
        except NotFound as error:
            raise NotFound(f"there is no file {name}, and {error.message}") from None
        except InvalidInput:  # it breaks the format: the readable part of its file is still shown
            path = context.project.folder("workflows") / f"{name}.json"
            if not await asyncio.to_thread(path.is_file):
                raise
        else:
            return stored.id, stored.workflow.model_dump(mode="json", exclude_unset=True), stored.workflow
    await require_kind(context, path, "workflow", wanted="workflow")
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


# --- the tree -------------------------------------------------------------------------------------


def page(
    name: str,
    workflow: Workflow,
    groups: Mapping[str, Workflow],
    width: int,
    *,
    expand: bool = False,
    values: bool = False,
) -> str:
    """Return the page about a workflow, of so many columns, more where it is deep. With `expand`, the workflows of its
    groups are shown, each where it is met first; with `values`, the written values of nodes."""
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    title = f"{_plain(workflow.name)} ({name})" if workflow.name and workflow.name != name else name
    title = f"{title}: {_count(len(workflow.nodes), 'node')}, {_count(len(workflow.edges), 'edge')}"
    tree = Tree(Text(f"{title}\n{_plain(workflow.description)}" if workflow.description else title))
    for what, slots in (("Inputs", workflow.interface_inputs), ("Outputs", workflow.interface_outputs)):
        if slots:
            branch = tree.add(what)
            for line in _slot_lines(slots):
                branch.add(Text(line))
    _Graph(groups, expand, values).add(tree, workflow, "")
    width = max(width, 4 * _depth(tree) + NARROWEST)  # rich drops what has no room
    output = io.StringIO()
    Console(file=output, width=width, color_system=None, emoji=False, highlight=False).print(tree)
    return "\n".join(line.rstrip() for line in output.getvalue().rstrip("\n").split("\n"))


def _depth(tree: Tree) -> int:
    depth, branches = 0, tree.children
    while branches:
        depth, branches = depth + 1, [child for branch in branches for child in branch.children]
    return depth


@dataclass
class _Graph:
    """Adds the nodes of workflows to a tree. `shown` are the groups that it has expanded."""

    groups: Mapping[str, Workflow]
    expand: bool
    values: bool
    shown: dict[str, str] = field(default_factory=dict)

    def add(self, tree: Tree, workflow: Workflow, prefix: str) -> None:
        """Add the nodes of a workflow in topological order, those of a loop to the branch of its zone."""
        from rich.text import Text

        placed = ordered(workflow)
        rows = {item.node.id: row for row, item in enumerate(placed)}
        into, astray = _edges_by_target(workflow, rows)
        branches: dict[str | None, Tree] = {None: tree}
        for row, item in enumerate(placed):
            node = item.node
            branch = branches[node.id] = branches[item.zone].add(Text(self._head(item, prefix)))
            incoming = [(edge, rows.get(edge.source, -1) >= row) for edge in into.get(node.id, [])]
            for line in self._body(node, incoming, astray.get(node.id, [])):
                branch.add(Text(line))
            if node.type == NODE_GROUP and (group := group_reference(node)) is not None:
                self._add_group(branch, group, _plain(prefix + node.id))

    def _head(self, item: Placed, prefix: str) -> str:
        node = item.node
        parts = [_plain(prefix + node.id)]
        if node.display_name and node.display_name != node.id:
            parts.append(f'"{_plain(node.display_name)}"')
        parts.append(_plain(node.type))
        if node.type == NODE_GROUP:
            group = group_reference(node)
            known = self.groups.get(group) if group is not None else None
            name = f' "{_plain(known.name)}"' if known is not None and known.name else ""
            parts.append(f"refers to {_plain(group)}{name}" if group is not None else "refers to nothing")
        if node.bypassed:
            parts.append("bypassed")
        return " · ".join(parts)

    def _body(
        self, node: WorkflowNode, incoming: list[tuple[WorkflowEdge, bool]], astray: list[WorkflowEdge]
    ) -> Iterator[str]:
        """Yield the lines of a node: how it loops, its edges, with `values` what is written."""
        if node.type == LOOP_ZONE:
            yield _loop_line(node)
        by_slot: dict[str, list[str]] = {}
        for edge, is_back in incoming:
            source = f"{_plain(edge.source)}.{_plain(edge.source_handle)}"
            by_slot.setdefault(edge.target_handle, []).append(f"{source} ↺" if is_back else source)
        for slot, sources in by_slot.items():
            yield f"{_plain(slot)} ← {', '.join(sources)}"
        for edge in astray:
            target = f"{_plain(edge.target)}.{_plain(edge.target_handle)}"
            yield f"{_plain(edge.source_handle)} → {target}, which is not there"
        if self.values:
            for key, value in {**node.config_values, **node.input_values}.items():
                text = json.dumps(value, ensure_ascii=False)
                yield f"{_plain(key)} = {text if len(text) <= _MOST_VALUE else text[:_MOST_VALUE] + ' …'}"

    def _add_group(self, branch: Tree, group: str, name: str) -> None:
        """Add the workflow of a group, where that is asked for and it was not shown before."""
        from rich.text import Text

        inner = self.groups.get(group)
        if inner is None:
            branch.add(Text(f"there is no workflow {_plain(group)} that can be read"))
        elif self.expand and group in self.shown:
            branch.add(Text(f"shown at {self.shown[group]}"))
        elif self.expand:
            self.shown[group] = name
            self.add(branch, inner, f"{name}/")


def _edges_by_target(
    workflow: Workflow, rows: Mapping[str, int]
) -> tuple[dict[str, list[WorkflowEdge]], dict[str, list[WorkflowEdge]]]:
    """Return the edges into each node, and by source those that lead to a missing node."""
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
            facts.append(f"= {json.dumps(slot.default, ensure_ascii=False)[:_MOST_VALUE]}")
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
    carries = f"; carries {', '.join(carried)}" if carried else ""
    return f"repeats its body until {' or '.join(ends)}{carries}"


def _plain(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
