"""What a tool's definition asks for holds when it is called: approval, tasks, limits, kept results, streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import NotFound, PermissionDenied
from tavern_host.contracts.toolcalls import (
    TaskStatus,
    ToolCallRequest,
    ToolErrorType,
    ToolResult,
    ToolRule,
    ToolScope,
)

OpenHost = Callable[..., Any]

REPEAT = {"type": "node", "nodeType": "acme-tools:Repeat"}
WAIT = {"type": "node", "nodeType": "acme-tools:Wait"}
AGENT = CallContext(principal=Principal(kind="agent", id="lin"))
PERSON = CallContext(principal=Principal(kind="user", id="operator"))
ALL = ToolScope(allowed=["*", "node:*"])


async def by_agent(bench: Any, tool_id: str, scope: ToolScope = ALL, **arguments: Any) -> ToolResult:
    request = ToolCallRequest(tool_id=tool_id, arguments=arguments)
    result: ToolResult = await bench.tools.call(request, scope=scope, call=AGENT)
    return result


def error_type(result: ToolResult) -> ToolErrorType:
    assert result.error is not None, result
    return result.error.type


# --- approval -------------------------------------------------------------------------------------


async def test_a_call_that_needs_approval_waits_and_is_made_when_a_person_approves(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_tool("copy", REPEAT, requiresApproval=True)
        waiting = await by_agent(bench, "copy", text="ab")
        assert waiting.status == "awaiting_approval"
        assert waiting.task_id is not None
        await bench.tools.decide(waiting.task_id, "approve", call=PERSON)
        task = await bench.tools.task(waiting.task_id, wait=10, call=AGENT)
        assert (task.status, task.result.structured) == (TaskStatus.DONE, "abab")


async def test_pages_are_told_of_a_call_that_waits_for_a_person(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_tool("copy", REPEAT, requiresApproval=True)
        events = bench.host.events.subscribe("APPROVAL_REQUEST")
        waiting = await by_agent(bench, "copy", text="ab")
        event = await anext(aiter(events))
        await events.close()
        payload = {key: event.payload[key] for key in ("taskId", "toolId", "caller", "arguments")}
        assert payload == {
            **{"taskId": waiting.task_id, "toolId": "copy", "caller": "agent:lin"},
            **{"arguments": {"text": "ab"}},
        }


async def test_a_person_may_approve_with_other_arguments_that_the_tool_allows(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_tool("copy", REPEAT, requiresApproval=True)
        waiting = await by_agent(bench, "copy", text="ab")
        with pytest.raises(Exception, match="is no parameter of this tool"):
            await bench.tools.decide(waiting.task_id, "approve", arguments={"text": "x", "time": 3}, call=PERSON)
        await bench.tools.decide(waiting.task_id, "approve", arguments={"text": "x", "times": 3}, call=PERSON)
        task = await bench.tools.task(waiting.task_id, wait=10, call=PERSON)
        assert (task.result.structured, task.approval.edited) == ("xxx", True)


async def test_a_refused_call_is_never_made(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_tool("copy", REPEAT, requiresApproval=True)
        waiting = await by_agent(bench, "copy", text="ab")
        await bench.tools.decide(waiting.task_id, "refuse", comment="not today", call=PERSON)
        task = await bench.tools.task(waiting.task_id, wait=10, call=AGENT)
        assert task.status is TaskStatus.REFUSED
        assert error_type(task.result) is ToolErrorType.APPROVAL_REFUSED
        assert "not today" in task.result.error.message


async def test_an_agent_does_not_approve_its_own_call(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_tool("copy", REPEAT, requiresApproval=True)
        waiting = await by_agent(bench, "copy", text="ab")
        with pytest.raises(PermissionDenied):
            await bench.tools.decide(waiting.task_id, "approve", call=AGENT)


async def test_only_calls_with_such_arguments_wait_where_the_tool_says_so(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        many = {"type": "object", "properties": {"times": {"minimum": 5}}, "required": ["times"]}
        bench.write_tool("copy", REPEAT, requiresApproval=many)
        assert (await by_agent(bench, "copy", text="ab", times=2)).status == "done"
        assert (await by_agent(bench, "copy", text="ab", times=5)).status == "awaiting_approval"


async def test_a_caller_may_ask_for_approval_of_its_own_calls(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        scope = ToolScope(allowed=["acme:*"], approval=[ToolRule(tool="acme:rep*")])
        assert (await by_agent(bench, "acme:repeat", scope, text="ab")).status == "awaiting_approval"


async def test_a_person_approves_by_calling(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_tool("copy", REPEAT, requiresApproval=True)
        request = ToolCallRequest(tool_id="copy", arguments={"text": "ab"})
        assert (await bench.tools.call(request, call=PERSON)).structured == "abab"


# --- tasks ----------------------------------------------------------------------------------------


async def test_an_asynchronous_tool_gives_a_task_whose_result_is_asked_for_later(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_tool("copy", REPEAT, **{"async": True})
        pending = await by_agent(bench, "copy", text="ab")
        assert (pending.status, pending.structured) == ("pending", None)
        outcome = await by_agent(bench, "system:task_result", task_id=pending.task_id, wait=10)
        assert isinstance(outcome.structured, dict)
        assert (outcome.structured["status"], outcome.structured["result"]) == ("done", "abab")


async def test_a_task_is_cancelled_by_the_tool_for_that(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_tool("wait", WAIT, **{"async": True})
        pending = await by_agent(bench, "wait", seconds=60)
        await by_agent(bench, "system:task_cancel", task_id=pending.task_id)
        task = await bench.tools.task(pending.task_id, wait=10, call=AGENT)
        assert task.status is TaskStatus.CANCELLED


async def test_nobody_sees_the_tasks_of_other_agents(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_tool("copy", REPEAT, **{"async": True})
        pending = await by_agent(bench, "copy", text="ab")
        other = CallContext(principal=Principal(kind="agent", id="other"))
        with pytest.raises(NotFound):
            await bench.tools.task(pending.task_id, call=other)
        assert await bench.tools.tasks(call=other) == []
        assert [task.id for task in await bench.tools.tasks(call=PERSON)] == [pending.task_id]


# --- limits, kept results -------------------------------------------------------------------------


async def test_a_tool_that_is_called_too_often_says_when_to_try_again(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_tool("copy", REPEAT, rateLimit={"calls": 2, "seconds": 600})
        results = [await by_agent(bench, "copy", text="ab") for _ in range(3)]
        assert [result.status for result in results] == ["done", "done", "error"]
        assert error_type(results[2]) is ToolErrorType.RATE_LIMITED
        assert 0 < results[2].error.details["retryAfter"] <= 600  # type: ignore[union-attr, operator]
        request = ToolCallRequest(tool_id="copy", arguments={"text": "ab"})
        assert (await bench.tools.call(request, call=PERSON)).status == "done"


async def test_a_result_that_may_be_kept_is_given_again_for_the_same_arguments(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_tool("copy", REPEAT, cache={"seconds": 600})
        results = [await by_agent(bench, "copy", text=text) for text in ("ab", "ab", "c")]
        assert [(r.structured, r.cached) for r in results] == [("abab", False), ("abab", True), ("cc", False)]


# --- the audit log --------------------------------------------------------------------------------


async def test_every_call_and_every_denial_is_in_the_audit_log_with_secrets_masked(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_info("login", parameters={"type": "object", "properties": {"name": {}, "password": {}}})
        await by_agent(bench, "login", name="tavern-tools", password="hunter2")
        await by_agent(bench, "acme:repeat", text="ab")
        await by_agent(bench, "acme:repeat", ToolScope(allowed=["login"]), text="ab")
        entries = [e for e in await bench.host.services.get(AUDIT).tail(50) if e.action.startswith("tool.")]
    assert [(e.actor, e.action, e.subject) for e in entries] == [
        ("agent:lin", "tool.called", "login"),
        ("agent:lin", "tool.ended", "login"),
        ("agent:lin", "tool.called", "acme:repeat"),
        ("agent:lin", "tool.ended", "acme:repeat"),
        ("agent:lin", "tool.denied", "acme:repeat"),
    ]
    assert "hunter2" not in str([entry.details for entry in entries])
    assert entries[3].details["outcome"] == "done"


# --- which tool -----------------------------------------------------------------------------------


async def test_every_node_is_a_tool_for_who_is_allowed_it(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        arguments = {"text": "ab", "times": 3}
        assert (await by_agent(bench, "node:acme-tools:Repeat", **arguments)).structured == "ababab"
        request = ToolCallRequest(tool_id="node:acme-tools:Repeat", arguments=arguments)
        assert (await bench.tools.call(request, call=PERSON)).structured == "ababab"
        refused = await by_agent(bench, "node:acme-tools:Repeat", ToolScope(allowed=["*"]), **arguments)
        assert error_type(refused) is ToolErrorType.PERMISSION_DENIED


async def test_a_range_picks_a_version(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        for version, times in (("1.2.0", 2), ("2.0.0", 3)):
            parameters = {"type": "object", "properties": {"text": {"type": "string"}, "times": {"default": times}}}
            path = bench.write_tool("copy", REPEAT, version=version, parameters=parameters)
            path.rename(path.with_name(f"copy-{version}.tool.json"))
        assert (await bench.call("copy", text="a")).structured == "aaa"
        assert (await bench.call("copy@^1.2", text="a")).structured == "aa"
        assert error_type(await bench.call("copy@^3", text="a")) is ToolErrorType.TOOL_NOT_FOUND


# --- streams --------------------------------------------------------------------------------------


async def test_a_streaming_workflow_gives_a_handle_to_who_reads_streams_and_the_whole_to_others(
    open_host: OpenHost,
) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_workflow("count", **streaming_workflow())
        whole = await by_agent(bench, "workflow:count")
        assert whole.structured == [1, 2, 3]
        handle = await by_agent(bench, "workflow:count", ToolScope(allowed=["workflow:*"], streams=True))
        (part,) = handle.content
        assert part.type == "stream"
        items: list[Any] = []
        while True:
            read = await bench.tools.read_stream(part.uri, max=2, call=AGENT)
            items += read.items
            if read.finished:
                break
        assert items == [1, 2, 3]
        with pytest.raises(NotFound):
            await bench.tools.read_stream(part.uri, call=CallContext(principal=Principal(kind="agent", id="other")))


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


async def test_a_chain_whose_second_step_is_wrong_has_done_the_first_and_does_not_begin_the_third(
    open_host: OpenHost,
) -> None:
    text = """<|[REQUEST_TOOL]|>
