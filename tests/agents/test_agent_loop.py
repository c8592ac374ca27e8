"""The loop under stress: approvals, messages that arrive meanwhile, pauses, and long conversations."""

from __future__ import annotations

import asyncio
import itertools
import re
from contextlib import nullcontext

import pytest
from helpers.stub_llm import last, said, written
from helpers.tavern_project import MODELS, Tavern
from helpers.waiting import until
from helpers.workflow_documents import function

from tavern_agents.api.agents import AgentLimits, AgentStatus
from tavern_engine.api.executions import EXECUTION_ENGINE
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import Conflict, NotFound, PluginFailure
from tavern_host.contracts.settings import SETTINGS, SettingsChange
from tavern_llm.api.llm import ChatMessage, LlmRequest, LlmResponse, LlmToolCall, LlmUsage
from tavern_tools.api.toolcalls import TaskStatus, ToolCallRequest, ToolScope
from tests.agents.agent_bench import AgentBench, agent, thinking, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPTIONS = {"settings": {MODELS: {"m": {"adapter": "told", "model": "m", "context_tokens": 4000}}}}

TIMED = """It is {{{system:time}}} ({{{told:count}}}, {{{ told:count }}}).
{{{agent:name}}} ({{{agent:id}}}): {{{agent:description}}}
{{{system:available_tools}}}"""


def prepare(project: Tavern) -> None:
    peek = {"requiresApproval": True, "readOnly": True}
    for name, more in {"pay": {"requiresApproval": True}, "peek": peek, "look": {"readOnly": True}, "mark": {}}.items():
        project.write(f"tools/{name}.tool.json", tool(name, "told:Mark", **more))
    project.profile(tool_ids_inventory=["pay", "peek", "look", "mark", "shout", "agent:*"])
    project.write("workflows/plain.json", thinking("Be brief."))
    project.write("workflows/timed.json", thinking(TIMED))
    aside = {"aside": {"type": "core:UpperCase", "inputValues": {"text": "{{{told:count}}}"}}}
    types = {"takes": {"user_message": "STRING"}, "gives": {"text": "STRING"}}
    project.write("workflows/echo.json", function("Echo", aside, "in.user_message > out.text", **types))
    for one in (
        agent("helper", "pay"),
        agent("snake", "agent:snake"),
        agent("plain", core_deliberation_workflow_id="plain"),
        agent("echo", core_deliberation_workflow_id="echo"),
        agent("timed", "look", description="Knows the time.", core_deliberation_workflow_id="timed"),
    ):
        project.write(f"agents/{one['id']}.json", one)


async def test_several_approvals_are_decided_in_any_order(bench: AgentBench) -> None:
    model = bench.answers(written("tam", *(("pay", {"text": name}) for name in ("one", "two"))), said("Settled."))
    working = asyncio.create_task(bench.run())
    (first,) = await bench.waiting()
    await bench.tools.decide(first.id, "approve", arguments={"text": "other"})
    (second,) = await bench.waiting()
    await bench.tools.decide(second.id, "refuse", comment="too dear")
    with pytest.raises(Conflict):
        await bench.tools.decide(first.id, "refuse")
    assert [result.status for result in (await working).tool_results] == ["done", "error"]
    assert bench.marks() == ["other"]
    assert ["OTHER" in last(model.asked[1]).content, "too dear" in last(model.asked[1]).content] == [True, True]
    # two that are asked for at once, of a run that is paused meanwhile; the later one is decided first
    model = bench.answers(written("native", *(("peek", {"text": name}) for name in ("one", "two"))), said("Seen."))
    run = await bench.start()
    tasks = {str(task.arguments["text"]): task.id for task in await bench.waiting(2)}
    await bench.runtime.pause(run.id)
    await bench.tools.decide(tasks["two"], "approve")
    with pytest.raises(Conflict):
        await bench.tools.decide(tasks["two"], "approve")
    assert ((await bench.runtime.get_run(run.id)).status, len(model.asked)) == (AgentStatus.WAITING, 1)
    await bench.tools.decide(tasks["one"], "approve")
    standing = await bench.reached(run, lambda one: one.status is AgentStatus.PAUSED)
    assert (standing.approvals, len(model.asked)) == ([], 1)
    await bench.runtime.resume(run.id)
    assert (await bench.ended(run)).text == "Seen."
    assert [m.content.split()[-1] for m in model.asked[1].messages if m.role == "tool"] == ["ONE", "TWO"]
    assert bench.marks() == ["two", "one"]


