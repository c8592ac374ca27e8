"""Checks the groups of a workflow: the stored workflows that they refer to, their problems and their nesting.

A problem inside of a referenced workflow is reported at the group that refers to it, so that the report of a document
has places in that document only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tavern_host.contracts.documents import json_path, json_type
from tavern_host.contracts.workflows import Workflow, WorkflowNode
from tavern_workflows.api.dataflow import DEEPEST_GROUPS, GROUP_REFERENCE, MOST_NODES, group_reference
from tavern_workflows.api.workflows import NODE_GROUP
from tavern_workflows.report import Finding, Hints, quoted, short
from tavern_workflows.store import Entry, find

_SHOWN = 10
"""How many workflows of a cycle are named."""

_UNCOUNTED = 10**15
"""Sizes beyond this are all the same: far too large."""


def references(workflow: Workflow) -> list[str]:
    """Return the ids of the workflows that the groups of a workflow stand for, each once."""
    found = dict.fromkeys(group_reference(node) for node in workflow.nodes if node.type == NODE_GROUP)
    return [identifier for identifier in found if identifier is not None]


def closure(workflow: Workflow, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return, by reference as it is written, the entries that a workflow's groups stand for, and those that theirs do,
    at any depth."""
    found: dict[str, Entry] = {}
    waiting = references(workflow)
    while waiting:
        entry = find(entries, identifier := waiting.pop())
        if entry is not None and identifier not in found:
            found[identifier] = entry
            waiting.extend(references(entry.workflow))
    return found


@dataclass(frozen=True)
class _Trouble:
    """The first thing that is wrong in a workflow, or in one that it stands on, and how many more there are."""

    workflow_id: str
    first: Finding
    more: int


class Groups:
    """The stored workflows that a document stands on. `workflows` are those that can be read, by id."""

    def __init__(self, root: Workflow, entries: Mapping[str, Entry]) -> None:
        self._entries = entries
        self._found = closure(root, entries)
        self.workflows: dict[str, Workflow] = {i: e.workflow for i, e in self._found.items() if not e.problems}
        self._references = {i: references(w) for i, w in self.workflows.items()}
        self._references[""] = references(root)  # its file may have any id
        self._order = _acyclic(self._references)
        self._cyclic = frozenset(self._references) - frozenset(self._order)
        self._depths: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._troubles: dict[str, _Trouble] = {}
        for identifier in self._order:
            if identifier in self.workflows:
                self._measure(identifier)

    def examine(self, errors_of: Callable[[Workflow], list[Finding]]) -> None:
        """Look into the workflows that the document stands on. `errors_of` gives what is wrong in one by itself."""
        for identifier in self._order:
            if identifier not in self.workflows:
                continue
            errors = errors_of(self.workflows[identifier])
            if errors:
                self._troubles[identifier] = _Trouble(identifier, errors[0], len(errors) - 1)
                continue
            inner = (self._troubles.get(reference) for reference in self._references[identifier])
            trouble = next((found for found in inner if found is not None), None)
            if trouble is not None:
                self._troubles[identifier] = trouble

    def size(self, root: Workflow) -> Iterator[Finding]:
        """Say so where the document has too many nodes when its groups are expanded."""
        count = _size(root, self._sizes)
        if count > MOST_NODES:
            shown = f"{count:,}" if count < _UNCOUNTED else f"more than {_UNCOUNTED:,}"
            message = f"with its groups expanded the workflow has {shown} nodes, at most {MOST_NODES:,} are allowed"
            yield Finding(("nodes",), message)

    def within(self, node: WorkflowNode, place: int, hints: Hints) -> Iterator[Finding]:
        """What is wrong with what a group refers to, apart from what is wrong inside of that."""
        identifier = group_reference(node)
        path = ("nodes", place, "configValues", GROUP_REFERENCE)
        if identifier is None:
            reference = node.config_values.get(GROUP_REFERENCE)
            got = "nothing" if reference is None else "empty text" if reference == "" else json_type(reference)
            yield Finding(path, f"expected the id of a workflow, got {got}", node.id)
        elif identifier in self._cyclic:
            chain = " → ".join(self._cycle(identifier))
            yield Finding(path, f"groups stand for one another without end: {chain}", node.id)
        elif identifier not in self._found:
            hint = hints(identifier, self._entries)
            yield Finding(path, f"there is no workflow {quoted(identifier)}{hint}", node.id)
        elif problems := self._found[identifier].problems:
            more = _more(len(problems) - 1)
            yield Finding(path, f"the workflow {quoted(identifier)} cannot be read: {problems[0]}{more}", node.id)

    def above(self, node: WorkflowNode, place: int, hints: Hints) -> Iterator[Finding]:
        """Everything that is wrong with what a group of the document refers to."""
        yield from self.within(node, place, hints)
        identifier = group_reference(node) or ""
        path = ("nodes", place, "configValues", GROUP_REFERENCE)
        depth = self._depths.get(identifier, 0)
        if depth > DEEPEST_GROUPS and not node.bypassed:
            yield Finding(path, f"groups are nested {depth} deep, at most {DEEPEST_GROUPS} are allowed", node.id)
        trouble = self._troubles.get(identifier)
        if trouble is not None:
            where = "" if trouble.workflow_id == identifier else f"in {quoted(trouble.workflow_id)}, "
            first = f"{json_path(*trouble.first.path)}: {trouble.first.message}"
            message = f"the workflow {quoted(identifier)} has problems: {where}{first}{_more(trouble.more)}"
            yield Finding(path, message, node.id, severity="warning" if node.bypassed else "error")

    def _measure(self, identifier: str) -> None:
        workflow = self.workflows[identifier]
        inner = (group_reference(node) for node in workflow.nodes if node.type == NODE_GROUP and not node.bypassed)
        self._depths[identifier] = 1 + max((self._depths.get(i or "", 0) for i in inner), default=0)
        self._sizes[identifier] = min(_size(workflow, self._sizes), _UNCOUNTED)

    def _cycle(self, start: str) -> list[str]:
        """Return the ids of a cycle that a workflow is in or leads to, the first of them again at the end."""
        path: dict[str, int] = {}
        while start not in path:
            path[start] = len(path)
            start = next(i for i in self._references[start] if i in self._cyclic)
        cycle = [*list(path)[path[start] :], start]
        names = [short(name) for name in cycle]
        return names if len(names) <= _SHOWN + 1 else [*names[:_SHOWN], "…", names[-1]]


def _more(count: int) -> str:
    return f"; and {count:,} more" if count > 0 else ""


def _size(workflow: Workflow, sizes: Mapping[str, int]) -> int:
    """Return how many nodes a workflow has with its groups expanded; bypassed groups are not."""
    expanded = Counter(group_reference(n) for n in workflow.nodes if n.type == NODE_GROUP and not n.bypassed)
    return len(workflow.nodes) + sum(count * sizes.get(identifier or "", 0) for identifier, count in expanded.items())


def _acyclic(references: Mapping[str, list[str]]) -> list[str]:
    """Return the ids, each after those it refers to; those that are on a cycle or lead to one are left out."""
    if len(references) == 1 and not any(references.values()):
        return list(references)  # without groups networkx is not imported
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from(references)
    graph.add_edges_from((i, other) for i, wanted in references.items() for other in wanted if other in references)
    components = networkx.strongly_connected_components(graph)
    cyclic = {i for found in components for i in found if len(found) > 1 or graph.has_edge(i, i)}
    leading = set().union(cyclic, *(networkx.ancestors(graph, i) for i in cyclic))
    return list(networkx.topological_sort(graph.subgraph(references.keys() - leading).reverse()))
