"""Carrying out a call that may be made, by the kind of its tool."""

from __future__ import annotations

import asyncio
import base64
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from cachetools import FIFOCache
from pydantic import JsonValue

from tavern_engine.api.executions import EXECUTION_ENGINE
from tavern_engine.api.nodes import NODE_MANAGER
from tavern_host.context import PluginContext, ServiceMethod
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.workflows import InterfaceSlot, Workflow, WorkflowEdge, WorkflowNode
from tavern_host.sdk.time_limits import until_given_up
from tavern_tools.api.toolcalls import ContentPart, ToolErrorType, ToolOutput, ToolScope, current_report, current_taker
from tavern_tools.builtin.project_folder import read
from tavern_tools.calls.call import Call, Output
from tavern_tools.calls.script_tools import output_of_script, run_script
from tavern_tools.calls.streams import Streams
from tavern_tools.calls.workflow_progress import run_reporting
from tavern_tools.calls.workflow_streams import run_passing_on, workflow_stream
from tavern_tools.catalog.failures import ToolFailure, failure_of
from tavern_tools.catalog.permissions import service_and_method
from tavern_tools.catalog.project_paths import read_path
from tavern_tools.catalog.registry import Tool
from tavern_workflows.api.workflows import GROUP_OUTPUT

_NODE, _OUTPUT = "node", "output"
KNOWN = 1000
"""Of how many tools that are nodes the workflow is known."""
_LATER = 0.25
"""Seconds from a call's time limit to its deadline, so that the limit is what is reported."""