async def test_an_interrupted_run_takes_its_call_back(bench: AgentBench) -> None:
    bench.answers(written("tam", ("pay", {"text": "late"})))
    run = await bench.start()
    (task,) = await bench.waiting()
    await bench.runtime.interrupt(run.id)
    assert (await bench.tools.task(task.id)).status is TaskStatus.CANCELLED
    with pytest.raises(Conflict):
        await bench.tools.decide(task.id, "approve")
    model = bench.answers(said("Never mind."))
    await bench.runtime.resume(run.id)
    assert (await bench.ended(run)).text == "Never mind."
    assert bench.marks() == []
    assert "Cancelled" in last(model.asked[0]).content


@pytest.mark.parametrize("protocol", ["tam", "native"])
@pytest.mark.parametrize("is_resumed", [False, True])
async def test_calls_of_an_interrupted_run_are_answered(bench: AgentBench, protocol: str, is_resumed: bool) -> None:
    at = f"{protocol}-{is_resumed}"  # texts of their own: what a node gave for the same inputs is kept
    one, two, three = ({"text": f"{name}-{at}"} for name in ("one", "two", "three"))
    slow = ("mark", {**two, "seconds": "60"}) if is_resumed else ("pay", two)
    bench.answers(written(protocol, ("mark", one), slow, ("mark", three)))
    run = await bench.start(conversation_id=at)
    made: list[str] = []
    if is_resumed:
        await until(lambda: made.extend(bench.marks()) or two["text"] in made)  # type: ignore[func-returns-value]
    else:
        await bench.waiting()
    await bench.runtime.interrupt(run.id)
    model = bench.answers(said("Aha."))
    if is_resumed:
        await bench.runtime.resume(run.id)
        reply = await bench.ended(run)
    else:
        reply = await bench.run("What did you do?", conversation_id=at)
    expected = [one["text"], *[two["text"]] * is_resumed]
    assert (reply.text, [*made, *bench.marks()]) == ("Aha.", expected)
    read = "\n".join(message.content for message in model.asked[0].messages[3:])
    places = [read.find(text) for text in ("ONE", "may have run" if is_resumed else "Cancelled", "never made")]
    assert places == sorted(places), read
    assert -1 not in places, read


async def test_steps_behind_one_that_waited_were_not_made(bench: AgentBench) -> None:
    calls = [("pay", {"text": "behind"}), ("mark", {"text": "late"})]
    bench.answers(written("tam", *calls, chain=True))
    run = await bench.start(conversation_id="behind")
    await bench.reached(run, lambda one: one.approvals)
    await bench.runtime.interrupt(run.id)
    model = bench.answers(said("Aha."))
    await bench.run("Well?", conversation_id="behind")
    read = model.asked[0].messages[-2].content
    assert ("Cancelled" in read, "may have run" in read, "<tool_id>mark" in read) == (True, False, True), read


async def test_an_approval_of_a_sub_agent_surfaces_with_its_run(bench: AgentBench) -> None:
    ask = written("tam", ("agent:helper", {"message": "Pay."}))
    bench.answers(ask, written("tam", ("pay", {"text": "deep"})), said("Paid."), said("All done."))
    run = await bench.start()
    (task,) = await bench.waiting()
    standing = await bench.reached(run, lambda one: one.approvals)
    assert (standing.status, standing.approvals) == (AgentStatus.WAITING, [task.id])
    assert standing.asked_by == {task.id: ["keeper", "helper"]}
    [below] = [run for run in await bench.runtime.runs() if run.parent_run_id == standing.id]
    [step] = await bench.trace(below.id, "awaiting_approval")
    assert step.data["path"] == ["keeper", "helper"]
    assert str(task.principal) == "agent:helper"
    await bench.tools.decide(task.id, "approve")
    assert ((await bench.ended(run)).text, bench.marks()) == ("All done.", ["deep"])


async def test_agents_that_call_themselves_are_stopped(bench: AgentBench) -> None:
    def say(request: LlmRequest) -> LlmResponse:
        message = last(request).content
        if message.startswith("<OBSERVATION>"):
            return said(f"Enough: {message}")
        return written("tam", ("agent:snake", {"message": "Deeper."}))

    bench.model(say)
    reply = await bench.run(agent="snake")
    assert reply.outcome == "reply"
    assert "agents may call each other 4 deep" in reply.text


