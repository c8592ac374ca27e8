"""Turns a `PROMPT_REQUEST` into a `RunRequest`: the platform's clients send nodes and edges in a flattened form of
their own, others the id of a stored workflow, or a workflow as its file has it."""

from __future__ import annotations

from typing import Any

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from tavern_engine.compile.plan import CARRIER
from tavern_host import HttpRequest
from tavern_host.contracts.documents import json_path, mistakes, read_model, to_thread_if_large
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.executions import Actions, RunRequest
from tavern_host.contracts.nodes import DataFlowType
from tavern_host.contracts.wire import OpenModel
from tavern_host.contracts.workflows import InterfaceSlot, NodePolicy, Workflow, WorkflowEdge, WorkflowNode
from tavern_workflows.api.workflows import GROUP_OUTPUT


class PromptNode(OpenModel):
    """A node as a `PROMPT_REQUEST` has it; `parent_node`, `policy` and `pinned_outputs` are ours."""

    id: str
    full_type: str
    inputs: dict[str, JsonValue] = Field(default_factory=dict)
    config_values: dict[str, JsonValue] = Field(default_factory=dict)
    bypassed: bool = False
    input_connection_orders: dict[str, list[str]] = Field(default_factory=dict)
    display_name: str | None = None
    parent_node: str | None = None
    policy: NodePolicy | None = None
    pinned_outputs: dict[str, JsonValue] = Field(default_factory=dict)


class PromptEdge(OpenModel):
    """An edge as a `PROMPT_REQUEST` has it."""

    id: str | None = None
    source_node_id: str
    source_handle: str
    target_node_id: str
    target_handle: str


class OutputMapping(OpenModel):
    """Which output of which node is an interface output."""

    source_node_id: str
    source_slot_key: str


class PromptRequest(OpenModel):
    """A run that a client asks for. Without `nodes` the stored workflow `workflow_id` is run.

    That, and all from `inputs` on, are ours; see `RunRequest`.
    """

    workflow_id: str | None = None
    name: str = ""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    nodes: list[PromptNode] | None = None
    edges: list[PromptEdge] = Field(default_factory=list)
    interface_inputs: dict[str, InterfaceSlot] = Field(default_factory=dict)
    interface_outputs: dict[str, InterfaceSlot] = Field(default_factory=dict)
    output_interface_mappings: dict[str, OutputMapping] = Field(default_factory=dict)
    inputs: dict[str, JsonValue] = Field(default_factory=dict)
    overrides: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    targets: list[str] = Field(default_factory=list)
    priority: int = 0
    actions: Actions = None
    use_cache: bool = True


Prompt = PromptRequest | Workflow
"""What `POST /api/prompt` takes; beside a workflow may stand what a `RunRequest` has."""

_WHAT = "this is no PROMPT_REQUEST"
_BESIDE = frozenset({"inputs", "overrides", "metadata", "targets", "priority", "actions", "useCache"})
"""What may stand beside a workflow as its file has it: see `RunRequest`."""

_SHARED = RunRequest.model_fields.keys() & PromptRequest.model_fields.keys()
"""What a prompt has in common with the request that it becomes."""
AT_ONCE = 500
"""How many nodes or edges are checked in one step."""

_NODES: TypeAdapter[list[PromptNode]] = TypeAdapter(list[PromptNode])
_EDGES: TypeAdapter[list[PromptEdge]] = TypeAdapter(list[PromptEdge])


async def read_request(request: HttpRequest, *, needs_workflow: bool = True) -> RunRequest:
    """Return the run that the body of a request asks for. Raises `InvalidInput`."""
    return await to_thread_if_large(
        request.is_large, lambda: run_request(request.json_body(), needs_workflow=needs_workflow)
    )


async def read_payload(payload: dict[str, Any]) -> RunRequest:
    """Return the run that the payload of a message asks for; one of many nodes or edges is read in a thread. Raises
    `InvalidInput`."""
    parts = (payload.get("nodes"), payload.get("edges"))
    is_large = any(isinstance(part, list) and len(part) > AT_ONCE for part in parts)
    return await to_thread_if_large(is_large, run_request, payload)


