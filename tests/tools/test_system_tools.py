"""The tools `system:*`: the time, the tools there are, tasks and streams of whoever calls."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host import clock
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import InvalidInput
from tavern_tools.api.systemtools import SYSTEM_TOOLS
from tavern_tools.api.toolcalls import ToolCallRequest, ToolScope

OPERATOR, LIN = Principal(kind="user", id="operator"), Principal(kind="agent", id="lin")


async def called(bench: Any, tool: str, who: Principal = OPERATOR, **arguments: Any) -> Any:
    """Return the output of a system tool, or its error."""
    request = ToolCallRequest(tool_id=f"system:{tool}", arguments=arguments)
    scope, call = ToolScope(allowed=["system:*"]), CallContext(principal=who)
    result = await bench.tools.call(request, scope=scope, call=call)
    return result.error or result.structured


# --- the time -------------------------------------------------------------------------------------

ZONES = [
    *(("UTC", "+00:00", "UTC"), ("z", "+00:00", "UTC"), ("+08:00", "+08:00", "+08:00"), ("UTC+8", "+08:00", "+08:00")),
    *(("gmt -0330", "-03:30", "-03:30"), ("-14", "-14:00", "-14:00"), ("asia/tokyo", "+09:00", "Asia/Tokyo")),
    *((" Asia/Tokyo ", "+09:00", "Asia/Tokyo"), ("Asia/Kolkata", "+05:30", "Asia/Kolkata")),
    ("america/argentina/buenos aires", "-03:00", "America/Argentina/Buenos_Aires"),
]
NO_ZONES = ["Mars/Olympus", "../../etc/passwd", "/etc/passwd", "America", "a\0b", "+15:00", "x" * 100, "Asia/../Tokyo"]


async def test_the_time_is_told_in_any_zone(bench: Any) -> None:
    with Failures() as failures:
        for written, offset, name in ZONES:
            with failures.row(written):
                before = clock.now().replace(microsecond=0)
                told = await called(bench, "get_current_time", timezone=written)
                moment = datetime.fromisoformat(told["iso"])
                assert before <= moment <= clock.now()
                assert (told["utcOffset"], told["timezone"], told["iso"][-6:]) == (offset, name, offset)
                assert (told["unix"], told["weekday"]) == (int(moment.timestamp()), moment.strftime("%A"))
        for zone in NO_ZONES:
            with failures.row(zone):
                assert "is no time zone" in (await called(bench, "get_current_time", timezone=zone)).message
    near = (await called(bench, "get_current_time", timezone="Asia/Shangai")).message
    assert near.startswith('"Asia/Shangai" is no time zone') and near.endswith("(did you mean Asia/Shanghai?)")
    told = await called(bench, "get_current_time")  # without a zone it is that of the host
    assert datetime.fromisoformat(told["iso"]).utcoffset() == clock.now().astimezone().utcoffset()
    assert told["timezone"] is None


# --- the tools ------------------------------------------------------------------------------------


async def test_tools_are_listed_and_described(stocked: Any) -> None:
    stocked.write_info("info", description="Tells what\nis known. " + "x" * 300, tags=["about"])
    stocked.write_tool("fetch", {"type": "script", "command": "python fetch.py"})
    listed = await called(stocked, "list_tools", limit=1000)
    tools = {tool["id"]: tool for tool in listed["tools"]}
    assert (list(tools), len(tools)) == (sorted(tools), listed["total"])
    assert {"info", "fetch", "acme:repeat", "system:list_tools", "FileOperator.ReadFile"} <= set(tools)
    info = tools["info"]
    assert (info["tags"], len(info["description"]), info["unavailable"]) == (["about"], 200, None)
    assert info["description"].startswith("Tells what is known. xxx")
    assert tools["fetch"]["unavailable"] == "needs service scriptExecution"
    few = await called(stocked, "list_tools", limit=2)
    assert (len(few["tools"]), few["total"]) == (2, listed["total"])
    text = await called(stocked, "describe_tool", tool_id="FileOperator.ApplyEdit")
    assert text.startswith("- Tool ID: FileOperator.ApplyEdit\n")
    assert "    - search_string (string, required): " in text
    wrong = await called(stocked, "describe_tool", tool_id="FileOperator.ApplEdit")
    assert wrong.message == 'no tool has the id "FileOperator.ApplEdit" (did you mean FileOperator.ApplyEdit?)'


async def test_the_hosts_own_tools_are_complete(bench: Any) -> None:
    assert bench.host.plugin("tavern-tools").problems == []
    own = {tool.id: tool for tool in await bench.tools.list_tools() if tool.plugin == "tavern-tools"}
    system = [
        *("describe_tool", "get_current_time", "list_tools", "request_user_interaction", "stream_read", "task_cancel"),
        *("task_result", "task_status"),
    ]
    files = ["AppendFile", "ApplyEdit", "DeleteFile", "ListFiles", "ReadFile", "WriteFile"]
    asks = "RequestUserInteractionTool"  # the platform's name for it
    assert list(own) == [*(f"FileOperator.{name}" for name in files), asks, *(f"system:{name}" for name in system)]
    for tool in own.values():
        assert tool.unavailable is None
        assert tool.description
        assert tool.output is not None
        assert tool.examples
        for example in tool.examples:
            assert set(example["input"]) <= set(tool.parameters["properties"])


# --- tasks and streams ----------------------------------------------------------------------------

DATE = "2026-05-01T12:00:00Z"
SHOWN: Any = [
    # a tool, its arguments, what it tells
    (
        *("task_status", {"task_id": "task_running"}),
        {
            **{"taskId": "task_running", "toolId": "acme:draw", "status": "running", "isFinished": False},
            **{"progress": None, "progressText": "waited 0", "createdAt": DATE},
            **{"startedAt": None, "finishedAt": None, "waitsFor": None, "approvalExpiresAt": None},
        },
    ),
    (
        *("task_status", {"task_id": "task_awaiting_approval"}),
        {"waitsFor": "every drawing is looked at", "approvalExpiresAt": DATE},
    ),
    ("task_result", {"task_id": "task_done", "wait": 3}, {"isFinished": True, "result": {"lines": 3}, "error": None}),
    ("task_result", {"task_id": "task_error"}, {"errorType": "ExecutionError", "error": "the ink is out"}),
    ("task_result", {"task_id": "task_running"}, {"isFinished": False, "result": None}),
    ("task_result", {"task_id": "task_unknown"}, {"isFinished": True, "result": None}),
    ("task_cancel", {"task_id": "task_running"}, {"status": "cancelled", "isFinished": True}),
    (
        *("stream_read", {"handle": "stream_1", "max": 5, "wait": 2.5}),
        {"items": ["stream_1", 5, 2.5, "agent:lin"], "missed": 0, "finished": True, "error": None},
    ),
    ("stream_read", {"handle": "s"}, {"items": ["s", 100, 10, "agent:lin"]}),
]
BEYOND: Any = [
    *(("task_result", {"task_id": "task_done", "wait": wait}) for wait in (61, -1)),
    *(("task_result", {"task_id": ""}), ("task_status", {}), ("stream_read", {"handle": "s", "max": 0})),
    *(("stream_read", {"handle": "s", "max": 1001}), ("stream_read", {"handle": "s", "wait": "soon"})),
    *(("list_tools", {"kind": "magic"}), ("list_tools", {"limit": 0}), ("get_current_time", {"timezone": 8})),
]


async def test_tasks_and_streams_are_those_of_who_calls(desk: Any) -> None:
    with Failures() as failures:
        for tool, arguments, expected in SHOWN:
            with failures.row((tool, arguments)):
                found = await called(desk, tool, LIN, **arguments)
                assert {key: found[key] for key in expected} == expected
                if tool != "stream_read":
                    other = await called(desk, tool, **arguments)
                    assert other.message == f"there is no task {arguments['task_id']}"


async def test_arguments_beyond_bounds_are_refused(desk: Any) -> None:
    for tool, arguments in BEYOND:
        assert (await called(desk, tool, LIN, **arguments)).type == "ParameterValidationError", (tool, arguments)
    system = desk.host.services.get(SYSTEM_TOOLS)  # which plugins call themselves
    for wait in (61.0, -0.1, float("nan"), float("inf")):
        for call in (
            lambda wait: system.task_result("task_done", wait=wait),
            lambda wait: system.stream_read("s", wait=wait),
        ):
            with pytest.raises(InvalidInput, match=r"wait must be 0 to 60|a number must be finite"):
                await call(wait)
    with pytest.raises(InvalidInput, match="max must be 1 to 1,000"):
        await system.stream_read("s", max=1_001)