async def test_a_message_during_a_run_waits_for_a_boundary(bench: AgentBench) -> None:
    for answers, roles in (
        ((written("tam", ("shout", {"text": "a"})), said("I heard.")), ["user", "assistant", "user", "user"]),
        ((said("Too early."), said("I heard.")), ["user", "assistant", "user"]),  # answered before the run ends
    ):
        model, run = await bench.held(*answers)
        await bench.runtime.send(run.id, "Hurry!")
        model.gate.set()  # type: ignore[union-attr]
        reply = await bench.ended(run)
        assert (reply.outcome, reply.text) == ("reply", "I heard.")
        assert [m.role for m in reply.history] == [*roles, "assistant"]
        assert last(model.asked[1]).content == "Hurry!"
    with pytest.raises(Conflict, match="has ended"):
        await bench.runtime.send(run.id, "Still there?")
    store = bench.state.store
    model, run = await bench.held(said("Too early."), said("I heard."))
    await store.say(run.id, ChatMessage(role="user", content="Hurry!"))  # by another host, and nobody tells the runtime
    model.gate.set()  # type: ignore[union-attr]
    assert [m.content for m in (await bench.ended(run)).history] == ["Go.", "Too early.", "Hurry!", "I heard."]


async def test_what_an_ended_run_was_told_is_heard_next(bench: AgentBench) -> None:
    model = bench.answers(written("tam", ("shout", {"text": "a"})), said("So far."))
    gate, answer = asyncio.Event(), model.say

    async def say(asked: LlmRequest) -> LlmResponse:
        if len(model.asked) == 2:
            await gate.wait()
        found = answer(asked)
        assert isinstance(found, LlmResponse)
        return found

    model.say = say
    run = await bench.start(conversation_id="unheard", limits=AgentLimits(steps=1))
    await until(lambda: len(model.asked) == 2)
    await bench.runtime.send(run.id, "Not so loud!")
    gate.set()
    assert (await bench.ended(run)).outcome == "limit"
    model = bench.answers(said("Sorry."))
    await bench.run("Well?", conversation_id="unheard")
    assert [message.content for message in model.asked[0].messages[-3:]] == ["So far.", "Not so loud!", "Well?"]


async def test_a_run_is_paused_resumed_and_interrupted(bench: AgentBench) -> None:
    model = bench.answers(*(written("tam", ("shout", {"text": str(n)})) for n in range(3)), said("Done."))
    model.gate = asyncio.Event()
    run = await bench.start(conversation_id="paused")
    await bench.runtime.pause(run.id)
    model.gate.set()
    await bench.reached(run, lambda one: one.status is AgentStatus.PAUSED)
    assert len(model.asked) <= 1
    with pytest.raises(Conflict, match="works on the conversation 'paused' already"):
        await bench.run(conversation_id="paused")
    assert len(model.asked) <= 1
    await bench.runtime.resume(run.id)
    assert (await bench.ended(run)).text == "Done."

    _, run = await bench.held(said("Never."))
    call = CallContext(principal=Principal(kind="agent", id="keeper"), agent_run_id=run.id)
    inner = ToolCallRequest(tool_id="pay", arguments={"text": "unheard"})  # of a tool that the agent has called
    asked = await bench.tools.call(inner, scope=ToolScope(allowed=["pay"]), call=call)
    assert (await bench.runtime.interrupt(run.id)).status is AgentStatus.INTERRUPTED
    assert asked.task_id is not None
    assert (await bench.tools.task(asked.task_id)).status is TaskStatus.CANCELLED
    reply = await bench.ended(run)
    assert (reply.outcome, reply.error) == ("interrupted", "Stopped on request")
    (first,) = await bench.histories.load_branch(run.conversation_id)
    place = {"conversation_id": run.conversation_id, "parent_id": first.id, "head": first.id}
    _, other = await bench.held(said("Never."), message="", **place)  # which answers the same message
    with pytest.raises(Conflict, match="works on the conversation"):
        await bench.runtime.resume(run.id)
    await bench.runtime.interrupt(other.id)
    bench.answers(said("After all."))
    await bench.runtime.resume(run.id)
    assert (await bench.ended(run)).text == "After all."
    with pytest.raises(Conflict, match="has ended with a reply"):
        await bench.runtime.resume(run.id)
    with pytest.raises(NotFound, match="tavern agent runs"):
        await bench.runtime.resume("agent_0")


