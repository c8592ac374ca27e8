"""Tasks and approvals over HTTP and on the command line."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from helpers.repetition import Failures
from task_bench import TOOL, TaskBench, caller, opened, tool

from tavern_host import TOOL_MANAGER, PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.commands import CommandInfo, CommandOutput
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound, PermissionDenied
from tavern_host.contracts.http import HttpRequest, RouteInfo
from tavern_host.contracts.services import ServiceKey
from tavern_host.contracts.settings import MASK
from tavern_host.contracts.toolcalls import TaskFilter, TaskStatus, ToolTask
from tavern_host.contracts.tools import ToolDefinition
from tavern_tools.cli import task_commands as taskcommands
from tavern_tools.cli.descriptors import task_commands
from tavern_tools.web import task_routes as taskweb
from tavern_tools.web.task_routes import task_routes


async def asked(
    bench: TaskBench,
    handler: Callable[..., Any],
    *,
    who: str = "user:operator",
    body: Any = None,
    query: dict[str, str] | None = None,
    **parameters: str,
) -> Any:
    """Return what a route answers."""
    request = HttpRequest(
        method="GET",
        path="/",
        parameters=parameters,
        query=query or {},
        body=b"" if body is None else json.dumps(body).encode(),
        call=caller(who),
    )
    answer = await handler(request, context_of(bench))
    assert answer.status == 200
    return json.loads(json.dumps(answer.data))


async def typed(bench: TaskBench, handler: Callable[..., AsyncIterator[CommandOutput]], **given: Any) -> Said:
    """Return what a command says."""
    return Said([output async for output in handler(given, context_of(bench))])


class Said:
    """What a command said."""

    def __init__(self, outputs: list[CommandOutput]) -> None:
        self.text = "\n".join(output.text for output in outputs if output.kind == "text")
        self.rows = [row for output in outputs if output.kind == "table" for row in output.rows]
        self.data = next((output.data for output in outputs if output.kind == "result"), None)
        self.failures = [(output.text, output.exit_code) for output in outputs if output.kind == "failure"]


@dataclass(frozen=True)
class Front:
    """The part of the tool manager that is about tasks, and one tool."""

    bench: TaskBench

    async def get(self, tool_id: str) -> ToolDefinition:
        assert tool_id == TOOL
        return tool(seconds={"type": "number"}, gives={"type": "string"}, log={"type": "string"}).definition

    async def tasks(self, filter: TaskFilter | None = None, *, call: CallContext) -> list[ToolTask]:
        return await self.bench.tasks.list(filter, call)

    async def task(self, task_id: str, *, wait: float = 0.0, call: CallContext) -> ToolTask:
        return await self.bench.tasks.get(task_id, wait, call)

    async def cancel_task(self, task_id: str, *, call: CallContext) -> ToolTask:
        return await self.bench.tasks.cancel(task_id, call)

    async def decide(
        self, task_id: str, decision: str, *, arguments: dict[str, Any] | None, comment: str, call: CallContext
    ) -> ToolTask:
        return await self.bench.tasks.decide(task_id, decision, arguments, comment, call)


@dataclass(frozen=True)
class Services:
    """Gives the tool manager, which this host has none of with these tasks."""

    bench: TaskBench

    def get(self, key: ServiceKey[Any]) -> Any:
        assert key is TOOL_MANAGER
        return Front(self.bench)


def context_of(bench: TaskBench) -> PluginContext:
    """Return a context whose tool manager has the tasks of the bench."""
    return replace(bench.context, services=cast("Any", Services(bench)))


# --- HTTP ------------------------------------------------------------------------------------------------


async def test_tasks_are_listed_a_page_at_a_time(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        done, waiting = await bench.ended(await bench.submit()), await bench.park()
        assert await asked(bench, taskweb.index) == {
            "tasks": [waiting.to_json(), done.to_json()],
            "limit": 50,
            "offset": 0,
        }
        page = await asked(bench, taskweb.index, query={"status": "done,error", "limit": "1", "tool": "acme:*"})
        assert [task["id"] for task in page["tasks"]] == [done.id]
        own = await asked(bench, taskweb.index, who="agent:writer")
        assert [task["id"] for task in own["tasks"]] == [waiting.id]


async def test_a_query_that_cannot_be_is_told(tmp_path: Path) -> None:
    rows: Any = [
        ({"status": "dnoe"}, r"status: there is no status 'dnoe' \(did you mean done\?\)"),
        ({"limit": "many"}, "limit: input should be a valid integer.*, got 'many'"),
        ({"limit": "0"}, "limit: input should be greater than or equal to 1, got '0'"),
        ({"offset": "-1"}, "offset: input should be greater than or equal to 0, got '-1'"),
    ]
    async with opened(tmp_path / "p") as bench:
        with Failures() as failures:
            for query, message in rows:
                with failures.row(query), pytest.raises(InvalidInput, match=message):
                    await asked(bench, taskweb.index, query=query)


async def test_a_task_is_shown_as_soon_as_it_has_ended(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        task = await bench.submit(seconds=0.2, size=100_000)
        shown = await asked(bench, taskweb.show, id=task.id, query={"wait": "20"})
        assert shown["status"] == "done"
        assert len(shown["result"]["structured"]) == 100_000
        for wrong in ("soon", "-1", "inf", "nan", "1e9"):
            with pytest.raises(InvalidInput, match="wait: expected a number of seconds"):
                await asked(bench, taskweb.show, id=task.id, query={"wait": wrong})
        with pytest.raises(NotFound):
            await asked(bench, taskweb.show, id="task_nowhere")


async def test_a_task_is_cancelled_over_http(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        task = await bench.submit(seconds=60)
        assert (await asked(bench, taskweb.cancel, id=task.id))["status"] == "cancelled"


async def test_a_call_is_approved_over_http(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        await bench.submit()
        task = await bench.park(apiKey="hunter2")
        listed = await asked(bench, taskweb.approvals)
        assert [each["id"] for each in listed["approvals"]] == [task.id]
        edited = {**listed["approvals"][0]["arguments"], "gives": "new"}
        body = {"decision": "approve", "arguments": edited, "comment": "fine"}
        with pytest.raises(PermissionDenied):
            await asked(bench, taskweb.decide, who="agent:writer", id=task.id, body=body)
        await asked(bench, taskweb.decide, id=task.id, body=body)
        ended = await bench.ended(task)
        with pytest.raises(Conflict, match="was approved already, by user:operator"):
            await asked(bench, taskweb.decide, id=task.id, body={"decision": "refuse"})
    assert ended.result is not None and ended.result.structured == "new"
    assert ["", "began", "hunter2"] in bench.noted()


async def test_a_body_that_is_no_decision_is_told(tmp_path: Path) -> None:
    rows: Any = [
        ([], 'expected an object with "decision"'),
        ({}, '"decision" must be "approve" or "refuse", got None'),
        ({"decision": "approve", "comments": ""}, r'unknown key "comments" \(did you mean comment\?\)'),
        ({"decision": "approve", "arguments": []}, '"arguments" must be an object'),
        ({"decision": "approve", "comment": 3}, '"comment" must be text'),
    ]
    async with opened(tmp_path / "p") as bench:
        with Failures() as failures:
            for body, message in rows:
                with failures.row(body):
                    task = await bench.park()
                    with pytest.raises(InvalidInput, match=message):
                        await asked(bench, taskweb.decide, id=task.id, body=body)


# --- the command line ------------------------------------------------------------------------------------


async def test_tasks_are_listed_and_shown_by_the_beginning_of_an_id(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        done, waiting = await bench.ended(await bench.submit(gives="雪")), await bench.park(apiKey="hunter2")
        listed = await typed(bench, taskcommands.list_tasks, limit=20)
        assert [(done.id.startswith(row[0]) or waiting.id.startswith(row[0]), row[1]) for row in listed.rows] == [
            (True, "awaiting_approval"),
            (True, "done"),
        ]
        assert listed.data == [waiting.to_json(), done.to_json()]
        some = await typed(bench, taskcommands.list_tasks, status=["done", "error"], limit=20)
        assert [row[1] for row in some.rows] == ["done"]

        shown = await typed(bench, taskcommands.show_task, task=done.id[: len("task_") + 10])
        assert f"{done.id}: done" in shown.text
        assert "雪" in shown.text
        assert shown.data == done.to_json()
        other = await typed(bench, taskcommands.show_task, task=waiting.id.removeprefix("task_"))
        assert "then refuse" in other.text
        assert f'apiKey = "{MASK}"' in other.text


async def test_an_id_that_stands_for_no_task_or_several_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        with pytest.raises(NotFound, match="there is no task 'x'; `tavern tasks list` shows"):
            await typed(bench, taskcommands.show_task, task="x")
        for _ in range(20):
            await bench.park()
        with pytest.raises(InvalidInput, match="matches several tasks"):
            await typed(bench, taskcommands.show_task, task="task_")
        with pytest.raises(NotFound):
            await typed(bench, taskcommands.show_task, task="")


async def test_a_task_is_cancelled_by_a_command(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        task = await bench.submit(seconds=60)
        said = await typed(bench, taskcommands.cancel_task, task=task.id)
        assert (said.text, said.failures) == (f"{task.id}: cancelled", [])
        again = await typed(bench, taskcommands.cancel_task, task=task.id)
        assert again.failures == [(f"the task {task.id} has ended already: it is cancelled", 1)]


async def test_calls_are_approved_and_refused_by_commands(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        first, second, third = await bench.park(gives="old"), await bench.park(), await bench.park()
        listed = await typed(bench, taskcommands.list_approvals, limit=20)
        assert [row[1:3] for row in listed.rows] == [[TOOL, "agent:writer"]] * 3

        given = ["gives=new", "seconds=0.1"]
        said = await typed(bench, taskcommands.approve, task=first.id, arg=given, comment="fine")
        assert said.text.startswith(f"{first.id}: approved")
        refused = await typed(bench, taskcommands.refuse, task=second.id, comment="no")
        assert refused.text == f"{second.id}: refused"
        arguments = json.dumps({"gives": "whole", "log": str(bench.log)})
        await typed(bench, taskcommands.approve, task=third.id, arguments=arguments)

        ended, whole = await bench.ended(first), await bench.ended(third)
        assert ended.result is not None and whole.result is not None
        assert (ended.result.structured, ended.arguments["seconds"]) == ("new", 0.1)
        assert whole.result.structured == "whole"
        assert (await bench.ended(second)).status is TaskStatus.REFUSED
        with pytest.raises(Conflict):
            await typed(bench, taskcommands.approve, task=second.id)


async def test_arguments_that_cannot_be_are_told_by_the_command(tmp_path: Path) -> None:
    rows: Any = [
        ({"arg": ["gives"]}, "--arg expects NAME=VALUE"),
        ({"arguments": "{"}, "--arguments is not JSON"),
        ({"arguments": "[]"}, "--arguments expects a JSON object, got"),
        ({"arguments": "{}", "arg": ["a=b"]}, "give either --arguments or --arg"),
        ({"arg": ["colour=red"]}, "has no parameter colour"),
    ]
    async with opened(tmp_path / "p") as bench:
        with Failures() as failures:
            for given, message in rows:
                with failures.row(given):
                    task = await bench.park()
                    with pytest.raises(InvalidInput, match=message):
                        await typed(bench, taskcommands.approve, task=task.id, **given)
                    assert (await bench.tasks.get(task.id, 0, caller())).status is TaskStatus.AWAITING_APPROVAL


@pytest.mark.parametrize("info", [*task_commands(), *task_routes()], ids=str)
def test_every_command_and_route_has_its_handler(info: CommandInfo | RouteInfo) -> None:
    module, _, name = info.handler.partition(":")
    assert callable(
        getattr({"tavern_tools.web.task_routes": taskweb, "tavern_tools.cli.task_commands": taskcommands}[module], name)
    )
