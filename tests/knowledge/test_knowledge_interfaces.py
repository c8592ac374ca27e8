"""Knowledge through tools, the node and HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from helpers.repetition import Failures
from helpers.workflow_documents import function

from tavern_host import EXECUTION_ENGINE, TOOL_MANAGER, CallContext, Principal
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_host.testing.http import HttpClient, served
from tavern_tools.api.toolcalls import ToolCallRequest, ToolScope
from tests.knowledge.conftest import Bench

pytestmark = pytest.mark.asyncio(loop_scope="module")

LORE = {"entries": [{"id": "inn", "displayName": "The inn", "content": {"value": "A quiet inn. 安静的客栈。"}}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web(bench: Bench) -> AsyncIterator[HttpClient]:
    """Give a client of the served host."""
    bench.write("knowledge/lore.json", LORE)
    async with served(bench.host) as client:
        yield client


async def test_agents_query_and_write_by_tools(bench: Bench) -> None:
    bench.write("knowledge/lore.json", LORE)
    bench.write("knowledge/journal.json", {"entries": []})
    elara = bench.agent("elara", ("lore=world", ["read"]), ("journal=myJournal", ["read", "write_caiu"]))
    tools = bench.host.services.get(TOOL_MANAGER)

    async def do(tool: str, call: CallContext = elara, **arguments: Any) -> Any:
        request = ToolCallRequest(tool_id=tool, arguments=arguments)
        return await tools.call(request, scope=ToolScope(allowed=["*"]), call=call)

    for tool in ("kb:Query", "QueryKnowledgeBaseTool"):
        found = await do(tool, query="客栈", bases=["world"])
        assert (found.status, [hit["id"] for hit in found.structured]) == ("done", ["inn"]), found.error
    written = await do("WriteToKnowledgeBaseTool", text="The innkeeper owes me three coins.", name="A debt")
    id = written.structured["id"]
    assert (written.structured["base"], written.structured["isEnabled"]) == ("journal", True)
    again = await do("WriteToKnowledgeBaseTool", base="myJournal", entryId=id, text="It is paid.", tags=["past"])
    assert again.status == "done"
    kept = (await bench.kb.get("journal", id)).entry
    assert (kept.name, kept.content.value, kept.management_metadata.tags) == ("A debt", "It is paid.", ["past"])
    assert kept.management_metadata.source == "agent_generated"
    nobody = bench.agent("nobody")
    rows = [
        (await do("WriteToKnowledgeBaseTool", base="world", text="x"), "may not write the knowledge base 'world'"),
        (await do("WriteToKnowledgeBaseTool", call=nobody, text="x"), "there is none"),
        (await do("kb:Query", query=""), "query"),
    ]
    with Failures() as failures:
        for result, problem in rows:
            with failures.row(problem):
                assert problem in result.error.message
    assert (await do("kb:Query", call=nobody, query="inn")).structured == []


async def test_the_node_searches_for_who_runs_the_workflow(bench: Bench) -> None:
    bench.write("knowledge/lore.json", LORE)
    node = {"q": {"type": "core:QueryKnowledge", "inputValues": {"bases": ["lore"]}}}
    edges = ("in.query > q.query", "q.text > out.text", "q.entries > out.entries")
    types = {"takes": {"query": "STRING"}, "gives": {"text": "STRING", "entries": "ARRAY"}}
    document = function("ask", node, *edges, **types)
    request = RunRequest(workflow=Workflow.model_validate(document), inputs={"query": "客栈"})
    engine = bench.host.services.get(EXECUTION_ENGINE)
    run = await engine.run(request)
    assert (run.status, run.error) == (RunStatus.COMPLETE, None)
    assert run.outputs["text"] == "## The inn\nA quiet inn. 安静的客栈。"
    nobody = CallContext(principal=Principal(kind="agent", id="nobody"))
    assert (await engine.run(request, call=nobody)).outputs["entries"] == []


async def test_routes_do_what_the_service_does(web: HttpClient) -> None:
    entry = {"content": {"value": "The gate is shut."}, "mood": None}
    rows: list[tuple[str, str, Any, int, Any]] = [
        ("GET", "/api/knowledge/lore", None, 200, {"kb_id": "lore"}),
        ("PUT", "/api/knowledge/town", {"kb_displayName": "Town"}, 200, {"id": "town", "name": "Town"}),
        ("PUT", "/api/knowledge/town", [], 400, {}),
        ("PUT", "/api/knowledge/town/entries/gate?revision=", entry, 200, {"base": "town"}),
        ("PUT", "/api/knowledge/town/entries/gate?revision=", entry, 409, {}),
        ("POST", "/api/knowledge/town/entries", {"entries": [{"id": "a"}, {"id": "b"}]}, 200, [{"base": "town"}, {}]),
        ("POST", "/api/knowledge/town/entries", {"entries": [{"id": 7}]}, 400, {}),
        ("GET", "/api/knowledge/town/entries?limit=1&offset=1", None, 200, {"total": 3}),
        ("GET", "/api/knowledge/town/entries?limit=0", None, 400, {}),
        ("GET", "/api/knowledge/town/entries/gate", None, 200, {"base": "town"}),
        ("POST", "/api/knowledge-search", {"query": "gate", "bases": ["town"]}, 200, [{"id": "gate", "base": "town"}]),
        ("POST", "/api/knowledge-search", {"text": "gate"}, 400, {}),
        ("DELETE", "/api/knowledge/town/entries/gate", None, 200, {"deleted": True}),
        ("GET", "/api/knowledge/town/entries/gate", None, 404, {}),
        ("DELETE", "/api/knowledge/town", None, 200, {"deleted": True}),
        ("GET", "/api/knowledge/town", None, 404, {}),
    ]
    with Failures() as failures:
        for method, path, body, status, expected in rows:
            with failures.row(f"{method} {path} {status}"):
                answer = await web.request(method, path, **({} if body is None else {"json": body}))
                data = await answer.json()
                assert answer.status == status, data
                for got, wanted in [(data, expected)] if isinstance(data, dict) else zip(data, expected, strict=True):
                    assert got.items() >= wanted.items()
    listed = await (await web.get("/api/knowledge")).json()
    assert {base["id"] for base in listed} >= {"lore", "host:nodes", "host:tools"}
