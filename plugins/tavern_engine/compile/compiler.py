"""Compiles a workflow, with the groups in it, into a plan (DESIGN §4, *Engine*).

Groups are laid out flat: the inner nodes of an instance have ids `instance/node`, and a relay stands for each slot of
its interface, so that what needs one output waits for that one alone. Loops become levels of their own. A workflow
was checked before (`workflowManager.check`); what cannot be compiled even so is told all at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tavern_engine.compile.bypass import Way, bypass_inputs, way_through
from tavern_engine.compile.kinds import OTHER, Kind, Shape, Slots, joined, token_of, written_value
from tavern_engine.compile.levels import End, LevelBuilder, Site, both, finish
from tavern_engine.compile.lineage import lineages
from tavern_engine.compile.plan import CARRIER, VALUE, Level, Loop, Plan, PlanNode, Role
from tavern_engine.registry import NodeType
from tavern_host.contracts.dataflow import (
    DEEPEST_GROUPS,
    GROUP_REFERENCE,
    MOST_NODES,
    Converter,
    compatible,
    config_of,
    converter,
    empty_value,
    mode_of,
    slots_of,
    with_error_output,
)
from tavern_host.contracts.errors import InvalidInput, TavernError
from tavern_host.contracts.loops import enclosing_zones, zone_of
from tavern_host.contracts.nodes import SlotDefinition
from tavern_host.contracts.workflows import (
    GROUP_INPUT,
    GROUP_OUTPUT,
    LOOP_ZONE,
    NODE_GROUP,
    Workflow,
    WorkflowEdge,
    WorkflowNode,
)

Types = Mapping[str, NodeType]
Groups = Mapping[str, Workflow]


def compile_plan(workflow: Workflow, types: Types, groups: Groups | None = None) -> Plan:
    """Compile a workflow. `groups` are the workflows that its groups stand for, at any depth, by id.

    Raises `InvalidInput` with all that cannot be compiled.
    """
    compiler = _Compiler(types, groups or {})
    plan = compiler.compile(workflow)
    if compiler.problems:
        found = compiler.problems[:100]
        raise InvalidInput(f"the workflow cannot be run: {'; '.join(found)}", problems=list(found))
    return plan


@dataclass(eq=False)
class _Scene:
    """A workflow that is being laid out: the document itself, or a group's for one `instance` of it.

    `places` are the nodes of `level` that have slots of their own, by id, `sites` where all others are; `zones` the
    loop that each node lies in, `bodies` the levels of the loops.
    """

    workflow: Workflow
    prefix: str
    level: LevelBuilder
    instance: Site | None
    chain: tuple[str, ...]
    zones: dict[str, str]
    places: dict[str, int] = field(default_factory=dict)
    sites: dict[str, Site] = field(default_factory=dict)
    bodies: dict[str, LevelBuilder] = field(default_factory=dict)

    def site(self, node_id: str) -> Site | None:
        """Return where a node is."""
        place = self.places.get(node_id)
        return self.sites.get(node_id) if place is None else self.level.site(place)


class _Compiler:
    def __init__(self, types: Types, groups: Groups) -> None:
        self._types = types
        self._groups = groups
        self._kinds: dict[Any, Kind | None] = {}
        self._shared: dict[str, Kind] = {}
        """By type the kinds of plain nodes, for which nothing of a node has to be looked at but its values."""
        self._pairs: dict[tuple[int, int], tuple[str | None, Any, str]] = {}
        self._kept: list[Any] = []
        self._ids: list[str] = []
        self._top = LevelBuilder(self._ids)
        self._interface: dict[str, int] = {}
        self._by_place: list[int] = []
        self._stand_ins: dict[str, int] = {}
        self._streaming: dict[int, tuple[str, ...]] = {}
        self._loop_numbers: list[int] = []
        self._count = 0
        self.problems: list[str] = []

    def compile(self, workflow: Workflow) -> Plan:
        self._lay_out(workflow, "", self._top, None, ())
        level = Level()
        if not self.problems:
            try:
                level = finish(self._top)
            except InvalidInput as error:
                self.problems.append(error.message)
        contributions = {id(k.node_type.contribution): k.node_type.contribution for k in self._kinds.values() if k}
        return Plan(
            level=level,
            ids=self._ids,
            interface=self._interface,
            outputs=[i for i, node in enumerate(self._top.made) if node is not None and node.role is Role.OUTPUT],
            contributions=tuple(contributions.values()),
            streaming=self._streaming,
            by_place=self._by_place,
            stand_ins=self._stand_ins,
            lineages=lineages(level),
            loops=frozenset(self._loop_numbers),
        )

    # --- nodes ------------------------------------------------------------------------------------

    def _lay_out(
        self, workflow: Workflow, prefix: str, level: LevelBuilder, instance: Site | None, chain: tuple[str, ...]
    ) -> None:
        """Put the nodes and edges of a workflow into a level; of a group's, for one `instance` of it."""
        self._count += len(workflow.nodes)
        if self._count > MOST_NODES:
            if self._count - len(workflow.nodes) <= MOST_NODES:  # else it has been said
                self.problems.append(f"with its groups laid out it has more than {MOST_NODES:,} nodes")
            return
        types = [node.type for node in workflow.nodes]
        has_loops = LOOP_ZONE in types
        zones = enclosing_zones(workflow.nodes) if has_loops else {}
        scene = _Scene(workflow, prefix, level, instance, chain, zones)
        if has_loops:
            self._loops(scene)
        shared = self._shared
        plain: list[WorkflowNode] = []
        kinds: list[Kind] = []
        for node, node_type in zip(workflow.nodes, types, strict=True):
            kind, about = shared.get(node_type), node.__dict__  # quicker than the attributes of a model
            if (
                kind is not None
                and not (about["config_values"] or about["bypassed"] or about["parent_node"])
                and about["policy"] is None
            ):
                plain.append(node)
                kinds.append(kind)
                continue
            if plain:
                self._plain(plain, kinds, scene)
                plain, kinds = [], []
            home = self._special(node, scene)
            if not prefix:
                self._by_place.append(home)
        self._plain(plain, kinds, scene)
        self._connect(scene)

    def _plain(self, nodes: list[WorkflowNode], kinds: list[Kind], scene: _Scene) -> None:
        """Put in nodes that have nothing of their own but values and a name."""
        level, places, names = scene.level, scene.places, [node.id for node in nodes]
        indices = range(len(level.gives), len(level.gives) + len(nodes))
        count = len(places) + len(nodes)
        places.update(zip(names, indices, strict=True))
        if len(places) < count or (scene.sites and not scene.sites.keys().isdisjoint(names)):
            self.problems.append("several nodes have the same id")
        level.add_plain(nodes, kinds, len(self._ids))
        self._ids += [scene.prefix + name for name in names] if scene.prefix else names
        if not scene.prefix:
            self._by_place += indices

    def _taken(self, node: WorkflowNode, scene: _Scene) -> int:
        self.problems.append(f"node {scene.prefix}{node.id}: several nodes have the same id")
        return -1

    def _special(self, node: WorkflowNode, scene: _Scene) -> int:
        """Put in a node that is not plain, or the first of its kind; return its place where it has values of its own
        that may be changed, else -1."""
        if node.type == LOOP_ZONE and scene.sites.get(node.id) is not None:
            return -1
        if node.id in scene.places or node.id in scene.sites:
            return self._taken(node, scene)
        zone = scene.zones.get(node.id)
        level = scene.bodies[zone] if zone is not None else scene.level
        if node.type in (GROUP_INPUT, GROUP_OUTPUT, NODE_GROUP):
            site = self._interface_site(node, scene, level)
        else:
            kind = self._kind(node, scene.workflow)
            if kind is None:
                return -1
            if not node.bypassed:
                index = self._own(node, kind, scene, level)
                if level is scene.level:
                    scene.places[node.id] = index
                else:
                    scene.sites[node.id] = level.site(index)
                    self._stand_ins[scene.prefix + node.id] = level.root_place
                return index if level is self._top else -1
            label = node.display_name or kind.label
            definition, slots = kind.node_type.definition, (kind.inputs, kind.outputs)
            passed = bypass_inputs(definition.bypass_behavior, *slots)
            site = self._bypassed(node, scene, level, label, slots, kind.values(node), passed)
        if site is not None:
            scene.sites[node.id] = site
            self._stand_ins[scene.prefix + node.id] = level.root_place if level.parent is not None else site.index
        return -1

    def _interface_site(self, node: WorkflowNode, scene: _Scene, level: LevelBuilder) -> Site | None:
        if node.type == NODE_GROUP:
            return self._group(node, scene, level)
        if node.type == GROUP_INPUT:
            inside = scene.instance
            return inside.inside_inputs() if inside is not None else self._top_input(node, scene.workflow, level)
        inside = scene.instance
        return inside.inside_outputs() if inside is not None else self._top_output(node, scene.workflow, level)

    def _own(self, node: WorkflowNode, kind: Kind, scene: _Scene, level: LevelBuilder) -> int:
        """Put in a node that has a type and is run."""
        number = self._show(scene.prefix + node.id)
        traits = kind.node_type.definition.traits
        if not (node.config_values or node.policy is not None or kind.is_asked or traits.streams):
            level.add_plain([node], [kind], number)
            return len(level.gives) - 1
        built = PlanNode(self._ids[number], Role.NODE, number, kind.type, node.display_name or kind.label)
        built.node_type, built.kind, built.policy = kind.node_type, kind, node.policy
        built.outputs, built.written = kind.outputs, kind.values(node)
        if traits.streams:
            self._streaming[number] = tuple(key for key, slot in kind.outputs.items() if slot.is_stream)
        token: bytes | None = b"" if kind.token is not None else None
        if node.config_values:
            built.config = {**kind.config, **node.config_values}
            built.instance = kind.open(built.config)
            try:
                token = joined(token_of((kind.type, sorted(node.config_values.items()))), kind.token)
            except (TypeError, ValueError):  # it holds what has no form of its own
                token = None
        else:
            kind.ready()
            built.config, built.instance = kind.config, kind.instance
        return level.add(built, node, token)

    def _kind(self, node: WorkflowNode, workflow: Workflow) -> Kind | None:
        routes = node.policy is not None and node.policy.on_error == "route"
        node_type = self._types.get(node.type)
        mode = mode_of(node_type.definition, node) if node_type is not None and node_type.definition.modes else None
        key = (node.type, str(mode), routes)
        if key not in self._kinds:
            self._kinds[key] = None
            if node_type is None:
                self.problems.append(f"node {node.id}: there is no node type {node.type!r}")
                return None
            definition = node_type.definition
            try:
                inputs, outputs, dynamic = slots_of(node, definition, workflow)
                config = config_of(definition, node.model_copy(update={"config_values": {}}))
                kind = self._kinds[key] = Kind(node_type, dict(inputs), dict(outputs), dynamic, config)
            except TavernError as error:
                self.problems.append(f"node {node.id}: {error.message}")
                return None
            if not (definition.modes or routes or kind.is_asked or definition.traits.streams):
                self._shared[node.type] = kind
        return self._kinds[key]

    def _show(self, identifier: str) -> int:
        self._ids.append(identifier)
        return len(self._ids) - 1

    # --- the interface ----------------------------------------------------------------------------

    def _top_input(self, node: WorkflowNode, workflow: Workflow, level: LevelBuilder) -> Site:
        built = PlanNode(node.id, Role.INPUT, self._show(node.id), node.type, node.display_name or node.type)
        site = Site(level, level.add(built, node, b""))
        for key, slot in workflow.interface_inputs.items():
            if key not in self._interface:
                self._interface[key] = level.relay(f"{node.id}.{key}", _optional(slot))
            self._show_output(level, site, key, self._interface[key], slot)
        return site

    def _top_output(self, node: WorkflowNode, workflow: Workflow, level: LevelBuilder) -> Site:
        number = -1 if node.id.startswith(CARRIER) else self._show(node.id)
        built = PlanNode(node.id, Role.OUTPUT, number, node.type, node.display_name or node.type)
        slots: Slots = dict(workflow.interface_outputs)
        built.written = {
            key: written_value(slot, slot.default) for key, slot in slots.items() if slot.default is not None
        }
        site = Site(level, level.add(built, node, b"", slots))
        site.ins = {key: (level, site.index, key, slot) for key, slot in slots.items()}
        return site

    def _group(self, node: WorkflowNode, scene: _Scene, level: LevelBuilder) -> Site | None:
        reference = str(node.config_values.get(GROUP_REFERENCE))
        group, name = self._groups.get(reference), scene.prefix + node.id
        if group is None:
            self.problems.append(f"node {name}: there is no workflow {reference!r}")
            return None
        label = node.display_name or group.name or node.type
        if node.bypassed:
            slots: tuple[Slots, Slots] = dict(group.interface_inputs), dict(group.interface_outputs)
            return self._bypassed(
                node, scene, level, label, slots, _values(node, slots[0]), bypass_inputs(None, *slots)
            )
        if reference in scene.chain or len(scene.chain) >= DEEPEST_GROUPS:
            why = "contains itself" if reference in scene.chain else "lies too deep in others"
            self.problems.append(f"node {name}: the workflow {reference!r} {why}")
            return None
        built = PlanNode(name, Role.GROUP, self._show(name), node.type, label)
        site = Site(level, level.add(built, node, b""))
        values = _values(node, group.interface_inputs)
        for key, slot in group.interface_inputs.items():
            relay = level.relay(f"{name}.{key}", slot, written=values.get(key))
            site.ins[key] = (level, relay, VALUE, slot)
            site.inner_outs[key] = (level, relay, VALUE, slot)
            level.originals[relay] = (node, key)
        for key, slot in group.interface_outputs.items():
            value = None if slot.default is None else written_value(slot, slot.default)
            relay = level.relay(f"{name}.{key}", _optional(slot), written=value)
            site.inner_ins[key] = (level, relay, VALUE, slot)
            self._show_output(level, site, key, relay, slot)
        self._lay_out(group, f"{name}/", level, site, (*scene.chain, reference))
        return site

    # --- bypassed nodes ---------------------------------------------------------------------------

    def _bypassed(
        self,
        node: WorkflowNode,
        scene: _Scene,
        level: LevelBuilder,
        label: str,
        slots: tuple[Slots, Slots],
        values: Mapping[str, Any],
        passed: Mapping[str, str],
    ) -> Site:
        """Put relays in the place of a node, one for each output: it gives the value of the input that `passed` names
        for it, else an empty one. What arrives at the node goes to these; the node is seen to give what they do."""
        name = scene.prefix + node.id
        built = PlanNode(name, Role.BYPASSED, self._show(name), node.type, label)
        site = Site(level, level.add(built, node, b""))
        site.spare = {key: _optional(slot) for key, slot in slots[0].items()}
        for key, slot in slots[1].items():
            source = passed.get(key)
            empty = [] if slot.is_stream else empty_value(slot.data_flow_type)
            if source is None:
                relay = level.relay(f"{name}.{key}", _optional(slot), written=empty)
            else:
                way, value = way_through(slots[0][source], slot), values.get(source)
                value = empty if value is None else _through(way, value)
                relay = level.relay(f"{name}.{key}", way.into, written=value, gives=slot)
                level.originals[relay] = (node, source)
                site.fans.setdefault(source, []).append((relay, way))
                if way.is_first:
                    many, relay = relay, level.relay(f"{name}.{key}", _optional(slot), written=empty)
                    level.connect(f"{name}.{key}", many, VALUE, relay, VALUE, slot, slot, _first(empty), None, "first")
            self._show_output(level, site, key, relay, slot)
        return site

    def _show_output(self, level: LevelBuilder, site: Site, key: str, relay: int, slot: SlotDefinition) -> None:
        """Let a node that stands for others give what a relay hands on, and be seen to give it."""
        site.outs[key] = (level, relay, VALUE, slot)
        level.connect(key, relay, VALUE, site.index, key, slot, slot, None, None)

    # --- loops ------------------------------------------------------------------------------------

    def _loops(self, scene: _Scene) -> None:
        """Make a level for the body of each loop, those around before those within."""
        waiting = [node for node in scene.workflow.nodes if node.type == LOOP_ZONE]
        while waiting:
            later = []
            for node in waiting:
                around = scene.zones.get(node.id)
                if node.id in scene.sites:
                    self._taken(node, scene)
                elif around is not None and around not in scene.bodies:
                    later.append(node)
                else:
                    self._loop(node, scene, scene.bodies[around] if around is not None else scene.level)
            if len(later) == len(waiting):
                name = scene.prefix + later[0].id
                self.problems.append(f"node {name}: loops lie in one another in a circle")
                return
            waiting = later

    def _loop(self, node: WorkflowNode, scene: _Scene, level: LevelBuilder) -> None:
        zone = zone_of(node.config_values)
        name, label = scene.prefix + node.id, node.display_name or node.type
        inputs, outputs = zone.outer_inputs, dict(with_error_output(node, zone.outer_outputs))
        built = PlanNode(name, Role.LOOP, self._show(name), node.type, label)
        built.config, built.policy = dict(node.config_values), node.policy
        built.outputs, built.written = outputs, _values(node, inputs)
        self._loop_numbers.append(built.number)
        self._streaming[built.number] = tuple(key for key, slot in outputs.items() if slot.is_stream)
        token = token_of(("loop", node.bypassed, repr(sorted(node.config_values.items()))))
        site = Site(level, level.add(built, node, token, inputs))
        site.ins = {key: (level, site.index, key, slot) for key, slot in inputs.items()}
        site.outs = {key: (level, site.index, key, slot) for key, slot in outputs.items()}
        body = scene.bodies[node.id] = LevelBuilder(self._ids, parent=level, zone=site.index)
        level.bodies.append((site.index, body))
        end = body.add(PlanNode(f"{name}:end", Role.OUTPUT, label="what it gives"), None, b"", zone.inner_inputs)
        site.ins |= {key: (body, end, key, slot) for key, slot in zone.inner_inputs.items()}
        for key, slot in zone.inner_outputs.items():
            body.sources[key] = body.relay(f"{name}.{key}", slot)
            site.outs[key] = (body, body.sources[key], VALUE, slot)
        built.loop = Loop(zone, Level(), body.sources, end, node.bypassed)
        scene.sites[node.id] = site
        self._stand_ins[name] = site.index if level.parent is None else level.root_place

    # --- edges ------------------------------------------------------------------------------------

    def _connect(self, scene: _Scene) -> None:
        """Put the edges of a workflow in: those between plain nodes by what is known of their shapes, which is quick,
        the others one by one."""
        level, places = scene.level, scene.places
        gives, shapes, arriving, followers = level.gives, level.shapes, level.arriving, level.followers
        is_in_order, is_done = True, True
        for edge in scene.workflow.edges:
            about = edge.__dict__  # quicker than the attributes of a model
            handle, into = about["source_handle"], about["target_handle"]
            try:
                target = places[about["target"]]
                source = places[about["source"]]
                shape = shapes[target].ways[into][handle][gives[source]]
            except KeyError:  # the first of its kind, or not as simple as most
                target, source, handle, shape = self._way(edge, scene)
            if target >= 0:
                shapes[target] = shape
            if shape is OTHER:
                is_done = False
                continue
            arriving[target].append(source)
            followers[source].append(target)
            if source > target:
                is_in_order = False
        level.is_in_order = level.is_in_order and is_in_order
        if not is_done:
            for place, edge in enumerate(scene.workflow.edges):
                target = places.get(edge.target, -1)
                if target < 0 or shapes[target] is OTHER:
                    self._edge(edge, place, scene)

    def _way(self, edge: WorkflowEdge, scene: _Scene) -> tuple[int, int, str, Shape]:
        """Return the nodes and the output that an edge joins, and what it makes of the shape of the one that it leads
        to: `OTHER` where it has to be looked at by itself. A node is -1 where it has no slots of its own.

        It may begin at a node that stands for the one which really gives the output.
        """
        places, level, handle = scene.places, scene.level, edge.source_handle
        target, source = places.get(edge.target, -1), places.get(edge.source, -1)
        if target >= 0 and source < 0 and (site := scene.sites.get(edge.source)) is not None:
            found = site.outs.get(handle)
            if found is not None and found[0] is level:
                source, handle = found[1:3]
        if target < 0 or source < 0:
            return target, source, handle, OTHER
        return target, source, handle, level.shapes[target].after(level.gives[source], handle, edge.target_handle)

    def _edge(self, edge: WorkflowEdge, place: int, scene: _Scene) -> None:
        """Put in an edge that is not as simple as most."""
        name = scene.prefix + edge.id
        source, target = scene.site(edge.source), scene.site(edge.target)
        if source is None or target is None:
            missing = edge.source if source is None else edge.target
            self.problems.append(f"edge {name}: there is no node {missing!r} that can be run")
            return
        out, found = source.output(edge.source_handle), target.find(edge.target_handle)
        if out is None or found is None:
            slot_name = f"{edge.source}.{edge.source_handle}" if out is None else f"{edge.target}.{edge.target_handle}"
            self.problems.append(f"edge {name}: there is no slot {slot_name}")
            return
        key, slot, position = found
        problem, convert, token = self._pair(out[3], slot)
        if problem is not None:
            self.problems.append(f"edge {name}: {problem}")
        elif target.spare:
            for relay, way in target.fans.get(key, ()):
                end = (target.level, relay, VALUE, way.into)
                self._join(edge, name, (position, place), out, end, both(convert, way.convert), token)
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
        """Put an edge in, through whatever loops its end lies in."""
        level, index, handle, given = out
        if level is not end[0]:
            inward = end[0].path_from(level)
            if inward is None:
                self.problems.append(f"edge {name}: it leads out of a loop; only the loop's own outputs do")
                return
            if given.is_stream:
                self.problems.append(f"edge {name}: a stream cannot go into a loop")
                return
            for body in inward:
                index, level, handle = body.capture(name, level, index, handle, given), body, VALUE
        level.connect(name, index, handle, end[1], end[2], given, end[3], convert, order, token, edge.id)

    def _pair(self, given: SlotDefinition, wanted: SlotDefinition) -> tuple[str | None, Converter | None, str]:
        """Return why an edge between two slots cannot be, what converts its values, and what says so in signatures."""
        key = (id(given), id(wanted))
        found = self._pairs.get(key)
        if found is None:
            self._kept += (given, wanted)  # so that their ids stay theirs
            change = converter(given, wanted)
            token = f"{given.data_flow_type}>{wanted.data_flow_type}" if change is not None else ""
            found = self._pairs[key] = (compatible(given, wanted), change, token)
        return found


def _optional(slot: SlotDefinition) -> SlotDefinition:
    return slot.model_copy(update={"required": False}) if slot.required else slot


def _values(node: WorkflowNode, slots: Mapping[str, SlotDefinition]) -> dict[str, Any]:
    """Return the values that a node has written for slots, else their defaults."""
    found: dict[str, Any] = {}
    for key, slot in slots.items():
        value = node.input_values.get(key)
        value = slot.default if value is None else value
        if value is not None:
            found[key] = written_value(slot, value)
    return found


def _through(way: Way, value: Any) -> Any:
    """Return a written value of a bypassed node as it goes on."""
    if way.convert is None:
        return value
    try:
        return [way.convert(each) for each in value] if way.into.multi else way.convert(value)
    except (OverflowError, ValueError):  # it is passed as it was written
        return value


def _first(empty: Any) -> Converter:
    return lambda values: values[0] if values else empty
