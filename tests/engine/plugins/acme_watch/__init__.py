"""A plugin for tests that looks at every run and every node type, and does what the run's metadata says."""

from __future__ import annotations

from tavern_host import NodeDefinition, Veto, hookimpl
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.contracts.nodes import DataFlowType, SlotDefinition


@hookimpl
def tavern_register_nodes() -> list[NodeDefinition]:
    slot = SlotDefinition(data_flow_type=DataFlowType.STRING)
    return [
        NodeDefinition(type="Text", namespace="core", display_name="Not the real one", outputs={"text": slot}),
        NodeDefinition(type="Mine", namespace="core", outputs={"text": slot}),
        NodeDefinition(type="Add", namespace="acme-nodes", display_name="Not the real one", outputs={"text": slot}),
    ]


@hookimpl
def tavern_before_register_node(node: NodeDefinition) -> NodeDefinition | Veto | None:
    if node.full_type == "acme-nodes:Boom":
        return Veto(reason="too loud")
    if node.full_type == "acme-nodes:Look":
        return node.model_copy(update={"display_name": "Seen", "type": "Elsewhere", "handler": "elsewhere:run"})
    return None


@hookimpl
def tavern_before_execute(request: RunRequest) -> RunRequest | Veto | None:
    if "refuse" in request.metadata:
        return Veto(reason=str(request.metadata["refuse"]))
    if "raise" in request.metadata:
        raise RuntimeError("the watch is broken")
    if "inputs" in request.metadata:
        return request.model_copy(update={"inputs": request.metadata["inputs"]})
    return None


@hookimpl
async def tavern_after_execute(run: Run) -> Run | Veto | None:
    if run.outputs.get("answer") == "secret":
        return Veto(reason="that is secret")
    if run.outputs.get("answer") == "large":
        return run.model_copy(update={"outputs": {"answer": [2**70]}})
    if run.outputs.get("answer") == "halved":
        return run.model_copy(update={"outputs": {"answer": "\ud83d"}})
    if run.outputs.get("answer") == "plain":
        return run.model_copy(update={"outputs": {"answer": "changed"}, "status": RunStatus.ERROR})
    return None