def run_request(payload: Any, *, needs_workflow: bool = True) -> RunRequest:
    """Return the run that a payload asks for, no other field set. Raises `InvalidInput` with every mistake of shape."""
    if _is_file(payload):
        beside = {key: payload[key] for key in _BESIDE & payload.keys()}
        workflow = read_model(Workflow, {key: payload[key] for key in payload.keys() - beside.keys()}, _WHAT)
        return read_model(RunRequest, {**beside, "workflow": workflow}, _WHAT)
    prompt = _read(payload)
    try:
        if needs_workflow and prompt.nodes is None and prompt.workflow_id is None:
            raise InvalidInput("a PROMPT_REQUEST needs `nodes` and `edges`, or the `workflowId` of a stored workflow")
        drawn = {"workflow": _workflow(prompt, prompt.nodes)} if prompt.nodes is not None else {}
        return RunRequest(**drawn, **{name: getattr(prompt, name) for name in _SHARED & prompt.model_fields_set})
    except ValidationError as error:
        found = [f"{json_path(*place)}: {text}" for place, text in mistakes(error)]
        raise InvalidInput(f"this is no PROMPT_REQUEST: {'; '.join(found)}", problems=found) from None


def _is_file(payload: Any) -> bool:
    """Return whether a payload is a workflow as its file has it: its nodes have a `type`, and no `fullType`."""
    nodes = payload.get("nodes") if isinstance(payload, dict) else None
    found = (
        [isinstance(n, dict) and "type" in n and "fullType" not in n for n in nodes] if isinstance(nodes, list) else []
    )
    return bool(found) and all(found)


def _read(payload: Any) -> PromptRequest:
    """Return a payload as a model; nodes and edges some at a time, so that no single step keeps others waiting."""
    parts: dict[str, list[Any]] = {}
    for key, adapter in (("nodes", _NODES), ("edges", _EDGES)):
        listed = payload.get(key) if isinstance(payload, dict) else None
        if isinstance(listed, list) and len(listed) > AT_ONCE:
            pieces = [listed[start : start + AT_ONCE] for start in range(0, len(listed), AT_ONCE)]
            try:
                parts[key] = [item for piece in pieces for item in adapter.validate_python(piece)]
            except ValidationError:  # reading the whole names the places
                return read_model(PromptRequest, payload, _WHAT)
    if not parts:
        return read_model(PromptRequest, payload, _WHAT)
    return read_model(PromptRequest, {**payload, **{key: [] for key in parts}}, _WHAT).model_copy(update=parts)


def _workflow(prompt: PromptRequest, nodes: list[PromptNode]) -> Workflow:
    workflow = Workflow(
        id=prompt.workflow_id,
        name=prompt.name,
        nodes=[_node(node) for node in nodes],
        edges=[_edge(edge, f"edge-{place}") for place, edge in enumerate(prompt.edges)],
        interface_inputs=prompt.interface_inputs,
        interface_outputs=prompt.interface_outputs,
    )
    return _with_outputs(workflow, prompt.output_interface_mappings)


def _node(node: PromptNode) -> WorkflowNode:
    return WorkflowNode(
        id=node.id,
        type=node.full_type,
        display_name=node.display_name,
        input_values=node.inputs,
        config_values=node.config_values,
        input_connection_orders=node.input_connection_orders,
        parent_node=node.parent_node,
        bypassed=node.bypassed,
        pinned_outputs=node.pinned_outputs,
        policy=node.policy,
    )


def _edge(edge: PromptEdge, default_id: str) -> WorkflowEdge:
    return WorkflowEdge(
        id=edge.id or default_id,
        source=edge.source_node_id,
        source_handle=edge.source_handle,
        target=edge.target_node_id,
        target_handle=edge.target_handle,
    )


def _with_outputs(workflow: Workflow, mappings: dict[str, OutputMapping]) -> Workflow:
    """Return the workflow with an edge for each mapping that its own edges do not make already."""
    carriers = {node.id for node in workflow.nodes if node.type == GROUP_OUTPUT}
    fed = {edge.target_handle for edge in workflow.edges if edge.target in carriers}
    missing = {key: mapping for key, mapping in mappings.items() if key not in fed}
    if not missing:
        return workflow
    taken = {node.id for node in workflow.nodes} | {edge.id for edge in workflow.edges}
    nodes = list(workflow.nodes)
    carrier = next((node.id for node in nodes if node.id in carriers), None)
    if carrier is None:
        carrier = _free(CARRIER, taken)
        nodes.append(WorkflowNode(id=carrier, type=GROUP_OUTPUT))
    edges = [
        WorkflowEdge(
            id=_free(f"interface-output-{key}", taken),
            source=mapping.source_node_id,
            source_handle=mapping.source_slot_key,
            target=carrier,
            target_handle=key,
        )
        for key, mapping in missing.items()
    ]
    slots = {key: InterfaceSlot(key=key, data_flow_type=DataFlowType.CONVERTIBLE_ANY) for key in missing}
    return workflow.model_copy(
        update={
            "nodes": nodes,
            "edges": [*workflow.edges, *edges],
            "interface_outputs": slots | workflow.interface_outputs,
        }
    )


def _free(wanted: str, taken: set[str]) -> str:
    """Return an id that nothing has, near `wanted`."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    taken.add(name)
    return name
