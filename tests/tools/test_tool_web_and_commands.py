"""The routes under `/api/tools`, `/api/tasks` and `/api/approvals`, and the commands `tavern tools`, `tasks` and
`approvals`, called as the host calls them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound, PermissionDenied
from tavern_host.contracts.settings import MASK
from tavern_tools.api.toolcalls import TaskStatus, ToolCallRequest, ToolScope

AGENT, STRANGER = (CallContext(principal=Principal(kind="agent", id=name)) for name in ("lin", "other"))
INFO = {"type": "service", "service": "plugins", "method": "get"}
PARAMETERS = {"type": "object", "properties": {key: {"type": "string"} for key in ("name", "apiKey")}}


async def asked(bench: Any, tool_id: str, **arguments: Any) -> str:
    """Return the id of the task that an agent's call became."""
    request = ToolCallRequest(tool_id=tool_id, arguments=arguments)
    result = await bench.tools.call(request, scope=ToolScope(allowed=["*"]), call=AGENT)
    return str(result.task_id)


async def parked(bench: Any, **arguments: Any) -> str:
    """Return the id of a call that waits for a decision."""
    bench.write_info("ask", requiresApproval=True, parameters=PARAMETERS)
    return await asked(bench, "ask", **arguments)


async def made(bench: Any, text: str) -> str:
    """Return the id of a task that has ended."""
    bench.write_tool("copy", {"type": "node", "nodeType": "acme-tools:Repeat"}, **{"async": True})
    task_id = await asked(bench, "copy", text=text)
    await ended(bench, task_id)
    return task_id


async def waiting(bench: Any) -> str:
    """Return the id of a task that runs for a minute."""
    bench.write_tool("wait", {"type": "node", "nodeType": "acme-tools:Wait"}, **{"async": True})
    return await asked(bench, "wait", seconds=60)


async def ended(bench: Any, task_id: str) -> Any:
    """Return a task when it has ended."""
    task = await bench.tools.task(task_id, wait=60, call=bench.host.call())
    assert task.status.is_final
    return task


def ids(response: Any, key: str) -> list[str]:
    return [task["id"] for task in response.data[key]]


# --- HTTP ------------------------------------------------------------------------------------------------

EXECUTE, SOME, ONE = ("POST", "/api/tools/execute"), ("GET", "/api/tasks"), ("GET", "/api/tasks/task_x")
WRONG: Any = [
    # a route, the query, the body, what is wrong
    (EXECUTE, {}, b"{", "the body is not JSON"),
    (EXECUTE, {}, [], "the body: $: Input should be an object"),
    *((EXECUTE, {}, body, 'expected either "text" or "toolId"') for body in ({}, {"text": "a", "toolId": "b"})),
    (EXECUTE, {}, {"toolId": 3}, "the body: $.toolId: Input should be a valid string"),
    (EXECUTE, {}, {"toolId": "a", "arguments": []}, "the body: $.arguments: Input should be a valid dictionary"),
    (EXECUTE, {}, {"text": "a", "arguments": {}}, '"arguments" goes with "toolId"'),
    (EXECUTE, {}, {"toolid": "a"}, 'unknown key "toolid" (did you mean toolId or tool_id?)'),
    (SOME, {"status": "dnoe"}, None, "status: there is no status 'dnoe' (did you mean done?)"),
    (SOME, {"limit": "many"}, None, "limit: input should be a valid integer"),
    (SOME, {"limit": "0"}, None, "limit: input should be greater than or equal to 1, got '0'"),
    (SOME, {"offset": "-1"}, None, "offset: input should be greater than or equal to 0, got '-1'"),
    *(
        (ONE, {"wait": wait}, None, "the query: $.wait: Input should be")
        for wait in ("soon", "-1", "inf", "nan", "1e9")
    ),
    (None, {}, [], "the body: $: Input should be an object"),
    (None, {}, {}, "the body: $.decision: Field required"),
    (None, {}, {"decision": "perhaps"}, "the body: $.decision: Input should be 'approve' or 'refuse'"),
    (None, {}, {"decision": "approve", "comments": ""}, "the body: $.comments: Extra inputs are not permitted"),
    (None, {}, {"decision": "approve", "arguments": []}, "the body: $.arguments: Input should be a valid dictionary"),
    (None, {}, {"decision": "approve", "comment": 3}, "the body: $.comment: Input should be a valid string"),
]