command1:「始」FileOperator.WriteFile「末」
filePath1:「始」/notes/a.txt「末」
content1:「始」first「末」
command2:「始」FileOperator.WriteFile「末」
filePath2:「始」/notes/b.txt「末」
contents2:「始」second「末」
command3:「始」FileOperator.DeleteFile「末」
filePath3:「始」@{step1.result.path}「末」
<|[END_TOOL]|>"""
    async with open_host() as bench:
        done = await bench.tools.call_text(text, call=PERSON)
        assert [(result.index, result.status) for result in done.results] == [(1, "done"), (2, "error")]
        assert error_type(done.results[1]) is ToolErrorType.PARAMETER_VALIDATION
        assert (bench.root / "files" / "notes" / "a.txt").read_text() == "first"
        told = await bench.tools.feedback(done.parsed.calls, done.results)
        assert [one.tool_id for one in told] == [call.tool_id for call in done.parsed.calls]
        assert "was not called" in told[2].text


async def test_a_tool_that_raises_is_an_execution_error_that_names_its_plugin(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        result = await bench.call("node:acme-tools:Fail", reason="boom")
        assert error_type(result) is ToolErrorType.EXECUTION
        assert result.error.details["plugin"] == "acme-tools"  # type: ignore[union-attr]


async def test_native_calls_go_out_under_aliases_and_come_back_as_the_tools(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        ids = ["acme:repeat", "FileOperator.ReadFile"]
        names = [schema["function"]["name"] for schema in await bench.tools.native_schemas(ids)]
        assert names == ["acme_repeat", "FileOperator_ReadFile"]
        function = {"name": names[0], "arguments": '{"text": "ab", "times": 3}'}
        asked = [{"id": "call_1", "type": "function", "function": function}]
        parsed = await bench.tools.native_calls(asked, tool_ids=ids)
        (result,) = await bench.tools.call_all(parsed.calls, call=PERSON)
        assert (result.structured, result.request_id) == ("ababab", "call_1")
