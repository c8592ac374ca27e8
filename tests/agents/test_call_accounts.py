"""One account of an agent's calls, at whatever place they are made: allowed, counted, limited, traced and
replayed."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.stub_llm import Call, said
from helpers.unwritable import refusing_one

from tavern_agents.api.agents import AgentLimits, AgentReply
from tavern_agents.api.recordings import AgentRecording, ReplayOptions
from tavern_host.contracts.errors import PluginFailure
from tavern_llm.api.llm import ChatMessage
from tavern_tools.api.toolcalls import TaskStatus
from tests.agents.agent_bench import AgentBench
from tests.agents.calling_places import DELIBERATIONS, PLACES, WITHIN, asked, beside, mark, prepare, texts

pytestmark = pytest.mark.asyncio(loop_scope="module")

at_every_place = pytest.mark.parametrize("place", PLACES)
in_a_deliberation = pytest.mark.parametrize("place", WITHIN)


async def called(bench: AgentBench, place: str, *calls: Call, **more: Any) -> AgentReply:
    """Let an agent have calls made at a place, and reply."""
    bench.marks()
    bench.answers(asked(place, *calls), said("Marked."))
    return await bench.run(agent=place, **more)


@at_every_place
async def test_calls_are_counted_and_traced(bench: AgentBench, place: str) -> None:
    one, two = mark(), mark()
    reply = await called(bench, place, one, two)
    assert (reply.outcome, bench.marks()) == ("reply", texts(one, two))
    assert reply.usage.calls == 2 + beside(place)
    steps = await bench.trace(reply.agent_run_id, "tool_running", "tool_output")
    told = [(step.kind, step.data.get("arguments")) for step in steps if step.data["toolId"] == "mark"]
    running, output = "tool_running", ("tool_output", None)
    assert told == [(running, one[1]), output, (running, two[1]), output]


@in_a_deliberation
async def test_results_of_a_deliberations_calls_are_those_of_the_run(bench: AgentBench, place: str) -> None:
    one, two = mark(), mark()
    reply = await called(bench, place, one, two)
    assert [result.structured for result in reply.tool_results] == [text.upper() for text in texts(one, two)]


@at_every_place
async def test_the_limit_of_calls_holds(bench: AgentBench, place: str) -> None:
    one, most = mark(), 1 + beside(place)
    reply = await called(bench, place, one, mark(), limits=AgentLimits(calls=most))
    assert bench.marks() == texts(one)
    assert (reply.outcome, reply.usage.calls) == ("limit", most)
    assert f"it may make {most} calls, has made {most}" in str(reply.error)
    replayed = await bench.runtime.replay(await bench.runtime.recording(reply.agent_run_id))
    assert (replayed.difference is None) is (place != "tool")


@pytest.mark.parametrize("place", DELIBERATIONS)
async def test_a_final_answer_is_given_without_calls(bench: AgentBench, place: str) -> None:
    bench.marks()
    bench.answers(said(""), asked(place, mark()))  # the empty answer is asked for once more, which is a step too many
    reply = await bench.run(agent=place, limits=AgentLimits(steps=1))
    assert (reply.outcome, reply.usage.calls, bench.marks()) == ("limit", 0, [])


@at_every_place
async def test_a_tool_outside_of_the_inventory_is_denied(bench: AgentBench, place: str) -> None:
    prepare(bench.project, "look")
    try:
        reply = await called(bench, place, mark())
        steps = await bench.trace(reply.agent_run_id, "tool_output")
        assert bench.marks() == []
        assert "is not one of those that may be called here" in steps[0].text
    finally:
        prepare(bench.project)


@at_every_place
async def test_a_replay_makes_no_call_again(bench: AgentBench, place: str) -> None:
    reply = await called(bench, place, mark(), mark())
    bench.marks()
    recording = await bench.runtime.recording(reply.agent_run_id)
    copy = AgentRecording.model_validate_json(recording.model_dump_json(by_alias=True))
    for one in (recording, copy):
        played = await bench.runtime.replay(one)
        assert (played.difference, bench.marks()) == (None, [])
    assert played.calls == (1 if place == "tool" else 2 + beside(place))


@pytest.mark.parametrize("place", DELIBERATIONS)
async def test_a_replay_with_a_model_gets_the_recorded_results(bench: AgentBench, place: str) -> None:
    one, two = mark(), mark()
    reply = await called(bench, place, one, two)
    bench.marks()
    recording = await bench.runtime.recording(reply.agent_run_id)
    for calls, kind in (((one, two), None), ((two, one), "order"), ((one,), "call"), ((one, two, one), "call")):
        bench.answers(asked(place, *calls), said("Marked."))
        difference = (await bench.runtime.replay(recording, ReplayOptions(model="m"))).difference
        assert (difference and difference.kind, bench.marks()) == (kind, [])


@in_a_deliberation
async def test_a_replay_compares_the_results_of_calls_that_only_read(bench: AgentBench, place: str) -> None:
    reply = await called(bench, place, ("look", {"text": "seen"}))
    recording = await bench.runtime.recording(reply.agent_run_id)
    assert (await bench.runtime.replay(recording)).difference is None
    first, *rest = recording.deliberations
    (look,) = first.calls
    assert look.result is not None
    other = look.model_copy(update={"result": look.result.model_copy(update={"structured": "HIDDEN"})})
    changed = recording.model_copy(update={"deliberations": [first.model_copy(update={"calls": [other]}), *rest]})
    difference = (await bench.runtime.replay(changed)).difference
    assert difference is not None
    assert (difference.kind, difference.path, difference.found) == (
        "result",
        "deliberations[0].calls[0].result.structured",
        "SEEN",
    )


async def test_a_deliberation_that_is_tried_again_makes_no_call_again(bench: AgentBench) -> None:
    one, overflow = mark(), PluginFailure("too long", overflow=True)
    before = [ChatMessage(role=role, content=f"{role} {n}") for n in range(4) for role in ("user", "assistant")]
    bench.marks()
    model = bench.answers(asked("loop", one), overflow, said("A summary."), asked("loop", one), said("Marked."))
    reply = await bench.run(agent="loop", history=before)
    assert (reply.text, reply.usage.calls, bench.marks()) == ("Marked.", 1, texts(one))
    assert f"Output: {texts(one)[0].upper()}" in str(model.asked[3].messages)
    assert (await bench.runtime.replay(await bench.runtime.recording(reply.agent_run_id))).difference is None


async def test_a_call_that_could_not_be_stored_is_made_and_counted_once(bench: AgentBench) -> None:
    overflow = PluginFailure("too long", overflow=True)
    before = [ChatMessage(role=role, content=f"{role} {n}") for n in range(4) for role in ("user", "assistant")]
    await bench.runtime.runs()
    database = bench.state.store.database
    for after in (0, 2):  # as it is begun, and as it is begun again in a deliberation that is tried again
        one = mark()
        earlier = (asked("loop", one), overflow, said("A summary.")) if after else ()
        bench.marks()
        bench.answers(*earlier, asked("loop", one), asked("loop", one), said("Marked."))
        async with refusing_one(database, "inner_calls", after) as tried:
            reply = await bench.run(agent="loop", history=before)
        assert len(tried) > after
        assert (reply.text, reply.usage.calls, bench.marks()) == ("Marked.", 1, texts(one))


@in_a_deliberation
async def test_a_call_that_waits_is_withdrawn_with_its_run(bench: AgentBench, place: str) -> None:
    model = bench.answers(asked(place, ("pay", {"text": "paid"}), mark(seconds=600.0)))
    run = await bench.start(agent=place)
    (task,) = await bench.waiting()
    await bench.runtime.interrupt(run.id)
    assert len(model.asked) == 1
    assert (await bench.tools.task(task.id)).status is TaskStatus.CANCELLED
