"""Compiles a workflow, with the groups in it, into a plan (DESIGN §4, *Engine*).

Groups are laid out flat: the inner nodes of an instance have ids `instance/node`, and a relay stands for each slot of
its interface, so that what needs one output waits for that one alone. Loops become levels of their own. A workflow
was checked before (`workflowManager.check`); what cannot be compiled even so is told all at once.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from typing import Any

from tavern_engine.bypass import bypass_inputs
from tavern_engine.kinds import Kind, relay_values
from tavern_engine.levels import LevelBuilder, Site, finish
from tavern_engine.lineage import lineages
from tavern_engine.plan import CARRIER, VALUE, Loop, Plan, PlanNode, Role, Shown
from tavern_engine.registry import NodeType
from tavern_host.contracts.dataflow import (
    GROUP_REFERENCE,
    OPEN_SLOT,
    compatible,
    converter,
    empty_value,
    find_slot,
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

MAX_NODES = 100_000
"""How many nodes a workflow may have when its groups are laid out."""

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
        self._pairs: dict[tuple[int, int], tuple[str | None, Any, str]] = {}
        self._kept: list[Any] = []
        self._shown: list[Shown] = []
        self._top = LevelBuilder()
        self._interface: dict[str, int] = {}
        self._by_place: list[int] = []
        self._targets: dict[str, int] = {}
        self._streaming: dict[int, tuple[str, ...]] = {}
        self._count = 0
        self.problems: list[str] = []

    def compile(self, workflow: Workflow) -> Plan:
        self._lay_out(workflow, "", self._top, None, ())
        try:
            level = finish(self._top)
        except InvalidInput as error:
            self.problems.append(error.message)
            level = self._top.empty()
        outputs = [i for i, node in enumerate(level.nodes) if node.role is Role.OUTPUT]
        kinds = {id(kind.node_type): kind.node_type for kind in self._kinds.values() if kind is not None}
        contributions = {id(t.contribution): t.contribution for t in kinds.values()}
        numbers = {node.id: number for number, node in enumerate(self._shown)}
        return Plan(
            level=level,
            interface=self._interface,
            outputs=outputs,
            shown=self._shown,
            contributions=tuple(contributions.values()),
            numbers=numbers,
            targets=self._targets,
            streaming=self._streaming,
            by_place=self._by_place,
            asking=[i for i, n in enumerate(level.nodes) if _must_be_asked(n)],
            lineages=lineages(level),
        )

    # --- nodes ------------------------------------------------------------------------------------

    def _lay_out(
        self, workflow: Workflow, prefix: str, level: LevelBuilder, instance: Site | None, chain: tuple[str, ...]
    ) -> None:
        """Put the nodes and edges of a workflow into a level; of a group's, for one `instance` of it."""
        sites: dict[str, Site] = {}
        inner = any(node.parent_node or node.type == LOOP_ZONE for node in workflow.nodes)
        around = enclosing_zones(workflow.nodes) if inner else {}
        levels = self._loops(workflow, prefix, level, sites, around) if inner else {}
        top = not prefix
        for node in workflow.nodes:
            home = levels.get(around.get(node.id), level) if inner else level
            if node.id in sites:
                if node.type != LOOP_ZONE or not inner:
                    self.problems.append("several nodes have the same id")
                if top:
                    self._by_place.append(-1)
                continue
            self._count += 1
            site = self._site(node, workflow, prefix, home, instance, chain)
            if top:
                is_own = site is not None and home is self._top and home.nodes[site.index].role is Role.NODE
                self._by_place.append(site.index if site is not None and is_own else -1)
            if site is not None:
                sites[node.id] = site
                if not home.parent:
                    self._targets[prefix + node.id] = site.index
                else:
                    self._targets[prefix + node.id] = home.root_place
        if self._count > MAX_NODES:
            self.problems.append(f"with its groups laid out it has more than {MAX_NODES:,} nodes")
            return
        for place, edge in enumerate(workflow.edges):
            self._edge(edge, place, sites, prefix)

    def _site(
        self,
        node: WorkflowNode,
        workflow: Workflow,
        prefix: str,
        level: LevelBuilder,
        instance: Site | None,
        chain: tuple[str, ...],
    ) -> Site | None:
        if node.type == GROUP_INPUT:
            return instance.inside_inputs(node) if instance is not None else self._top_input(node, workflow, level)
        if node.type == GROUP_OUTPUT:
            return instance.inside_outputs(node) if instance is not None else self._top_output(node, workflow, level)
        if node.type == NODE_GROUP and not node.bypassed:
            return self._group(node, prefix, level, chain)
        kind = self._kind(node, workflow)
        if kind is None:
            return None
        label = node.display_name or kind.node_type.definition.display_name or node.type
        number = self._show(prefix + node.id, node.type, label)
        built = PlanNode(prefix + node.id, Role.NODE, number, node.type, label)
        built.node_type = kind.node_type
        built.outputs = kind.outputs
        if kind.node_type.definition.traits.streams:
            self._streaming[number] = tuple(key for key, slot in kind.outputs.items() if slot.is_stream)
        if node.bypassed:
            return self._bypassed(node, built, kind, level)
        built.written = kind.values(node)
        built.token = kind.token
        built.kind = kind
        built.policy = node.policy
        self._configure(built, node, kind)
        return level.add(built, kind.inputs, kind.outputs, kind.dynamic, node, plain=kind.is_plain and not node.policy)

    def _configure(self, built: PlanNode, node: WorkflowNode, kind: Kind) -> None:
        """Set a node's configuration and open its instance, which nodes without a configuration of their own share."""
        definition = kind.node_type.definition
        if node.config_values:
            built.config = {**kind.config, **node.config_values}
            if built.token is not None:
                try:
                    built.token += marshal.dumps(sorted(node.config_values.items()), 2)
                except (TypeError, ValueError):
                    built.token = None
        else:
            built.config = kind.config
        if definition.traits.stateful:
            return
        if not node.config_values and kind.instance is not None:
            built.instance = kind.instance
            return
        try:
            built.instance = kind.runner.open(built.config)
        except Exception:  # it is opened again where it is run, and its error is the node's
            built.instance = None
        if not node.config_values:
            kind.instance = built.instance

    def _kind(self, node: WorkflowNode, workflow: Workflow) -> Kind | None:
        route = node.policy is not None and node.policy.on_error == "route"
        node_type = self._types.get(node.type)
        mode = None
        if node_type is not None and node_type.definition.modes:
            definition = node_type.definition
            mode = str({**(definition.config_values or {}), **node.config_values}.get(definition.mode_config_key or ""))
        key = (node.type, mode, route)
        if key not in self._kinds:
            self._kinds[key] = None
            if node_type is None:
                self.problems.append(f"node {node.id}: there is no node type {node.type!r}")
            else:
                try:
                    self._kinds[key] = Kind(node, node_type, workflow)
                except TavernError as error:
                    self.problems.append(f"node {node.id}: {error.message}")
        return self._kinds[key]

    def _show(self, identifier: str, type: str, label: str) -> int:
        self._shown.append(Shown(identifier, type, label))
        return len(self._shown) - 1

    # --- the interface ----------------------------------------------------------------------------

    def _top_input(self, node: WorkflowNode, workflow: Workflow, level: LevelBuilder) -> Site:
        label = node.display_name or node.type
        built = PlanNode(node.id, Role.INPUT, self._show(node.id, node.type, label), node.type, label)
        site = level.add(built, {}, {}, False, node)
        for key, slot in workflow.interface_inputs.items():
            if key not in self._interface:
                source = level.relay(f"{node.id}.{key}", slot.model_copy(update={"required": False}))
                self._interface[key] = source.index
            site.outs[key] = (level, self._interface[key], VALUE, slot)
            # What the node is seen to give.
            level.connect(f"{node.id}:{key}", self._interface[key], VALUE, site.index, key, slot, slot, None, None)
        site.is_closed = True
        return site

    def _top_output(self, node: WorkflowNode, workflow: Workflow, level: LevelBuilder) -> Site:
        label = node.display_name or node.type
        number = -1 if node.id.startswith(CARRIER) else self._show(node.id, node.type, label)
        built = PlanNode(node.id, Role.OUTPUT, number, node.type, label)
        for key, slot in workflow.interface_outputs.items():
            if slot.default is not None:
                built.written[key] = relay_values(slot, slot.default)
        return level.add(built, dict(workflow.interface_outputs), {}, False, node)

    def _group(self, node: WorkflowNode, prefix: str, level: LevelBuilder, chain: tuple[str, ...]) -> Site | None:
        reference = str(node.config_values.get(GROUP_REFERENCE))
        group = self._groups.get(reference)
        if group is None or reference in chain or len(chain) >= 50:
            why = "there is no workflow" if group is None else "it contains itself:"
            self.problems.append(f"node {prefix}{node.id}: {why} {reference!r}")
            return None
        name = prefix + node.id
        label = node.display_name or group.name or node.type
        built = PlanNode(name, Role.GROUP, self._show(name, node.type, label), node.type, label)
        site = level.add(built, {}, {}, False, node)
        for key, slot in group.interface_inputs.items():
            relay = level.relay(f"{name}.{key}", slot)
            written = node.input_values.get(key)
            written = slot.default if written is None else written
            if written is not None:
                level.nodes[relay.index].written = {VALUE: relay_values(slot, written)}
            site.ins[key] = relay
            site.inner_outs[key] = (level, relay.index, VALUE, slot)
            level.originals[relay.index] = (node, key)
        for key, slot in group.interface_outputs.items():
            relay = level.relay(f"{name}.{key}", slot.model_copy(update={"required": False}))
            if slot.default is not None:
                level.nodes[relay.index].written = {VALUE: relay_values(slot, slot.default)}
            site.inner_ins[key] = relay
            site.outs[key] = (level, relay.index, VALUE, slot)
            level.connect(f"{name}:{key}", relay.index, VALUE, site.index, key, slot, slot, None, None)
        site.is_closed = True
        self._lay_out(group, f"{name}/", level, site, (*chain, reference))
        return site

    # --- bypassed nodes ---------------------------------------------------------------------------

    def _bypassed(self, node: WorkflowNode, built: PlanNode, kind: Kind, level: LevelBuilder) -> Site:
        """Put relays in the place of a node: each gives the value of one of its inputs, or an empty one."""
        built.role = Role.BYPASSED
        optional = {key: slot.model_copy(update={"required": False}) for key, slot in kind.inputs.items()}
        written = kind.values(node)
        # What arrives at the node goes to the relays alone; the node is seen to give what they do.
        site = level.add(built, {}, {}, False, node)
        site.is_closed = True
        passed = bypass_inputs(kind.node_type.definition, optional, kind.outputs)
        for key, slot in kind.outputs.items():
            source = passed.get(key)
            into = optional[source] if source is not None else slot.model_copy(update={"required": False})
            relay = level.relay(f"{built.id}.{key}", into)
            empty = [] if slot.is_stream else empty_value(slot.data_flow_type)
            value = written.get(source) if source is not None else None
            if value is not None and source is not None:
                change = converter(into, slot)
                value = value[0] if into.multi and isinstance(value, list) and value else value
                value = change(value) if change is not None else value
            level.nodes[relay.index].written = {VALUE: empty if value is None else value}
            level.nodes[relay.index].outputs = {VALUE: slot}
            if source is not None:
                site.fans.setdefault(source, []).append((relay, slot))
                level.originals[relay.index] = (node, source)
            site.outs[key] = (level, relay.index, VALUE, slot)
            level.connect(f"{built.id}:{key}", relay.index, VALUE, site.index, key, slot, slot, None, None)
        site.spare = optional
        return site

    # --- loops ------------------------------------------------------------------------------------

    def _loops(
        self,
        workflow: Workflow,
        prefix: str,
        level: LevelBuilder,
        sites: dict[str, Site],
        around: Mapping[str, str],
    ) -> dict[str | None, LevelBuilder]:
        """Make a level for the body of each loop, those around before those within; `around` says by node in which."""
        zones = {node.id: node for node in workflow.nodes if node.type == LOOP_ZONE}
        levels: dict[str | None, LevelBuilder] = {}
        waiting = list(zones.values())
        while waiting:
            later = []
            for node in waiting:
                outer = around.get(node.id)
                if outer in zones and outer not in levels:
                    later.append(node)
                else:
                    levels[node.id] = self._loop(node, prefix, levels.get(outer, level), sites)
            if len(later) == len(waiting):
                self.problems.append(f"node {prefix}{later[0].id}: loops lie in one another in a circle")
                break
            waiting = later
        return levels

    def _loop(self, node: WorkflowNode, prefix: str, level: LevelBuilder, sites: dict[str, Site]) -> LevelBuilder:
        zone = zone_of(node.config_values)
        name = prefix + node.id
        label = node.display_name or node.type
        built = PlanNode(name, Role.LOOP, self._show(name, node.type, label), node.type, label)
        built.config = dict(node.config_values)
        built.policy = node.policy
        built.outputs = outputs = dict(with_error_output(node, zone.outer_outputs))
        self._streaming[built.number] = tuple(key for key, slot in built.outputs.items() if slot.is_stream)
        built.token = marshal.dumps(("loop", node.bypassed, repr(sorted(node.config_values.items()))), 2)
        for key, slot in zone.outer_inputs.items():
            value = node.input_values.get(key)
            value = slot.default if value is None else value
            if value is not None:
                built.written[key] = relay_values(slot, value)
        site = level.add(built, zone.outer_inputs, {}, False, node)
        body = LevelBuilder(parent=level, zone=site.index)
        end = body.add(PlanNode(f"{name}:end", Role.OUTPUT, label="what it gives"), zone.inner_inputs, {}, False, None)
        site.outs = {key: (level, site.index, key, slot) for key, slot in outputs.items()}
        for key, slot in zone.inner_outputs.items():
            relay = body.relay(f"{name}.{key}", slot)
            site.outs[key] = (body, relay.index, VALUE, slot)
            body.sources[key] = relay.index
        for key in zone.inner_inputs:
            site.ins[key] = end
        site.is_closed = True
        site.own_inputs = zone.outer_inputs
        built.loop = Loop(zone, body.empty(), body.sources, end.index, node.bypassed)
        level.bodies.append((built, body))
        sites[node.id] = site
        self._targets[name] = site.index if level.parent is None else level.root_place
        return body

    # --- edges ------------------------------------------------------------------------------------

    def _edge(self, edge: WorkflowEdge, place: int, sites: dict[str, Site], prefix: str) -> None:
        source, target = sites.get(edge.source), sites.get(edge.target)
        if source is None or target is None:
            missing = edge.source if source is None else edge.target
            self.problems.append(f"edge {prefix}{edge.id}: there is no node {missing!r} that can be run")
            return
        handle, into = edge.source_handle, edge.target_handle
        # The way of most edges, from a plain node to a plain node, spelled out since it is taken so often.
        slot = source.outputs.get(handle) if not source.is_closed else None
        if slot is not None:
            out = (source.level, source.index, handle, slot)
        else:
            found = self._output(source, handle)
            if found is None:
                self.problems.append(f"edge {prefix}{edge.id}: there is no slot {edge.source}.{handle}")
                return
            out = found
        wanted = target.inputs.get(into) if not target.is_closed else None
        if wanted is not None:
            self._join(edge, prefix, place, out, target, into, wanted, None)
            return
        ends = self._inputs(target, into)
        if not ends:
            if ends is None:
                self.problems.append(f"edge {prefix}{edge.id}: there is no slot {edge.target}.{into}")
            return
        for site, key, slot, position, after in ends:
            self._join(edge, prefix, place, out, site, key, slot, position, after)

    def _output(self, site: Site, handle: str) -> tuple[LevelBuilder, int, str, SlotDefinition] | None:
        if handle in site.outs:
            return site.outs[handle]
        if not site.is_closed and site.dynamic and handle:
            return (site.level, site.index, handle, OPEN_SLOT)
        return None

    def _inputs(
        self, site: Site, handle: str
    ) -> list[tuple[Site, str, SlotDefinition, int | None, SlotDefinition | None]] | None:
        """Return where an edge into a handle ends: several places at a bypassed node, none where nothing needs it."""
        slots = {key: end.inputs.get(key) or end.inputs[VALUE] for key, end in site.ins.items()}
        slots |= site.spare or site.own_inputs or ({} if site.is_closed else site.inputs)
        found = find_slot(slots, handle, dynamic=site.dynamic and not site.is_closed)
        if found is None:
            return None
        key, slot, position = found
        if site.spare:
            return [(relay, VALUE, slot, position, after) for relay, after in site.fans.get(key, [])]
        if key in site.ins:
            end = site.ins[key]
            return [(end, key if key in end.inputs else VALUE, slot, position, None)]
        return [(site, key, slot, position, None)]

    def _join(
        self,
        edge: WorkflowEdge,
        prefix: str,
        place: int,
        out: tuple[LevelBuilder, int, str, SlotDefinition],
        target: Site,
        key: str,
        slot: SlotDefinition,
        position: int | None,
        after: SlotDefinition | None = None,
    ) -> None:
        level, index, handle, given = out
        problem, convert, token = self._pair(given, slot)
        if problem is not None:
            self.problems.append(f"edge {prefix}{edge.id}: {problem}")
            return
        if after is not None and after is not slot:
            further = converter(slot, after)
            if further is not None:
                convert = further if convert is None else _after(convert, further)
        name = prefix + edge.id if prefix else edge.id
        if level is not target.level:
            inward = target.level.path_from(level)
            if inward is None:
                self.problems.append(f"edge {name}: it leads out of a loop; only the loop's own outputs do")
                return
            if given.is_stream:
                self.problems.append(f"edge {name}: a stream cannot go into a loop")
                return
            for body in inward:
                index = body.capture(name, level, index, handle, given)
                level, handle = body, VALUE
        level.connect(name, index, handle, target.index, key, given, slot, convert, (position, place), token, edge.id)

    def _pair(self, given: SlotDefinition, wanted: SlotDefinition) -> tuple[str | None, Any, str]:
        """Return why an edge between two slots cannot be, what converts its values, and what says so in signatures."""
        key = (id(given), id(wanted))
        found = self._pairs.get(key)
        if found is None:
            self._kept += (given, wanted)  # so that their ids stay theirs
            change = converter(given, wanted)
            token = f"{given.data_flow_type}>{wanted.data_flow_type}" if change is not None else ""
            found = self._pairs[key] = (compatible(given, wanted), change, token)
        return found


def _must_be_asked(node: PlanNode) -> bool:
    return node.role is Role.NODE and node.node_type is not None and node.node_type.definition.traits.checks_change


def _after(first: Any, second: Any) -> Any:
    return lambda value: second(first(value))
