"""Subgraphs of ComfyUI: each node that stands for one is replaced by the nodes in it, with their links, in a frame of
its name. What remains is a graph as the editor saved it before there were subgraphs."""

from __future__ import annotations

from typing import Any

from tavern_host.contracts.errors import InvalidInput
from tavern_workflows.foreign.graph import MAX_LINKS, MAX_NODES, key_of, object_in, objects_in, pair_of, text_of

Link = tuple[str, int, str, int]
"""From which node and slot a link leads to which node and slot."""
_INPUT, _OUTPUT = "-10", "-20"
"""The nodes within a subgraph that stand for what comes in and goes out."""
_MARGIN, _NODE = 40.0, (300.0, 200.0)


def links_of(listed: Any) -> dict[str, Link]:
    """Return links by their ids, in both forms that they have; what is none is left out."""
    found: dict[str, Link] = {}
    for link in listed if isinstance(listed, list) else []:
        if isinstance(link, dict):
            link = [link.get(key) for key in ("id", "origin_id", "origin_slot", "target_id", "target_slot")]
        if isinstance(link, list) and len(link) >= 5 and type(link[2]) is int and type(link[4]) is int:
            found[key_of(link[0])] = (key_of(link[1]), link[2], key_of(link[3]), link[4])
    return found


class Unfolded:
    """The nodes of a document by key, its links by id, and its frames, without subgraphs; `folded` are the names of
    those that could not be replaced, by the type of their nodes: they hold themselves. Raises `InvalidInput`."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.nodes = {key_of(one.get("id")): one for one in objects_in(document.get("nodes"))}
        self.links = links_of(document.get("links"))
        self.frames = [*objects_in(document.get("groups"), "frames")]
        self.folded: dict[str, str] = {}
        listed = objects_in(object_in(document.get("definitions")).get("subgraphs"))
        self._known = {key_of(one.get("id")): one for one in listed}
        self._within: dict[str, frozenset[str]] = {}
        self._touching: dict[str, set[str]] = {}
        for id, link in self.links.items():
            self._add(id, link)
        waiting = [key for key, node in self.nodes.items() if self._kind(node) in self._known]
        while waiting:
            waiting += self._unfold(waiting.pop())

    def _add(self, id: str, link: Link) -> None:
        self.links[id] = link
        if len(self.links) > MAX_LINKS:
            raise InvalidInput(f"the graph has more than {MAX_LINKS:,} links with those in its subgraphs")
        for node in (link[0], link[2]):
            self._touching.setdefault(node, set()).add(id)

    def _kind(self, node: dict[str, Any]) -> str:
        return text_of(node.get("type"), 200)

    def _unfold(self, key: str) -> list[str]:
        """Put what is in a node into its place; return the nodes in it that are subgraphs."""
        node, within = self.nodes[key], self._within.get(key, frozenset())
        kind = self._kind(node)
        graph = self._known[kind]
        if kind in within:
            self.folded[kind] = text_of(graph.get("name")) or "a subgraph"
            return []
        del self.nodes[key]
        inner = objects_in(graph.get("nodes"))
        if len(self.nodes) + len(inner) > MAX_NODES:
            raise InvalidInput(f"the graph has more than {MAX_NODES:,} nodes with those in its subgraphs")
        offset = self._framed(node, graph, inner)
        made: dict[str, dict[str, Any]] = {}
        for one in inner:
            place = pair_of(one.get("pos")) or (0.0, 0.0)
            moved = {"pos": [place[0] + offset[0], place[1] + offset[1]]}
            slots = [{**slot, "link": f"{key}:{key_of(slot.get('link'))}"} for slot in objects_in(one.get("inputs"))]
            mode = {"mode": node["mode"]} if node.get("mode") in (2, 4) else {}
            made[f"{key}:{key_of(one.get('id'))}"] = {**one, **moved, **mode, "inputs": slots}
        self.nodes |= made
        self._within |= dict.fromkeys(made, within | {kind})
        self._join(key, node, links_of(graph.get("links")))
        return [one for one in made if self._kind(made[one]) in self._known]

    def _framed(self, node: dict[str, Any], graph: dict[str, Any], inner: list[dict[str, Any]]) -> tuple[float, float]:
        """Draw a frame around where the nodes of a subgraph come to stand; return how far they are moved."""
        corner = pair_of(node.get("pos")) or (0.0, 0.0)
        places = [pair_of(one.get("pos")) or (0.0, 0.0) for one in inner] or [(0.0, 0.0)]
        left, top = min(x for x, _ in places), min(y for _, y in places)
        width, height = max(x for x, _ in places) - left, max(y for _, y in places) - top
        size = (width + _NODE[0] + 2 * _MARGIN, height + _NODE[1] + 2 * _MARGIN)
        title = text_of(node.get("title")) or text_of(graph.get("name"))
        self.frames.append({"title": title, "bounding": [corner[0] - _MARGIN, corner[1] - _MARGIN, *size]})
        return corner[0] - left, corner[1] - top

    def _join(self, key: str, node: dict[str, Any], links: dict[str, Link]) -> None:
        """Let links that led to and from a node lead to and from what is in it; what is written in it, and in none of
        its nodes, is a primitive before them."""
        outer = {id: self.links[id] for id in self._touching.pop(key, ()) if id in self.links}
        entering = {link[3]: link[:2] for link in outer.values() if link[2] == key}
        entering |= {place: (one, 0) for place, one in self._written(key, node, entering).items()}
        leaving: dict[int, tuple[str, int]] = {}
        for id, (source, output, target, into) in links.items():
            start = entering.get(output) if source == _INPUT else (f"{key}:{source}", output)
            if start is None:
                continue
            if target == _OUTPUT:
                leaving[into] = start
            else:
                self._add(f"{key}:{id}", (*start, f"{key}:{target}", into))
        for id, (source, output, target, into) in outer.items():
            if target == key:
                del self.links[id]
            elif source == key:
                self._add(id, (*leaving.get(output, ("", 0)), target, into))

    def _written(self, key: str, node: dict[str, Any], entering: dict[int, tuple[str, int]]) -> dict[int, str]:
        """Add a primitive for each value that a node has for an input of its subgraph; return them by the input."""
        values, found = node.get("widgets_values"), dict[int, str]()
        slots = objects_in(node.get("inputs"))
        places = [place for place, slot in enumerate(slots) if isinstance(slot.get("widget"), dict)]
        for place, value in zip(places, values if isinstance(values, list) else [], strict=False):
            if place not in entering:
                found[place] = f"{key}:value {place}"
                self.nodes[found[place]] = {"type": "PrimitiveNode", "widgets_values": [value]}
        return found