class Runners:
    """Carries out calls in one host."""

    def __init__(self, context: PluginContext, streams: Streams) -> None:
        self._context = context
        self._streams = streams
        self._timeout = float(context.settings.get("callTimeout", 120))
        self.scopes: dict[str, ToolScope] = {}
        """What the callers of the calls that run now may not do, by the ids of their contexts."""
        self._nodes: FIFOCache[tuple[str, str | None, int], Workflow] = FIFOCache(KNOWN)

    async def run(self, call: Call) -> Output:
        """Return the output of a call's tool within the time limit: the tool's own or else the setting `callTimeout`,
        and the caller's deadline. Raises `ToolFailure` or what the services raise.

        A method that ignores its cancellation is given up a second after the limit.
        """
        tool, timeout = call.tool, call.tool.definition.timeout
        seconds = limit = self._timeout if timeout is None else timeout / 1000
        if call.context.deadline is not None:
            seconds = min(limit, call.context.remaining() or 0.0)
        timer = asyncio.timeout(None)
        try:
            async with timer:
                return await until_given_up(self._run(call, seconds), timer, seconds)
        except TimeoutError:
            if not timer.expired():
                raise
        reason = f"its limit of {limit * 1000:g} ms" if seconds == limit else "the caller's deadline"
        raise ToolFailure(ToolErrorType.TIMEOUT, f"{tool.definition.id} did not end within {reason}")

    async def _run(self, call: Call, seconds: float) -> Output:
        tool, arguments, scope = call.tool, call.request.arguments, call.scope
        kind = tool.definition.implementation.kind
        if kind == "service":
            method = self._method(tool)
            acts = method.info.is_acting
            context = call.context.child(timeout=seconds + _LATER) if acts else call.context
            values = tool.definition.implementation.values
            sent = arguments if values is None else {**values, "arguments": arguments}
            if scope is None:
                value = await method(sent, context)
            else:
                with self._holding(context, scope):
                    value = await method(sent, context)
            if values is not None:
                found = ToolOutput.model_validate(value)
                return Output(found.structured, tuple(found.content))
            is_script = isinstance(value, dict) and isinstance(value.get("success"), bool)
            return output_of_script(tool.definition, value) if is_script else Output(value)
        child = call.context.child(timeout=seconds + _LATER)
        if kind == "script":
            with self._holding(child, scope):
                return await run_script(self._context, tool.definition, tool.code, arguments, child)
        request = await self._request(tool, await self._with_files(tool, arguments))
        if tool.streams and scope is not None and scope.streams:
            keys = [key for key in tool.outputs or () if key in tool.streams]
            # the stream outlives the call that opens it: the time limit ends with the call
            stream = workflow_stream(self._context, request, call.context.child(), keys)
            handle = self._streams.open(stream, call.context, tool.definition.id)
            part = ContentPart(type="stream", uri=handle, name=", ".join(keys))
            return Output({"stream": handle}, (part,))
        return await self._finished(tool, request, child)

    def _holding(self, context: CallContext, scope: ToolScope | None) -> AbstractContextManager[object]:
        """Let the scope of a call hold for the calls that its tool makes for it, until the block ends."""
        if scope is None or context.id in self.scopes:
            return nullcontext()
        self.scopes[context.id] = scope
        stack = ExitStack()
        stack.callback(self.scopes.pop, context.id)
        return stack

    def _method(self, tool: Tool) -> ServiceMethod:
        """Return the method that a service tool names."""
        if tool.method is not None:
            return tool.method
        service, method = service_and_method(tool.definition.implementation)
        return self._context.services.method(service, method)

    async def _request(self, tool: Tool, arguments: dict[str, JsonValue]) -> RunRequest:
        implementation = tool.definition.implementation
        about: dict[str, Any] = {"metadata": {"toolId": tool.definition.id}, "recover": False}
        if implementation.kind == "workflow":
            return RunRequest(workflow_id=implementation.workflow_id, inputs=arguments, **about)
        workflow = await self._node_workflow(tool.definition.id, implementation.node_type, arguments)
        return RunRequest.construct(workflow=workflow, inline=True, **about)

    async def _node_workflow(self, name: str, node_type: str | None, values: dict[str, JsonValue]) -> Workflow:
        """Return the workflow of a tool that is a node: `values` are its inputs. All else is made once."""
        key = name, node_type, self._context.hooks.revision
        if (known := self._nodes.get(key)) is None:
            node = await self._context.services.get(NODE_MANAGER).get(node_type or "")
            known = self._nodes[key] = micro_workflow(name, node)
        [one, end] = known.nodes
        return known.model_copy(update={"nodes": [one.model_copy(update={"input_values": values}), end]})

    async def _with_files(self, tool: Tool, arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Return the arguments with the content of files, base64, in the place of their paths."""
        named = tool.files & arguments.keys()
        if not named:
            return arguments
        filled = dict(arguments)
        for name in named:
            value = filled[name]
            if isinstance(value, list):
                filled[name] = [await self._content(path) for path in value]
            else:
                filled[name] = await self._content(value)
        return filled

    async def _content(self, path: JsonValue) -> JsonValue:
        if not isinstance(path, str):
            return path
        root = self._context.project.folder("files")
        most = int(float(self._context.settings.get("fileMegabytes", 16)) * 2**20)
        data = await asyncio.to_thread(lambda: read(root, read_path(path), most=most))
        return base64.b64encode(data).decode()

    async def _finished(self, tool: Tool, request: RunRequest, call: CallContext) -> Output:
        report, take = current_report(), current_taker()
        if take is not None and tool.streams:
            run = await run_passing_on(self._context, request, call, tool.streams, take)
        elif report is None:
            run = await self._context.services.get(EXECUTION_ENGINE).run(request, call=call)
        else:
            run = await run_reporting(self._context, request, call, report)
        if run.status is RunStatus.INTERRUPTED:
            message = run.error.message if run.error else "the run was interrupted"
            raise ToolFailure(ToolErrorType.INTERRUPTED, message, runId=run.id)
        if run.status is not RunStatus.COMPLETE:
            error = run.error or ErrorInfo(code="error", message=f"the run ended as {run.status}")
            raise failure_of(error, runId=run.id)
        keys = run.outputs.keys() if tool.outputs is None else tool.outputs
        outputs = {key: run.outputs.get(key) for key in keys}
        missing = ", ".join(key for key in run.missing_outputs if key in outputs and request.workflow_id)
        warnings = (f"no value came to the outputs: {missing}",) if missing else ()
        return Output(next(iter(outputs.values())) if len(outputs) == 1 else outputs, warnings=warnings)


def micro_workflow(name: str, node: NodeDefinition) -> Workflow:
    """Return the workflow of one node, without values: its outputs are the interface."""
    _, outputs = node.slots()
    edges = [
        WorkflowEdge(id=f"edge-{key}", source=_NODE, source_handle=key, target=_OUTPUT, target_handle=key)
        for key in outputs
    ]
    return Workflow(
        name=name,
        nodes=[
            WorkflowNode(id=_NODE, type=node.full_type),
            WorkflowNode(id=_OUTPUT, type=GROUP_OUTPUT),
        ],
        edges=edges,
        interface_outputs={
            key: InterfaceSlot(key=key, **slot.model_dump(exclude_unset=True, exclude={"key"}))
            for key, slot in outputs.items()
        },
    )
