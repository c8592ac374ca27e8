"""Agents ask people: a text, a choice, a form, a file; they wait for the answer, and hear that there is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agent_bench import AgentBench, agent
from helpers.repetition import Failures
from helpers.stub_llm import said
from helpers.tavern_project import Tavern

from tavern_agents.api.agents import AgentReply, AgentRun, AgentStatus
from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.calls import CallContext, Principal, operator_call
from tavern_host.contracts.errors import Conflict, InvalidInput, PermissionDenied, TavernError
from tavern_host.contracts.events import Event
from tavern_tools.api.asking import typed
from tavern_tools.api.toolcalls import ToolCallRequest, ToolScope, ToolTask

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK = "system:request_user_interaction"
PLATFORM = "RequestUserInteractionTool"
FORM: dict[str, Any] = {
    "properties": {"city": {"type": "string", "title": "City"}, "copies": {"type": "integer", "minimum": 1}},
    "required": ["city"],
}


def prepare(project: Tavern) -> None:
    project.profile(tool_ids_inventory=[ASK, "agent:helper"])
    project.write("agents/helper.json", agent("helper", ASK))
    project.write("files/notes/a.txt", "a")


async def asked(bench: AgentBench, **arguments: Any) -> tuple[AgentRun, ToolTask]:
    """Let an agent ask, and return its run and the question that waits."""
    bench.answers(said("", (ASK, {"question": "Which one?", **arguments})), said("Good."))
    run = await bench.start()
    [task] = await bench.waiting()
    return run, task


async def answer(bench: AgentBench, task: ToolTask, said: Any, who: str = "operator") -> None:
    call = CallContext(principal=Principal(kind="user", id=who))
    await bench.tools.decide(task.id, "approve", arguments={"answer": said}, call=call)


def result(reply: AgentReply) -> Any:
    """Return what came of the question, as the agent reads it."""
    [one] = reply.tool_results
    return one.structured if one.error is None else one.error.message


ROWS: list[tuple[dict[str, Any], list[Any], Any, Any]] = [
    ({}, [None, "", "  ", 5, ["a"], "a" * 20_001], "Ada 🙂", "Ada 🙂"),
    ({"choices": ["tea", "ale"]}, ["wine", "", 1, ["tea"]], "ale", "ale"),
    ({"choices": ["tea", "ale"], "multiple": True}, ["tea", [], ["tea", "tea"], ["x"]], ["ale"], ["ale"]),
    (
        {"schema": FORM},
        [{}, {"city": 1}, {"city": "Ghent", "copies": 0}, "Ghent", {"city": "x" * 70_000}],
        {"city": "Ghent", "copies": 2},
        {"city": "Ghent", "copies": 2},
    ),
    ({"kind": "file"}, ["notes/b.txt", "../x", "notes", "/", "/etc/passwd", 3], " ./notes//a.txt ", "notes/a.txt"),
]


async def test_an_agent_asks_and_reads_what_was_answered(bench: AgentBench) -> None:
    with Failures() as failures:
        for arguments, wrong, right, read in ROWS:
            with failures.row(arguments):
                run, task = await asked(bench, **arguments)
                standing = await bench.runtime.get_run(run.id)
                assert (standing.status, standing.approvals) == (AgentStatus.WAITING, [task.id])
                for one in wrong:
                    with pytest.raises(InvalidInput):
                        await answer(bench, task, one)
                await answer(bench, task, right)
                reply = await bench.ended(run)
                assert (reply.text, result(reply)) == ("Good.", {"answer": read})
    [step] = await bench.trace(run.id, "awaiting_approval")
    assert (step.text, step.data["question"]["kind"]) == ("Asks: Which one?", "file")  # type: ignore[index,call-overload]
    entries = await bench.host.services.get(AUDIT).tail(100, call=operator_call())
    [entry] = [one for one in entries if one.subject == task.id and one.action == "toolApproval.approved"]
    assert task.approval is not None
    assert (task.approval.expires_at - task.approval.requested_at).total_seconds() == 3600
    assert (str(entry.actor), entry.details["arguments"]["answer"]) == ("user:operator", "notes/a.txt")  # type: ignore[index,call-overload]


async def test_a_question_that_nobody_answers_ends_and_says_so(bench: AgentBench, held_clock: Any) -> None:
    run, task = await asked(bench, seconds=90)
    assert task.approval is not None
    waits = task.approval.expires_at - task.approval.requested_at
    assert (waits.total_seconds(), task.approval.default) == (90, "refuse")
    held_clock.advance(91)
    reply = await bench.ended(run)
    assert result(reply).startswith("nobody answered the question, which waited until 2")
    with pytest.raises(Conflict):
        await answer(bench, task, "too late")
    [seen] = await bench.trace(run.id, "observation")
    assert "TimeoutError" in seen.text and "nobody answered" in seen.text


async def test_who_is_asked_may_decline_and_others_may_not_answer(bench: AgentBench) -> None:
    run, task = await asked(bench)
    own = CallContext(principal=Principal(kind="agent", id="keeper"))
    for call, arguments in ((own, {"answer": "me"}), (operator_call(), None), (operator_call(), {"question": "x"})):
        with pytest.raises((PermissionDenied, InvalidInput)):
            await bench.tools.decide(task.id, "approve", arguments=arguments, call=call)
    with pytest.raises(InvalidInput, match="as it was asked: question"):
        await bench.tools.decide(task.id, "approve", arguments={"answer": "a", "question": "b"}, call=operator_call())
    await bench.tools.decide(task.id, "refuse", comment="not now", call=operator_call())
    assert result(await bench.ended(run)) == "an answer was declined by user:operator: not now"


async def test_what_cannot_be_asked_is_refused_at_once(bench: AgentBench) -> None:
    secret = {"properties": {"apiKey": {"type": "string"}}}
    rows: list[tuple[dict[str, Any], str]] = [
        ({"question": ""}, "question"),
        ({"kind": "choice"}, "needs choices"),
        ({"kind": "form", "choices": ["a"]}, "has no choices, which choice has"),
        ({"kind": "form"}, "needs schema"),
        ({"schema": {"type": "array"}}, "a form is an object with fields"),
        ({"schema": {"properties": {"a": {"type": "text"}}}}, "no JSON Schema"),
        ({"schema": {"properties": {"a": {"$ref": "http://example.com/x"}}}}, "no JSON Schema"),
        ({"schema": secret}, "nobody is asked for secrets"),
        ({"schema": {"properties": {"code": {"type": "string", "format": "password"}}}}, "secrets"),
        ({"schema": {"properties": {"a": {"type": "string", "description": "x" * 70_000}}}}, "at most 65,536 bytes"),
        ({"seconds": 0}, "seconds"),
        ({"seconds": 1e12}, "seconds"),
        ({"choices": ["x" * 201]}, "choices"),
    ]
    call, scope = CallContext(principal=Principal(kind="agent", id="keeper")), ToolScope(allowed=["system:*"])
    with Failures() as failures:
        for arguments, why in rows:
            with failures.row(arguments):
                request = ToolCallRequest(tool_id=ASK, arguments={"question": "Which?", **arguments})
                found = await bench.tools.call(request, scope=scope, call=call)
                assert found.error is not None and why in found.error.message, found
    # what a caller says in place of the person is dropped, and models are not shown that it could
    request = ToolCallRequest(tool_id=ASK, arguments={"question": "Which?", "answer": "mine"})
    found = await bench.tools.call(request, scope=scope, call=call)
    task = await bench.tools.task(found.task_id or "", call=call)
    assert (found.status, "answer" in task.arguments) == ("awaiting_approval", False)
    await bench.tools.cancel_task(task.id, call=call)
    [native] = await bench.tools.native_schemas([ASK])
    assert '"answer"' not in json.dumps(native) and "- answer" not in await bench.tools.describe([ASK])
    # the platform's name for the tool means the same
    found = await bench.tools.call(request.model_copy(update={"tool_id": PLATFORM}), call=operator_call())
    assert found.status == "awaiting_approval"
    await bench.tools.cancel_task(found.task_id or "", call=operator_call())
    # a user who asks is not asked in silence: they wait, too
    found = await bench.tools.call(request, call=operator_call())
    assert found.status == "awaiting_approval"
    await bench.tools.cancel_task(found.task_id or "", call=operator_call())


async def test_what_is_typed_becomes_an_answer(bench: AgentBench) -> None:
    _, one = await asked(bench, choices=["tea", "ale, dark", "2"])
    assert one.approval is not None and one.approval.question is not None
    single = one.approval.question
    assert [typed(single, text) for text in ("1", "2", "ale, dark", "9")] == ["tea", "2", "ale, dark", "9"]
    several = single.model_copy(update={"expects": {"type": "array", "items": single.expects}})
    assert typed(several, "1, 2") == ["tea", "2"] and typed(several, "ale, dark") == ["ale, dark"]
    with pytest.raises(TavernError, match="as JSON"):
        typed(single.model_copy(update={"kind": "form"}), "Ghent")
    await bench.runtime.interrupt((await bench.waiting())[0].agent_run_id or "")
    assert (await bench.tools.task(one.id)).status == "cancelled"


async def test_a_question_of_a_sub_agent_reaches_people_with_who_asks(bench: AgentBench) -> None:
    events = bench.host.events.subscribe("APPROVAL_REQUEST")
    bench.answers(said("", ("agent:helper", {"message": "Ask."})), said("", (ASK, {"question": "Who?"})), said("Ada."))
    run = await bench.start()
    [task] = await bench.waiting()
    standing = await bench.reached(run, lambda one: one.approvals)
    assert standing.asked_by[task.id] == ["keeper", "helper"]
    await events.close()
    [event] = [event.payload async for event in events if isinstance(event, Event)]
    assert event["question"]["message"] == "Who?" and event["traceId"] == task.trace_id
    await answer(bench, task, "Ada")
    await bench.ended(run)
