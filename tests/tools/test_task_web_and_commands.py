"""Tasks and approvals over HTTP and on the command line, in a host with its tools."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound, PermissionDenied
from tavern_host.contracts.settings import MASK
from tavern_host.contracts.toolcalls import TaskStatus, ToolCallRequest, ToolScope, ToolTask

AGENT = CallContext(principal=Principal(kind="agent", id="lin"))
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


async def ended(bench: Any, task_id: str) -> ToolTask:
    """Return a task when it has ended."""
    task: ToolTask = await bench.tools.task(task_id, wait=20, call=bench.host.call())
    assert task.status.is_final
    return task


async def waiting(bench: Any) -> str:
    """Return the id of a task that runs for a minute."""
    bench.write_tool("wait", {"type": "node", "nodeType": "acme-tools:Wait"}, **{"async": True})
    return await asked(bench, "wait", seconds=60)


def ids(response: Any, key: str) -> list[str]:
    return [task["id"] for task in response.data[key]]


# --- HTTP ------------------------------------------------------------------------------------------------


async def test_tasks_are_listed_a_page_at_a_time(stocked: Any) -> None:
    stocked.write_tool("copy", {"type": "node", "nodeType": "acme-tools:Repeat"}, **{"async": True})
    done, open_ = await asked(stocked, "copy", text="a"), await parked(stocked)
    await ended(stocked, done)
    listed = await stocked.ask("GET", "/api/tasks")
    assert (ids(listed, "tasks")[:2], listed.data["limit"], listed.data["offset"]) == ([open_, done], 50, 0)
    page = await stocked.ask("GET", "/api/tasks", status="done,error", limit="1", tool="co*")
    assert ids(page, "tasks") == [done]
    stranger = CallContext(principal=Principal(kind="agent", id="other"))
    assert ids(await stocked.ask("GET", "/api/tasks", call=stranger), "tasks") == []
    shown = (await stocked.ask("GET", f"/api/tasks/{done}", wait="20")).data
    assert (shown["status"], shown["result"]["structured"]) == ("done", "aa")
    for wrong in ("soon", "-1", "inf", "nan", "1e9"):
        with pytest.raises(InvalidInput, match=r"the query: \$\.wait: Input should be"):
            await stocked.ask("GET", f"/api/tasks/{done}", wait=wrong)
    with pytest.raises(NotFound):
        await stocked.ask("GET", "/api/tasks/task_nowhere")


async def test_a_wrong_query_or_body_is_told(stocked: Any) -> None:
    queries: Any = [
        ({"status": "dnoe"}, r"status: there is no status 'dnoe' \(did you mean done\?\)"),
        ({"limit": "many"}, "limit: input should be a valid integer.*, got 'many'"),
        ({"limit": "0"}, "limit: input should be greater than or equal to 1, got '0'"),
        ({"offset": "-1"}, "offset: input should be greater than or equal to 0, got '-1'"),
    ]
    bodies: Any = [
        ([], r"the body: \$: Input should be an object"),
        ({}, r"the body: \$\.decision: Field required"),
        ({"decision": "perhaps"}, r"the body: \$\.decision: Input should be 'approve' or 'refuse'"),
        ({"decision": "approve", "comments": ""}, r"the body: \$\.comments: Extra inputs are not permitted"),
        ({"decision": "approve", "arguments": []}, r"the body: \$\.arguments: Input should be a valid dictionary"),
        ({"decision": "approve", "comment": 3}, r"the body: \$\.comment: Input should be a valid string"),
    ]
    task = await parked(stocked)
    with Failures() as failures:
        for query, message in queries:
            with failures.row(query), pytest.raises(InvalidInput, match=message):
                await stocked.ask("GET", "/api/tasks", **query)
        for body, message in bodies:
            with failures.row(body), pytest.raises(InvalidInput, match=message):
                await stocked.ask("POST", f"/api/approvals/{task}", body)


async def test_calls_are_approved_and_cancelled_over_http(stocked: Any) -> None:
    task = await parked(stocked, name="tavern", apiKey="hunter2")
    listed = await stocked.ask("GET", "/api/approvals")
    assert (ids(listed, "approvals")[0], listed.data["approvals"][0]["arguments"]["apiKey"]) == (task, MASK)
    body = {"decision": "approve", "arguments": {"name": "tavern-llm"}, "comment": "fine"}
    with pytest.raises(PermissionDenied):
        await stocked.ask("POST", f"/api/approvals/{task}", body, call=AGENT)
    await stocked.ask("POST", f"/api/approvals/{task}", body)
    result: Any = (await ended(stocked, task)).result
    assert result.structured["name"] == "tavern-llm"
    with pytest.raises(Conflict, match="was approved already, by user:operator"):
        await stocked.ask("POST", f"/api/approvals/{task}", {"decision": "refuse"})
    cancelled = await stocked.ask("POST", f"/api/tasks/{await waiting(stocked)}/cancel")
    assert cancelled.data["status"] == "cancelled"


# --- the command line ------------------------------------------------------------------------------------


async def test_tasks_are_shown_by_an_ids_beginning(stocked: Any) -> None:
    stocked.write_tool("copy", {"type": "node", "nodeType": "acme-tools:Repeat"}, **{"async": True})
    done, open_ = await asked(stocked, "copy", text="雪"), await parked(stocked, apiKey="hunter2")
    await ended(stocked, done)
    listed = await stocked.run("tasks list", limit=2)
    assert [(row[1], full.startswith(row[0])) for row, full in zip(listed.rows, (open_, done), strict=True)] == [
        ("awaiting_approval", True),
        ("done", True),
    ]
    assert [task["id"] for task in listed.data] == [open_, done]
    some = await stocked.run("tasks list", status=["done", "error"], limit=20)
    assert {row[1] for row in some.rows} <= {"done", "error"}

    shown = await stocked.run("tasks show", task=done[: len("task_") + 10])
    assert f"{done}: done" in shown.text and "雪" in shown.text
    assert shown.data["id"] == done
    other = await stocked.run("tasks show", task=open_.removeprefix("task_"))
    assert "then refuse" in other.text
    assert f'apiKey = "{MASK}"' in other.text
    with pytest.raises(NotFound, match="there is no task 'x'; `tavern tasks list` shows"):
        await stocked.run("tasks show", task="x")
    with pytest.raises(InvalidInput, match="matches several tasks"):
        await stocked.run("tasks show", task="task_")
    with pytest.raises(NotFound):
        await stocked.run("tasks show", task="")


async def test_a_task_is_cancelled_by_a_command(stocked: Any) -> None:
    task = await waiting(stocked)
    said = await stocked.run("tasks cancel", task=task)
    assert (said.text, said.exit_code) == (f"{task}: cancelled", 0)
    again = await stocked.run("tasks cancel", task=task)
    assert (again.lines, again.exit_code) == ([f"the task {task} has ended already: it is cancelled"], 1)


async def test_calls_are_approved_and_refused_by_commands(stocked: Any) -> None:
    first, second, third = [await parked(stocked, name="old") for _ in range(3)]
    listed = await stocked.run("approvals list", limit=3)
    assert [row[1:3] for row in listed.rows] == [["ask", "agent:lin"]] * 3

    said = await stocked.run("approvals approve", task=first, arg=["name=tavern-llm"], comment="fine")
    assert said.text.startswith(f"{first}: approved")
    assert (await stocked.run("approvals refuse", task=second, comment="no")).text == f"{second}: refused"
    await stocked.run("approvals approve", task=third, arguments='{"name": "tavern-tam"}')

    results: Any = [(await ended(stocked, task)).result for task in (first, third)]
    assert [result.structured["name"] for result in results] == ["tavern-llm", "tavern-tam"]
    assert (await ended(stocked, second)).status is TaskStatus.REFUSED
    with pytest.raises(Conflict):
        await stocked.run("approvals approve", task=second)


async def test_the_command_tells_of_wrong_arguments(stocked: Any) -> None:
    rows: Any = [
        ({"arg": ["name"]}, "--arg expects NAME=VALUE"),
        ({"arguments": "{"}, "--arguments is not JSON"),
        ({"arguments": "[]"}, "--arguments must be a JSON object, not an array"),
        ({"arguments": "{}", "arg": ["a=b"]}, "give either --arguments or --arg"),
        ({"arg": ["colour=red"]}, "is no parameter of this tool"),
    ]
    task = await parked(stocked)
    with Failures() as failures:
        for given, message in rows:
            with failures.row(given), pytest.raises(InvalidInput, match=message):
                await stocked.run("approvals approve", task=task, **given)
    assert (await stocked.tools.task(task, call=stocked.host.call())).status is TaskStatus.AWAITING_APPROVAL
