"""The routes under `/api/tools` and the commands, called as the host calls them."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host.contracts.commands import CommandOutput
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.http import HttpRequest, HttpResponse

OpenHost = Callable[..., Any]


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


async def test_tools_are_listed_and_shown(open_host: OpenHost) -> None:
    async with open_host() as bench:
        bench.write_info("my:info")
        listed = (await ask(bench, "GET", "/api/tools")).data
        assert "my:info" in [tool["id"] for tool in listed]  # type: ignore[index, union-attr, call-overload]
        shown = (await ask(bench, "GET", "/api/tools/my:info")).data
        assert isinstance(shown, dict)
        assert (shown["id"], shown["implementation"]) == (
            "my:info",
            {"kind": "service", "service": "plugins", "method": "get"},
        )
        with pytest.raises(NotFound):
            await ask(bench, "GET", "/api/tools/absent")


async def test_one_call_is_executed(open_host: OpenHost) -> None:
    rows: Any = ["toolId", "tool_id", "id"]
    async with open_host() as bench:
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


async def test_action_text_is_executed_and_failed_calls_are_results(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_info("info")
        response = await ask(bench, "POST", "/api/tools/execute", {"text": "Hi\n!?absent\n!info name=tavern-llm\n"})
        assert response.status == 200
        assert isinstance(response.data, dict)
        assert response.data["parsed"]["text"] == "Hi\n"
        assert [r["status"] for r in response.data["results"]] == ["error", "done"]
        assert response.data["results"][0]["error"]["type"] == "ToolNotFound"


async def test_a_malformed_body_is_refused(open_host: OpenHost) -> None:
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
    async with open_host() as bench:
        with Failures() as failures:
            for body, message in rows:
                with failures.row(body), pytest.raises(InvalidInput, match=re.escape(message)):
                    await ask(bench, "POST", "/api/tools/execute", body)


async def test_the_list_command_shows_tools_and_what_is_wrong_with_others(open_host: OpenHost) -> None:
    async with open_host() as bench:
        bench.write_info("info")
        bench.write_tool("fetch", {"type": "script", "command": "x"}, displayName="Fetch")
        (bench.root / "tools" / "bad.tool.json").write_text("{")
        table, problem, result = await run(bench, "tools list")
        assert ["fetch", "script", "project", "needs service scriptExecution", "Fetch"] in table.rows
        assert "bad.tool.json:1:2: is not JSON" in problem.text
        assert {"fetch", "info"} <= {tool["id"] for tool in result.data}  # type: ignore[index, union-attr, call-overload]


async def test_the_show_command_tells_what_a_tool_is_and_where_it_comes_from(open_host: OpenHost) -> None:
    async with open_host() as bench:
        path = bench.write_info("info", description="Tells about a plugin.")
        outputs = await run(bench, "tools show", id="info")
        assert "- Tool ID: info\n  - Description: Tells about a plugin." in text_of(outputs)
        assert f"From: the project ({path})" in text_of(outputs)
        with pytest.raises(NotFound):
            await run(bench, "tools show", id="absent")


async def test_the_call_command_converts_arguments_and_prints_the_answer(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        outputs = await run(bench, "tools call", id="acme:repeat", arg=["text=a=b", "times=3"])
        assert text_of(outputs) == "a=ba=ba=b"
        assert [o.data["status"] for o in outputs if o.kind == "result"] == ["done"]  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    ("tool_id", "given", "exit_code"),
    [("absent", [], 2), ("info", ["nam=x"], 2), ("info", ["name=absent"], 1), ("info", ["name=tavern-tools"], None)],
)
async def test_the_call_commands_exit_code_says_whose_fault_it_was(
    open_host: OpenHost, tool_id: str, given: list[str], exit_code: int | None
) -> None:
    async with open_host() as bench:
        bench.write_info("info")
        outputs = await run(bench, "tools call", id=tool_id, arg=given)
        failures = [output.exit_code for output in outputs if output.kind == "failure"]
        assert failures == ([] if exit_code is None else [exit_code])


async def test_arguments_that_are_no_pairs_are_refused(open_host: OpenHost) -> None:
    rows: Any = [["name"], ["=x"], ["name=a", "name=b"]]
    async with open_host() as bench:
        with Failures() as failures:
            for given in rows:
                with failures.row(given), pytest.raises(InvalidInput, match="--arg"):
                    await run(bench, "tools call", id="info", arg=given)


async def test_parse_shows_calls_text_and_warnings_of_a_file_or_stdin(
    open_host: OpenHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Hello.\n!acme:repeat text=a\n!nope\n"
    (tmp_path / "answer.txt").write_text(text)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    async with open_host("acme_tools") as bench:
        from_file = await run(bench, "parse", file=str(tmp_path / "answer.txt"))
        from_stdin = await run(bench, "parse", file=str(tmp_path / "-"))
        assert text_of(from_file) == text_of(from_stdin)
        shown = text_of(from_file)
        assert 'acme:repeat (step 1 of block-1, lines, on error: stop)\n  text = "a"' in shown
        assert "warning: lines: nope is not known" in shown
        assert shown.endswith("remaining text:\nHello.")
        with pytest.raises(InvalidInput, match=r"absent\.txt cannot be read: No such file"):
            await run(bench, "parse", file=str(tmp_path / "absent.txt"))
