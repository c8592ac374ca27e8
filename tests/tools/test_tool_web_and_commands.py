"""The routes under `/api/tools` and the commands, called as the host calls them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host.contracts.commands import CommandOutput
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.http import HttpRequest, HttpResponse


async def ask(bench: Any, method: str, path: str, body: Any = None) -> HttpResponse:
    route, parameters, _ = bench.host.registrations.find(method, path)
    assert route is not None
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = HttpRequest(method=method, path=path, parameters=parameters, body=content, call=bench.host.call())
    response = await route.call(request)
    assert isinstance(response, HttpResponse)
    return response


async def run(bench: Any, name: str, **arguments: Any) -> list[CommandOutput]:
    return [output async for output in bench.host.registrations.commands[name].call(arguments)]


def text_of(outputs: list[CommandOutput]) -> str:
    return "\n".join(output.text for output in outputs if output.kind == "text")


async def test_one_call_is_executed(bench: Any) -> None:
    rows: Any = ["toolId", "tool_id", "id"]
    with Failures() as failures:
        for key in rows:
            with failures.row(key):
                bench.write_info("info")
                response = await ask(
                    bench, "POST", "/api/tools/execute", {key: "info", "arguments": {"name": "tavern-tools"}}
                )
                assert response.status == 200
                [result] = response.data["results"]  # type: ignore[index, call-overload]
                assert (result["status"], result["structured"]["name"]) == ("done", "tavern-tools")


async def test_a_malformed_body_is_refused(bench: Any) -> None:
    rows: Any = [
        (b"{", "the body is not JSON"),
        ([], 'expected an object with "text" or "toolId", got an array'),
        ({}, 'expected either "text" or "toolId"'),
        ({"text": "a", "toolId": "b"}, 'expected either "text" or "toolId"'),
        ({"toolId": 3}, '"toolId" must be text, got an integer'),
        ({"toolId": "a", "arguments": []}, '"arguments" must be an object, got an array'),
        ({"text": "a", "arguments": {}}, '"arguments" goes with "toolId"'),
        ({"toolid": "a"}, 'unknown key "toolid" (did you mean toolId or tool_id?)'),
    ]
    with Failures() as failures:
        for body, message in rows:
            with failures.row(body), pytest.raises(InvalidInput, match=re.escape(message)):
                await ask(bench, "POST", "/api/tools/execute", body)


async def test_the_list_command_shows_tools_and_what_is_wrong_with_others(bench: Any) -> None:
    bench.write_info("info")
    bench.write_tool("fetch", {"type": "script", "command": "x"}, displayName="Fetch")
    (bench.root / "tools" / "bad.tool.json").write_text("{")
    table, problem, result = await run(bench, "tools list")
    assert ["fetch", "script", "project", "needs service scriptExecution", "Fetch"] in table.rows
    assert "bad.tool.json:1:2: is not JSON" in problem.text
    assert {"fetch", "info"} <= {tool["id"] for tool in result.data}  # type: ignore[index, union-attr, call-overload]


async def test_the_show_command_tells_what_a_tool_is_and_where_it_comes_from(bench: Any) -> None:
    path = bench.write_info("info", description="Tells about a plugin.")
    outputs = await run(bench, "tools show", id="info")
    assert "- Tool ID: info\n  - Description: Tells about a plugin." in text_of(outputs)
    assert f"From: the project ({path})" in text_of(outputs)
    with pytest.raises(NotFound):
        await run(bench, "tools show", id="absent")


@pytest.mark.parametrize(
    ("tool_id", "given", "exit_code"),
    [("absent", [], 2), ("info", ["nam=x"], 2), ("info", ["name=absent"], 1), ("info", ["name=tavern-tools"], None)],
)
async def test_the_call_commands_exit_code_says_whose_fault_it_was(
    bench: Any, tool_id: str, given: list[str], exit_code: int | None
) -> None:
    bench.write_info("info")
    outputs = await run(bench, "tools call", id=tool_id, arg=given)
    failures = [output.exit_code for output in outputs if output.kind == "failure"]
    assert failures == ([] if exit_code is None else [exit_code])
