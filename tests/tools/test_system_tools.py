"""The tools `system:*`: the time, the tools there are, tasks and streams of whoever calls."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.systemtools import SYSTEM_TOOLS
from tavern_host.contracts.toolcalls import TaskStatus, ToolCallRequest, ToolResult, ToolScope
from tavern_host.contracts.tools import ToolDefinition

OPERATOR, LIN = Principal(kind="user", id="operator"), Principal(kind="agent", id="lin")


async def called(bench: Any, tool: str, arguments: dict[str, Any], principal: Principal = OPERATOR) -> ToolResult:
    """Return the result of a system tool."""
    request = ToolCallRequest(tool_id=f"system:{tool}", arguments=arguments)
    scope = ToolScope(allowed=["system:*"])
    result: ToolResult = await bench.tools.call(request, scope=scope, call=CallContext(principal=principal))
    return result


async def given(bench: Any, tool: str, **arguments: Any) -> Any:
    """Return what a system tool gave."""
    result = await called(bench, tool, arguments)
    assert result.error is None, result.error
    return result.structured


async def refusal(bench: Any, tool: str, **arguments: Any) -> str:
    result = await called(bench, tool, arguments)
    assert result.error is not None, result.structured
    message: str = result.error.message
    return message


async def as_lin(bench: Any, tool: str, **arguments: Any) -> ToolResult:
    """Return the result of a call that an agent makes."""
    return await called(bench, tool, arguments, LIN)


# --- the time -------------------------------------------------------------------------------------


async def test_the_time_is_told_in_the_zone_that_is_asked_for(bench: Any) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    told = await given(bench, "get_current_time", timezone="Asia/Kolkata")
    moment = datetime.fromisoformat(told["iso"])
    assert before <= moment <= datetime.now(UTC)
    assert moment.utcoffset() == timedelta(hours=5, minutes=30)
    assert told["unix"] == int(moment.timestamp())
    assert told["weekday"] == moment.strftime("%A")
    assert (told["utcOffset"], told["timezone"]) == ("+05:30", "Asia/Kolkata")


async def test_without_a_zone_the_time_is_that_of_the_host(bench: Any) -> None:
    told = await given(bench, "get_current_time")
    assert datetime.fromisoformat(told["iso"]).utcoffset() == datetime.now().astimezone().utcoffset()
    assert told["timezone"] is None


async def test_a_zone_may_be_written_in_several_ways(bench: Any) -> None:
    rows: Any = [
        *(("UTC", "+00:00", "UTC"), ("z", "+00:00", "UTC"), ("+08:00", "+08:00", "+08:00")),
        *(("UTC+8", "+08:00", "+08:00"), ("gmt -0330", "-03:30", "-03:30"), ("-14", "-14:00", "-14:00")),
        *(("asia/tokyo", "+09:00", "Asia/Tokyo"), (" Asia/Tokyo ", "+09:00", "Asia/Tokyo")),
        ("america/argentina/buenos aires", "-03:00", "America/Argentina/Buenos_Aires"),
    ]
    with Failures() as failures:
        for written, offset, name in rows:
            with failures.row(written):
                told = await given(bench, "get_current_time", timezone=written)
                assert (told["utcOffset"], told["timezone"]) == (offset, name)
                assert told["iso"].endswith(offset)


async def test_what_is_no_zone_is_refused(bench: Any) -> None:
    rows: Any = [
        "Mars/Olympus",
        "../../etc/passwd",
        "/etc/passwd",
        "America",
        "a\0b",
        "+15:00",
        "x" * 100,
        "Asia/../Tokyo",
    ]
    with Failures() as failures:
        for zone in rows:
            with failures.row(zone):
                assert "is no time zone" in await refusal(bench, "get_current_time", timezone=zone)


async def test_a_misspelt_zone_is_told_with_near_names(bench: Any) -> None:
    message = await refusal(bench, "get_current_time", timezone="Asia/Shangai")
    assert message.startswith('"Asia/Shangai" is no time zone')
    assert message.endswith("(did you mean Asia/Shanghai?)")


def test_without_data_about_zones_utc_and_offsets_work_and_a_name_says_what_to_do() -> None:
    code = (
        "import sys, zoneinfo\nsys.modules['tzdata'] = None\nzoneinfo.reset_tzpath([])\n"
        "from tavern_tools.builtin.timezones import timezone_of\n"
        "print(timezone_of('UTC')[1], timezone_of('+08:00')[1])\n"
        "try:\n    timezone_of('Asia/Tokyo')\nexcept Exception as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "UTC +08:00",
        '"Asia/Tokyo" is not known as a time zone; this machine has no data about time zones: '
        "install the Python package tzdata, or write +08:00",
    ]


# --- the tools ------------------------------------------------------------------------------------


async def test_tools_are_listed_in_short(stocked: Any) -> None:
    stocked.write_info("info", description="Tells what\nis known. " + "x" * 300, tags=["about"])
    stocked.write_tool("fetch", {"type": "script", "command": "python fetch.py"})
    listed = await given(stocked, "list_tools", limit=1000)
    tools = {tool["id"]: tool for tool in listed["tools"]}
    assert list(tools) == sorted(tools)
    assert len(tools) == listed["total"]
    assert {"info", "fetch", "acme:repeat", "system:list_tools", "FileOperator.ReadFile"} <= set(tools)
    assert tools["info"]["tags"] == ["about"]
    assert tools["info"]["description"].startswith("Tells what is known. xxx")
    assert len(tools["info"]["description"]) == 200
    assert tools["info"]["unavailable"] is None
    assert tools["fetch"]["unavailable"] == "needs service scriptExecution"
    few = await given(stocked, "list_tools", limit=2)
    assert (len(few["tools"]), few["total"]) == (2, listed["total"])


async def test_a_tool_is_described_and_a_wrong_id_told_with_near_ones(bench: Any) -> None:
    text = await given(bench, "describe_tool", tool_id="FileOperator.ApplyEdit")
    assert text.startswith("- Tool ID: FileOperator.ApplyEdit\n")
    assert "    - search_string (string, required): " in text
    message = await refusal(bench, "describe_tool", tool_id="FileOperator.ApplEdit")
    assert message == 'no tool has the id "FileOperator.ApplEdit" (did you mean FileOperator.ApplyEdit?)'


async def test_the_hosts_own_tools_are_right_and_can_be_called(bench: Any) -> None:
    assert bench.host.plugin("tavern-tools").problems == []
    own: dict[str, ToolDefinition] = {
        tool.id: tool for tool in await bench.tools.list_tools() if tool.plugin == "tavern-tools"
    }
    system = ["describe_tool", "get_current_time", "list_tools", "stream_read"]
    tasks = ["task_cancel", "task_result", "task_status"]
    files = ["AppendFile", "ApplyEdit", "DeleteFile", "ListFiles", "ReadFile", "WriteFile"]
    assert list(own) == [*(f"FileOperator.{f}" for f in files), *(f"system:{s}" for s in [*system, *tasks])]
    for tool in own.values():
        assert tool.unavailable is None
        assert tool.description
        assert tool.output is not None
        assert tool.examples
        known = tool.parameters["properties"]
        for example in tool.examples:
            assert set(example["input"]) <= set(known)  # type: ignore[call-overload, arg-type]


# --- tasks and streams ----------------------------------------------------------------------------


async def test_how_a_task_stands_is_told_to_whose_it_is(desk: Any) -> None:
    state = (await as_lin(desk, "task_status", task_id="task_running")).structured
    assert state == {
        **{"taskId": "task_running", "toolId": "acme:draw", "status": "running", "isFinished": False},
        **{"progress": None, "progressText": "waited 0", "createdAt": "2026-05-01T12:00:00Z"},
        **{"startedAt": None, "finishedAt": None, "waitsFor": None, "approvalExpiresAt": None},
    }
    assert await refusal(desk, "task_status", task_id="task_running") == "there is no task task_running"


async def test_tasks_and_streams_are_those_of_who_calls(desk: Any) -> None:
    state: Any = (await as_lin(desk, "task_status", task_id="task_awaiting_approval")).structured
    assert (state["waitsFor"], state["approvalExpiresAt"]) == ("every drawing is looked at", "2026-05-01T12:00:00Z")
    done: Any = (await as_lin(desk, "task_result", task_id="task_done", wait=3)).structured
    assert (done["isFinished"], done["result"], done["error"]) == (True, {"lines": 3}, None)
    failed: Any = (await as_lin(desk, "task_result", task_id="task_error")).structured
    assert (failed["errorType"], failed["error"]) == ("ExecutionError", "the ink is out")
    for status in (TaskStatus.RUNNING, TaskStatus.UNKNOWN):
        other: Any = (await as_lin(desk, "task_result", task_id=f"task_{status}")).structured
        assert (other["isFinished"], other["result"]) == (status.is_final, None)
    state = (await as_lin(desk, "task_cancel", task_id="task_running")).structured
    assert (state["status"], state["isFinished"]) == ("cancelled", True)
    assert "there is no task" in await refusal(desk, "task_cancel", task_id="task_running")
    read = (await as_lin(desk, "stream_read", handle="stream_1", max=5, wait=2.5)).structured
    assert read == {"items": ["stream_1", 5, 2.5, "agent:lin"], "missed": 0, "finished": True, "error": None}
    assert (await given(desk, "stream_read", handle="s"))["items"] == ["s", 100, 10, "user:operator"]


async def test_arguments_beyond_bounds_are_refused(desk: Any) -> None:
    rows: Any = [
        ("task_result", {"task_id": "task_done", "wait": 61}),
        ("task_result", {"task_id": "task_done", "wait": -1}),
        ("task_result", {"task_id": ""}),
        ("task_status", {}),
        ("stream_read", {"handle": "s", "max": 0}),
        ("stream_read", {"handle": "s", "max": 1001}),
        ("stream_read", {"handle": "s", "wait": "soon"}),
        ("list_tools", {"kind": "magic"}),
        ("list_tools", {"limit": 0}),
        ("get_current_time", {"timezone": 8}),
    ]
    with Failures() as failures:
        for tool, arguments in rows:
            with failures.row(tool):
                result = await as_lin(desk, tool, **arguments)
                assert result.error.type == "ParameterValidationError"


async def test_bounds_hold_for_plugins_that_call_the_service_itself(desk: Any) -> None:
    system = desk.host.services.get(SYSTEM_TOOLS)
    for wait in (61.0, -0.1, float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match=r"wait must be 0 to 60|a number must be finite"):
            await system.task_result("task_done", wait=wait)
        with pytest.raises(InvalidInput, match=r"wait must be 0 to 60|a number must be finite"):
            await system.stream_read("s", wait=wait)
    with pytest.raises(InvalidInput, match="max must be 1 to 1,000"):
        await system.stream_read("s", max=1_001)