async def test_wrong_queries_and_bodies_are_told(stocked: Any) -> None:
    approval = ("POST", f"/api/approvals/{await parked(stocked)}")
    with Failures() as failures:
        for route, query, body, message in WRONG:
            with failures.row((route, query, body)), pytest.raises(InvalidInput, match=re.escape(message)):
                await stocked.ask(*(route or approval), body, **query)


async def test_tools_are_called_and_tasks_listed_by_page(stocked: Any) -> None:
    stocked.write_info("info")
    for key in ("toolId", "tool_id", "id"):
        response = await stocked.ask(*EXECUTE, {key: "info", "arguments": {"name": "tavern-tools"}})
        [result] = response.data["results"]
        assert (result["status"], result["structured"]["name"]) == ("done", "tavern-tools")
    done, open_ = await made(stocked, "a"), await parked(stocked)
    listed = await stocked.ask(*SOME)
    assert (ids(listed, "tasks")[:2], listed.data["limit"], listed.data["offset"]) == ([open_, done], 50, 0)
    assert ids(await stocked.ask(*SOME, status="done,error", limit="1", tool="co*"), "tasks") == [done]
    assert ids(await stocked.ask(*SOME, call=STRANGER), "tasks") == []
    shown = (await stocked.ask("GET", f"/api/tasks/{done}", wait="20")).data
    assert (shown["status"], shown["result"]["structured"]) == ("done", "aa")
    with pytest.raises(NotFound):
        await stocked.ask("GET", "/api/tasks/task_nowhere")


async def test_calls_are_approved_and_cancelled_over_http(stocked: Any) -> None:
    task = await parked(stocked, name="tavern", apiKey="hunter2")
    listed = await stocked.ask("GET", "/api/approvals")
    assert (ids(listed, "approvals")[0], listed.data["approvals"][0]["arguments"]["apiKey"]) == (task, MASK)
    body = {"decision": "approve", "arguments": {"name": "tavern-llm"}, "comment": "fine"}
    with pytest.raises(PermissionDenied):
        await stocked.ask("POST", f"/api/approvals/{task}", body, call=AGENT)
    await stocked.ask("POST", f"/api/approvals/{task}", body)
    assert (await ended(stocked, task)).result.structured["name"] == "tavern-llm"
    with pytest.raises(Conflict, match="was approved already, by user:operator"):
        await stocked.ask("POST", f"/api/approvals/{task}", {"decision": "refuse"})
    cancelled = await stocked.ask("POST", f"/api/tasks/{await waiting(stocked)}/cancel")
    assert cancelled.data["status"] == "cancelled"


# --- commands --------------------------------------------------------------------------------------------


async def test_tasks_are_shown_and_cancelled_by_commands(stocked: Any) -> None:
    done, open_ = await made(stocked, "雪"), await parked(stocked, apiKey="hunter2")
    listed = await stocked.run("tasks list", limit=2)
    assert [(row[1], full.startswith(row[0])) for row, full in zip(listed.rows, (open_, done), strict=True)] == [
        *(("awaiting_approval", True), ("done", True))
    ]
    assert [task["id"] for task in listed.data] == [open_, done]
    some = await stocked.run("tasks list", status=["done", "error"], limit=20)
    assert {row[1] for row in some.rows} <= {"done", "error"}
    shown = await stocked.run("tasks show", task=done[: len("task_") + 10])  # by the beginning of an id
    assert f"{done}: done" in shown.text
    assert "雪" in shown.text
    assert shown.data["id"] == done
    other = await stocked.run("tasks show", task=open_.removeprefix("task_"))
    assert "then refuse" in other.text
    assert f'apiKey = "{MASK}"' in other.text
    for wanted, error, message in (
        *(("x", NotFound, "there is no task 'x'; `tavern tasks list` shows"), ("", NotFound, "there is no task")),
        ("task_", InvalidInput, "matches several tasks"),
    ):
        with pytest.raises(error, match=message):
            await stocked.run("tasks show", task=wanted)
    task = await waiting(stocked)
    said, again = await stocked.run("tasks cancel", task=task), await stocked.run("tasks cancel", task=task)
    assert (said.text, said.exit_code) == (f"{task}: cancelled", 0)
    assert (again.lines, again.exit_code) == ([f"the task {task} has ended already: it is cancelled"], 1)


