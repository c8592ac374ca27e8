"""Makes a workflow of a graph: nodes that exist here by their names, or that the project's `import-map.yaml` names, and
placeholders for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, JsonValue

from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.wire import Model
from tavern_importers.api.importers import MAP_FILE
from tavern_workflows.api.placeholders import PLACEHOLDER
from tavern_workflows.foreign.graph import ForeignGraph, ForeignNode, ids_of

_SHOWN = 8
_FRAME = (240.0, 160.0)


class MappedNode(Model):
    """Which node here one of another program is: its full type, and by the names of the other's slots and values which
    are those here. `values` are further ones."""

    type: str
    inputs: dict[str, str] = Field(default_factory=dict)
    outputs: dict[str, str] = Field(default_factory=dict)
    values: dict[str, JsonValue] = Field(default_factory=dict)


@dataclass
class Converted:
    """A workflow's document, how many of its nodes are placeholders by what they stand for, and what has no effect."""

    document: dict[str, Any]
    placeholders: Counter[str]
    without_effect: list[str] = field(default_factory=list)


class Conversion:
    """Makes one workflow."""

    def __init__(
        self, graph: ForeignGraph, definitions: Mapping[str, NodeDefinition], mapped: Mapping[str, MappedNode]
    ) -> None:
        self._graph, self._definitions, self._mapped = graph, definitions, mapped
        self._by_name: dict[str, list[NodeDefinition]] = {}
        for one in definitions.values():
            self._by_name.setdefault(one.type, []).append(one)
        self._ids = ids_of(graph.nodes)
        self._by_key = {node.key: node for node in graph.nodes}
        self._types = {node.key: self._type_of(node) for node in graph.nodes}
        self._lost: Counter[str] = Counter()
        self._orders: dict[str, dict[str, list[str]]] = {}
        self.placeholders: Counter[str] = Counter()

    def make(self, name: str) -> Converted:
        """Return the workflow."""
        graph = self._graph
        document: dict[str, Any] = {
            "name": name,
            "nodes": [self._node(node) for node in graph.nodes],
            "edges": self._edges(),
            "comments": [self._comment(place) for place in range(len(graph.notes))],
        }
        for node in document["nodes"]:
            if node["id"] in self._orders:
                node["inputConnectionOrders"] = self._orders[node["id"]]
        if graph.description:
            document["description"] = graph.description
        said = [
            f"{text}, {count} times" if count > 1 else text for text, count in Counter(graph.without_effect).items()
        ]
        lost = [f"{text}: {count}" for text, count in self._lost.items()]
        return Converted(document, self.placeholders, [*said, *lost])

    def _full_type(self, node: ForeignNode) -> str:
        return f"{self._graph.namespace}:{node.type}"

    def _type_of(self, node: ForeignNode) -> str:
        """Return the full type that a node has here: a mapped one, one of the same name and slots, else its own."""
        own = self._full_type(node)
        if (mapped := self._mapped.get(own)) is not None and mapped.type in self._definitions:
            return mapped.type
        if own in self._definitions:
            return own
        same = [one for one in self._by_name.get(node.type, ()) if _has_slots(one, node)]
        return same[0].full_type if len(same) == 1 else own

    def _node(self, node: ForeignNode) -> dict[str, Any]:
        kind, own = self._types[node.key], self._full_type(node)
        made: dict[str, Any] = {"id": self._ids[node.key], "type": kind}
        if (position := self._position(node)) is not None:
            made["position"] = self._place(position)
        if node.title and node.title != node.type:
            made["displayName"] = node.title
        if node.bypassed:
            made["bypassed"] = True
        if kind in self._definitions:
            mapped = self._mapped.get(own) if kind != own else None
            made["inputValues"] = self._own_values(kind, node.values, mapped)
            return made
        self.placeholders[node.type] += 1
        made |= {"inputValues": node.values} if node.values else {}
        about: dict[str, Any] = {"program": self._graph.program, "type": node.type}
        made[PLACEHOLDER] = about | {"inputs": node.inputs, "outputs": node.outputs}
        return made

    def _own_values(self, kind: str, values: dict[str, Any], mapped: MappedNode | None) -> dict[str, Any]:
        slots, found = self._definitions[kind].inputs, dict[str, Any]()
        for key, value in values.items():
            into = mapped.inputs.get(key, key) if mapped is not None else key
            if into in slots:
                found[into] = value
            else:
                self._lost[f"the value {key} of {kind}"] += 1
        return found | (mapped.values if mapped is not None else {})

    def _position(self, node: ForeignNode) -> tuple[float, float] | None:
        """Return where a node is on the canvas; one that lies in another is placed from that one's corner."""
        position, parent, seen = node.position, node.parent, {node.key}
        while position is not None and parent is not None and parent not in seen and parent in self._by_key:
            seen.add(parent)
            around = self._by_key[parent]
            corner = around.position or (0.0, 0.0)
            position, parent = (position[0] + corner[0], position[1] + corner[1]), around.parent
        return position

    def _edges(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = []
        for link in dict.fromkeys(self._graph.links):
            output, into = (
                self._slot(link.source, link.output, "outputs"),
                self._slot(link.target, link.input, "inputs"),
            )
            if output is None or into is None:
                self._lost["links to slots that the node here does not have"] += 1
                continue
            edge, target = f"e{len(found) + 1}", self._ids[link.target]
            if (known := self._definitions.get(self._types[link.target])) is not None and known.inputs[into].multi:
                order = self._orders.setdefault(target, {}).setdefault(into, [])
                into = f"{into}__{len(order)}"
                order.append(edge)
            ends = {"source": self._ids[link.source], "sourceHandle": output, "target": target, "targetHandle": into}
            found.append({"id": edge, **ends})
        return found

    def _slot(self, key: str, name: str, side: str) -> str | None:
        """Return the key of a slot as the node here has it; None where it has none such."""
        kind, own = self._types[key], self._full_type(self._by_key[key])
        if kind not in self._definitions:
            return name
        mapped = self._mapped.get(own) if kind != own else None
        wanted: str = getattr(mapped, side).get(name, name) if mapped is not None else name
        return wanted if wanted in getattr(self._definitions[kind], side) else None

    def _comment(self, place: int) -> dict[str, Any]:
        note = self._graph.notes[place]
        position, size = note.position or (0.0, 0.0), note.size or _FRAME
        made: dict[str, Any] = {"id": f"note{place + 1}", "text": note.text, "position": self._place(position)}
        spread = self._graph.spread
        return {**made, "width": size[0] * spread, "height": size[1] * spread}

    def _place(self, position: tuple[float, float]) -> dict[str, float]:
        return {"x": round(position[0] * self._graph.spread, 1), "y": round(position[1] * self._graph.spread, 1)}


def _has_slots(definition: NodeDefinition, node: ForeignNode) -> bool:
    return node.inputs.keys() <= definition.inputs.keys() and node.outputs.keys() <= definition.outputs.keys()


def next_steps(placeholders: Counter[str], namespace: str) -> list[str]:
    """Return in sentences what there is to do with placeholders."""
    if not placeholders:
        return []
    kinds = ", ".join(kind for kind, _ in placeholders.most_common(_SHOWN))
    more = f" and {len(placeholders) - _SHOWN} more" if len(placeholders) > _SHOWN else ""
    return [
        f"{sum(placeholders.values())} of its nodes are placeholders ({kinds}{more}); it runs when none is left: "
        f"replace them, or write into {MAP_FILE} which nodes they are here, such as "
        f"“{namespace}:{placeholders.most_common(1)[0][0]}: {{type: core:TextMerge}}”, and import the file again"
    ]
