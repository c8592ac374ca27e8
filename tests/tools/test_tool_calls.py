"""What happens when a tool is called: a result always, never an exception."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.calls import MAX_DEPTH, CallContext, Principal
from tavern_host.contracts.toolcalls import ToolCallRequest, ToolErrorType, ToolResult, ToolScope
from tavern_host.runtime import threads

OpenHost = Callable[..., Any]


SCRIPT = {"type": "script", "command": "python fetch.py"}


def error_of(result: ToolResult) -> tuple[ToolErrorType, str]:
    assert result.status == "error"
    assert result.error is not None
    assert result.content[0].text == f"{result.error.type}: {result.error.message}"
    return result.error.type, result.error.message


async def test_a_service_tool_calls_the_method_and_gives_its_json(open_host: OpenHost) -> None:
    async with open_host() as bench:
        bench.write_info("info")
        result = await bench.call("info", name="tavern-tools")
        assert (result.status, result.tool_id, result.index) == ("done", "info", 1)
        assert isinstance(result.structured, dict)
        assert result.structured["displayName"] == "Tools"
        assert (result.content[0].type, result.content[0].data) == ("data", result.structured)
        assert result.duration_ms > 0


async def test_an_unknown_tool_is_a_result_with_near_names(open_host: OpenHost) -> None:
    async with open_host() as bench:
        bench.write_info("info")
        assert error_of(await bench.call("Infos")) == (
            ToolErrorType.TOOL_NOT_FOUND,
            'no tool has the id "Infos" (did you mean info?)',
        )


async def test_wrong_arguments_are_all_listed(open_host: OpenHost) -> None:
    async with open_host() as bench:
        bench.write_info("info")
        result = await bench.call("info", Name="x")
        assert error_of(result) == (
            ToolErrorType.PARAMETER_VALIDATION,
            "the arguments of info are not right: Name: is no parameter of this tool (did you mean name?); "
            "name: is required and missing",
        )
        assert result.error is not None
        assert [p["parameter"] for p in result.error.details["problems"]] == ["Name", "name"]  # type: ignore[index, union-attr, call-overload]


async def test_only_calls_from_text_are_coerced_and_the_result_says_how(open_host: OpenHost) -> None:
    async with open_host() as bench:
        bench.write_info("info")
        request = ToolCallRequest(tool_id="info", arguments={"NA_ME": "tavern-tools"}, protocol="tam")
        result = await bench.tools.call(request)
        assert (result.status, result.coercions) == ("done", ['"NA_ME" taken as "name"'])


async def test_an_unavailable_tool_says_what_it_needs(open_host: OpenHost) -> None:
    async with open_host() as bench:
        bench.write_tool("fetch", SCRIPT)
        assert error_of(await bench.call("fetch")) == (
            ToolErrorType.SERVICE_UNAVAILABLE,
            "fetch cannot be called now: needs service scriptExecution",
        )


async def test_an_error_of_the_service_is_an_execution_error(open_host: OpenHost) -> None:
    async with open_host() as bench:
        bench.write_info("info")
        result = await bench.call("info", name="tavern-tool")
        assert error_of(result)[0] == ToolErrorType.EXECUTION
        assert result.error is not None
        assert result.error.details["code"] == "not_found"


async def test_a_result_that_is_not_what_the_tool_declares_is_an_output_error(open_host: OpenHost) -> None:
    async with open_host() as bench:
        output = {"type": "object", "required": ["weather"]}
        bench.write_info("info", output=output)
        assert error_of(await bench.call("info", name="tavern-tools")) == (
            ToolErrorType.OUTPUT,
            "the result of info is not what the tool declares: weather: is required and missing",
        )


async def test_a_field_that_a_service_leaves_null_is_not_there_where_the_output_knows_no_null(
    open_host: OpenHost,
) -> None:
    async with open_host() as bench:
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


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"filePath": "a.txt", "limit": "many"}, "projectFiles.read_file: limit: Input should be a valid integer"),
        ({"filePath": "a.txt", "depth": 1}, "projectFiles.read_file: unknown argument 'depth'"),
        ({"filePath": "a.txt", "limit": 0}, "limit must be "),
        ({"filePath": "../a.txt"}, '"../a.txt" leads upwards'),
    ],
)
async def test_arguments_that_the_service_refuses_are_a_validation_error_and_not_tried_again(
    open_host: OpenHost, arguments: dict[str, Any], said: str, read_only: bool
) -> None:
    async with open_host() as bench:
        method = {"type": "service", "service": "projectFiles", "method": "read_file"}
        bench.write_tool("read", method, parameters={"additionalProperties": True}, readOnly=read_only)
        result = await bench.tools.call(ToolCallRequest(tool_id="read", arguments=arguments, retry=3))
    kind, message = error_of(result)
    assert (kind, result.attempts) == (ToolErrorType.PARAMETER_VALIDATION, 1)
    assert message.startswith(said)
    assert result.error is not None
    assert result.error.details["code"] == "invalid_input"


async def test_what_is_the_operators_alone_no_tool_can_do(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_info("harmless", implementation={"type": "service", "service": "plugins", "method": "revoke"})
        assert error_of(await bench.call("harmless", name="acme-tools")) == (
            ToolErrorType.PERMISSION_DENIED,
            "harmless cannot be called now: plugins.revoke is the operator's alone",
        )
        assert bench.host.plugin("acme-tools").state == "started"


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


async def test_a_hook_may_refuse_a_call(open_host: OpenHost) -> None:
    async with open_host("acme_guard") as bench:
        bench.write_info("info")
        assert error_of(await bench.call("info", name="forbidden")) == (
            ToolErrorType.VETOED,
            "acme-guard refused: that one is private",
        )


async def test_a_hook_may_change_arguments_which_are_checked_again_but_not_the_tool(open_host: OpenHost) -> None:
    async with open_host("acme_guard") as bench:
        bench.write_info("info")
        result = await bench.call("info", name="alias")
        assert result.tool_id == "info"
        assert isinstance(result.structured, dict)
        assert result.structured["name"] == "tavern-tools"
        kind, message = error_of(await bench.call("info", name="spoil"))
        assert kind == ToolErrorType.PARAMETER_VALIDATION
        assert message.endswith('name: 7 is not of type "string"')


async def test_a_hook_may_change_or_withhold_a_result(open_host: OpenHost) -> None:
    async with open_host("acme_guard") as bench:
        bench.write_info("info")
        changed = await bench.call("info", name="tavern-nodes")
        assert (changed.tool_id, changed.structured) == ("info", "changed")
        withheld = await bench.call("info", name="tavern-llm")
        assert error_of(withheld) == (ToolErrorType.VETOED, "acme-guard refused: not for your eyes")
        assert withheld.structured is None


async def test_a_call_that_takes_a_while_is_told_when_it_begins_and_when_it_ends(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        subscription = bench.host.events.subscribe("TOOL_CALL_UPDATE")
        call = CallContext(principal=Principal(kind="agent", id="lin"), run_id="run_1")
        request = ToolCallRequest(tool_id="acme:repeat", arguments={"text": "ab"}, index=2, request_id="r1")
        await bench.tools.call(request, scope=ToolScope(allowed=["acme:*"]), call=call)
        begun, ended = [await anext(aiter(subscription)) for _ in range(2)]
        await subscription.close()
        about = {"toolId": "acme:repeat", "index": 2, "requestId": "r1", "caller": "agent:lin", "runId": "run_1"}
        assert about.items() <= begun.payload.items()
        assert about.items() <= ended.payload.items()
        assert begun.payload["callId"] == ended.payload["callId"]
        assert (begun.payload["status"], ended.payload["status"]) == ("running", "done")


async def test_a_call_that_is_not_made_is_told_with_the_reason(open_host: OpenHost) -> None:
    async with open_host() as bench:
        bench.write_info("info")
        subscription = bench.host.events.subscribe("TOOL_CALL_UPDATE")
        await bench.call("info")
        told = await anext(aiter(subscription))
        await subscription.close()
        assert (told.payload["status"], told.payload["error"]["type"]) == ("error", "ParameterValidationError")


async def test_a_quick_call_that_only_reads_is_in_the_audit_log_alone(open_host: OpenHost) -> None:
    async with open_host() as bench:
        bench.write_info("info", readOnly=True)
        subscription = bench.host.events.subscribe("TOOL_CALL_UPDATE")
        await bench.call("info", name="tavern-tools")
        await bench.call("info")
        told = await anext(aiter(subscription))
        await subscription.close()
        assert told.payload["status"] == "error"
        entries = await bench.host.services.get(AUDIT).tail(10)
        assert [(e.action, e.subject) for e in entries if e.action.startswith("tool.")] == [
            ("tool.called", "info"),
            ("tool.denied", "info"),
        ]


async def test_calls_that_nest_too_deeply_end_in_a_result(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        deep = CallContext(principal=Principal(kind="user", id="lin"), depth=MAX_DEPTH)
        request = ToolCallRequest(tool_id="acme:repeat", arguments={"text": "ab"})
        kind, message = error_of(await bench.tools.call(request, call=deep))
        assert kind == ToolErrorType.EXECUTION
        assert "nested" in message


async def test_an_agent_calls_nothing_that_nobody_listed_for_it(open_host: OpenHost) -> None:
    async with open_host() as bench:
        bench.write_info("info")
        call = CallContext(principal=Principal(kind="agent", id="lin"))
        request = ToolCallRequest(tool_id="info", arguments={"name": "tavern-tools"})
        assert error_of(await bench.tools.call(request, call=call))[0] is ToolErrorType.PERMISSION_DENIED
        assert (await bench.tools.call(request, scope=ToolScope(allowed=["info"]), call=call)).status == "done"


async def test_a_call_is_tried_again_as_often_as_it_says(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_tool("wait", {"type": "node", "nodeType": "acme-tools:Wait"}, timeout=20)
        request = ToolCallRequest(tool_id="wait", arguments={"seconds": 5}, retry=1)
        result = await bench.tools.call(request)
        assert (error_of(result)[0], result.attempts) == (ToolErrorType.TIMEOUT, 2)
        wrong = await bench.tools.call(ToolCallRequest(tool_id="wait", arguments={"second": 5}, retry=3))
        assert (error_of(wrong)[0], wrong.attempts) == (ToolErrorType.PARAMETER_VALIDATION, 1)


async def test_a_result_that_is_too_large_is_an_output_error(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        result = await bench.call("acme:repeat", text="x" * 2_000_000, times=9)
        assert error_of(result) == (
            ToolErrorType.OUTPUT,
            "the result of acme:repeat is too large: 18.0 MB, 10 MB are allowed",
        )


async def test_a_node_tool_gives_its_single_output_bare(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        assert (await bench.call("acme:repeat", text="ab", times=3)).structured == "ababab"
        assert (await bench.call("acme:repeat", text="ab")).structured == "abab"


async def test_a_node_tool_gives_several_outputs_as_an_object(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        assert (await bench.call("acme:measure", text="abc")).structured == {"text": "abc", "length": 3}


async def test_a_failing_node_is_an_execution_error_that_names_the_run(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_tool("fail", {"type": "node", "nodeType": "acme-tools:Fail"})
        result = await bench.call("fail", reason="no ink")
        kind, message = error_of(result)
        assert kind == ToolErrorType.EXECUTION
        assert "no ink" in message
        assert result.error is not None
        assert str(result.error.details["runId"])


async def test_a_tool_that_takes_longer_than_its_limit_times_out(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_tool("wait", {"type": "node", "nodeType": "acme-tools:Wait", "timeout": 50})
        assert error_of(await bench.call("wait", seconds=30)) == (
            ToolErrorType.TIMEOUT,
            "wait did not end within its limit of 50 ms",
        )


async def test_cancelling_a_call_cancels_the_tool_and_is_told(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_tool("wait", {"type": "node", "nodeType": "acme-tools:Wait"})
        subscription = bench.host.events.subscribe("TOOL_CALL_UPDATE", "NODE_EXECUTING")
        task = asyncio.create_task(bench.call("wait", seconds=30))
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


async def test_a_workflow_tool_runs_the_workflow_with_the_arguments(open_host: OpenHost) -> None:
    slot = {"dataFlowType": "STRING", "required": True}
    hollow = {"displayName": "*", "dataFlowType": "CONVERTIBLE_ANY", "allowDynamicType": True}
    async with open_host("acme_tools") as bench:
        bench.write_workflow(
            "twice",
            nodes=[
                {"id": "in", "type": "core:GroupInput"},
                {"id": "n", "type": "acme-tools:Repeat"},
                {"id": "out", "type": "core:GroupOutput"},
            ],
            edges=[
                {"id": "e1", "source": "in", "sourceHandle": "text", "target": "n", "targetHandle": "text"},
                {"id": "e2", "source": "n", "sourceHandle": "result", "target": "out", "targetHandle": "answer"},
            ],
            interfaceInputs={"text": slot},
            interfaceOutputs={"answer": {"dataFlowType": "STRING"}, "output_1": hollow},
        )
        result = await bench.call("workflow:twice", text="ab")
        assert (result.status, result.structured, result.content[0].text) == ("done", "abab", "abab")


@pytest.mark.in_process_only("the boundary refuses such a number before the tool manager sees it")
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("method", "arguments", "said"),
    [
        ("bare", {}, "expected a number that JSON can write, got inf"),
        ("number", {}, "counts[2].share: expected a number that JSON can write, got nan"),
        ("number", {"filler": "NaN " * 1000}, "counts[2].share: expected a number that JSON can write, got nan"),
    ],
)
async def test_a_number_that_json_cannot_write_is_an_output_error(
    open_host: OpenHost, method: str, arguments: dict[str, Any], said: str, read_only: bool
) -> None:
    async with open_host("acme_odd") as bench:
        desk = {"type": "service", "service": "acme-odd.desk", "method": method}
        parameters = {"type": "object", "properties": {"filler": {"type": "string"}}}
        bench.write_tool("odd", desk, parameters=parameters, readOnly=read_only)
        result = await bench.call("odd", **arguments)
    assert error_of(result) == (ToolErrorType.OUTPUT, f"the result of odd is no JSON: {said}")


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_tool_that_is_cancelled_from_within_is_a_result_that_failed(
    open_host: OpenHost, read_only: bool
) -> None:
    async with open_host("acme_odd") as bench:
        desk = {"type": "service", "service": "acme-odd.desk", "method": "give_up"}
        bench.write_tool("odd", desk, readOnly=read_only)
        result = await bench.call("odd")
    assert error_of(result) == (
        ToolErrorType.EXECUTION,
        "odd was cancelled from within; nobody had asked for that",
    )


@pytest.mark.in_process_only("what crosses the boundary runs in a task of its own")
@pytest.mark.parametrize("read_only", [False, True])
async def test_a_tool_that_ignores_its_cancellation_is_abandoned(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    monkeypatch.setattr(threads, "GRACE", 0.1)
    async with open_host("acme_odd") as bench:
        desk = {"type": "service", "service": "acme-odd.desk", "method": "linger"}
        bench.write_tool("odd", desk, readOnly=read_only, timeout=50)
        async with asyncio.timeout(30):
            result = await bench.call("odd")
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
    assert error_of(result) == (ToolErrorType.TIMEOUT, "odd did not end within its limit of 50 ms")


async def test_a_result_that_json_cannot_have_is_told_with_the_method_that_gave_it(open_host: OpenHost) -> None:
    async with open_host("acme_odd") as bench:
        bench.write_tool("odd", {"type": "service", "service": "acme-odd.desk", "method": "bytes_of_no_text"})
        result = await bench.call("odd")
    kind, message = error_of(result)
    assert kind == ToolErrorType.EXECUTION
    assert message.startswith("acme-odd.desk.bytes_of_no_text gave what JSON cannot have: ")