async def test_calls_are_approved_and_refused_by_commands(stocked: Any) -> None:
    first, second, third = [await parked(stocked, name="old") for _ in range(3)]
    listed = await stocked.run("approvals list", limit=3)
    assert [row[1:3] for row in listed.rows] == [["ask", "agent:lin"]] * 3
    with Failures() as failures:
        for options, message in (
            *(({"arg": ["name"]}, "--arg expects NAME=VALUE"), ({"arguments": "{"}, "--arguments is not JSON")),
            ({"arguments": "[]"}, "--arguments must be a JSON object, not an array"),
            ({"arguments": "{}", "arg": ["a=b"]}, "give either --arguments or --arg"),
            ({"arg": ["colour=red"]}, "is no parameter of this tool"),
        ):
            with failures.row(options), pytest.raises(InvalidInput, match=message):
                await stocked.run("approvals approve", task=first, **options)
    said = await stocked.run("approvals approve", task=first, arg=["name=tavern-llm"], comment="fine")
    assert said.text.startswith(f"{first}: approved")
    assert (await stocked.run("approvals refuse", task=second, comment="no")).text == f"{second}: refused"
    await stocked.run("approvals approve", task=third, arguments='{"name": "tavern-tam"}')
    results = [(await ended(stocked, task)).result for task in (first, third)]
    assert [result.structured["name"] for result in results] == ["tavern-llm", "tavern-tam"]
    assert (await ended(stocked, second)).status is TaskStatus.REFUSED
    with pytest.raises(Conflict):
        await stocked.run("approvals approve", task=second)


async def test_tools_are_listed_shown_and_called_by_commands(stocked: Any, tmp_path: Path) -> None:
    path = stocked.write_info("info", description="Tells about a plugin.")
    stocked.write_tool("fetch", {"type": "script", "command": "x"}, displayName="Fetch")
    wrong = stocked.write_tool("wrong", {"type": "servce"})
    listed = await stocked.run("tools list")
    assert ["fetch", "script", "project", "needs service scriptExecution", "Fetch"] in listed.rows
    assert any(f"{wrong}:1:" in line and '"servce" (did you mean service?)' in line for line in listed.lines)
    assert {"fetch", "info"} <= {tool["id"] for tool in listed.data}
    shown = await stocked.run("tools show", id="info")
    assert "- Tool ID: info\n  - Description: Tells about a plugin." in shown.text
    assert f"From: the project ({path})" in shown.text
    documented = (await stocked.run("tools docs")).text
    assert "- Tool ID: info\n" in documented and "<|[REQUEST_TOOL]|>" in documented
    with pytest.raises(NotFound):
        await stocked.run("tools show", id="absent")
    # the exit code says whose fault it was
    for tool_id, arguments, exit_code in (
        *(("absent", [], 2), ("info", ["nam=x"], 2), ("info", ["name=absent"], 1), ("info", ["name=tavern-llm"], 0)),
    ):
        assert (await stocked.run("tools call", id=tool_id, arg=arguments)).exit_code == exit_code, arguments
    entries = await stocked.host.services.get(AUDIT).tail(5)
    assert {entry.actor for entry in entries if entry.subject == "info"} == {"user:operator"}
    *problems, verdict = (await stocked.run("tools call", id="wrong")).lines  # calling a wrong file says what is wrong
    assert [problem for problem in problems if problem.startswith(f"{wrong}:1:")]
    assert verdict.startswith('ToolNotFound: no tool has the id "wrong"')
    called = await stocked.run("tools call", id="acme:repeat", arg=["text=a=b", "times=3"])
    assert (called.text, called.data["status"]) == ("a=ba=ba=b", "done")
    assert [line for line in called.lines if line.startswith("times: ")]
    (tmp_path / "said.txt").write_text("Hello.\n!nope\n")
    assert "warning: lines: nope is not known" in (await stocked.run("parse", file=str(tmp_path / "said.txt"))).text


