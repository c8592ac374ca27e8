"""Carrying out a call whose arguments are known to be right, by the kind of its tool."""

from __future__ import annotations

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import EXECUTION_ENGINE, RunRequest, RunStatus
from tavern_host.contracts.nodes import NODE_MANAGER, NodeDefinition
from tavern_host.contracts.tools import ToolErrorType
from tavern_host.contracts.workflows import GROUP_OUTPUT, InterfaceSlot, Workflow, WorkflowEdge, WorkflowNode
from tavern_tools.failures import ToolFailure, failure_of
from tavern_tools.registry import Tool
from tavern_tools.rights import service_and_method

_NODE, _OUTPUT = "node", "output"


async def run_tool(context: PluginContext, tool: Tool, arguments: dict[str, JsonValue], call: CallContext) -> JsonValue:
    """Return what the tool gives. Raises `ToolFailure` or what the services raise."""
    implementation = tool.definition.implementation
    if implementation.kind == "service":
        service, method = service_and_method(implementation)
        result: JsonValue = await context.services.invoke(service, method, arguments, call=call)
        return result
    about: dict[str, JsonValue] = {"toolId": tool.definition.id}
    if implementation.kind == "workflow":
        request = RunRequest(workflow_id=implementation.workflow_id, inputs=arguments, metadata=about)
    else:
        node = await context.services.get(NODE_MANAGER).get(implementation.node_type or "")
        request = RunRequest(workflow=micro_workflow(tool.definition.id, node, arguments), metadata=about)
    return await _run(context, tool, request, call)


def micro_workflow(name: str, node: NodeDefinition, values: dict[str, JsonValue]) -> Workflow:
    """Return the workflow of one node: `values` are its inputs, its outputs are the interface (`spec/000` §4.1.2)."""
    _, outputs = node.slots()
    edges = [
        WorkflowEdge(id=f"edge-{key}", source=_NODE, source_handle=key, target=_OUTPUT, target_handle=key)
        for key in outputs
    ]
    return Workflow(
        name=name,
        nodes=[
            WorkflowNode(id=_NODE, type=node.full_type, input_values=values),
            WorkflowNode(id=_OUTPUT, type=GROUP_OUTPUT),
        ],
        edges=edges,
        interface_outputs={
            key: InterfaceSlot(key=key, **slot.model_dump(exclude_unset=True, exclude={"key"}))
            for key, slot in outputs.items()
        },
    )


async def _run(context: PluginContext, tool: Tool, request: RunRequest, call: CallContext) -> JsonValue:
    run = await context.services.get(EXECUTION_ENGINE).run(request, call=call)
    if run.status is RunStatus.INTERRUPTED:
        message = run.error.message if run.error else "the run was interrupted"
        raise ToolFailure(ToolErrorType.INTERRUPTED, message, runId=run.id)
    if run.status is not RunStatus.COMPLETE:
        error = run.error or ErrorInfo(code="error", message=f"the run ended as {run.status}")
        raise failure_of(error, runId=run.id)
    keys = run.outputs.keys() if tool.outputs is None else tool.outputs
    outputs = {key: run.outputs.get(key) for key in keys}
    return next(iter(outputs.values())) if len(outputs) == 1 else outputs
