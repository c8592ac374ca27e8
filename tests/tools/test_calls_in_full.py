"""What a tool's definition asks for holds when it is called: approval, tasks, limits, kept results, streams."""

from __future__ import annotations

from typing import Any

import pytest

from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.toolcalls import (
    TaskStatus,
    ToolCallRequest,
    ToolErrorType,
    ToolResult,
    ToolScope,
)

REPEAT = {"type": "node", "nodeType": "acme-tools:Repeat"}
WAIT = {"type": "node", "nodeType": "acme-tools:Wait"}
AGENT = CallContext(principal=Principal(kind="agent", id="lin"))
PERSON = CallContext(principal=Principal(kind="user", id="operator"))
ALL = ToolScope(allowed=["*", "node:*"])


async def by_agent(bench: Any, tool_id: str, scope: ToolScope = ALL, **arguments: Any) -> ToolResult:
    request = ToolCallRequest(tool_id=tool_id, arguments=arguments)
    result: ToolResult = await bench.tools.call(request, scope=scope, call=AGENT)
    return result


# --- approval -------------------------------------------------------------------------------------


async def test_a_person_approves_a_call_with_other_arguments(stocked: Any) -> None:
    stocked.write_tool("copy", REPEAT, requiresApproval=True)
    events = stocked.host.events.subscribe("APPROVAL_REQUEST")
    waiting = await by_agent(stocked, "copy", text="ab")
    assert waiting.status == "awaiting_approval"
    event = await anext(aiter(events))
    await events.close()
    told = {"taskId": waiting.task_id, "toolId": "copy", "caller": "agent:lin", "arguments": {"text": "ab"}}
    assert told.items() <= event.payload.items()
    with pytest.raises(Exception, match="is no parameter of this tool"):
        await stocked.tools.decide(waiting.task_id, "approve", arguments={"text": "x", "time": 3}, call=PERSON)
    await stocked.tools.decide(waiting.task_id, "approve", arguments={"text": "x", "times": 3}, call=PERSON)
    task = await stocked.tools.task(waiting.task_id, wait=10, call=AGENT)
    assert (task.result.structured, task.approval.edited) == ("xxx", True)


# --- tasks ----------------------------------------------------------------------------------------


async def test_an_asynchronous_tool_gives_a_task(stocked: Any) -> None:
    stocked.write_tool("copy", REPEAT, **{"async": True})
    stocked.write_tool("wait", WAIT, **{"async": True})
    pending, waiting = await by_agent(stocked, "copy", text="ab"), await by_agent(stocked, "wait", seconds=60)
    assert (pending.status, pending.structured) == ("pending", None)
    outcome: Any = await by_agent(stocked, "system:task_result", task_id=pending.task_id, wait=10)
    assert (outcome.structured["status"], outcome.structured["result"]) == ("done", "abab")
    await by_agent(stocked, "system:task_cancel", task_id=waiting.task_id)
    assert (await stocked.tools.task(waiting.task_id, wait=10, call=AGENT)).status is TaskStatus.CANCELLED


# --- limits, kept results -------------------------------------------------------------------------


async def test_limits_and_kept_results_hold_for_calls(stocked: Any) -> None:
    stocked.write_tool("few", REPEAT, rateLimit={"calls": 2, "seconds": 600})
    results: Any = [await by_agent(stocked, "few", text="ab") for _ in range(3)]
    assert [result.status for result in results] == ["done", "done", "error"]
    assert results[2].error.type is ToolErrorType.RATE_LIMITED
    assert 0 < results[2].error.details["retryAfter"] <= 600
    request = ToolCallRequest(tool_id="few", arguments={"text": "ab"})
    assert (await stocked.tools.call(request, call=PERSON)).status == "done"
    stocked.write_tool("kept", REPEAT, cache={"seconds": 600})
    results = [await by_agent(stocked, "kept", text=text) for text in ("ab", "ab", "c")]
    assert [(r.structured, r.cached) for r in results] == [("abab", False), ("abab", True), ("cc", False)]


# --- streams --------------------------------------------------------------------------------------


async def test_a_streaming_workflow_gives_a_handle_to_who_reads_streams_and_the_whole_to_others(
    stocked: Any,
) -> None:
    stocked.write_workflow("count", **streaming_workflow())
    whole = await by_agent(stocked, "workflow:count")
    assert whole.structured == [1, 2, 3]
    handle = await by_agent(stocked, "workflow:count", ToolScope(allowed=["workflow:*"], streams=True))
    (part,) = handle.content
    assert part.type == "stream"
    items: list[Any] = []
    while True:
        read = await stocked.tools.read_stream(part.uri, max=2, call=AGENT)
        items += read.items
        if read.finished:
            break
    assert items == [1, 2, 3]
    with pytest.raises(NotFound):
        await stocked.tools.read_stream(part.uri, call=CallContext(principal=Principal(kind="agent", id="other")))


def streaming_workflow() -> dict[str, Any]:
    return {
        "nodes": [
            {"id": "list", "type": "core:ListToStream", "inputValues": {"items": [1, 2, 3]}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [{"id": "e", "source": "list", "sourceHandle": "stream", "target": "out", "targetHandle": "items"}],
        "interfaceOutputs": {"items": {"dataFlowType": "INTEGER", "isStream": True}},
    }


# --- what goes wrong ------------------------------------------------------------------------------


async def test_native_calls_go_out_under_aliases_and_come_back_as_the_tools(stocked: Any) -> None:
    ids = ["acme:repeat", "FileOperator.ReadFile"]
    names = [schema["function"]["name"] for schema in await stocked.tools.native_schemas(ids)]
    assert names == ["acme_repeat", "FileOperator_ReadFile"]
    function = {"name": names[0], "arguments": '{"text": "ab", "times": 3}'}
    asked = [{"id": "call_1", "type": "function", "function": function}]
    parsed = await stocked.tools.native_calls(asked, tool_ids=ids)
    (result,) = await stocked.tools.call_all(parsed.calls, call=PERSON)
    assert (result.structured, result.request_id) == ("ababab", "call_1")
