"""Compiles the edges of a workflow that is being expanded into its level, through the loops between their ends."""

from __future__ import annotations

from dataclasses import dataclass, field

from tavern_engine.compile.bypass import composed
from tavern_engine.compile.level_builder import End, Endpoint, LevelBuilder
from tavern_engine.compile.node_kinds import IRREGULAR, Shape
from tavern_engine.compile.plan import VALUE
from tavern_host.contracts.workflows import Workflow, WorkflowEdge
from tavern_workflows.api.dataflow import Converter, compatible, converter


@dataclass(eq=False)
class Layout:
    """A workflow that is being expanded: the document itself, or a group's for one `instance` of it.

    `places` are the nodes of `level` that have slots of their own, by id, `endpoints` those of all others; `zones` the
    loop that contains each node, `bodies` the levels of the loops.
    """

    workflow: Workflow
    prefix: str
    level: LevelBuilder
    instance: Endpoint | None
    chain: tuple[str, ...]
    zones: dict[str, str]
    places: dict[str, int] = field(default_factory=dict)
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    bodies: dict[str, LevelBuilder] = field(default_factory=dict)

    def endpoint(self, node_id: str) -> Endpoint | None:
        """Return the endpoint of a node."""
        place = self.places.get(node_id)
        return self.endpoints.get(node_id) if place is None else self.level.endpoint(place)


class EdgeCompiler:
    """Compiles edges; adds those that it cannot to `problems`."""

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems

    def connect(self, layout: Layout) -> None:
        """Add the edges of a workflow: those between plain nodes by the known transitions of their shapes, which is
        fast, the others one by one."""
        level, places = layout.level, layout.places
        gives, shapes, arriving, followers = level.gives, level.shapes, level.arriving, level.followers
        is_done = True
        for edge in layout.workflow.edges:
            about = edge.__dict__  # quicker than the attributes of a model
            handle, into = about["source_handle"], about["target_handle"]
            try:
                target = places[about["target"]]
                source = places[about["source"]]
                shape = shapes[target].transitions[into][handle][gives[source]]
            except KeyError:  # the first of its kind, or an irregular one
                target, source, handle, shape = self._transition(edge, layout)
            if target >= 0:
                shapes[target] = shape
            if shape is IRREGULAR:
                is_done = False
                continue
            arriving[target].append(source)
            followers[source].append(target)
        if not is_done:
            for place, edge in enumerate(layout.workflow.edges):
                target = places.get(edge.target, -1)
                if target < 0 or shapes[target] is IRREGULAR:
                    self._edge(edge, place, layout)

    def _transition(self, edge: WorkflowEdge, layout: Layout) -> tuple[int, int, str, Shape]:
        """Return the nodes and the output that an edge joins, and the shape of its target with it: `IRREGULAR` where it
        has to be compiled by itself. A node is -1 where it has no slots of its own.

        Its source may be a placeholder of the node that provides the output.
        """
        places, level, handle = layout.places, layout.level, edge.source_handle
        target, source = places.get(edge.target, -1), places.get(edge.source, -1)
        if target >= 0 and source < 0 and (endpoint := layout.endpoints.get(edge.source)) is not None:
            found = endpoint.outs.get(handle)
            if found is not None and found[0] is level:
                source, handle = found[1:3]
        if target < 0 or source < 0:
            return target, source, handle, IRREGULAR
        return target, source, handle, level.shapes[target].after(level.gives[source], handle, edge.target_handle)

    def _edge(self, edge: WorkflowEdge, place: int, layout: Layout) -> None:
        """Add an edge into a node with an irregular shape."""
        name = layout.prefix + edge.id
        source, target = layout.endpoint(edge.source), layout.endpoint(edge.target)
        if source is None or target is None:
            missing = edge.source if source is None else edge.target
            self._problems.append(f"edge {name}: there is no node {missing!r} that can be run")
            return
        out, found = source.output(edge.source_handle), target.find(edge.target_handle)
        if out is None or found is None:
            slot_name = f"{edge.source}.{edge.source_handle}" if out is None else f"{edge.target}.{edge.target_handle}"
            self._problems.append(f"edge {name}: there is no slot {slot_name}")
            return
        key, slot, position = found
        convert = converter(out[3], slot)
        token = f"{out[3].data_flow_type}>{slot.data_flow_type}" if convert is not None else ""
        if (problem := compatible(out[3], slot)) is not None:
            self._problems.append(f"edge {name}: {problem}")
        elif target.spare:
            for relay, through in target.fan_out.get(key, ()):
                end = (target.level, relay, VALUE, through.into)
                self._join(edge, name, (position, place), out, end, composed(convert, through.convert), token)
        else:
            end = target.ins.get(key, (target.level, target.index, key, slot))
            self._join(edge, name, (position, place), out, end, convert, token)

    def _join(
        self,
        edge: WorkflowEdge,
        name: str,
        order: tuple[int | None, int],
        out: End,
        end: End,
        convert: Converter | None,
        token: str,
    ) -> None:
        """Add an edge, through the loops that contain its end."""
        level, index, handle, source_slot = out
        if level is not end[0]:
            inward = end[0].path_from(level)
            if inward is None:
                self._problems.append(f"edge {name}: it leads out of a loop; only the loop's own outputs do")
                return
            if source_slot.is_stream:
                self._problems.append(f"edge {name}: a stream cannot go into a loop")
                return
            for body in inward:
                index, level, handle = body.capture(name, index, handle, source_slot), body, VALUE
        level.connect(name, index, handle, end[1], end[2], source_slot, end[3], convert, order, token, edge.id)
