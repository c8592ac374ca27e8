"""Carrying out a call that may be made, by the kind of its tool."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Coroutine
from typing import Any

from pydantic import JsonValue

from tavern_host.context import PluginContext, ServiceMethod
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import EXECUTION_ENGINE, RunRequest, RunStatus
from tavern_host.contracts.nodes import NODE_MANAGER, NodeDefinition
from tavern_host.contracts.toolcalls import ContentPart, ToolErrorType, ToolScope
from tavern_host.contracts.workflows import GROUP_OUTPUT, InterfaceSlot, Workflow, WorkflowEdge, WorkflowNode
from tavern_host.runtime.timing import rest_within, within
from tavern_tools.builtin.projectfolder import read
from tavern_tools.builtin.projectpaths import read_path
from tavern_tools.calls.results import Given
from tavern_tools.calls.scripttools import parts_of_outcome, run_script
from tavern_tools.calls.streams import Streams
from tavern_tools.calls.workflowstream import workflow_stream
from tavern_tools.catalog.failures import ToolFailure, failure_of
from tavern_tools.catalog.registry import Tool
from tavern_tools.catalog.rights import service_and_method
from tavern_tools.tasks.progress import Report

_NODE, _OUTPUT = "node", "output"
_LATER = 0.25
"""How many seconds after a call's own time limit its deadline is, so that it is the limit that is told of."""


def no_report(progress: float | None, text: str | None) -> None:
    """Tell nobody."""


class Runners:
    """Carries out calls in one host."""

    def __init__(self, context: PluginContext, streams: Streams) -> None:
        self._context = context
        self._streams = streams

    async def run(
        self,
        tool: Tool,
        arguments: dict[str, JsonValue],
        call: CallContext,
        scope: ToolScope | None,
        report: Report,
        limit: float,
    ) -> Given:
        """Return what the tool gives within its own time limit (else `limit` seconds) and the caller's deadline.

        Raises `ToolFailure` or what the services raise.
        """
        left, late = _time_limit(tool, call, limit)
        return await within(left, self._run(tool, arguments, call, left, scope, report), late)

    async def _run(
        self,
        tool: Tool,
        arguments: dict[str, JsonValue],
        call: CallContext,
        seconds: float,
        scope: ToolScope | None,
        report: Report,
    ) -> Given:
        kind = tool.definition.implementation.kind
        if kind == "service":
            method = self._method(tool)
            given = await method(arguments, call.child(timeout=seconds + _LATER) if method.info.permission else call)
            return Given(given, parts_of_outcome(tool.definition, given))
        child = call.child(timeout=seconds + _LATER)
        if kind == "script":
            return await run_script(self._context, tool.definition, arguments, child, report)
        request = await self._request(tool, await self._with_files(tool, arguments))
        if tool.streams and scope is not None and scope.streams:
            keys = [key for key in tool.outputs or () if key in tool.streams]
            # the stream outlives the call that gives it: the time limit ends with the call
            handle = self._streams.open(workflow_stream(self._context, request, call.child(), keys), call.principal)
            part = ContentPart(type="stream", uri=handle, name=", ".join(keys))
            return Given({"stream": handle}, (part,))
        return Given(await self._finished(tool, request, child))

    def _method(self, tool: Tool) -> ServiceMethod:
        """Return what calls the method that a service tool names."""
        if tool.method is not None:
            return tool.method
        service, method = service_and_method(tool.definition.implementation)
        return self._context.services.method(service, method)

    async def _request(self, tool: Tool, arguments: dict[str, JsonValue]) -> RunRequest:
        implementation = tool.definition.implementation
        about: dict[str, JsonValue] = {"toolId": tool.definition.id}
        if implementation.kind == "workflow":
            return RunRequest(workflow_id=implementation.workflow_id, inputs=arguments, metadata=about)
        node = await self._context.services.get(NODE_MANAGER).get(implementation.node_type or "")
        return RunRequest(workflow=micro_workflow(tool.definition.id, node, arguments), metadata=about)

    async def _with_files(self, tool: Tool, arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Return the arguments with the content of files, base64, in the place of their paths."""
        named = tool.files & arguments.keys()
        if not named:
            return arguments
        given = dict(arguments)
        for name in named:
            value = given[name]
            if isinstance(value, list):
                given[name] = [await self._content(path) for path in value]
            else:
                given[name] = await self._content(value)
        return given

    async def _content(self, path: JsonValue) -> JsonValue:
        if not isinstance(path, str):
            return path
        root = self._context.project.folder("files")
        most = int(float(self._context.settings.get("fileMegabytes", 16)) * 2**20)
        data = await asyncio.to_thread(lambda: read(root, read_path(path), most=most))
        return base64.b64encode(data).decode()

    async def _finished(self, tool: Tool, request: RunRequest, call: CallContext) -> JsonValue:
        run = await self._context.services.get(EXECUTION_ENGINE).run(request, call=call)
        if run.status is RunStatus.INTERRUPTED:
            message = run.error.message if run.error else "the run was interrupted"
            raise ToolFailure(ToolErrorType.INTERRUPTED, message, runId=run.id)
        if run.status is not RunStatus.COMPLETE:
            error = run.error or ErrorInfo(code="error", message=f"the run ended as {run.status}")
            raise failure_of(error, runId=run.id)
        keys = run.outputs.keys() if tool.outputs is None else tool.outputs
        outputs = {key: run.outputs.get(key) for key in keys}
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs


async def read_on(
    tool: Tool, reading: Coroutine[Any, Any, JsonValue], suspended_on: Any, call: CallContext, limit: float
) -> JsonValue:
    """Return what a tool's method gives that was begun by hand and is suspended, within the limits of `Runners.run`."""
    left, late = _time_limit(tool, call, limit)
    return await rest_within(left, reading, suspended_on, late)


def _time_limit(tool: Tool, call: CallContext, limit: float) -> tuple[float, Callable[[], ToolFailure]]:
    """Return how many seconds a call may take, and what is wrong with one that takes longer."""
    timeout = tool.definition.timeout
    seconds = limit if timeout is None else timeout / 1000
    remaining = call.remaining()

    def late() -> ToolFailure:
        is_own = remaining is None or seconds <= remaining
        reason = f"its limit of {seconds * 1000:g} ms" if is_own else "the caller's deadline"
        return ToolFailure(ToolErrorType.TIMEOUT, f"{tool.definition.id} did not end within {reason}")

    return seconds if remaining is None else min(seconds, remaining), late


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
