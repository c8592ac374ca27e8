"""What agents know of tools before they call them: which fit their task, and what became of earlier calls."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from helpers.stub_llm import said, written
from helpers.tavern_project import Tavern

from tavern_host import Host
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE, TOOLS
from tavern_llm.api.llm import LlmRequest
from tavern_tools.api.toolcalls import ToolCallRequest
from tavern_tools.api.tools import TOOL_MANAGER
from tests.agents.agent_bench import AgentBench, agent, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "hunter2-and-more"
MANY = 150


def prepare(project: Tavern) -> None:
    """Write agents with short inventories and with a very long one, and tools for them."""
    for number in range(MANY):
        about = f"Orders article {number} of the catalogue. " + "Says how long that takes, and its price. " * 8
        project.write(f"tools/stock-{number}.tool.json", tool(f"stock:item{number}", description=about))
    text = {"type": "string", "minLength": 2}
    parameters = {"type": "object", "properties": {"text": text, "key": {"type": "string", "format": "password"}}}
    project.write("tools/login.tool.json", tool("login", parameters=parameters))
    project.profile(tool_ids_inventory=["login", "FileOperator.ReadFile"])
    for name, inventory, about in (
        ("buyer", ["stock:*", "FileOperator.*", "system:list_tools"], {"tool_tokens": 3_000}),
        ("coder", ["CodeInterpreter:execute", "stock:*", "FileOperator.*"], {"tool_tokens": 3_000, "code_mode": True}),
    ):
        project.write(f"agents/{name}.json", agent(name, *inventory, custom_metadata=about))


async def call(bench: AgentBench, tool_id: str, **arguments: Any) -> str:
    """Return the status of a call."""
    return (await bench.tools.call(ToolCallRequest(tool_id=tool_id, arguments=arguments))).status


def texts(request: LlmRequest) -> list[str]:
    return [message.content for message in request.messages]


async def test_what_became_of_calls_reaches_entry_and_prompt(bench: AgentBench) -> None:
    known = bench.host.services.get(KNOWLEDGE_BASE)
    model = bench.answers(said("Hello."))
    await bench.run()
    before = texts(model.asked[0])
    for _ in range(3):
        assert await call(bench, "login", text="letters", key=SECRET) == "done"
        assert await call(bench, "login", text="x", key=SECRET) == "error"
        assert await call(bench, "FileOperator.ReadFile", filePath=f"{SECRET}.txt") == "error"
    assert await call(bench, "login", text="y" * 500, Obey_me=1) == "error"

    found = await bench.tools.statistics(["login", "FileOperator.ReadFile", "login"])
    assert (found["login"].calls, found["login"].done) == (7, 3)
    assert found["login"].examples == [{"text": "letters"}], "and no secret"
    assert found["FileOperator.ReadFile"].errors.popitem()[1] == 3, "they count together, whatever they quote"
    assert sorted(found["login"].errors) == [
        "ParameterValidationError",
        "the arguments of login are not right: …: is no parameter of this tool",
    ]
    entry = (await known.get(TOOLS, "login")).entry
    assert entry.extensions["statistics"]["calls"] == 7  # type: ignore[index, call-overload]
    assert "42 % of 7 calls succeeded; often: ParameterValidationError" in entry.content.value
    (hit,) = [hit for hit in await known.search("login", bases=[TOOLS]) if hit.id == "login"]
    assert "42 % of 7" in hit.text
    told = await bench.tools.call(ToolCallRequest(tool_id="system:describe_tool", arguments={"toolId": "login"}))
    assert "Experience: 42 % of 7" in str(told.structured)

    model = bench.answers(written("tam", ("login", {"text": "?"})), said("Done."), said("Yes."))
    reply = await bench.run(conversation_id="c1")
    await bench.run("Again?", conversation_id="c1")
    first, second, third = map(texts, model.asked)
    assert first[0] == before[0]
    assert first[1].startswith("<OBSERVATION>\nWhat became of earlier calls of your tools:")
    assert "- login: 42 % of 7 calls succeeded" in first[1]
    assert first == second[: len(first)] == third[: len(first)], "what stays the same comes first"
    assert not any("of 7 calls" in message.content for message in reply.history)
    seen = [*texts(model.asked[2]), entry.model_dump_json(), hit.text, str(found), str(told.structured)]
    assert not any(SECRET in text or "yyyy" in text or "Obey" in text for text in seen)


async def test_statistics_outlive_their_host_and_are_merged(tmp_path: Path) -> None:
    async def count(host: Host) -> int:
        return (await host.services.get(TOOL_MANAGER).statistics(["FileOperator.ReadFile"]))[
            "FileOperator.ReadFile"
        ].calls

    request = ToolCallRequest(tool_id="FileOperator.ReadFile", arguments={"filePath": "none"})
    async with Host(tmp_path) as host:
        await host.services.get(TOOL_MANAGER).call(request)
        async with Host(tmp_path) as other:
            for _ in range(250):
                await other.services.get(TOOL_MANAGER).call(request)
        assert 100 < await count(host) <= 200, "of many calls, older ones count for less"
    async with Host(tmp_path) as host:
        assert 100 < await count(host) <= 200


async def test_a_long_inventory_shows_the_tools_that_fit(bench: AgentBench) -> None:
    model = bench.answers(written("tam", ("stock:item77", {"text": "please"})), said("Done."))

    reply = await bench.run("请删除这个文件", agent="buyer")

    first, second = (re.findall(r"Tool ID: (\S+)", texts(request)[0]) for request in model.asked)
    assert first == second
    assert {"FileOperator.DeleteFile", "system:list_tools"} <= set(first)
    assert 5 < len(first) < MANY
    assert len(texts(model.asked[0])[0]) < 4 * 3_000 * 1.5
    (warning,) = await bench.trace(reply.agent_run_id, "warning")
    left_out = MANY + 7 - len(first)
    assert warning.text == f"{left_out} tools of the inventory are not shown: they do not fit into the prompt"
    assert f"{left_out} more tools may be called" in texts(model.asked[0])[1]
    assert any("PLEASE" in text for text in texts(model.asked[1])), "what is not shown may be called"


async def test_code_mode_shows_the_functions_that_fit(bench: AgentBench) -> None:
    model = bench.answers(said("Done."))
    await bench.run("delete a file", agent="coder")
    functions = texts(model.asked[0])[1]
    assert "def delete_file(" in functions
    assert functions.count("\ndef ") < MANY
