"""Runs of agents are recorded, and played again until the first difference."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures, refused
from helpers.stub_llm import said, written
from helpers.tavern_project import Tavern
from helpers.workflow_documents import function

from tavern_agents.api.agents import AgentReply
from tavern_agents.api.recordings import AgentRecording, ReplayDifference, ReplayOptions
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.settings import MASK
from tests.agents.agent_bench import AgentBench, agent_bench, thinking, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = "You keep the bar.\n{{{system:available_tools}}}\nIt is {{{system:time}}}."


FLAKY = {"type": "object", "properties": {"text": {"type": "string"}}}
TIME = ("system:get_current_time", {})
ECHO = {"core_deliberation_workflow_id": "worldly"}
WORLDLY = function(
    "Worldly",
    {"llm": {"type": "core:LlmApiRequest", "inputValues": {"system_prompt": "{{{told:count}}}"}}},
    *("in.messages > llm.messages", "llm.response > out.response"),
    takes={"messages": "ARRAY", "world_state": "OBJECT"},
    gives={"response": "OBJECT"},
)


def prepare(project: Tavern) -> None:
    project.profile(tool_ids_inventory=["shout", "hush", "mark"])
    project.write("workflows/think.json", thinking(PROMPT))
    for name, node in (("mark", "told:Mark"), ("shout", "core:UpperCase"), ("hush", "core:LowerCase")):
        project.write(f"tools/{name}.tool.json", tool(name, node, readOnly=name != "mark"))


async def worked(bench: AgentBench, conversation: str) -> AgentReply:
    """Let the agent shout, hush, mark, and reply, after a first turn in the same conversation."""
    bench.answers(
        said("Good day."),
        said("", ("shout", {"text": "ale"}), ("hush", {"text": "ALE"})),
        said("", ("mark", {"text": "sold"})),
        said("An ale it is."),
    )
    await bench.run("Hello.", conversation_id=conversation)
    return await bench.run("An ale!", conversation_id=conversation)


def marks(bench: AgentBench) -> int:
    path = bench.project.root / "marks"
    return len(path.read_text().splitlines()) if path.exists() else 0


async def test_a_run_plays_again_without_a_model_or_a_trace(bench: AgentBench) -> None:
    reply = await worked(bench, "again")
    before, asked = marks(bench), bench.answers()  # a model that says nothing more
    recording = await bench.runtime.recording(reply.agent_run_id)
    runs, histories = await bench.runtime.runs(), await bench.histories.list_histories()

    copy = AgentRecording.model_validate_json(recording.model_dump_json(by_alias=True))
    assert copy == recording
    for each in (recording, copy):
        played = await bench.runtime.replay(each)
        assert (played.difference, played.deliberations, played.calls) == (None, 3, 3)
        assert (played.status, played.text) == ("reply", "An ale it is.")

    assert asked.asked == []
    assert marks(bench) == before, "a call with effects was made again"
    assert (await bench.runtime.runs(), await bench.histories.list_histories()) == (runs, histories)
    for tools in ("all", "none"):
        assert (await bench.runtime.replay(recording, ReplayOptions(tools=tools))).difference is None  # type: ignore[arg-type]


async def test_a_planted_difference_is_found_where_it_is(bench: AgentBench) -> None:
    reply = await worked(bench, "planted")
    recording = await bench.runtime.recording(reply.agent_run_id)
    first, second, third = recording.deliberations
    shout, hush, mark = recording.calls
    assert shout.result is not None and first.prompts is not None
    loud = shout.model_copy(update={"result": shout.result.model_copy(update={"structured": "WATER"})})
    prompts = first.model_copy(update={"prompts": [*first.prompts[:-1], [{"old": 1}, {}]]}).prompts
    results = [m.model_copy(update={"content": "WATER"}) if m.role == "tool" else m for m in second.messages]

    def changed(number: int, **changes: Any) -> AgentRecording:
        all = [*recording.deliberations]
        all[number] = all[number].model_copy(update=changes)
        return planted(deliberations=all)

    def planted(**changes: Any) -> AgentRecording:
        return recording.model_copy(update=changes)

    with Failures() as failures:
        for kind, at, path, one in (
            ("prompt", 1, "prompts[2][0].old", changed(0, prompts=prompts)),
            ("tools", 1, "tools.length", changed(0, tools=[{"name": "gone"}])),
            ("time", 1, "latest.length", changed(0, latest=[])),
            ("time", 1, "latest[0]", changed(0, latest=["system:day: Monday"])),
            ("time", 1, "messages[3].content", changed(0, latest=["system:time: a Monday"])),
            ("message", 1, "messages[0]", changed(0, messages=first.messages[1:])),
            ("result", 1, "calls[0].result.structured", planted(calls=[loud, hush, mark])),
            ("order", 1, "calls[0]", planted(calls=[hush, shout, mark])),
            ("call", 2, "calls[2]", planted(calls=[shout, hush])),
            ("result", 2, "messages[", changed(1, messages=results)),
            ("message", 3, "deliberations", planted(deliberations=[*recording.deliberations, third])),
            ("reply", 3, "text", planted(text="A wine it is.")),
        ):
            with failures.row(f"{kind} {path}"):
                found = (await bench.runtime.replay(one)).difference
                assert found is not None
                assert (found.kind, found.deliberation, found.path[: len(path)]) == (kind, at, path)


async def test_what_changed_since_is_found(bench: AgentBench) -> None:
    reply = await worked(bench, "since")
    recording, project = await bench.runtime.recording(reply.agent_run_id), bench.project

    async def now() -> ReplayDifference | None:
        return (await bench.runtime.replay(recording)).difference

    project.write("workflows/think.json", thinking(PROMPT.replace("bar", "door")))
    found = await now()
    assert found is not None and (found.kind, found.deliberation) == ("prompt", 1)
    assert "keep the bar" in str(found.expected) and "keep the door" in str(found.found)
    prepare(project)
    assert await now() is None
    project.profile(id="other", name="Another", tool_ids_inventory=["shout"])
    (project.root / "agents" / "keeper.json").rename(project.root / "agents" / "other.json")
    prepare(project)
    found = (await bench.runtime.replay(recording, ReplayOptions(profile_id="other"))).difference
    assert found is not None and found.kind in ("prompt", "tools")


async def test_another_model_gets_the_recorded_results(bench: AgentBench) -> None:
    reply = await worked(bench, "model")
    recording, before = await bench.runtime.recording(reply.agent_run_id), marks(bench)
    both, mark = (("shout", {"text": "ale"}), ("hush", {"text": "ALE"})), ("mark", {"text": "sold"})
    with Failures() as failures:
        for name, answers, difference in (
            ("the same", [said("", *both), said("", mark), said("An ale it is.")], None),
            ("another order", [said("", *both[::-1]), said("No.")], ("order", 1, "calls[0]")),
            ("another call", [said("", both[0], ("hush", {"text": "BEER"})), said("No.")], ("call", 1, "calls[1]")),
            ("fewer calls", [said("An ale it is.")], ("call", 1, "calls[0]")),
            ("another reply", [said("", *both), said("", mark), said("A wine it is.")], ("reply", 3, "text")),
        ):
            with failures.row(name):
                bench.answers(*answers)
                found = (await bench.runtime.replay(recording, ReplayOptions(model="m"))).difference
                assert (found and (found.kind, found.deliberation, found.path)) == difference
    assert marks(bench) == before


async def test_what_is_kept_grows_with_the_turns(bench: AgentBench) -> None:
    bench.model(lambda request: said("Yes. " * 40))
    for number in range(12):
        last = await bench.run(f"{number} " * 40, conversation_id="long")
    file = bench.host._manager.active["tavern-agents"].context.operator_dir / "agents" / "agents.sqlite3"
    with sqlite3.connect(file) as database:
        run = "SELECT max(length(body)), count(*) FROM recordings r JOIN runs ON runs.id = r.run WHERE conversation = ?"
        most, count = database.execute(run, ("long",)).fetchone()
        texts = database.execute("SELECT count(*) FROM texts WHERE history = ?", ("long",)).fetchone()[0]
    assert most < 2_000
    assert count == 12
    assert texts == 3
    recording = await bench.runtime.recording(last.agent_run_id)
    assert len(recording.deliberations[0].messages) == 24
    assert (await bench.runtime.replay(recording)).difference is None
    assert await bench.histories.delete("long")
    with sqlite3.connect(file) as database:
        assert database.execute("SELECT count(*) FROM texts WHERE history = 'long'").fetchone() == (0,)


async def test_what_surrounds_an_agent_is_as_it_was_recorded(bench: AgentBench) -> None:
    """The clock, counts of calls that have gone on since, and what the request said of the world."""
    bench.project.write("tools/flaky.tool.json", tool("flaky", readOnly=True, parameters=FLAKY))
    bench.project.profile(tool_ids_inventory=["flaky", "system:get_current_time"], **ECHO)
    bench.project.write("workflows/worldly.json", WORLDLY)
    try:
        for conversation in ("before", "recorded", "after"):
            bench.answers(said("", *[("flaky", {"text": n}) for n in ("x", 1, 2)]), said("", TIME), said("It fails."))
            reply = await bench.run(conversation_id=conversation, world_state={"lamp": conversation})
            assert reply.text == "It fails."
            if conversation == "recorded":
                recording = await bench.runtime.recording(reply.agent_run_id)
        assert recording.world_state == {"lamp": "recorded"}
        assert "What became of earlier calls" in str(recording.deliberations[0].messages)
        assert (await bench.runtime.replay(recording)).difference is None
    finally:
        prepare(bench.project)


async def test_secret_arguments_are_in_no_recording(bench: AgentBench) -> None:
    secret = 'HUN"TER\n2'
    parameters = {"type": "object", "properties": {"text": {"type": "string", "writeOnly": True}}}
    bench.project.write("tools/login.tool.json", tool("login", readOnly=True, parameters=parameters))
    bench.project.profile(tool_ids_inventory=["login"])
    for answer in (said("", ("login", {"text": secret})), written("tam", ("login", {"text": secret}))):
        bench.answers(answer, said("You are in."))
        reply = await bench.run(f"Log in with {secret}, please.")
        recording = await bench.runtime.recording(reply.agent_run_id)
        assert recording.calls[0].arguments == {"text": MASK}
        exported = recording.model_dump_json()
        for form in (secret, json.dumps(secret)[1:-1], json.dumps(json.dumps(secret)[1:-1])[1:-1]):
            assert form not in exported
        assert (await bench.runtime.replay(recording)).difference is None
    prepare(bench.project)


async def test_what_was_not_recorded_is_said(tmp_path: Path) -> None:
    async with agent_bench(tmp_path, prepare, settings={"extensions.tavern-agents.recordRuns": False}) as bench:
        reply = await worked(bench, "off")
        wrong = {reply.agent_run_id: "recordRuns", "agent_none": "there is no run"}
        await refused([(bench.runtime.recording(run), NotFound, part) for run, part in wrong.items()])
