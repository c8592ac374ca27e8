"""Questions of agents, and their approvals, at MCP clients that can ask people."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from helpers.mcp_desk import OFFER
from helpers.repetition import Failures
from helpers.stub_llm import said
from helpers.tavern_project import MODELS, Tavern

from tavern_host.testing.http import TOKEN, HttpClient, served
from tests.agents.agent_bench import AgentBench, agent, agent_bench, tool

pytest.importorskip("mcp", reason="needs the extra: pip install tavern-host[mcp]")
import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

pytestmark = pytest.mark.asyncio(loop_scope="module")
ERAS = ("auto", "legacy")
ASK = "system:request_user_interaction"
OPTIONS = {
    "settings": {MODELS: {"m": {"adapter": "told", "model": "m"}}, OFFER: ["agent:keeper", ASK]},
    "serving": True,
}
FORM: dict[str, Any] = {
    "properties": {"city": {"type": "string"}, "copies": {"type": "integer", "minimum": 1}},
    "required": ["city"],
}
DEEP: dict[str, Any] = {"properties": {"tags": {"type": "array", "items": {"type": "integer"}}}}


def prepare(project: Tavern) -> None:
    project.write("tools/shout.tool.json", tool("shout", requiresApproval=True))
    project.profile(tool_ids_inventory=[ASK, "shout", "agent:helper"])
    project.write("agents/helper.json", agent("helper", ASK))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[AgentBench, HttpClient]]:
    async with (
        agent_bench(tmp_path_factory.mktemp("asked"), prepare, **OPTIONS) as bench,
        served(bench.host) as web,
    ):
        yield bench, web


class Person:
    """Who answers at the client, one question after the other; `None` declines, and anything callable is awaited."""

    def __init__(self, *answers: Any) -> None:
        self.answers = [*answers]
        self.asked: list[types.ElicitRequestFormParams] = []

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params)
        answer = self.answers.pop(0)
        if callable(answer):
            answer = await answer()
        return types.ElicitResult(action="decline" if answer is None else "accept", content=answer)


@asynccontextmanager
async def client(web: HttpClient, mode: str, person: Person) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30) as http:
        transport = streamable_http_client(f"http://127.0.0.1:{web.port}/mcp", http_client=http)
        async with Client(transport, mode=mode, elicitation_callback=person.elicit) as found:
            yield found


def text(result: types.CallToolResult) -> str:
    return "".join(part.text for part in result.content if isinstance(part, types.TextContent))


ROWS: list[tuple[dict[str, Any], list[Any], str]] = [
    ({}, [{"answer": "Ada"}], '{"answer": "Ada"}'),
    ({}, [{"answer": ""}, {"answer": "Ada"}], '{"answer": "Ada"}'),
    ({"choices": ["tea", "ale"]}, [{"answer": "ale"}], '{"answer": "ale"}'),
    ({"choices": ["tea", "ale"], "multiple": True}, [{"answer": ["ale"]}], '{"answer": ["ale"]}'),
    ({"schema": FORM}, [{"city": "Ghent", "copies": 2}], '{"answer": {"city": "Ghent", "copies": 2}}'),
    ({"schema": DEEP}, [{"answer": '{"tags": [1]}'}], '{"answer": {"tags": [1]}}'),
    ({}, [None], "ApprovalRefused: an answer was declined by user:operator: by the MCP client"),
]


async def test_a_client_that_asks_people_answers_questions(site: tuple[AgentBench, HttpClient]) -> None:
    _, web = site
    with Failures() as failures:
        for mode in ERAS:
            for arguments, answers, expected in ROWS:
                with failures.row((mode, arguments, answers)):
                    person = Person(*answers)
                    async with client(web, mode, person) as one:
                        name = "system_request_user_interaction"
                        result = await one.call_tool(name, {"question": "Who?", **arguments})
                    assert (text(result), result.is_error) == (expected, answers == [None])
                    assert [asked.message.split("\n")[0] for asked in person.asked] == ["Who?"] * len(answers)


async def test_the_questions_of_agents_reach_the_client_that_called_them(site: tuple[AgentBench, HttpClient]) -> None:
    bench, web = site
    with Failures() as failures:
        for mode in ERAS:
            with failures.row(mode):
                bench.answers(
                    said("", (ASK, {"question": "Who?"})),
                    said("", ("shout", {"text": "ada"})),
                    said("", ("agent:helper", {"message": "Ask where."})),
                    said("", (ASK, {"question": "Where?", "choices": ["Ghent", "Lille"]})),
                    said("In Ghent."),
                    said("", (ASK, {"question": "Why?"})),
                    said("Done."),
                )
                person = Person({"answer": "Ada"}, {"approve": True}, {"answer": "Ghent"}, None)
                async with client(web, mode, person) as one:
                    result = await one.call_tool("agent_keeper", {"message": "Go."})
                assert (text(result), result.is_error) == ("Done.", False)
                messages = [asked.message.partition(" (")[0] for asked in person.asked]
                assert messages == ["Who?", "shout is to be called", "Where?", "Why?"]
                [run, *_] = [one for one in await bench.runtime.runs() if one.profile_id == "keeper"]
                done = [one.text for one in await bench.trace(run.id, "observation")]
                assert "ADA" in str(done) and "declined" in str(done)


async def test_what_others_answer_first_counts(site: tuple[AgentBench, HttpClient]) -> None:
    bench, web = site

    async def elsewhere() -> dict[str, str]:
        [task] = await bench.waiting()
        await bench.tools.decide(task.id, "approve", arguments={"answer": "the page"})
        async with asyncio.timeout(20):
            await bench.runtime.wait(task.agent_run_id or "")
        return {"answer": "the client"}

    with Failures() as failures:
        for mode in ERAS:
            with failures.row(mode):
                bench.answers(said("", (ASK, {"question": "Who?"})), said("Done."))
                async with client(web, mode, Person(elsewhere)) as one:
                    assert text(await one.call_tool("agent_keeper", {"message": "Go."})) == "Done."
                [run, *_] = await bench.runtime.runs()
                assert "the page" in (await bench.trace(run.id, "observation"))[0].text

                async def before() -> dict[str, str]:
                    [task] = await bench.waiting()
                    await bench.tools.decide(task.id, "approve", arguments={"answer": "the page"})
                    return {"answer": "the client"}

                async with client(web, mode, Person(before)) as one:
                    result = await one.call_tool("system_request_user_interaction", {"question": "Who?"})
                assert text(result) == '{"answer": "the page"}'
