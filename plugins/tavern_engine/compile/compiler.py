"""Compiles a workflow, with the groups in it, into a plan.

Groups are expanded inline: the inner nodes of an instance have ids `instance/node`, and a relay replaces each slot of
its interface, so that a node which needs one output waits for that one alone. Loops become levels of their own. A
workflow was checked before (`workflowManager.check`); what cannot be compiled even so is reported all at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tavern_engine.compile.bypass import bypass_inputs, pass_through
from tavern_engine.compile.code_digests import code_digests
from tavern_engine.compile.edges import EdgeCompiler, Layout
from tavern_engine.compile.level_assembly import assemble
from tavern_engine.compile.level_builder import Endpoint, LevelBuilder
from tavern_engine.compile.node_kinds import Kind, Slots, converted, joined, token_of, written_value
from tavern_engine.compile.plan import CARRIER, VALUE, Level, Loop, Plan, PlanNode, Role
from tavern_engine.registry import NodeType
from tavern_host.contracts.errors import InvalidInput, TavernError
from tavern_host.contracts.nodes import SlotDefinition
from tavern_host.contracts.workflows import Workflow, WorkflowNode
from tavern_workflows.api.dataflow import (
    DEEPEST_GROUPS,
    MOST_NODES,
    Converter,
    config_of,
    empty_value,
    group_reference,
    mode_of,
    slots_of,
    with_error_output,
)
from tavern_workflows.api.loops import enclosing_zones, zone_of
from tavern_workflows.api.placeholders import stands_for
from tavern_workflows.api.workflows import GROUP_INPUT, GROUP_OUTPUT, LOOP_ZONE, NODE_GROUP

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


class _Compiler:
    def __init__(self, types: Types, groups: Groups) -> None:
        self._types = types
        self._groups = groups
        self._kinds: dict[Any, Kind | None] = {}
        self._shared: dict[str, Kind] = {}
        """By type the kinds of plain nodes, which differ in nothing but their values."""
        self._ids: list[str] = []
        self._top = LevelBuilder(self._ids)
        self._interface: dict[str, int] = {}
        self._by_place: list[int] = []
        self._stand_ins: dict[str, int] = {}
        self._streaming: dict[int, tuple[str, ...]] = {}
        self._loop_numbers: list[int] = []
        self._count = 0
        self.problems: list[str] = []
        self._edges = EdgeCompiler(self.problems)

    def compile(self, workflow: Workflow) -> Plan:
        self._expand(workflow, "", self._top, None, ())
        level = Level()
        if not self.problems:
            try:
                level = assemble(self._top)
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
            code_digests=code_digests(level),
            loops=frozenset(self._loop_numbers),
        )

    # --- nodes ------------------------------------------------------------------------------------

    def _expand(
        self, workflow: Workflow, prefix: str, level: LevelBuilder, instance: Endpoint | None, chain: tuple[str, ...]
    ) -> None:
        """Add the nodes and edges of a workflow to a level; those of a group, for one `instance` of it."""
        self._count += len(workflow.nodes)
        if self._count > MOST_NODES:
            if self._count - len(workflow.nodes) <= MOST_NODES:  # else it was reported before
                self.problems.append(f"with its groups expanded it has more than {MOST_NODES:,} nodes")
            return
        types = [node.type for node in workflow.nodes]
        has_loops = LOOP_ZONE in types
        zones = enclosing_zones(workflow.nodes) if has_loops else {}
        layout = Layout(workflow, prefix, level, instance, chain, zones)
        if has_loops:
            self._loops(layout)
        shared = self._shared
        plain: list[WorkflowNode] = []
        kinds: list[Kind] = []
        for node, node_type in zip(workflow.nodes, types, strict=True):
            kind, about = shared.get(node_type), node.__dict__  # faster than the attributes of a model
            if (
                kind is not None
                and not (about["config_values"] or about["bypassed"] or about["parent_node"])
                and about["policy"] is None
                and about["placement"] is None
            ):
                plain.append(node)
                kinds.append(kind)
                continue
            if plain:
                self._plain(plain, kinds, layout)
                plain, kinds = [], []
            home = self._special(node, layout)
            if not prefix:
                self._by_place.append(home)
        self._plain(plain, kinds, layout)
        self._edges.connect(layout)

    def _plain(self, nodes: list[WorkflowNode], kinds: list[Kind], layout: Layout) -> None:
        """Add nodes that have nothing of their own but values and a name."""
        level, places, names = layout.level, layout.places, [node.id for node in nodes]
        indices = range(len(level.gives), len(level.gives) + len(nodes))
        count = len(places) + len(nodes)
        places.update(zip(names, indices, strict=True))
        if len(places) < count or (layout.endpoints and not layout.endpoints.keys().isdisjoint(names)):
            self.problems.append("several nodes have the same id")
        level.add_plain(nodes, kinds, len(self._ids))
        self._ids += [layout.prefix + name for name in names] if layout.prefix else names
        if not layout.prefix:
            self._by_place += indices

    def _duplicate(self, node: WorkflowNode, layout: Layout) -> int:
        self.problems.append(f"node {layout.prefix}{node.id}: several nodes have the same id")
        return -1

    def _special(self, node: WorkflowNode, layout: Layout) -> int:
        """Add a node that is not plain, or the first of its kind; return its place where its values can be replaced in
        the plan, else -1."""
        if node.type == LOOP_ZONE and layout.endpoints.get(node.id) is not None:
            return -1
        if node.id in layout.places or node.id in layout.endpoints:
            return self._duplicate(node, layout)
        zone = layout.zones.get(node.id)
        level = layout.bodies[zone] if zone is not None else layout.level
        if node.type in (GROUP_INPUT, GROUP_OUTPUT, NODE_GROUP):
            endpoint = self._interface_site(node, layout, level)
        else:
            kind = self._kind(node, layout.workflow)
            if kind is None:
                return -1
            if not node.bypassed:
                index = self._own(node, kind, layout, level)
                if level is layout.level:
                    layout.places[node.id] = index
                else:
                    layout.endpoints[node.id] = level.endpoint(index)
                    self._stand_ins[layout.prefix + node.id] = level.root_place
                return index if level is self._top else -1
            label = node.display_name or kind.label
            definition, slots = kind.node_type.definition, (kind.inputs, kind.outputs)
            passed = bypass_inputs(definition.bypass_behavior, *slots)
            endpoint = self._bypassed(node, layout, level, label, slots, kind.values(node), passed)
        if endpoint is not None:
            layout.endpoints[node.id] = endpoint
            self._stand_ins[layout.prefix + node.id] = level.root_place if level.parent is not None else endpoint.index
        return -1

    def _interface_site(self, node: WorkflowNode, layout: Layout, level: LevelBuilder) -> Endpoint | None:
        if node.type == NODE_GROUP:
            return self._group(node, layout, level)
        if node.type == GROUP_INPUT:
            inside = layout.instance
            return inside.inside_inputs() if inside is not None else self._top_input(node, layout.workflow, level)
        inside = layout.instance
        return inside.inside_outputs() if inside is not None else self._top_output(node, layout.workflow, level)

    def _own(self, node: WorkflowNode, kind: Kind, layout: Layout, level: LevelBuilder) -> int:
        """Add a node that has a type and is run."""
        number = self._show(layout.prefix + node.id)
        traits = kind.node_type.definition.traits
        is_own = node.config_values or node.policy is not None or node.placement is not None
        if not (is_own or kind.is_asked or traits.streams):
            level.add_plain([node], [kind], number)
            return len(level.gives) - 1
        built = PlanNode(self._ids[number], Role.NODE, number, kind.type, node.display_name or kind.label)
        built.node_type, built.kind, built.policy = kind.node_type, kind, node.policy
        built.outputs, built.written, built.placement = kind.outputs, kind.values(node), node.placement
        if traits.streams:
            self._streaming[number] = tuple(key for key, slot in kind.outputs.items() if slot.is_stream)
        token: bytes | None = b"" if kind.token is not None else None
        if node.config_values:
            built.config = {**kind.config, **node.config_values}
            built.instance = kind.open(built.config)
            try:
                token = joined(token_of((kind.type, sorted(node.config_values.items()))), kind.token)
            except (TypeError, ValueError):  # it holds what is no plain data
                token = None
        else:
            kind.ready()
            built.config, built.instance = kind.config, kind.instance
        return level.add(built, node, token)

    def _kind(self, node: WorkflowNode, workflow: Workflow) -> Kind | None:
        routes = node.policy is not None and node.policy.on_error == "route"
        node_type = self._types.get(node.type)
        mode = mode_of(node_type.definition, node) if node_type is not None and node_type.definition.modes else None
        key = (node.type, mode, routes)
        if key not in self._kinds:
            self._kinds[key] = None
            if node_type is None:
                about = f": {said}" if (said := stands_for(node)) else ""
                self.problems.append(f"node {node.id}: there is no node type {node.type!r}{about}")
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

    def _top_input(self, node: WorkflowNode, workflow: Workflow, level: LevelBuilder) -> Endpoint:
        built = PlanNode(node.id, Role.INPUT, self._show(node.id), node.type, node.display_name or node.type)
        endpoint = Endpoint(level, level.add(built, node, b""))
        for key, slot in workflow.interface_inputs.items():
            if key not in self._interface:
                self._interface[key] = level.relay(f"{node.id}.{key}", _optional(slot))
            self._show_output(level, endpoint, key, self._interface[key], slot)
        return endpoint

    def _top_output(self, node: WorkflowNode, workflow: Workflow, level: LevelBuilder) -> Endpoint:
        number = -1 if node.id.startswith(CARRIER) else self._show(node.id)
        built = PlanNode(node.id, Role.OUTPUT, number, node.type, node.display_name or node.type)
        slots: Slots = dict(workflow.interface_outputs)
        built.written = {
            key: written_value(slot, slot.default) for key, slot in slots.items() if slot.default is not None
        }
        endpoint = Endpoint(level, level.add(built, node, b"", slots))
        endpoint.ins = {key: (level, endpoint.index, key, slot) for key, slot in slots.items()}
        return endpoint

    def _group(self, node: WorkflowNode, layout: Layout, level: LevelBuilder) -> Endpoint | None:
        reference = group_reference(node) or ""
        group, name = self._groups.get(reference), layout.prefix + node.id
        if group is None:
            self.problems.append(f"node {name}: there is no workflow {reference!r}")
            return None
        label = node.display_name or group.name or node.type
        if node.bypassed:
            slots: tuple[Slots, Slots] = dict(group.interface_inputs), dict(group.interface_outputs)
            return self._bypassed(
                node, layout, level, label, slots, _values(node, slots[0]), bypass_inputs(None, *slots)
            )
        if reference in layout.chain or len(layout.chain) >= DEEPEST_GROUPS:
            why = "contains itself" if reference in layout.chain else "is nested too deeply"
            self.problems.append(f"node {name}: the workflow {reference!r} {why}")
            return None
        built = PlanNode(name, Role.GROUP, self._show(name), node.type, label)
        endpoint = Endpoint(level, level.add(built, node, b""))
        values = _values(node, group.interface_inputs)
        for key, slot in group.interface_inputs.items():
            relay = level.relay(f"{name}.{key}", slot, written=values.get(key))
            endpoint.ins[key] = (level, relay, VALUE, slot)
            endpoint.inner_outs[key] = (level, relay, VALUE, slot)
            level.originals[relay] = (node, key)
        for key, slot in group.interface_outputs.items():
            value = None if slot.default is None else written_value(slot, slot.default)
            relay = level.relay(f"{name}.{key}", _optional(slot), written=value)
            endpoint.inner_ins[key] = (level, relay, VALUE, slot)
            self._show_output(level, endpoint, key, relay, slot)
        self._expand(group, f"{name}/", level, endpoint, (*layout.chain, reference))
        return endpoint

    # --- bypassed nodes ---------------------------------------------------------------------------

    def _bypassed(
        self,
        node: WorkflowNode,
        layout: Layout,
        level: LevelBuilder,
        label: str,
        slots: tuple[Slots, Slots],
        values: Mapping[str, Any],
        passed: Mapping[str, str],
    ) -> Endpoint:
        """Add relays in place of a node, one for each output: it gives the value of the input that `passed` names for
        it, else an empty one. Edges into the node lead to these; the node itself displays their values."""
        name = layout.prefix + node.id
        built = PlanNode(name, Role.BYPASSED, self._show(name), node.type, label)
        endpoint = Endpoint(level, level.add(built, node, b""))
        endpoint.spare = {key: _optional(slot) for key, slot in slots[0].items()}
        for key, slot in slots[1].items():
            source = passed.get(key)
            empty = [] if slot.is_stream else empty_value(slot.data_flow_type)
            if source is None:
                relay = level.relay(f"{name}.{key}", _optional(slot), written=empty)
            else:
                through, value = pass_through(slots[0][source], slot), values.get(source)
                value = empty if value is None else converted(through.convert, value, is_list=bool(through.into.multi))
                relay = level.relay(f"{name}.{key}", through.into, written=value, gives=slot)
                level.originals[relay] = (node, source)
                endpoint.fan_out.setdefault(source, []).append((relay, through))
                if through.is_first:
                    many, relay = relay, level.relay(f"{name}.{key}", _optional(slot), written=empty)
                    level.connect(f"{name}.{key}", many, VALUE, relay, VALUE, slot, slot, _first(empty), None, "first")
            self._show_output(level, endpoint, key, relay, slot)
        return endpoint

    def _show_output(self, level: LevelBuilder, endpoint: Endpoint, key: str, relay: int, slot: SlotDefinition) -> None:
        """Make the value of a relay an output of a placeholder, which also displays it."""
        endpoint.outs[key] = (level, relay, VALUE, slot)
        level.connect(key, relay, VALUE, endpoint.index, key, slot, slot, None, None)

    # --- loops ------------------------------------------------------------------------------------

    def _loops(self, layout: Layout) -> None:
        """Add a level for the body of each loop, outer loops first."""
        waiting = [node for node in layout.workflow.nodes if node.type == LOOP_ZONE]
        while waiting:
            later = []
            for node in waiting:
                around = layout.zones.get(node.id)
                if node.id in layout.endpoints:
                    self._duplicate(node, layout)
                elif around is not None and around not in layout.bodies:
                    later.append(node)
                else:
                    self._loop(node, layout, layout.bodies[around] if around is not None else layout.level)
            if len(later) == len(waiting):
                name = layout.prefix + later[0].id
                self.problems.append(f"node {name}: loops lie in one another in a circle")
                return
            waiting = later

    def _loop(self, node: WorkflowNode, layout: Layout, level: LevelBuilder) -> None:
        zone = zone_of(node.config_values)
        name, label = layout.prefix + node.id, node.display_name or node.type
        inputs, outputs = zone.outer_inputs, dict(with_error_output(node, zone.outer_outputs))
        built = PlanNode(name, Role.LOOP, self._show(name), node.type, label)
        built.config, built.policy = dict(node.config_values), node.policy
        built.outputs, built.written = outputs, _values(node, inputs)
        self._loop_numbers.append(built.number)
        self._streaming[built.number] = tuple(key for key, slot in outputs.items() if slot.is_stream)
        token = token_of(("loop", node.bypassed, repr(sorted(node.config_values.items()))))
        endpoint = Endpoint(level, level.add(built, node, token, inputs))
        endpoint.ins = {key: (level, endpoint.index, key, slot) for key, slot in inputs.items()}
        endpoint.outs = {key: (level, endpoint.index, key, slot) for key, slot in outputs.items()}
        body = layout.bodies[node.id] = LevelBuilder(self._ids, parent=level, zone=endpoint.index)
        level.bodies.append((endpoint.index, body))
        end = body.add(PlanNode(f"{name}:end", Role.OUTPUT, label="what it gives"), None, b"", zone.inner_inputs)
        endpoint.ins |= {key: (body, end, key, slot) for key, slot in zone.inner_inputs.items()}
        for key, slot in zone.inner_outputs.items():
            body.sources[key] = body.relay(f"{name}.{key}", slot)
            endpoint.outs[key] = (body, body.sources[key], VALUE, slot)
        built.loop = Loop(zone, Level(), body.sources, end, node.bypassed)
        layout.endpoints[node.id] = endpoint
        self._stand_ins[name] = endpoint.index if level.parent is None else level.root_place


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


def _first(empty: Any) -> Converter:
    return lambda values: values[0] if values else empty
