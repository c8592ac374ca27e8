"""Applies a patch to a copy of a workflow's document: JSON Patch, with what makes it usable to a model.

Nodes, edges and comments may be named by id in paths, and those that the patch adds by their `localId`; ids are given
here, and what belongs to something removed goes with it. What is not changed is shared with the document, which stays
as it is.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from tavern_assistant.api.assistant import PatchProblem
from tavern_assistant.patches.items import Slots, new_edge, new_node, refuse
from tavern_assistant.patches.operations import (
    INDEX,
    MAX_PROBLEMS,
    Copies,
    Operation,
    Parts,
    Refused,
    apply_in_place,
    pointer,
    read_operations,
)
from tavern_assistant.patches.working_copy import LISTS, MULTI, Item, WorkingCopy, text_in
from tavern_host.contracts.documents import json_type
from tavern_host.contracts.names import suggest
from tavern_host.contracts.nodes import NodeDefinition
from tavern_workflows.api.workflows import GROUP_INPUT, GROUP_OUTPUT

_INTERFACES = {"interfaceInputs": (GROUP_INPUT, "source"), "interfaceOutputs": (GROUP_OUTPUT, "target")}
"""By part of the interface, the node type that stands for it, and which end of an edge is at its slots."""
_OBJECTS = frozenset({"inputValues", "configValues", "inputConnectionOrders", "position", "policy"})
"""Parts of a node that are made where a patch adds to them."""
_LOCAL = frozenset({"localId", "sourceLocalId", "targetLocalId", "parentLocalId"})
_WHOLE = frozenset((kind,) for kind in LISTS)
_BY_ID = "id:"
"""Before an id in a path, for ids that look like an index."""
_PLACE = re.compile(rf"-|{INDEX.pattern}|{_BY_ID}.+", re.DOTALL)
"""Where an item is added: at the end, at an index, before another one."""
UNNAMED = "\0"
"""Begins the localIds of what a patch adds without one."""


@dataclass
class Patched:
    """What became of a patch. `touched` says by kind and id which operation changed an item last, `local_ids` which
    localId an item was given, and `by_id` are the operations as they can be applied to another revision."""

    document: Item
    problems: list[PatchProblem] = field(default_factory=list)
    touched: dict[tuple[str, str], int] = field(default_factory=dict)
    local_ids: dict[tuple[str, str], str] = field(default_factory=dict)
    by_id: list[JsonValue] = field(default_factory=list)


def apply_to_workflow(document: Item, items: Sequence[JsonValue], definitions: Mapping[str, NodeDefinition]) -> Patched:
    """Return the patched document of a workflow, or problems. `definitions` are the node types, by full type."""
    operations, problems = read_operations(items)
    patch = _Patch(document, definitions, operations)
    for operation in operations:
        if len(patch.result.problems) < MAX_PROBLEMS:
            patch.step(operation)
    patch.result.problems[:0] = problems
    return patch.result


class _Patch:
    def __init__(self, document: Item, definitions: Mapping[str, NodeDefinition], operations: list[Operation]) -> None:
        self.copy = WorkingCopy(document)
        self.result = Patched(self.copy.document, touched=self.copy.touched)
        self.slots = Slots(self.copy.document, definitions)
        self._copies = Copies()
        self._local: dict[str, dict[str, str | None]] = {kind: {} for kind in LISTS}
        """By kind, the ids of what the patch added by localId; None where adding it failed."""
        self._later = {_local_id_of(operation): operation.index for operation in operations}

    def step(self, operation: Operation) -> None:
        """Apply one operation, or note why that is not possible."""
        self.copy.index = operation.index
        try:
            self._apply(operation)
        except Refused as refused:
            self.result.problems.append(refused.problem(operation.index, pointer(operation.path)))
            if (local_id := _local_id_of(operation)) is not None:
                self._local["nodes"].setdefault(local_id, None)
        except _FollowsFromAnother:
            pass

    def _apply(self, operation: Operation) -> None:
        (path, at), (source, source_at) = self._named(operation.path), self._named(operation.source)
        value = operation.value
        if operation.name == "add" and len(path) == 2 and path[0] in LISTS:
            if not _PLACE.fullmatch(operation.path[1]):
                hint = f"replace changes one that is there, remove takes it away; new ones are added at /{path[0]}/-"
                raise Refused("bad_path", f"one of the {path[0]} is added at /{path[0]}/- or at an index", hint)
            path = path if path[1] == "-" else (path[0], _BY_ID + path[1].removeprefix(_BY_ID))
            if isinstance(value, dict):
                value = {"localId": f"{UNNAMED}{operation.index}", **value}
        operation = replace(operation, path=path, source=source, value=value)
        self.result.by_id.append(operation.to_json())
        operation = replace(operation, value=copy.deepcopy(value))
        by_index = replace(operation, path=at, source=source_at)
        if operation.name == "test":
            apply_in_place(self.copy.document, by_index, self._copies)
        elif not path or path in _WHOLE or (operation.name in ("move", "copy") and (not source or source in _WHOLE)):
            hint = "change nodes, edges and the interface one by one; new ones are added at /nodes/- and /edges/-"
            raise Refused("whole_document", "the document and its lists cannot be changed as a whole by a patch", hint)
        elif path == ("id",) or source == ("id",):
            raise Refused("fixed", "a patch does not change the id of a workflow", "move the workflow instead")
        elif path[0] in LISTS and len(path) == 2:
            self._item(operation)
        else:
            self._inside(operation, by_index)

    # --- paths ----------------------------------------------------------------------------------------

    def _named(self, path: Parts) -> tuple[Parts, Parts]:
        """Return a path with the name of an item (an id, or its localId) in the place of its index, and with its
        index."""
        if len(path) < 2 or path[0] not in LISTS or path[1] == "-":
            return path, path
        kind, name = path[0], path[1]
        item = self._item_named(kind, name)
        if item is None:
            if len(path) == 2 and INDEX.fullmatch(name) and int(name) == len(self.copy.listed(kind)):
                return (kind, "-"), (kind, "-")  # right behind the last one
            raise self._unknown(kind, name)
        found = str(item["id"])
        local = self.result.local_ids.get((kind, found))
        written = found if local is None else local
        is_plain = not INDEX.fullmatch(written) and written != "-" and not written.startswith(_BY_ID)
        by_id = (kind, written if is_plain else f"{_BY_ID}{written}", *path[2:])
        return by_id, (kind, str(self.copy.ids(kind)[found]), *path[2:])

    def _item_named(self, kind: str, name: str) -> Item | None:
        """Return the item of an id, a localId or an index. Raises `Refused` where the name is ambiguous."""
        items, ids = self.copy.listed(kind), self.copy.ids(kind)
        at = int(name) if INDEX.fullmatch(name) else None
        if at is not None:
            if name in ids and ids[name] != at and at < len(items):
                message = f"{name} is the id of one of the {kind} and the index of another"
                raise Refused("ambiguous_path", message, f"write /{kind}/{_BY_ID}{name} for the one with this id")
            at = ids.get(name, at)
        else:
            bare = name.removeprefix(_BY_ID)
            local = self._local[kind]
            for known in (name, bare):
                if known in local and local[known] is None:
                    raise _FollowsFromAnother
                at = ids.get(known, ids.get(local.get(known) or ""))
                if at is not None:
                    break
        if at is None or at >= len(items):
            return None
        item: JsonValue = items[at]
        if not isinstance(item, dict) or not isinstance(item.get("id"), str):
            raise Refused("broken_document", f"the item {at} of {kind} is broken", "mend the workflow's file first")
        return item

    def _unknown(self, kind: str, name: str) -> Refused:
        old = [one for one in self.copy.ids(kind) if (kind, one) not in self.result.local_ids]
        ids = [*old, *(one for one in self._local[kind] if not one.startswith(UNNAMED))]
        what = {"nodes": "node", "edges": "edge", "comments": "comment"}[kind]
        message = f"there is no {what} {name!r:.200}"
        if name in self._later:
            hint = f"operation {self._later[name]} adds it; move that operation before this one"
        else:
            hint = suggest(name, ids) or (
                f"there are: {', '.join(ids[:20])}" if ids else f"there are no {kind}; add one at /{kind}/-"
            )
        return Refused(f"unknown_{what}", message, hint)

    # --- items ----------------------------------------------------------------------------------------

    def _item(self, operation: Operation) -> None:
        """Add, remove, replace, move or copy a node, an edge or a comment as a whole."""
        kind, name = operation.path
        if operation.name in ("move", "copy"):
            self._from_another(operation)
        elif operation.name == "remove":
            self.copy.remove(kind, self._existing(kind, name))
        elif operation.name == "replace":
            self._replace(kind, self._existing(kind, name), operation.value)
        else:
            self._add(kind, operation.value, self._place(kind, name))

    def _existing(self, kind: str, name: str) -> str:
        item = self._item_named(kind, name) if name != "-" else None
        if item is None:
            raise self._unknown(kind, name)
        return str(item["id"])

    def _place(self, kind: str, name: str) -> int | None:
        """Return at which index something is added; None is the end."""
        return None if name == "-" else self.copy.ids(kind)[self._existing(kind, name)]

    def _from_another(self, operation: Operation) -> None:
        kind, name = operation.path
        if len(operation.source) != 2 or operation.source[0] != kind:
            hint = f"add a new one at /{kind}/- instead"
            raise Refused("bad_source", f"only one of the {kind} can be moved or copied to /{kind}", hint)
        source = self._existing(kind, operation.source[1])
        item = copy.deepcopy(self.copy.listed(kind)[self.copy.ids(kind)[source]])
        place = self._place(kind, name)
        if operation.name == "move":
            self.copy.take_out(kind, {source})
            self.copy.insert(kind, item, None if place is None else min(place, len(self.copy.listed(kind))))
            return
        self._copies.add(item)
        for key in ("id", "position", "inputConnectionOrders"):
            item.pop(key, None)
        self._add(kind, {**item, "localId": f"{UNNAMED}{operation.index}"}, place)

    def _add(self, kind: str, value: JsonValue, place: int | None) -> None:
        if not isinstance(value, dict):
            hint = "give one object with its `type`" if kind == "nodes" else "give one object"
            raise Refused("bad_value", f"one of the {kind} is an object, this is {json_type(value)}", hint)
        wrong = [key for key in ("id", "position") if key in value and not (kind == "comments" and key == "position")]
        if wrong:
            names = " and ".join(f"`{key}`" for key in wrong)
            hint = "leave them out; call it by a `localId` where other operations name it"
            raise Refused("id_or_position_given", f"{names} is given by the host", hint)
        local_id = self._local_id(kind, value)
        if kind == "nodes":
            item = new_node(value, self.slots, self._node)
            wanted = str(item["type"])
        elif kind == "edges":
            item = new_edge(value, self.slots, self._node, self.copy.node)
            wanted = f"{item['source']}-{item['target']}"
        else:
            refuse(item := {**value}, _LOCAL, "a comment")
            wanted = "note"
        item = {"id": self.copy.free_id(kind, wanted, self._local[kind]), **item}
        if local_id is not None:
            self._local[kind][local_id] = item["id"]
            self.result.local_ids[kind, item["id"]] = local_id
        self.copy.insert(kind, item, place)
        if kind == "edges":
            self._order(item)

    def _local_id(self, kind: str, value: Item) -> str | None:
        local_id = value.pop("localId", None)
        if local_id is None:
            return None
        if not isinstance(local_id, str) or not 0 < len(local_id) <= 200:
            raise Refused("bad_local_id", "a localId is a text of 1 to 200 characters", "choose a short name")
        if local_id in self.copy.ids(kind) or self._local[kind].get(local_id) is not None:
            raise Refused("local_id_taken", f"{local_id!r} names another already", "choose another localId")
        return local_id

    def _replace(self, kind: str, identifier: str, value: JsonValue) -> None:
        if not isinstance(value, dict):
            raise Refused("bad_value", f"one of the {kind} is an object, this is {json_type(value)}", "")
        if value.setdefault("id", identifier) != identifier:
            raise Refused("fixed", "the id of what is replaced stays", "leave `id` out")
        value.pop("localId", None)
        if kind == "edges":
            edge = new_edge(value, self.slots, self._node, self.copy.node)
            self.copy.remove_edges({identifier})
            self.copy.insert(kind, edge, None)
            self._order(edge)
            return
        former = self.copy.own(kind, identifier)
        value = new_node(value, self.slots, self._node) if kind == "nodes" else value
        kept: Item = {key: former[key] for key in ("position", "inputConnectionOrders") if key in former}
        former.clear()
        former.update({**kept, **value})

    # --- orders of edges ------------------------------------------------------------------------------

    def _order(self, edge: Item) -> None:
        """Give a new edge into an input for several its place among them: the one in its handle, else the last."""
        key = MULTI.sub("", edge["targetHandle"])
        if not self.slots.is_multi(key, self.copy.node(edge["target"])):
            return
        taken = {
            str(other.get("targetHandle"))
            for other in self.copy.items("edges")
            if other.get("target") == edge["target"] and other is not edge
        }
        order = self.copy.orders(edge["target"]).get(key)
        place = MULTI.search(edge["targetHandle"])
        if isinstance(order, list):
            at = len(order) if place is None else min(int(place[0][2:]), len(order))
            self.copy.reorder(edge["target"], key, [*order[:at], edge["id"], *order[at:]])
        elif place is None:
            edge["targetHandle"] = next(h for n in range(len(taken) + 1) if (h := f"{key}__{n}") not in taken)

    # --- inside of items, and the rest ----------------------------------------------------------------

    def _inside(self, operation: Operation, by_index: Operation) -> None:
        """Change a value inside of an item, or another part of the document."""
        for path, is_changed in ((operation.path, True), (operation.source, operation.name == "move")):
            if path and is_changed:
                self._prepare(operation, path)
        before = {part: dict(self._interface(part)) for part in _INTERFACES}
        by_index = replace(by_index, value=self._value(operation.path, operation.value))
        apply_in_place(self.copy.document, by_index, self._copies)
        for part, slots in before.items():
            self._follow_interface(part, slots, operation.path[1] if _is_rename(operation, part) else None)

    def _prepare(self, operation: Operation, path: Parts) -> None:
        """Make what a path leads into the patch's own, with the objects on the way that may be left out."""
        if path[0] in LISTS:
            if len(path) <= 2 or path[2] == "id" or path[2] in _LOCAL:
                raise Refused("fixed", f"{pointer(path)} is not changed by a patch", "ids are given by the host")
            item = self.copy.own(path[0], self._existing(path[0], path[1]))
            if path[:1] + path[2:3] == ("nodes", "data") and "data" not in item:
                raise Refused("bad_path", "a node has no `data`", "its values are in inputValues and configValues")
            if operation.name in ("add", "copy", "move") and path[2] in _OBJECTS and len(path) > 3:
                item.setdefault(path[2], {})
            return
        if path[0] in _INTERFACES and len(path) > 1:
            self.copy.document.setdefault(path[0], {})
        if path[0] in self.copy.document and len(path) > 1:
            self.copy.own_part(self.copy.document, path[0])

    def _value(self, path: Parts, value: JsonValue) -> JsonValue:
        """Return a value with the ids of nodes that it names by localId."""
        names = path[0] == "nodes" and path[2:] == ("parentNode",)
        names |= path[0] == "edges" and path[2:] in (("source",), ("target",))
        names |= path == ("previewTarget", "nodeId")
        if names and isinstance(value, str):
            return self._node(value)
        if path == ("previewTarget",) and isinstance(value, dict) and isinstance(value.get("nodeId"), str):
            return {**value, "nodeId": self._node(str(value["nodeId"]), "nodeId")}
        return value

    def _node(self, name: str, path: str | None = None) -> str:
        """Return the id of the node that an id or a localId names. Raises `Refused`."""
        if name in self.copy.ids("nodes"):
            return name
        local = self._local["nodes"]
        if name in local and local[name] is None:
            raise _FollowsFromAnother
        found = local.get(name)
        if found is None or found not in self.copy.ids("nodes"):
            refused = self._unknown("nodes", name)
            raise Refused(refused.code, refused.message, refused.hint, path)
        return found

    def _interface(self, part: str) -> Item:
        found = self.copy.document.get(part, {})
        return found if isinstance(found, dict) else {}

    def _follow_interface(self, part: str, before: Item, renamed: str | None) -> None:
        """Let edges follow a slot that got another key, and go with one that is gone."""
        now, (node_type, end) = self._interface(part), _INTERFACES[part]
        gone = {key for key in before if key not in now}
        if not gone:
            return
        ends = {node["id"] for node in self.copy.items("nodes") if node.get("type") == node_type}
        of_nodes = (e for e in self.copy.items("edges") if text_in(e, end) in ends)
        at_slots = [e for e in of_nodes if text_in(e, f"{end}Handle") in gone]
        if renamed is not None and renamed not in before:
            for edge in at_slots:
                self.copy.own("edges", edge["id"])[f"{end}Handle"] = renamed
        else:
            self.copy.remove_edges({edge["id"] for edge in at_slots})


class _FollowsFromAnother(Exception):
    """Raised by an operation that needs what another one could not add: one problem is enough."""


def _is_rename(operation: Operation, part: str) -> bool:
    ends = (operation.path, operation.source)
    return operation.name == "move" and all(len(end) == 2 and end[0] == part for end in ends)


def _local_id_of(operation: Operation) -> str | None:
    value = operation.value
    found = value.get("localId") if isinstance(value, dict) and operation.name == "add" else None
    return found if isinstance(found, str) else None