# --- `tavern tools check` -----------------------------------------------------------------------------


async def test_a_warning_alone_is_no_failure(bench: Any) -> None:
    nothing = await bench.run("tools check")
    assert (nothing.lines, nothing.exit_code) == (["The project has no tool files."], 0)
    examples = [{"description": "One.", "arguments": {"name": "a"}}, {"input": {}}]
    path = bench.write_tool("info", INFO, discription="x", examples=examples)
    said = await bench.run("tools check")
    [key, example, verdict] = said.lines
    assert key.startswith(f"warning: {path}:1:")
    assert key.endswith("$.discription: is not a key of a tool and is left unread (did you mean description?)")
    assert example.endswith('$.examples[0].arguments: is not read: the arguments of an example stand in "input"')
    assert (verdict, said.exit_code) == ("Nothing is wrong.", 0)


async def test_what_is_absent_or_never_right_is_told(bench: Any) -> None:
    parameters = {"properties": {"url": {}, "count": {"type": "integer", "default": "3"}}, "required": ["ulr"]}
    bench.write_tool("a", {"type": "node", "nodeType": "core:UperCase"})
    bench.write_tool("b", {"type": "workflow", "workflowId": "absent"})
    bench.write_tool("c", {"type": "node", "nodeType": "core:UpperCase"})
    bench.write_tool("d", {"type": "service", "service": "plugin", "method": "get"})
    bench.write_tool("e", {"type": "service", "service": "plugins", "method": "gte"})
    bench.write_tool("f", INFO, parameters=parameters)
    bench.write_tool("g", INFO, dependencies=["tool:system:task_status", "tool:absent", "service:plugin"])
    (bench.root / "tools" / "h.json").write_text("{}")
    said = await bench.run("tools check")
    lines = [line.rpartition("/tools/")[2] for line in said.lines]
    expected = [
        "h.json: is not read: the name of a tool file ends with .tool.json",
        "a.tool.json:1:61: there is no node core:UperCase (did you mean core:UpperCase",
        "b.tool.json:1:67: there is no workflow absent",
        "d.tool.json:1:63: there is no service 'plugin'",
        "e.tool.json:1:84: there is no method of plugins 'gte'; did you mean get?",
        "f.tool.json:1:161: $.parameters.properties.count.default: is not what the schema allows: "
        '"3" is not of type "integer"',
        'f.tool.json:1:192: $.parameters.required[0]: "ulr" is no property, so no call is right (did you mean url?)',
        *(
            "g.tool.json:1:136: there is no tool absent",
            "g.tool.json:1:151: there is no service plugin",
            "7 problems found",
        ),
    ]
    assert [line[: len(wanted)] for line, wanted in zip(lines, expected, strict=True)] == expected, lines
    assert said.exit_code == 1


async def test_a_folder_that_no_manifest_names_is_told(tmp_path: Path) -> None:
    plugin = tmp_path / "acme"
    (plugin / "tools").mkdir(parents=True)
    (plugin / "plugin.yaml").write_text("name: acme\ndisplayName: Acme\nversion: 1.0.0\n")
    (plugin / "tools" / "a.tool.json").write_text("{}")
    tool = {"id": "a", "implementation": {"type": "script", "command": "python absent.py"}}
    (tmp_path / "p" / "tools").mkdir(parents=True)
    (tmp_path / "p" / "tools" / "a.tool.json").write_text(json.dumps(tool))
    async with Host(tmp_path / "p", plugins=[plugin], trust=["acme"]) as host:
        said = [output.text async for output in host.registrations.commands["tools check"].call({"path": []})]
    [script, folder, verdict] = filter(None, said)
    assert script.endswith("a.tool.json:1:62: there is no script 'absent.py' in the folder scripts of the project")
    assert folder == f"{plugin}/tools: is not read: the manifest of acme does not name it (tools: {{entry: ./tools}})"
    assert verdict == "2 problems found"