async def test_requests_of_one_conversation_share_their_beginning(bench: AgentBench) -> None:
    """Servers keep what they read of a prompt by its bytes; what changes stands at its end."""
    model = bench.answers(*(written("tam", ("look", {"text": str(n)})) for n in range(2)), said("Done."), said("Yes."))
    for message in ("Go.", "Again?"):
        await bench.run(message, agent="timed", conversation_id="timed")
    requests = [list(request.messages) for request in model.asked]
    notes = [messages.pop().content for messages in requests]
    assert len(notes) == 4
    assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(requests))
    assert len({str(request.tools) for request in model.asked}) == 1
    prompt = requests[0][0].content
    assert prompt.startswith(
        "It is [system:time: see the end of the conversation] ([told:count: see the end of the conversation], "
        "[told:count: see the end of the conversation]).\nTimed (timed): Knows the time.\nThese are all the tools"
    )
    assert re.findall(r"Tool ID: (\S+)", prompt) == ["look"]
    time = r"system:time: (Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, \d{4}-\d\d-\d\d \d\d:\d\d [+-]\d\d:\d\d"
    for number, note in enumerate(notes, int(notes[0].split("told:count: ")[1].split()[0])):
        frames = rf"<OBSERVATION>\n{time}\n</OBSERVATION>\n<OBSERVATION>\ntold:count: {number}\n</OBSERVATION>"
        assert re.fullmatch(frames, note), note
    assert "system:time" not in str(await bench.histories.load("timed"))
    assert re.search(r"Go\.\n\n<OBSERVATION>\ntold:count: \d+\n</OBS", (await bench.run(agent="echo")).text)


async def test_a_history_that_others_broke_is_mended(bench: AgentBench) -> None:
    call = LlmToolCall(id="c1", name="shout", arguments="{}")
    broken = [
        ChatMessage(role="user", content="Hello."),
        ChatMessage(role="tool", content="nobody asked", tool_call_id="c0"),
        ChatMessage(role="assistant", tool_calls=[call, call.model_copy(update={"id": "c2"})]),
        ChatMessage(role="user", content="And?"),
        ChatMessage(role="tool", content="late", tool_call_id="c2"),
        ChatMessage(role="tool", content="twice", tool_call_id="c2"),
    ]
    await bench.histories.append("broken", broken)
    model = bench.answers(said("Fine."))
    await bench.run(conversation_id="broken")
    messages = [m for m in model.asked[0].messages[1:] if "What became of earlier calls" not in m.content]
    got = [(m.role, m.tool_call_id, m.content[:24]) for m in messages]
    assert got == [
        ("user", None, "Hello."),
        ("assistant", None, ""),
        ("tool", "c1", "The call was interrupted"),
        ("tool", "c2", "late"),
        ("user", None, "And?"),
        ("user", None, "Go."),
    ]
    # servers that number the calls of each answer anew, or give them all the same id
    again = [(call.model_copy(update={"id": id}), f"{n}") for n, id in enumerate(["c1", "c1", "c1"])]
    for calls in (again[:1], again[1:]):
        results = [ChatMessage(role="tool", content=text, tool_call_id=one.id) for one, text in calls]
        await bench.histories.append(
            "same", [ChatMessage(role="assistant", tool_calls=[c for c, _ in calls]), *results]
        )
    model = bench.answers(said("Fine."))
    await bench.run(conversation_id="same")
    messages = model.asked[0].messages[1:-1]
    assert [m.content for m in messages if m.role == "tool"] == ["0", "1", "2"]
    for place in (0, 2):
        ids = [one.id for one in messages[place].tool_calls]
        assert len(set(ids)) == len(ids)
        assert [m.tool_call_id for m in messages[place + 1 : place + 1 + len(ids)]] == ids


async def test_a_conversation_that_outgrows_the_model_is_summarised(bench: AgentBench) -> None:
    long = "word " * 1500

    def say(request: LlmRequest) -> LlmResponse:
        if request.messages[0].content.startswith("Summarise"):
            return said("Ada likes ale.")
        return said(f"Aha. {len(request.messages)}")

    model = bench.model(say)
    for number in range(4):
        await bench.run(f"{number} {long}", agent="plain", conversation_id="long")
    texts = [message.content for message in model.asked[-1].messages]
    assert (texts[1].endswith("Ada likes ale."), texts[-1].startswith("3 word")) == (True, True)
    assert len(await bench.histories.load("long")) == 8, "nothing of it is lost"
    (newest, *_) = await bench.runtime.runs()
    assert len(await bench.trace(newest.id, "compacted")) == 1
    assert (newest.usage.steps, newest.usage.prompt_tokens) == (1, 20), "the summary counts"
    bench.answers(written("tam", ("look", {"text": "a" * 30_000})), said("Long."))
    reply = await bench.run()
    assert reply.text == "Long."
    assert await bench.trace(reply.agent_run_id, "compacted") == [], "there is nothing to summarise"


