"""Describes nodes as they are sent to a cluster: which may go, their code, their values as bytes, and handles of those
that are there."""

from __future__ import annotations

from typing import Any, NamedTuple

from tavern_engine.api.clusters import Handle, NodeSource, RemoteGroup, RemoteNode, Values
from tavern_engine.compile.plan import Level, PlanNode, Role
from tavern_host.contracts.errors import InvalidInput
from tavern_host.storage.values import encode_loose


class RemoteValue(NamedTuple):
    """Stands for a value that stayed at the cluster: the output `key` of a node by its place."""

    node: int
    key: str


class Descriptions:
    """Describes the nodes of one level. `placed` are those that may go, which its owner changes."""

    def __init__(self, level: Level, placed: set[int], pass_id: str) -> None:
        self._level = level
        self._placed = placed
        self._pass_id = pass_id
        self._sources: dict[int, NodeSource] = {}

    def node(self, index: int, inputs: dict[str, Any]) -> RemoteNode | None:
        """Return a node as it is sent; None where one of its values has no codec."""
        node, handles = self._level.nodes[index], list[Handle]()
        for key, value in inputs.items():
            if isinstance(value, list):
                for place, each in enumerate(value):
                    if (handle := _handle(key, place, each)) is not None:
                        handles.append(handle)
                        value[place] = None
            elif (handle := _handle(key, None, value)) is not None:
                handles.append(handle)
                inputs[key] = None
        if (values := _encoded(inputs)) is None or (config := _encoded(node.config)) is None:
            if handles:
                raise InvalidInput("a value of it has no codec, and another one is on the cluster")
            return None
        policy, repeats = node.policy, may_repeat(node)
        return RemoteNode(
            number=index,
            source=0,
            config=config,
            inputs=values,
            handles=tuple(handles),
            timeout=policy.timeout if policy is not None else None,
            may_repeat=repeats,
            is_wanted=not repeats or self._is_wanted(index),
        )

    def _is_wanted(self, index: int) -> bool:
        """Return whether a value of a node is needed here: by a node that runs here, or that converts it."""
        nodes = self._level.nodes
        for follower in {*self._level.followers[index]}:
            if follower not in self._placed:
                return True
            edges = (edge for item in nodes[follower].inputs for edge in item.edges)
            if any(edge.source == index and edge.convert is not None for edge in edges):
                return True
        return not self._level.followers[index]

    def _source_of(self, node: PlanNode) -> NodeSource:
        assert node.kind is not None and node.node_type is not None
        if (known := self._sources.get(id(node.kind))) is None:
            folder = node.kind.runner.source  # type: ignore[attr-defined]  # `may_go` looked for it
            about = {"plugin": node.node_type.plugin, "code": node.node_type.version}
            known = NodeSource(definition=node.node_type.original, **about)
            if folder is not None:
                reviewed = folder.reviewed and {path: digest.hex() for path, digest in folder.reviewed.items()}
                place = {"package": folder.package, "folder": str(folder.root), "reviewed": reviewed}
                known = known.model_copy(update=place)
            self._sources[id(node.kind)] = known
        return known

    def group(self, nodes: list[RemoteNode]) -> RemoteGroup:
        """Return nodes as the group that they are sent in."""
        sources: dict[int, NodeSource] = {}
        places: dict[int, int] = {}
        described = []
        for node in nodes:
            own = self._source_of(self._level.nodes[node.number])
            place = places.setdefault(id(own), len(places))
            sources[place] = own
            described.append(node.model_copy(update={"source": place}) if place else node)
        return RemoteGroup(pass_id=self._pass_id, sources=tuple(sources.values()), nodes=tuple(described))


def may_go(node: PlanNode) -> bool:
    """Return whether a node needs nothing of the host but its inputs. One that a workflow places on a cluster may
    have effects, or give something else each time."""
    if node.role is not Role.NODE or node.kind is None or not hasattr(node.kind.runner, "source"):
        return False
    traits = node.kind.node_type.definition.traits
    if traits.streams or traits.stateful or traits.wants_call or not (traits.cached or node.placement):
        return False
    return not any(slot.is_stream for slots in (node.kind.inputs, node.outputs) for slot in slots.values())


def may_repeat(node: PlanNode) -> bool:
    """Return whether a node gives the same each time that it is run."""
    return node.node_type is not None and node.node_type.definition.traits.cached


def _handle(key: str, place: int | None, value: Any) -> Handle | None:
    if type(value) is RemoteValue:
        return Handle(input=key, place=place, node=value.node, key=value.key)
    return value if type(value) is Handle else None


def _encoded(values: dict[str, Any]) -> Values | None:
    """Return values as bytes; None where one of them has no codec."""
    binary = {key: value for key, value in values.items() if type(value) is bytes}
    encoded = {}
    for key, value in values.items():
        if key not in binary:
            encoded[key], kept = encode_loose(value)
            if kept:
                return None
    return Values(encoded=encoded, binary=binary)
