"""The tool, as agents and people call it, against servers of 127.0.0.1 that answer as SearXNG and Brave do."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tavern_agents.api.agents import AGENT_RUNTIME, AgentRequest
from tavern_host import TOOL_MANAGER, Host
from tavern_host.testing import MakeHost
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult

pytestmark = pytest.mark.tavern(plugins=["../web_search"])

PREFIX = "extensions.web-search."
SEARXNG = [
    {"url": "https://example.org/ropes", "title": "Ropes &amp; knots", "content": "How to <b>tie</b>\n one."},
    {"title": "Without an address"},
    *({"url": f"https://example.org/{n}", "title": str(n), "content": "x" * 900} for n in range(30)),
]
BRAVE = {"web": {"results": [{"url": "https://example.org", "title": "One", "description": "<strong>Found</strong>"}]}}


CALL = "<|[REQUEST_TOOL]|>\ncommand:「始」web:search「末」\nquery:「始」ropes「末」\n<|[END_TOOL]|>"
DELIBERATION = {
    "name": "Deliberation",
    "nodes": [
        {"id": "in", "type": "core:GroupInput"},
        {"id": "model", "type": "core:LlmApiRequest"},
        {"id": "out", "type": "core:GroupOutput"},
    ],
    "edges": [
        {"id": "a", "source": "in", "sourceHandle": "messages", "target": "model", "targetHandle": "messages"},
        {"id": "b", "source": "model", "sourceHandle": "text", "target": "out", "targetHandle": "response"},
    ],
    "interfaceInputs": {"messages": {"dataFlowType": "ARRAY", "required": True}},
    "interfaceOutputs": {"response": {"dataFlowType": "STRING"}},
}


class Service:
    """A search service: what it answers, and the requests that it got."""

    def __init__(self) -> None:
        self.answer: web.Response | None = None
        self.asked: list[web.Request] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        if self.answer is not None:
            return self.answer
        return web.json_response({"results": SEARXNG} if request.path == "/search" else BRAVE)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def address(service: Service) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/{path:.*}", service.handle)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


async def search(host: Host, query: str = "ropes") -> ToolResult:
    request = ToolCallRequest(tool_id="web:search", arguments={"query": query})
    return await host.services.get(TOOL_MANAGER).call(request)


async def test_results_of_searxng_are_plain_and_bounded(make_host: MakeHost, service: Service, address: str) -> None:
    async with make_host(settings={f"{PREFIX}address": address}) as host:
        result = await search(host, "ropes and knots")
    assert result.status == "done", result.error
    found: Any = result.structured
    assert found[0] == {"title": "Ropes & knots", "address": "https://example.org/ropes", "snippet": "How to tie one."}
    assert (len(found), len(found[1]["snippet"])) == (5, 500)
    assert dict(service.asked[0].query) == {"q": "ropes and knots", "format": "json"}


async def test_brave_gets_the_key_in_its_header(make_host: MakeHost, service: Service, address: str) -> None:
    brave = {f"{PREFIX}service": "brave", f"{PREFIX}key": "a-long-secret-key", f"{PREFIX}address": f"{address}/brave"}
    async with make_host(settings=brave) as host:
        result = await search(host)
    assert result.structured == [{"title": "One", "address": "https://example.org", "snippet": "Found"}]
    assert service.asked[0].headers["X-Subscription-Token"] == "a-long-secret-key"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (web.Response(status=403), r"answered with 403 \(is the format json allowed there, "),
        (web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), "answered with 302"),
        (web.Response(text="<html>"), "not JSON"),
        (web.Response(text="[]"), "not an object"),
        (web.Response(body=b"x" * 2_100_000), "more than 2,000,000 bytes"),
    ],
)
async def test_what_a_service_does_wrong_is_said(
    make_host: MakeHost, service: Service, address: str, answer: web.Response, message: str
) -> None:
    service.answer = answer
    async with make_host(settings={f"{PREFIX}address": address}) as host:
        result = await search(host)
    assert result.error is not None
    assert re.search(message, result.error.message)


async def test_without_a_service_the_tool_says_what_to_set(host: Host) -> None:
    result = await search(host)
    assert result.error is not None
    assert "set web-search.address" in result.error.message


@pytest.mark.tavern(workflows={"thinking": DELIBERATION})
async def test_an_agent_searches_and_answers(make_host: MakeHost, address: str, tavern_project: Path) -> None:
    profile = {"id": "scout", "name": "Scout", "version": "1.0.0", "schema_version": "1.0"}
    thinking = {"core_deliberation_workflow_id": "thinking", "tool_ids_inventory": ["web:search"]}
    agents = tavern_project / "agents"
    agents.mkdir(exist_ok=True)
    (agents / "scout.json").write_text(json.dumps({**profile, **thinking}))
    replies = [
        {"when": {"contains": "How to tie one."}, "reply": "Ropes and knots: https://example.org/ropes"},
        {"reply": CALL},
    ]
    (agents / "scout.replies.yaml").write_text(json.dumps(replies))
    model = {"scripted": {"adapter": "scripted", "file": "agents/scout.replies.yaml"}}
    settings = {f"{PREFIX}address": address, "extensions.tavern-llm.models": model}
    async with make_host(settings=settings) as host:
        request = AgentRequest(profile_id="scout", message="How do I tie a knot?")
        reply = await host.services.get(AGENT_RUNTIME).run(request)
    assert (reply.outcome, reply.text) == ("reply", "Ropes and knots: https://example.org/ropes"), reply.error
