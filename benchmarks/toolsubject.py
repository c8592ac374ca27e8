"""A host with a tool to call, and what a call is measured against."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tavern_host import Host
from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.projects import Folders
from tavern_tools.api.toolcalls import ToolCallRequest
from tavern_tools.api.tools import TOOL_MANAGER, ToolManager

TOOL = "desk:answer"
ARGUMENTS: dict[str, Any] = {"text": "Good evening, traveller.", "count": 3, "loud": False, "share": 0.25}


async def answer(text: str, count: int, loud: bool, share: float) -> str:
    """Do as the tool does."""
    return text


async def floor() -> str:
    """Call the function itself."""
    return await answer(**ARGUMENTS)


@dataclass(frozen=True)
class Subject:
    """A tool manager, and a person's calls of its tool."""

    host: Host
    tools: ToolManager
    request: ToolCallRequest
    call: CallContext

    async def run(self) -> None:
        """Call the tool. Raises `AssertionError` where that does not give what it must."""
        result = await self.tools.call(self.request, call=self.call)
        assert result.structured == ARGUMENTS["text"], result

    async def audited(self) -> int:
        """Return how many of the newest entries of the audit log are calls of the tool."""
        entries = await self.host.services.get(AUDIT).tail(1000)
        return sum(entry.action.startswith("tool.") and entry.subject == TOOL for entry in entries)


@asynccontextmanager
async def subject() -> AsyncIterator[Subject]:
    """Return the subject on a host in folders of its own."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        folders = Folders(root / "config", root / "state", root / "data")
        plugin = Path(__file__).parent / "tooldesk"
        async with Host(root / "project", plugins=[plugin], trust=["tool-desk"], folders=folders) as host:
            if (state := host.plugin("tool-desk").state) != "started":
                raise RuntimeError(f"the benchmark's plugin is {state}: {host.plugin('tool-desk').problems}")
            tools = host.services.get(TOOL_MANAGER)
            call = CallContext(principal=Principal(kind="user", id="operator"), project=host.project.id)
            made = Subject(host, tools, ToolCallRequest(tool_id=TOOL, arguments=ARGUMENTS), call)
            await made.run()  # the first call imports and makes what it needs
            yield made
