"""An override that calls the service that it stands on top of, and so itself, is stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from helpers.forwarding import overriding
from plugin_maker import host_with, make_plugin, problems_of

from tavern_host import LLM, WORKFLOW_MANAGER
from tavern_host.contracts.errors import PluginFailure
from tavern_llm.api.llm import LlmRequest

MADE = """
    def __init__(self, context, original):
        self.context, self.original = context, original
"""
WORKFLOWS = f"""{MADE}
    async def list_workflows(self): return await self.context.services.get(WORKFLOW_MANAGER).list_workflows()
"""
STREAMS = f"""{MADE}
    async def complete(self, request, *, call=None): return await self.context.services.get(LLM).complete(request)
    async def stream(self, request, *, call=None):
        async for chunk in self.context.services.get(LLM).stream(request):
            yield chunk
"""


def override(parent: Path, key: str, body: str, service: str, *uses: str) -> Path:
    permissions = {"services": {"override": [service], "use": [*uses]}}
    return make_plugin(parent, "acme", overriding(key, body), permissions=permissions)


async def test_an_override_that_calls_itself_is_named(tmp_path: Path) -> None:
    async with host_with(tmp_path / "p", override(tmp_path, "WORKFLOW_MANAGER", WORKFLOWS, "workflowManager")) as host:
        with pytest.raises(PluginFailure) as stopped:
            await host.services.get(WORKFLOW_MANAGER).list_workflows()
        assert stopped.value.info.code == "recursion"
        assert stopped.value.message == (
            "acme calls itself without end in workflowManager.list_workflows: "
            "an override reaches what it replaces through `original`, not through context.services"
        )
        assert stopped.value.info.plugin == "acme"
        assert ["calls itself without end" in problem for problem in problems_of(host)] == [True]


async def test_a_stream_that_reads_itself_is_named(tmp_path: Path) -> None:
    async with host_with(tmp_path / "p", override(tmp_path, "LLM", STREAMS, "llm", "llm:complete")) as host:
        llm = host.services.get(LLM)
        with pytest.raises(PluginFailure, match=r"acme calls itself without end in llm\.stream"):
            async for _ in llm.stream(LlmRequest(messages=[])):
                pass
        with pytest.raises(PluginFailure, match=r"acme calls itself without end in llm\.complete"):
            await llm.complete(LlmRequest(messages=[]))


async def test_many_calls_are_no_recursion(tmp_path: Path) -> None:
    code = WORKFLOWS.replace("self.context.services.get(WORKFLOW_MANAGER)", "self.original")
    async with host_with(tmp_path / "p", override(tmp_path, "WORKFLOW_MANAGER", code, "workflowManager")) as host:
        workflows = host.services.get(WORKFLOW_MANAGER)
        for _ in range(50):
            await workflows.list_workflows()
        await asyncio.gather(*(workflows.list_workflows() for _ in range(50)))
        assert problems_of(host) == []
