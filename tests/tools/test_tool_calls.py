"""What happens when a tool is called: a result always, never an exception."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.calls import MAX_DEPTH, CallContext, Principal
from tavern_host.contracts.toolcalls import ToolCallRequest, ToolErrorType, ToolResult, ToolScope
from tavern_host.runtime import threads

OpenHost = Callable[..., Any]


SCRIPT = {"type": "script", "command": "python fetch.py"}


def error_of(result: ToolResult) -> tuple[ToolErrorType, str]:
    assert result.status == "error"
    assert result.content[0].text == f"{result.error.type}: {result.error.message}"
    return result.error.type, result.error.message


async def test_a_service_tool_gives_the_json_of_its_method(bench: Any) -> None:
    bench.write_info("info")
    result = await bench.call("info", name="tavern-tools")
    assert (result.status, result.tool_id, result.index) == ("done", "info", 1)
    assert result.structured["displayName"] == "Tools"
    assert (result.content[0].type, result.content[0].data) == ("data", result.structured)
    assert result.duration_ms > 0


async def test_a_call_that_cannot_succeed_says_why(bench: Any) -> None:
    bench.write_tool("fetch", SCRIPT)
    bench.write_info("info")
    bench.write_info("weather", output={"type": "object", "required": ["weather"]})
    needs = "fetch cannot be called now: needs service scriptExecution"
    assert error_of(await bench.call("fetch")) == (ToolErrorType.SERVICE_UNAVAILABLE, needs)
    undeclared = "the result of weather is not what the tool declares: weather: is required and missing"
    assert error_of(await bench.call("weather", name="tavern-tools")) == (ToolErrorType.OUTPUT, undeclared)
    failed = await bench.call("info", name="tavern-tool")
    assert (error_of(failed)[0], failed.error.details["code"]) == (ToolErrorType.EXECUTION, "not_found")
    wrong = await bench.call("info", Name="x")
    assert error_of(wrong) == (
        ToolErrorType.PARAMETER_VALIDATION,
        "the arguments of info are not right: Name: is no parameter of this tool (did you mean name?); "
        "name: is required and missing",
    )
    assert [problem["parameter"] for problem in wrong.error.details["problems"]] == ["Name", "name"]


async def test_a_field_that_a_service_leaves_null_is_not_there_where_the_output_knows_no_null(
    bench: Any,
) -> None:
    known = {"name": {"type": "string"}, "frontend": {"type": "object"}}
    bench.write_info("plain")
    bench.write_info("info", output={"type": "object", "properties": known, "required": ["name"]})
    bench.write_info("front", output={"type": "object", "properties": known, "required": ["frontend"]})
    plain, info, front = [await bench.call(tool, name="tavern-tools") for tool in ("plain", "info", "front")]
    assert plain.structured["frontend"] is None
    assert info.structured == {key: value for key, value in plain.structured.items() if key != "frontend"}
    assert error_of(front) == (
        ToolErrorType.OUTPUT,
        'the result of front is not what the tool declares: frontend: null is not of type "object"',
    )


async def test_arguments_that_the_service_refuses_are_tried_once(bench: Any) -> None:
    method = {"type": "service", "service": "projectFiles", "method": "read_file"}
    bench.write_tool("read", method, parameters={"additionalProperties": True})
    rows: Any = [
        ({"limit": "many"}, "projectFiles.read_file: limit: Input should be a valid integer"),
        ({"depth": 1}, "projectFiles.read_file: unknown argument 'depth'"),
        ({"limit": 0}, "limit must be "),
        ({"filePath": "/"}, "the path names the files folder itself"),
    ]
    with Failures() as failures:
        for arguments, said in rows:
            with failures.row(arguments):
                request = ToolCallRequest(tool_id="read", arguments={"filePath": "a.txt", **arguments}, retry=3)
                result = await bench.tools.call(request)
                kind, message = error_of(result)
                assert (kind, result.attempts) == (ToolErrorType.PARAMETER_VALIDATION, 1)
                assert message.startswith(said)
                assert result.error.details["code"] == "invalid_input"


async def test_what_is_the_operators_alone_no_tool_can_do(stocked: Any) -> None:
    stocked.write_info("harmless", implementation={"type": "service", "service": "plugins", "method": "revoke"})
    assert error_of(await stocked.call("harmless", name="acme-tools")) == (
        ToolErrorType.PERMISSION_DENIED,
        "harmless cannot be called now: plugins.revoke is the operator's alone",
    )
    assert stocked.host.plugin("acme-tools").state == "started"


async def test_a_plugins_tool_has_no_more_rights_than_the_plugin(open_host: OpenHost) -> None:
    async with open_host("acme_tools", "acme_files") as bench:
        workflow: dict[str, Any] = {"name": "New", "nodes": [], "edges": []}
        assert error_of(await bench.call("acme-files:save", workflowId="new", workflow=workflow)) == (
            ToolErrorType.PERMISSION_DENIED,
            "acme-files:save cannot be called now: the plugin acme-files lacks the permission "
            "services.use: workflowManager:save",
        )
        assert not (bench.root / "workflows" / "new.json").exists()
        assert (await bench.call("acme:save", workflowId="new", workflow=workflow)).status == "done"
        assert (bench.root / "workflows" / "new.json").exists()


async def test_hooks_change_and_refuse_calls_and_results(guarded: Any) -> None:
    guarded.write_info("info")
    refused = await guarded.call("info", name="forbidden")
    assert error_of(refused) == (ToolErrorType.VETOED, "acme-guard refused: that one is private")
    other = await guarded.call("info", name="alias")
    assert (other.tool_id, other.structured["name"]) == ("info", "tavern-tools")
    kind, message = error_of(await guarded.call("info", name="spoil"))
    assert (kind, message.endswith('name: 7 is not of type "string"')) == (ToolErrorType.PARAMETER_VALIDATION, True)
    changed = await guarded.call("info", name="tavern-nodes")
    assert (changed.tool_id, changed.structured) == ("info", "changed")
    kind, message = error_of(await guarded.call("info", name="tavern-workflows"))
    assert (kind, message) == (
        ToolErrorType.OUTPUT,
        "the result of info is no JSON: deep[1]: an int must have at most 64 bits",
    )
    withheld = await guarded.call("info", name="tavern-llm")
    assert error_of(withheld) == (ToolErrorType.VETOED, "acme-guard refused: not for your eyes")
    assert withheld.structured is None


async def test_a_call_that_takes_a_while_is_told_when_it_begins_and_when_it_ends(stocked: Any) -> None:
    subscription = stocked.host.events.subscribe("TOOL_CALL_UPDATE")
    call = CallContext(principal=Principal(kind="agent", id="lin"), run_id="run_1")
    request = ToolCallRequest(tool_id="acme:repeat", arguments={"text": "ab"}, index=2, request_id="r1")
    await stocked.tools.call(request, scope=ToolScope(allowed=["acme:*"]), call=call)
    begun, ended = [await anext(aiter(subscription)) for _ in range(2)]
    await subscription.close()
    about = {"toolId": "acme:repeat", "index": 2, "requestId": "r1", "caller": "agent:lin", "runId": "run_1"}
    assert about.items() <= begun.payload.items()
    assert about.items() <= ended.payload.items()
    assert begun.payload["callId"] == ended.payload["callId"]
    assert (begun.payload["status"], ended.payload["status"]) == ("running", "done")


async def test_quick_reading_calls_are_only_audited(bench: Any) -> None:
    bench.write_info("info", readOnly=True)
    subscription = bench.host.events.subscribe("TOOL_CALL_UPDATE")
    await bench.call("info", name="tavern-tools")
    await bench.call("info")
    told = await anext(aiter(subscription))
    await subscription.close()
    assert (told.payload["status"], told.payload["error"]["type"]) == ("error", "ParameterValidationError")
    entries = await bench.host.services.get(AUDIT).tail(2)
    assert [(e.action, e.subject) for e in entries] == [("tool.called", "info"), ("tool.denied", "info")]


async def test_calls_that_nest_too_deeply_end_in_a_result(stocked: Any) -> None:
    deep = CallContext(principal=Principal(kind="user", id="lin"), depth=MAX_DEPTH)
    request = ToolCallRequest(tool_id="acme:repeat", arguments={"text": "ab"})
    kind, message = error_of(await stocked.tools.call(request, call=deep))
    assert kind == ToolErrorType.EXECUTION
    assert "nested" in message


async def test_a_call_is_tried_again_as_often_as_it_says(stocked: Any) -> None:
    stocked.write_tool("wait", {"type": "node", "nodeType": "acme-tools:Wait"}, timeout=20)
    request = ToolCallRequest(tool_id="wait", arguments={"seconds": 5}, retry=1)
    result = await stocked.tools.call(request)
    assert (error_of(result)[0], result.attempts) == (ToolErrorType.TIMEOUT, 2)
    wrong = await stocked.tools.call(ToolCallRequest(tool_id="wait", arguments={"second": 5}, retry=3))
    assert (error_of(wrong)[0], wrong.attempts) == (ToolErrorType.PARAMETER_VALIDATION, 1)


async def test_a_result_that_is_too_large_is_an_output_error(stocked: Any) -> None:
    result = await stocked.call("acme:repeat", text="x" * 2_000_000, times=9)
    assert error_of(result) == (
        ToolErrorType.OUTPUT,
        "the result of acme:repeat is too large: 18.0 MB, 10 MB are allowed",
    )


async def test_node_tools_give_the_outputs_of_their_node(stocked: Any) -> None:
    stocked.write_tool("fail", {"type": "node", "nodeType": "acme-tools:Fail"})
    stocked.write_tool("wait", {"type": "node", "nodeType": "acme-tools:Wait", "timeout": 50})
    assert (await stocked.call("acme:repeat", text="ab", times=3)).structured == "ababab"
    assert (await stocked.call("acme:repeat", text="ab")).structured == "abab"
    assert (await stocked.call("acme:measure", text="abc")).structured == {"text": "abc", "length": 3}
    failed = await stocked.call("fail", reason="no ink")
    kind, message = error_of(failed)
    assert (kind, "no ink" in message) == (ToolErrorType.EXECUTION, True)
    assert (failed.error.details["plugin"], bool(failed.error.details["runId"])) == ("acme-tools", True)
    late = "wait did not end within its limit of 50 ms"
    assert error_of(await stocked.call("wait", seconds=30)) == (ToolErrorType.TIMEOUT, late)


async def test_cancelling_a_call_cancels_the_tool_and_is_told(stocked: Any) -> None:
    stocked.write_tool("wait", {"type": "node", "nodeType": "acme-tools:Wait"})
    subscription = stocked.host.events.subscribe("TOOL_CALL_UPDATE", "NODE_EXECUTING")
    task = asyncio.create_task(stocked.call("wait", seconds=30))
    async for event in subscription:
        if event.type == "NODE_EXECUTING":
            break
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async for event in subscription:
        if event.type == "TOOL_CALL_UPDATE" and event.payload["status"] == "error":
            assert event.payload["error"]["type"] == "Interrupted"
            break
    await subscription.close()


@pytest.mark.in_process_only("the boundary refuses such a number before the tool manager sees it")
async def test_a_number_that_json_cannot_write_is_told(odd: Any) -> None:
    parameters = {"type": "object", "properties": {"filler": {"type": "string"}}}
    rows: Any = [
        ("bare", {}, "a number must be finite, this one is inf"),
        ("number", {}, ".counts[2].share: a number must be finite, this one is nan"),
        ("number", {"filler": "NaN " * 1000}, ".counts[2].share: a number must be finite, this one is nan"),
    ]
    for method, arguments, said in rows:
        desk = {"type": "service", "service": "acme-odd.desk", "method": method}
        odd.write_tool(method, desk, parameters=parameters)
        told = f"acme-odd.desk.{method} gave what JSON cannot have: {said}"
        assert error_of(await odd.call(method, **arguments)) == (ToolErrorType.OUTPUT, told)


async def test_a_method_that_misbehaves_is_a_failed_result(odd: Any) -> None:
    for name in ("give_up", "bytes_of_no_text"):
        odd.write_tool(name, {"type": "service", "service": "acme-odd.desk", "method": name})
    cancelled = "give_up was cancelled from within; nobody had asked for that"
    assert error_of(await odd.call("give_up")) == (ToolErrorType.EXECUTION, cancelled)
    kind, message = error_of(await odd.call("bytes_of_no_text"))
    assert kind == ToolErrorType.OUTPUT
    assert message.startswith("acme-odd.desk.bytes_of_no_text gave what JSON cannot have: ")


@pytest.mark.in_process_only("what crosses the boundary runs in a task of its own")
async def test_a_tool_that_ignores_its_cancellation_is_abandoned(odd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "GRACE", 0.1)
    odd.write_tool("odd", {"type": "service", "service": "acme-odd.desk", "method": "linger"}, timeout=50)
    async with asyncio.timeout(60):
        result = await odd.call("odd")
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0
    assert error_of(result) == (ToolErrorType.TIMEOUT, "odd did not end within its limit of 50 ms")
