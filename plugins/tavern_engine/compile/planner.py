"""Caches the plans of workflows: the structure of a workflow is checked and compiled once, and later runs only bind
their values to the plan."""

from __future__ import annotations

import asyncio
import marshal
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from cachetools import LRUCache
from pydantic import JsonValue

from tavern_engine.compile.bound import BoundPlan
from tavern_engine.compile.compiler import compile_plan
from tavern_engine.compile.given_outputs import given_outputs
from tavern_engine.compile.plan import Plan
from tavern_engine.compile.values import interface_values
from tavern_engine.journal.documents import document_of
from tavern_engine.registry import NodeRegistry, NodeType
from tavern_host import WORKFLOW_MANAGER, PluginContext
from tavern_host.contracts.documents import to_thread_if_large
from tavern_host.contracts.errors import InvalidInput, TavernError
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow, WorkflowNode
from tavern_workflows.api.workflows import LOOP_ZONE, NODE_GROUP, WorkflowProblem

KEPT_NODES = 200_000
"""How many nodes the cached plans may have altogether."""

LARGE = 500
"""How many nodes of a workflow are compiled on the event loop; those of a larger one in a thread."""

ASKING = 10.0
"""Seconds that a node has to say whether it changed."""


@dataclass(slots=True)
class _Known:
    """A plan, the values that were bound to it last, and the written values that these were made of."""

    bound: BoundPlan
    written: list[dict[str, JsonValue]]


class Planner:
    """Makes a `BoundPlan` of a workflow and its inputs."""

    def __init__(self, context: PluginContext, registry: NodeRegistry) -> None:
        self._context = context
        self._registry = registry
        self._plans: LRUCache[bytes, _Known] = LRUCache(KEPT_NODES, getsizeof=lambda known: len(known.written))
        self._revision: tuple[int | None, int] | None = None

    async def workflow(self, request: RunRequest) -> tuple[Workflow, str]:
        """Return the workflow that is asked for, and what errors call it. Raises `InvalidInput`, `NotFound`."""
        if request.workflow is not None:
            return request.workflow, request.workflow.name or request.workflow_id or "the workflow"
        if request.workflow_id is None:
            raise InvalidInput("a run needs a workflow: give the id of a stored one, or a document")
        stored = await self._context.services.get(WORKFLOW_MANAGER).get(request.workflow_id)
        return stored.workflow, request.workflow_id

    async def groups(self, workflow: Workflow) -> dict[str, Workflow]:
        """Return the workflows that the groups of a workflow stand for, by id."""
        if not any(node.type == NODE_GROUP for node in workflow.nodes):
            return {}
        found = await self._context.services.get(WORKFLOW_MANAGER).closure(workflow)
        return {name: stored.workflow for name, stored in found.items()}

    async def bind(
        self, workflow: Workflow, groups: Mapping[str, Workflow], request: RunRequest, name: str
    ) -> BoundPlan:
        """Return the plan of a workflow with its values, the request's at its interface, and its outputs of nodes.

        When this returns, the code of its nodes is in use by the host: a run that registers its use at
        once keeps it. Raises `InvalidInput` with everything that is wrong with the workflow and the inputs.
        """
        while True:
            types = await self._registry.types()
            revision = self._registry.revision
            try:
                bound = await self._bind(types, workflow, groups, request, name)
            except TavernError:
                if revision == self._context.hooks.revision:
                    raise
            else:
                if revision == self._context.hooks.revision:
                    return bound

    async def _bind(
        self,
        types: Mapping[str, NodeType],
        workflow: Workflow,
        groups: Mapping[str, Workflow],
        request: RunRequest,
        name: str,
    ) -> BoundPlan:
        revision = (self._registry.revision, self._context.settings.revision)
        if self._revision != revision:
            self._plans.clear()
            self._revision = revision
        values, wrong = interface_values(workflow, request.inputs)
        is_large = len(workflow.nodes) > LARGE
        key = await to_thread_if_large(is_large, structure_of, workflow, groups)
        known = self._plans.get(key) if key is not None else None
        if known is None:
            problems = await self._problems(workflow)
            if problems or wrong:
                raise _refusal(name, [*problems, *wrong])
            known = await to_thread_if_large(is_large, _compiled, workflow, types, groups)
            known.bound.plan.is_current = lambda: self._context.settings.revision == revision[1]
        elif wrong:
            raise _refusal(name, wrong)
        else:
            _patch(known, workflow)
        if revision == self._revision and key is not None and len(known.written) <= KEPT_NODES:
            self._plans[key] = known
        bound = known.bound  # another run may bind other values to the plan meanwhile
        changes = await self._changes(bound)
        bound = bound.with_interface(values, changes)
        if not request.overrides:
            return bound
        given, wrong = given_outputs(bound.plan, request.overrides)
        if wrong:
            raise _refusal(name, wrong)
        return bound.with_given(given, changes)

    async def _problems(self, workflow: Workflow) -> list[WorkflowProblem]:
        is_large = len(workflow.nodes) > LARGE
        document = await to_thread_if_large(is_large, document_of, workflow)
        found = await self._context.services.get(WORKFLOW_MANAGER).check(document)
        if is_large:
            await asyncio.sleep(0)  # what the check made is freed in one step of the loop, the document in another
        return [problem for problem in found if problem.severity == "error"]

    async def _changes(self, bound: BoundPlan) -> dict[int, bytes]:
        """Ask the nodes that want to be asked whether they changed; one that fails is run again."""
        found: dict[int, bytes] = {}
        for index in bound.plan.level.asking:
            node = bound.plan.level.nodes[index]
            assert node.kind is not None
            fed = {item.key for item in node.inputs if item.edges}  # what an edge brings is not known before the run
            known = {key: value for key, value in bound.written[index].items() if key not in fed}
            try:
                async with asyncio.timeout(ASKING):
                    answer = await node.kind.runner.change(known, dict(node.config))
                found[index] = marshal.dumps(answer, 2)
            except Exception as error:  # it is the node's own code
                self._context.log.warning("node %s (%s) cannot say whether it changed: %s", node.id, node.type, error)
        return found


