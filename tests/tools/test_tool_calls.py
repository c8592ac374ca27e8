"""What happens when a tool is called: a result always, never an exception; and what its definition asks for holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from helpers.repetition import Failures
from helpers.systems import on_linux
from helpers.workflow_documents import workflow_document

from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.calls import MAX_DEPTH, CallContext, Principal
from tavern_host.contracts.errors import NotFound
from tavern_tools.api.toolcalls import TaskStatus, ToolCallRequest, ToolErrorType, ToolResult, ToolScope

OpenHost = Callable[..., Any]

LIN = CallContext(principal=Principal(kind="agent", id="lin"))
PERSON = CallContext(principal=Principal(kind="user", id="operator"))
ALL = ToolScope(allowed=["*", "node:*"])
REPEAT, WAIT = ({"type": "node", "nodeType": f"acme-tools:{name}"} for name in ("Repeat", "Wait"))
READ, WRITE = ({"type": "service", "service": "projectFiles", "method": f"{name}_file"} for name in ("read", "write"))
TEXT, VALIDATION = {"type": "string"}, ToolErrorType.PARAMETER_VALIDATION


def error_of(result: ToolResult) -> tuple[ToolErrorType, str]:
    assert result.status == "error" and result.error is not None
    assert result.content[0].text == f"{result.error.type}: {result.error.message}"
    return result.error.type, result.error.message


async def by_agent(bench: Any, tool_id: str, scope: ToolScope = ALL, **arguments: Any) -> Any:
    return await bench.tools.call(ToolCallRequest(tool_id=tool_id, arguments=arguments), scope=scope, call=LIN)


# --- services -------------------------------------------------------------------------------------


async def test_a_service_tool_gives_the_json_of_its_method(bench: Any) -> None:
    known = {"name": {"type": "string"}, "frontend": {"type": "object"}}
    bench.write_info("plain")
    bench.write_info("info", output={"type": "object", "properties": known, "required": ["name"]})
    bench.write_info("front", output={"type": "object", "properties": known, "required": ["frontend"]})
    plain, info, front = [await bench.call(tool, name="tavern-tools") for tool in ("plain", "info", "front")]
    assert plain.status == "done"
    assert plain.tool_id == "plain"
    assert plain.index == 1
    assert plain.duration_ms > 0
    assert (plain.content[0].type, plain.content[0].data) == ("data", plain.structured)
    assert (plain.structured["displayName"], plain.structured["frontend"]) == ("Tools", None)
    # what a service leaves null is not there where the output knows no null
    assert info.structured == {key: value for key, value in plain.structured.items() if key != "frontend"}
    undeclared = 'the result of front is not what the tool declares: frontend: null is not of type "object"'
    assert error_of(front) == (ToolErrorType.OUTPUT, undeclared)


async def test_a_call_that_cannot_succeed_says_why(stocked: Any) -> None:
    stocked.write_tool("fetch", {"type": "script", "command": "python fetch.py"})
    stocked.write_info("info")
    stocked.write_info("weather", output={"type": "object", "required": ["weather"]})
    stocked.write_info("harmless", implementation={"type": "service", "service": "plugins", "method": "revoke"})
    stocked.write_tool("bare", WRITE)
    stocked.write_tool("read", READ, parameters={"additionalProperties": True})
    stocked.write_tool("fail", {"type": "node", "nodeType": "acme-tools:Fail"})
    rows: Any = [
        # a tool, its arguments, the error and what it says
        ("fetch", {}, "ServiceUnavailable", "fetch cannot be called now: needs service scriptExecution"),
        (
            "weather",
            {"name": "tavern-llm"},
            "OutputError",
            "the result of weather is not what the tool declares: weather: ",
        ),
        ("info", {"name": "tavern-tool"}, "ExecutionError", "there is no plugin 'tavern-tool'"),
        (
            *("info", {"Name": "x"}, "ParameterValidationError"),
            "the arguments of info are not right: Name: is no parameter of this tool (did you mean name?); ",
        ),
        # what is the operator's alone no tool can do
        (
            *("harmless", {"name": "acme-tools"}, "PermissionDenied"),
            "harmless cannot be called now: plugins.revoke is the operator's alone",
        ),
        # a service tool without parameters takes none
        ("bare", {}, "ParameterValidationError", "projectFiles.write_file: the argument 'content' is missing"),
        (
            "bare",
            {"filePath": "a.txt"},
            "ParameterValidationError",
            "the arguments of bare are not right: filePath: is no",
        ),
        # what a service refuses is not tried again
        ("read", {"limit": "many"}, "ParameterValidationError", "projectFiles.read_file: limit: Input should"),
        ("read", {"depth": 1}, "ParameterValidationError", "projectFiles.read_file: unknown argument 'depth'"),
        ("read", {"limit": 0}, "ParameterValidationError", "limit must be "),
        ("read", {"filePath": "/"}, "ParameterValidationError", "the path names the files folder itself"),
        ("fail", {"reason": "no ink"}, "ExecutionError", "no ink"),
        (
            *("acme:repeat", {"text": "x" * 2_000_000, "times": 9}, "OutputError"),
            "the result of acme:repeat is too large: 18.0 MB, 10 MB are allowed",
        ),
    ]
    details: dict[str, Any] = {}
    with Failures() as failures:
        for tool, arguments, kind, message in rows:
            with failures.row((tool, str(arguments)[:40])):
                sent = {"filePath": "a.txt", **arguments} if tool == "read" else arguments
                is_final = kind in ("ParameterValidationError", "PermissionDenied")
                request = ToolCallRequest(tool_id=tool, arguments=sent, retry=3 if is_final else 0)
                result = await stocked.tools.call(request)
                found, said = error_of(result)
                assert found == kind
                assert message in said
                assert result.attempts == 1
                details[f"{tool} {kind}"] = result.error.details
    assert details["read ParameterValidationError"]["code"] == "invalid_input"
    assert details["info ExecutionError"]["code"] == "not_found"
    assert [problem["parameter"] for problem in details["info ParameterValidationError"]["problems"]] == [
        "Name",
        "name",
    ]
    failed = details["fail ExecutionError"]
    assert (failed["plugin"], bool(failed["runId"])) == ("acme-tools", True)
    assert stocked.host.plugin("acme-tools").state == "started"
    assert not list(stocked.host.project.folder("files").glob("*"))


async def test_a_plugins_tool_has_no_more_rights_than_it(open_host: OpenHost) -> None:
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


async def test_what_a_tool_asks_for_gives_it_nothing(bench: Any) -> None:
    declared = {"fileAccess": {"allowWrite": ["/**"]}, "requiredCapabilities": ["root"]}
    for path in ("filePath", "file_path"):  # a method takes its parameters in either spelling
        properties = {path: TEXT, "content": TEXT, "overwrite": {"type": "boolean"}}
        bench.write_tool(
            "write", WRITE, parameters={"type": "object", "properties": properties}, securityContext=declared
        )
        assert (await bench.tools.get("write")).security_context == declared
        outside = await bench.call("write", **{path: "../outside.txt", "content": "x"})
        assert (outside.error.type, (bench.root / "outside.txt").exists()) == (VALIDATION, False)
        assert (await bench.call("write", **{path: f"{path}.txt", "content": "x", "overwrite": False})).status == "done"
        assert (bench.host.project.folder("files") / f"{path}.txt").read_text("utf-8") == "x"


FORMATS: Any = [
    ({"format": "date"}, "2026-02-28", "2026-02-30"),
    ({"format": "date-time"}, "2026-02-28T12:00:00Z", "noon"),
    *(({"format": "email"}, "ada@example.com", "ada"), ({"format": "uri"}, "https://example.com/a", "a b")),
    *(({"pattern": "^BV[0-9]+$"}, "BV1", "AV1"), ({"minLength": 2, "maxLength": 3}, "abc", "a")),
]


async def test_formats_are_checked(bench: Any) -> None:
    ends, slot = {"in": "core:GroupInput", "out": "core:GroupOutput"}, {"v": {"dataFlowType": "STRING"}}
    bench.write_workflow("same", **workflow_document(ends, "in.v > out.v", interfaceInputs=slot, interfaceOutputs=slot))
    with Failures() as failures:
        for number, (schema, right, wrong) in enumerate(FORMATS):
            with failures.row(schema):
                parameters = {"type": "object", "properties": {"v": {"type": "string", **schema}}, "required": ["v"]}
                bench.write_tool(f"t{number}", {"type": "workflow", "workflowId": "same"}, parameters=parameters)
                assert (await bench.call(f"t{number}", v=right)).structured == right
                kind, message = error_of(await bench.call(f"t{number}", v=wrong))
                assert (kind, message.startswith(f"the arguments of t{number} are not right: v: ")) == (
                    VALIDATION,
                    True,
                )


# --- hooks and events -----------------------------------------------------------------------------


async def test_hooks_change_and_refuse_calls_and_results(guarded: Any) -> None:
    guarded.write_info("info")
    vetoed, output = ToolErrorType.VETOED, ToolErrorType.OUTPUT
    rows: Any = [
        ("forbidden", vetoed, "acme-guard refused: that one is private"),
        ("spoil", VALIDATION, 'the arguments of info are not right: name: 7 is not of type "string"'),
        ("tavern-workflows", output, "the result of info is no JSON: deep[1]: an int must have at most 64 bits"),
        ("tavern-llm", vetoed, "acme-guard refused: not for your eyes"),
    ]
    for name, *error in rows:
        result = await guarded.call("info", name=name)
        assert ([*error_of(result)], result.structured) == (error, None), name
    other, changed = await guarded.call("info", name="alias"), await guarded.call("info", name="tavern-nodes")
    assert (other.tool_id, other.structured["name"]) == ("info", "tavern-tools")
    assert (changed.tool_id, changed.structured) == ("info", "changed")


async def test_calls_are_told_by_events_and_the_audit_log(stocked: Any) -> None:
    stocked.write_info("info", readOnly=True)
    subscription = stocked.host.events.subscribe("TOOL_CALL_UPDATE")
    request = ToolCallRequest(tool_id="acme:repeat", arguments={"text": "ab"}, index=2, request_id="r1")
    call = CallContext(principal=LIN.principal, run_id="run_1")
    await stocked.tools.call(request, scope=ToolScope(allowed=["acme:*"]), call=call)
    await stocked.call("info", name="tavern-tools")  # a quick call that reads is only audited
    await stocked.call("info")
    await subscription.close()
    begun, ended, wrong = [event.payload async for event in subscription]
    about = {"toolId": "acme:repeat", "index": 2, "requestId": "r1", "caller": "agent:lin", "runId": "run_1"}
    assert about.items() <= begun.items() and about.items() <= ended.items()
    assert (begun["status"], ended["status"], begun["callId"]) == ("running", "done", ended["callId"])
    assert (wrong["status"], wrong["error"]["type"]) == ("error", "ParameterValidationError")
    entries = await stocked.host.services.get(AUDIT).tail(2)
    assert [(e.action, e.subject) for e in entries] == [("tool.called", "info"), ("tool.denied", "info")]


# --- nodes ----------------------------------------------------------------------------------------


async def test_node_tools_give_the_outputs_of_their_node(stocked: Any) -> None:
    assert (await stocked.call("acme:repeat", text="ab", times=3)).structured == "ababab"
    assert (await stocked.call("acme:repeat", text="ab")).structured == "abab"
    assert (await stocked.call("acme:measure", text="abc")).structured == {"text": "abc", "length": 3}
    deep = CallContext(principal=LIN.principal, depth=MAX_DEPTH)
    nested = await stocked.tools.call(
        ToolCallRequest(tool_id="acme:repeat", arguments={"text": "ab"}), scope=ALL, call=deep
    )
    kind, message = error_of(nested)
    assert kind == ToolErrorType.EXECUTION
    assert "nested" in message
    stocked.write_tool("late", {**WAIT, "timeout": 50})
    late = await stocked.tools.call(ToolCallRequest(tool_id="late", arguments={"seconds": 30}, retry=1))
    assert error_of(late) == (ToolErrorType.TIMEOUT, "late did not end within its limit of 50 ms")
    assert late.attempts == 2


async def test_cancelling_a_call_cancels_the_tool(stocked: Any) -> None:
    stocked.write_tool("wait", WAIT)
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


# --- methods that misbehave -----------------------------------------------------------------------


@pytest.mark.in_process_only("the boundary refuses such a number before the tool manager sees it")
async def test_a_number_that_json_cannot_write_is_told(odd: Any) -> None:
    number = ".counts[2].share: a number must be finite, this one is nan"
    rows: Any = [("bare", {}, "a number must be finite, this one is inf"), ("number", {}, number)]
    for method, arguments, said in [*rows, ("number", {"filler": "NaN " * 1000}, number)]:
        parameters = {"type": "object", "properties": {"filler": TEXT}}
        odd.write_tool(method, {"type": "service", "service": "acme-odd.desk", "method": method}, parameters=parameters)
        told = f"acme-odd.desk.{method} gave what JSON cannot have: {said}"
        assert error_of(await odd.call(method, **arguments)) == (ToolErrorType.OUTPUT, told)


async def test_a_method_that_misbehaves_is_a_failed_result(odd: Any) -> None:
    for name in ("give_up", "bytes_of_no_text"):
        odd.write_tool(name, {"type": "service", "service": "acme-odd.desk", "method": name})
    cancelled = "give_up was cancelled from within; nobody had asked for that"
    assert error_of(await odd.call("give_up")) == (ToolErrorType.EXECUTION, cancelled)
    kind, message = error_of(await odd.call("bytes_of_no_text"))
    told = "acme-odd.desk.bytes_of_no_text gave what JSON cannot have: "
    assert (kind, message.startswith(told)) == (ToolErrorType.OUTPUT, True)


@pytest.mark.in_process_only("what crosses the boundary runs in a task of its own")
async def test_a_tool_that_ignores_cancelling_is_abandoned(odd: Any) -> None:
    odd.write_tool("odd", {"type": "service", "service": "acme-odd.desk", "method": "linger"}, timeout=50)
    result = await odd.call("odd")
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0
    assert error_of(result) == (ToolErrorType.TIMEOUT, "odd did not end within its limit of 50 ms")


# --- approvals, tasks, limits, streams ------------------------------------------------------------


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
    task = await stocked.tools.task(waiting.task_id, wait=60, call=LIN)
    assert (task.result.structured, task.approval.edited) == ("xxx", True)


async def test_an_asynchronous_tool_gives_a_task(stocked: Any) -> None:
    stocked.write_tool("copy", REPEAT, **{"async": True})
    stocked.write_tool("wait", WAIT, **{"async": True})
    pending, waiting = await by_agent(stocked, "copy", text="ab"), await by_agent(stocked, "wait", seconds=60)
    assert (pending.status, pending.structured) == ("pending", None)
    outcome = await by_agent(stocked, "system:task_result", task_id=pending.task_id, wait=60)
    assert (outcome.structured["status"], outcome.structured["result"]) == ("done", "abab")
    await by_agent(stocked, "system:task_cancel", task_id=waiting.task_id)
    assert (await stocked.tools.task(waiting.task_id, wait=60, call=LIN)).status is TaskStatus.CANCELLED


@on_linux
async def test_limits_and_kept_results_hold_for_calls(stocked: Any) -> None:
    stocked.write_tool("few", REPEAT, rateLimit={"calls": 2, "seconds": 600})
    results = [await by_agent(stocked, "few", text="ab") for _ in range(3)]
    assert [result.status for result in results] == ["done", "done", "error"]
    assert results[2].error.type is ToolErrorType.RATE_LIMITED
    assert 0 < results[2].error.details["retryAfter"] <= 600
    assert (await stocked.call("few", text="ab")).status == "done"
    stocked.write_tool("kept", REPEAT, cache={"seconds": 600})
    results = [await by_agent(stocked, "kept", text=text) for text in ("ab", "ab", "c")]
    assert [(r.structured, r.cached) for r in results] == [("abab", False), ("abab", True), ("cc", False)]


async def test_outputs_of_a_workflow_without_a_value_are_named(stocked: Any) -> None:
    gives = {"text": {"dataFlowType": "STRING"}, "more": {"dataFlowType": "STRING"}}
    nodes = {"in": "core:GroupInput", "out": "core:GroupOutput"}
    made = workflow_document(nodes, "in.text > out.text", interfaceOutputs=gives, interfaceInputs=gives)
    stocked.write_workflow("half", **made)
    result = await by_agent(stocked, "workflow:half", text="a")
    assert (result.structured, result.warnings) == ({"text": "a", "more": None}, ["no value came to the outputs: more"])


async def test_streams_are_given_to_who_reads_them(stocked: Any) -> None:
    nodes = {"list": {"type": "core:ListToStream", "inputValues": {"items": [1, 2, 3]}}, "out": "core:GroupOutput"}
    gives = {"items": {"dataFlowType": "INTEGER", "isStream": True}}
    stocked.write_workflow("count", **workflow_document(nodes, "list.stream > out.items", interfaceOutputs=gives))
    assert (await by_agent(stocked, "workflow:count")).structured == [1, 2, 3]
    handle = await by_agent(stocked, "workflow:count", ToolScope(allowed=["workflow:*"], streams=True))
    (part,) = handle.content
    assert part.type == "stream"
    items: list[Any] = []
    while not (read := await stocked.tools.read_stream(part.uri, max=2, call=LIN)).finished:
        items += read.items
    assert [*items, *read.items] == [1, 2, 3]
    with pytest.raises(NotFound):
        await stocked.tools.read_stream(part.uri, call=CallContext(principal=Principal(kind="agent", id="other")))
