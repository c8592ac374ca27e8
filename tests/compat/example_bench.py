"""A running host on which the platform's examples are carried out."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from tavern_host import Host
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult
from tavern_tools.api.tools import TOOL_MANAGER, ToolManager


class Bench:
    """A running host on a project, with its tool manager."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.tools: ToolManager = host.services.get(TOOL_MANAGER)

    @property
    def files(self) -> Path:
        """The folder of the project's files."""
        return self.host.project.folder("files")

    def write_tool(self, name: str, content: str | dict[str, Any]) -> None:
        """Write a tool file of the project."""
        folder = self.host.project.folder("tools")
        folder.mkdir(exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{name}.tool.json").write_text(text, "utf-8")

    def write_workflow(self, workflow_id: str, document: dict[str, Any]) -> None:
        """Write a workflow of the project."""
        folder = self.host.project.folder("workflows")
        folder.mkdir(exist_ok=True)
        (folder / f"{workflow_id}.json").write_text(json.dumps(document), "utf-8")

    def write_echo(self, tool_id: str, *parameters: str) -> None:
        """Write a tool, made of a workflow, that gives back what it was called with. It has one output more than it has
        parameters: a single one would come bare."""
        workflow_id = f"echo-{tool_id.replace('.', '-')}"
        ends = [{"id": "in", "type": "core:GroupInput"}, {"id": "out", "type": "core:GroupOutput"}]
        edges = [
            {"id": p, "source": "in", "sourceHandle": p, "target": "out", "targetHandle": p}
            for p in (*parameters, "and_more")
        ]
        slots: dict[str, Any] = {p: {"dataFlowType": "WILDCARD"} for p in (*parameters, "and_more")}
        document = {"nodes": ends, "edges": edges, "interfaceInputs": slots, "interfaceOutputs": slots}
        self.write_workflow(workflow_id, document)
        implementation = {"type": "workflow", "workflowId": workflow_id}
        self.write_tool(tool_id, {"id": tool_id, "implementation": implementation})

    async def call(self, tool_id: str, **arguments: Any) -> ToolResult:
        return await self.tools.call(ToolCallRequest(tool_id=tool_id, arguments=arguments))


OpenBench = Callable[..., AbstractAsyncContextManager[Bench]]
