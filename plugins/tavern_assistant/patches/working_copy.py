"""The copy of a workflow's document that a patch changes: its lists by id, what is copied, and what goes with what is
removed. What is not changed is shared with the document."""

from __future__ import annotations

import copy
import re
from collections.abc import Container, Iterator
from typing import Any

from tavern_assistant.patches.operations import Refused
from tavern_host.contracts.documents import json_type

Item = dict[str, Any]

LISTS = ("nodes", "edges", "comments")
"""The lists of a document whose items have ids."""
MULTI = re.compile(r"__[0-9]{1,9}$")
"""What ends a handle of an input for several edges."""


def text_in(item: Item, key: str) -> str | None:
    """Return a text of an item, or None for anything else."""
    found = item.get(key)
    return found if isinstance(found, str) else None


def _has_id(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("id"), str)


class WorkingCopy:
    """A document that is being changed. `touched` says by kind and id at which `index` an item was changed last."""

    def __init__(self, document: Item) -> None:
        self.document: Item = {**document}
        self._base = document  # as long as it is there, what is shared with it has an identity of its own
        self.index = 0
        self.touched: dict[tuple[str, str], int] = {}
        self._owned: set[int] = set()
        self._indexes: dict[str, dict[str, int]] = {}

    def listed(self, kind: str) -> list[Any]:
        """Return a list of the document as it is, empty where there is none."""
        found = self.document.get(kind, [])
        if not isinstance(found, list):
            raise Refused("broken_document", f"`{kind}` is {json_type(found)}", "mend the workflow's file first")
        return found

    def own_list(self, kind: str) -> list[Any]:
        """Return a list of the document that may be changed."""
        found = self.listed(kind)
        if id(found) not in self._owned:
            found = self.document[kind] = list(found)
            self._owned.add(id(found))
        return found

    def ids(self, kind: str) -> dict[str, int]:
        """Return where the items of a list are, by id."""
        if kind not in self._indexes:
            items = enumerate(self.listed(kind))
            self._indexes[kind] = {item["id"]: at for at, item in items if _has_id(item)}
        return self._indexes[kind]

    def own(self, kind: str, identifier: str) -> Item:
        """Return an item that may be changed, and note that it is."""
        items, at = self.own_list(kind), self.ids(kind)[identifier]
        self.own_part(items, at)
        self.touch(kind, identifier)
        found: Item = items[at]
        return found

    def own_part(self, whole: Any, key: str | int) -> None:
        """Make a part of the document, or of a list that is the copy's own, its own too."""
        if id(whole[key]) not in self._owned:
            whole[key] = copy.deepcopy(whole[key])
            self._owned.add(id(whole[key]))

    def touch(self, kind: str, identifier: str) -> None:
        """Note that an item is changed by the present operation."""
        self.touched[kind, identifier] = self.index

    def insert(self, kind: str, item: Item, at: int | None) -> None:
        """Put a new item, which is the copy's own, at an index or at the end."""
        items = self.own_list(kind)
        at = len(items) if at is None else at
        if at == len(items):
            self.ids(kind)[item["id"]] = at
        else:
            self._indexes.pop(kind, None)
        items.insert(at, item)
        self._owned.add(id(item))
        self.touch(kind, item["id"])

    def free_id(self, kind: str, wanted: str, reserved: Container[str]) -> str:
        """Return an id that is neither taken nor reserved, as the studio makes them: `upper-case`, `upper-case-2` …"""
        base = re.sub(r"([a-z0-9])([A-Z])", r"\1-\2", wanted.rpartition(":")[2]).lower()[:100] or "node"
        taken, number, found = self.ids(kind), 1, base
        while found in taken or found in reserved:
            number += 1
            found = f"{base}-{number}"
        return found

    def remove(self, kind: str, identifier: str) -> None:
        """Remove a node, an edge or a comment, with what belongs to it."""
        if kind == "nodes":
            self._remove_nodes(identifier)
        elif kind == "edges":
            self.remove_edges({identifier})
        else:
            self.take_out(kind, {identifier})

    def _remove_nodes(self, identifier: str) -> None:
        """Remove a node with what lies in it, and all their edges."""
        inside: dict[Any, list[str]] = {}
        for node in self.items("nodes"):
            if (parent := text_in(node, "parentNode")) is not None:
                inside.setdefault(parent, []).append(str(node["id"]))
        gone, waiting = {identifier}, [identifier]
        while waiting:
            for one in inside.get(waiting.pop(), ()):
                if one not in gone:
                    gone.add(one)
                    waiting.append(one)
        edges = self.items("edges")
        self.remove_edges({e["id"] for e in edges if text_in(e, "source") in gone or text_in(e, "target") in gone})
        self.take_out("nodes", gone)
        preview = self.document.get("previewTarget")
        if isinstance(preview, dict) and text_in(preview, "nodeId") in gone:
            del self.document["previewTarget"]

    def remove_edges(self, gone: set[str]) -> None:
        """Remove edges; those that stay in the same input move up."""
        if not gone:
            return
        removed = [edge for edge in self.items("edges") if edge["id"] in gone]
        self.take_out("edges", gone)
        for edge in removed:
            target = text_in(edge, "target")
            if target is not None and target in self.ids("nodes"):
                self.touch("nodes", target)
                key = MULTI.sub("", str(edge.get("targetHandle")))
                order = self.orders(target).get(key)
                if isinstance(order, list) and edge["id"] in order:
                    self.reorder(target, key, [one for one in order if one != edge["id"]])

    def items(self, kind: str) -> Iterator[Item]:
        """Return the items of a list that have ids."""
        return filter(_has_id, self.listed(kind))

    def take_out(self, kind: str, gone: set[str]) -> None:
        """Remove items, and nothing else."""
        items = self.own_list(kind)
        items[:] = [item for item in items if not isinstance(item, dict) or item.get("id") not in gone]
        self._indexes.pop(kind, None)
        for identifier in gone:
            self.touch(kind, identifier)

    def node(self, node: str) -> Item:
        """Return a node as it is."""
        found: Item = self.listed("nodes")[self.ids("nodes")[node]]
        return found

    def orders(self, node: str) -> Item:
        """Return the orders of edges that a node has, by input."""
        found = self.node(node).get("inputConnectionOrders")
        return found if isinstance(found, dict) else {}

    def reorder(self, node: str, key: str, order: list[str]) -> None:
        """Put the edges of an input into an order, which numbers their handles."""
        self.own("nodes", node)["inputConnectionOrders"][key] = order
        for number, edge in enumerate(order):
            if isinstance(edge, str) and edge in self.ids("edges"):
                self.own("edges", edge)["targetHandle"] = f"{key}__{number}"