def _compiled(workflow: Workflow, types: Mapping[str, NodeType], groups: Mapping[str, Workflow]) -> _Known:
    return _Known(BoundPlan.of(compile_plan(workflow, types, groups)), [node.input_values for node in workflow.nodes])


def _patch(known: _Known, workflow: Workflow) -> None:
    """Bind the written values of a workflow of the same structure to its plan."""
    patches: dict[int, dict[str, Any]] = {}
    plan: Plan = known.bound.plan
    for place, node in enumerate(workflow.nodes):
        index = plan.by_place[place]
        if index >= 0 and node.input_values != known.written[place]:
            kind = plan.level.nodes[index].kind
            assert kind is not None
            patches[index] = kind.values(node)
            known.written[place] = node.input_values
    known.bound = known.bound.patched(patches)


def structure_of(workflow: Workflow, groups: Mapping[str, Workflow]) -> bytes | None:
    """Return a hash of all that a plan is made of: everything of a workflow and its groups but written values.

    None where it has no such hash, since it holds something that is not plain data.
    """
    parts = [_structure(workflow, values=False)]
    parts += [(name, _structure(group, values=True)) for name, group in sorted(groups.items())]
    try:
        return blake2b(marshal.dumps(parts, 2), digest_size=20).digest()
    except (TypeError, ValueError):
        return None


def _structure(workflow: Workflow, *, values: bool) -> Any:
    return (
        workflow.name,
        [_node(node, values=values) for node in workflow.nodes],
        [(e.id, e.source, e.source_handle, e.target, e.target_handle) for e in workflow.edges],
        [(key, slot.model_dump_json()) for key, slot in workflow.interface_inputs.items()],
        [(key, slot.model_dump_json()) for key, slot in workflow.interface_outputs.items()],
    )


def _node(node: WorkflowNode, *, values: bool) -> Any:
    """Return the structure of a node: of its written values only which there are, and which hold others."""
    written: Any = node.input_values
    if not (values or node.bypassed or node.parent_node or node.type in (NODE_GROUP, LOOP_ZONE)):
        written = [(key, isinstance(value, list | dict)) for key, value in written.items() if value is not None]
    policy = node.policy.model_dump_json() if node.policy is not None else None
    orders = node.input_connection_orders
    about = (node.id, node.type, node.parent_node, node.display_name, node.bypassed, node.config_values)
    return (*about, written, policy, node.placement, orders)


def _refusal(name: str, problems: list[WorkflowProblem]) -> InvalidInput:
    shown = "; ".join(str(problem) for problem in problems[:5])
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return InvalidInput(f"{name} cannot be run: {shown}{more}", problems=[problem.to_json() for problem in problems])
