"""Turns what a check of a workflow finds into problems of the operations that caused it, with hints for a model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tavern_assistant.api.assistant import PatchProblem
from tavern_assistant.patches.items import Slots, listed
from tavern_assistant.patches.operations import pointer
from tavern_assistant.patches.workflow import UNNAMED, Patched
from tavern_assistant.patches.working_copy import LISTS, Item
from tavern_host.contracts.names import suggest
from tavern_host.contracts.nodes import NodeDefinition
from tavern_workflows.api import dataflow
from tavern_workflows.api.workflows import WorkflowProblem

_PART = re.compile(r'\.([^.\[]+)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]')
"""A part of a JSON path, as problems of workflows have it."""
_CYCLE = "remove one of the edges between them; what is to be repeated goes into a core:LoopZone"


class Findings:
    """What is wrong with a workflow after a patch, beyond what was wrong before."""

    def __init__(self, before: Item, patched: Patched, definitions: Mapping[str, NodeDefinition]) -> None:
        self._before = before
        self._patched = patched
        self._slots = Slots(patched.document, definitions)
        self._lists = {kind: _items(patched.document, kind) for kind in LISTS}

    def problems(self, now: Sequence[WorkflowProblem], before: Sequence[WorkflowProblem]) -> list[PatchProblem]:
        """Return the problems of the operations; `now` and `before` are what checks found."""
        known = {_key(problem, self._before) for problem in before}
        new = [found for found in now if _key(found, self._patched.document) not in known and self._counts(found)]
        problems = [self._problem(found) for found in new]
        if self._patched.problems:  # an operation that failed may have been meant to mend it
            problems = [one for one in problems if one.code != "required_input"]
        return [*problems, *self._unknown_values()]

    def _counts(self, found: WorkflowProblem) -> bool:
        """Return whether a finding keeps a patch from being applied: errors do, and values that do not fit."""
        parts = _parts(found.path)
        is_value = len(parts) > 2 and parts[2] in ("inputValues", "configValues")
        return found.severity == "error" or (is_value and self._item(parts)[0] in self._patched.touched)

    def _item(self, parts: Sequence[str | int]) -> tuple[tuple[str, str], Item]:
        if len(parts) < 2 or parts[0] not in LISTS or not isinstance(parts[1], int):
            return ("", ""), {}
        kind = str(parts[0])
        item = self._lists[kind][parts[1]] if parts[1] < len(self._lists[kind]) else {}
        return (kind, str(item.get("id"))), item

    def _problem(self, found: WorkflowProblem) -> PatchProblem:
        parts = _parts(found.path)
        key, item = self._item(parts)
        code, hint = self._code_and_hint(found, parts, item)
        path = pointer((key[0], self._name(key), *parts[2:]) if item else parts)
        return PatchProblem(
            index=self._index(key, item, found), path=path, code=code, message=self._named(found.message), hint=hint
        )

    def _name(self, key: tuple[str, str]) -> str:
        local = self._patched.local_ids.get(key, UNNAMED)
        return key[1] if local.startswith(UNNAMED) else local

    def _named(self, message: str) -> str:
        """Return a message, with the localIds of new nodes whose ids it says."""
        for (kind, identifier), local in self._patched.local_ids.items():
            is_said = kind == "nodes" and not local.startswith(UNNAMED) and local != identifier in message
            if is_said and re.search(rf"(?:'|\b){re.escape(identifier)}(?:'|\.| →|$)", message):
                message += f" ({identifier} is the id that {local!r} was given)"
        return message

    def _index(self, key: tuple[str, str], item: Item, found: WorkflowProblem) -> int | None:
        """Return the operation that changed what a finding is at last, or a node that it is about."""
        touched = self._patched.touched
        ends = [("nodes", str(item.get(end))) for end in ("source", "target") if end in item]
        keys = [key, ("nodes", found.node or ""), *ends]
        return next((touched[one] for one in keys if one in touched), None)

    def _code_and_hint(self, found: WorkflowProblem, parts: Sequence[str | int], item: Item) -> tuple[str, str]:
        kind, last = (parts[0] if parts else ""), parts[-1] if parts else ""
        if kind == "nodes" and last == "type" and item:
            return "unknown_type", ""
        if kind == "nodes" and len(parts) > 2 and parts[2] == "inputValues":
            if found.severity == "error":
                name = json.dumps(self._name(("nodes", str(item.get("id")))), ensure_ascii=False)
                hint = f"give it in inputValues, or add an edge with target {name} and targetHandle {found.slot!r}"
                return "required_input", hint
            return "wrong_value", "give a value of the input's type, or connect a node that gives one"
        if kind == "edges" and len(parts) == 2:
            if found.slot is None:
                return "cycle", _CYCLE
            return "incompatible", self._fitting(item)
        if kind == "edges" and last in ("source", "target"):
            nodes = [self._name(("nodes", str(node.get("id")))) for node in self._lists["nodes"]]
            return "unknown_node", f"there are: {listed(nodes)}"
        if kind == "edges" and last in ("sourceHandle", "targetHandle") and found.slot is not None:
            return self._handle(item, str(last))
        return "invalid", ""

    def _node(self, identifier: Any) -> Item:
        return next((node for node in self._lists["nodes"] if node.get("id") == identifier), {})

    def _handle(self, edge: Item, member: str) -> tuple[str, str]:
        end = member.removesuffix("Handle")
        inputs, outputs, dynamic = self._slots.of(self._node(edge.get(end)))
        if end == "source":
            return "unknown_handle", f"it has: {listed(outputs)}"
        if (slot := dataflow.find_slot(inputs, str(edge.get(member)), dynamic=dynamic)) is None:
            return "unknown_handle", f"it has: {listed(inputs)}"
        others = [
            str(other.get("id"))
            for other in self._lists["edges"]
            if other.get("target") == edge.get("target")
            and other.get("targetHandle") == edge.get("targetHandle")
            and other is not edge
        ]
        free = [key for key in inputs if key != slot[0]]
        also = f"; other inputs: {listed(free)}" if free else ""
        return "input_taken", f"remove {pointer(('edges', others[0])) if others else 'the other edge'} first{also}"

    def _fitting(self, edge: Item) -> str:
        """Say which inputs of an edge's target its output goes into."""
        _, outputs, _ = self._slots.of(self._node(edge.get("source")))
        inputs, _, _ = self._slots.of(self._node(edge.get("target")))
        output = dataflow.find_output(outputs, str(edge.get("sourceHandle")))
        fits = [key for key, slot in inputs.items() if output and dataflow.compatible(output, slot) is None]
        return f"it goes into: {listed(fits)}" if fits else "put a node between them that converts the value"

    def _unknown_values(self) -> Iterator[PatchProblem]:
        """Yield values for inputs that a node does not have, where the patch gives them."""
        former = {item.get("id"): item for item in _items(self._before, "nodes")}
        for node in self._lists["nodes"]:
            key = ("nodes", str(node.get("id")))
            values = node.get("inputValues")
            if key not in self._patched.touched or not isinstance(values, dict):
                continue
            inputs, _, dynamic = self._slots.of(node)
            old = former.get(node.get("id"), {}).get("inputValues") or {}
            for name in values if not dynamic and node.get("type") in self._slots.definitions else ():
                if name not in inputs and name not in old:
                    config = self._slots.definitions[str(node["type"])].config_schema or {}
                    hint = (
                        "it is a configuration: put it into configValues" if name in config else suggest(name, inputs)
                    )
                    yield PatchProblem(
                        index=self._patched.touched[key],
                        path=pointer(("nodes", self._name(key), "inputValues", name)),
                        code="unknown_input",
                        message=f"{node.get('type')} has no input {name!r:.200}",
                        hint=hint or f"it has: {listed(inputs)}",
                    )


def _key(problem: WorkflowProblem, document: Item) -> tuple[Any, ...]:
    """Return a key that is the same before and after a patch, although the problem's place in a list is not."""
    parts = _parts(problem.path)
    if len(parts) > 1 and parts[0] in LISTS and isinstance(parts[1], int):
        items = _items(document, str(parts[0]))
        identifier = items[parts[1]].get("id") if parts[1] < len(items) else None
        return (parts[0], str(identifier), *parts[2:], problem.slot, problem.severity)
    return (*parts, problem.message)


def _items(document: Item, kind: str) -> list[Item]:
    found = document.get(kind)
    return [item if isinstance(item, dict) else {} for item in found] if isinstance(found, list) else []


def _parts(path: str) -> list[str | int]:
    found: Iterable[re.Match[str]] = _PART.finditer(path)
    return [int(m[2]) if m[2] else json.loads(m[3]) if m[3] else m[1] for m in found]