async def test_a_prompt_that_may_have_been_cut_is_traced_and_at_the_limit_compacted(bench: AgentBench) -> None:
    before = [ChatMessage(role=role, content=f"{role} {n}") for n in range(4) for role in ("user", "assistant")]
    cut = LlmUsage(prompt_tokens=4000, completion_tokens=5)
    for usage, compacted in ((LlmUsage(prompt_tokens=3, completion_tokens=5), 0), (cut, 1)):
        first = said("", ("look", {"text": "ale"}), notices=["it may have been cut"]).model_copy(
            update={"usage": usage}
        )
        bench.answers(first, *[said("A summary.")] * compacted, said("Done."))
        reply = await bench.run(history=before)
        assert (reply.outcome, reply.text) == ("reply", "Done.")
        assert [s.text for s in await bench.trace(reply.agent_run_id, "warning")] == ["it may have been cut"]
        assert len(await bench.trace(reply.agent_run_id, "compacted")) == compacted


async def test_a_model_without_a_price_is_named_where_the_cost_is_limited(bench: AgentBench) -> None:
    bench.answers(said("Done."))
    reply = await bench.run(limits=AgentLimits(cost=1))
    (warning,) = await bench.trace(reply.agent_run_id, "warning")
    assert "has no price, so the limit of the cost is not kept" in warning.text


async def test_an_overflow_is_asked_again_after_a_summary(bench: AgentBench) -> None:
    overflow = PluginFailure("too long", overflow=True)
    rows: list[tuple[list[LlmResponse | Exception], str, str]] = [
        ([said("One.")], "reply", "One."),
        ([overflow, said("Short."), said("Two.")], "reply", "Two."),
        ([overflow, PluginFailure("busy")], "error", ""),  # a summary that fails changes nothing
        ([said("Four.")], "reply", "Four."),
    ]
    for number, (answers, outcome, text) in enumerate(rows):
        model = bench.answers(*answers)
        reply = await bench.run(f"Message {number}.", agent="plain", conversation_id="silent")
        assert (reply.outcome, reply.text) == (outcome, text)
    assert "Message 2." in [message.content for message in model.asked[0].messages]


async def test_deliberations_are_recorded_where_settings_say_so(bench: AgentBench) -> None:
    """Each holds the whole conversation: what is kept grows with turns, not with their square."""
    engine = bench.host.services.get(EXECUTION_ENGINE)
    for is_recorded in (False, True):
        change = SettingsChange(plugin="tavern-agents", values={"recordDeliberations": is_recorded})
        await bench.host.services.get(SETTINGS).save(change)
        before = await engine.history()
        bench.answers(written("tam", ("look", {"text": "x"})), said("Done."))
        reply = await bench.run()
        [*_, step] = await bench.trace(reply.agent_run_id)
        found = [run.id for run in await engine.history() if run.id not in {one.id for one in before}]
        assert [run for run in found if run == step.data["runId"]] == [step.data["runId"]] * is_recorded
        with nullcontext() if is_recorded else pytest.raises(NotFound):
            assert (await engine.get(str(step.data["runId"]))).inputs.keys() == {"messages"}


async def test_independent_calls_are_made_at_once(bench: AgentBench) -> None:
    slow = [("look", {"text": f"n{n}", "seconds": "-3"}) for n in range(3)]  # each waits for the others
    bench.answers(written("tam", *slow), said("Seen."))
    await bench.run()
    assert len(bench.marks()) == 3
    ordered = [("mark", {"text": f"m{n}", "seconds": "0.05"}) for n in range(3)]
    bench.answers(written("tam", *ordered), said("Done."))
    await bench.run()
    assert bench.marks() == ["m0", "m1", "m2"]


async def test_what_an_adapter_changes_of_a_request_is_its_own(bench: AgentBench) -> None:
    signed = said("One.").model_copy(update={"extra": {"signature": "s"}})
    model = bench.answers(signed, said("Two."))
    for _ in range(2):
        await bench.run(conversation_id="own")
    request = model.asked[1]
    extra = request.messages[-2].extra
    assert extra == {"signature": "s"}
    extra["signature"] = "changed"
    request.messages.clear()
    model = bench.answers(said("Three."))
    await bench.run(conversation_id="own")
    assert [message.extra for message in model.asked[0].messages if message.content == "One."] == [{"signature": "s"}]


async def test_a_result_is_stored_while_another_call_waits_for_a_person(bench: AgentBench) -> None:
    bench.answers(written("tam", ("peek", {"text": "a"}), ("look", {"text": "b"})), said("Seen."))
    run = await bench.start()
    (task,) = await bench.waiting()
    (stored,) = await until(lambda: bench.state.store.results(run.id))
    assert stored.tool_id == "look"
    await bench.tools.decide(task.id, "approve")
    assert [result.tool_id for result in (await bench.ended(run)).tool_results] == ["peek", "look"]
