"""Scenes: turns, the world that agents share, the events that wake them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from helpers.held_time import HeldClock
from helpers.repetition import refused
from helpers.stub_llm import said
from helpers.tavern_project import Tavern
from helpers.waiting import until
from helpers.workflow_documents import function

from tavern_engine.api.executions import EXECUTION_ENGINE
from tavern_host import clock
from tavern_host.contracts.errors import Conflict, InvalidInput, LimitReached, Misconfigured, NotFound, TavernError
from tavern_host.contracts.executions import RunRequest
from tavern_llm.api.llm import LlmRequest, LlmResponse
from tavern_worlds import commands, turns
from tavern_worlds.api.scenes import SCENE_MANAGER, SceneManager, SceneRun
from tests.agents.agent_bench import AgentBench, agent, scenes_behind, thinking, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

READ, UPDATE, PUBLISH = "ReadWorldStateTool", "UpdateWorldStateTool", "PublishEventTool"

ADA: dict[str, Any] = {"instance_id": "ada", "profile_id": "keeper", "role": "keeps the inn"}
INN = {
    **{"id": "inn", "name": "The inn", "description": "Rain outside."},
    "agent_instances": [ADA, {"instance_id": "bob", "profile_id": "guest"}],
    "initial_world_state": {"lamp": "lit", "guests": 1},
}
LIFE = {
    **{**INN, "id": "life", "turn_order": {"workflow_id": "order", "turns": 5}},
    "scene_lifecycle_workflows": {"on_scene_start": "open", "on_scene_end": "workflows/close.json"},
}
"""A scene whose world says by its key `next` who speaks next."""


def setting(name: str, key: str, value: Any) -> dict[str, Any]:
    """Return a workflow that sets a key of the world."""
    node = {"type": "core:JsonSet", "inputValues": {"key": key, "value": value}}
    edges = ("in.world_state > set.object", "set.object > out.world_state")
    return function(name, {"set": node}, *edges, takes={"world_state": "OBJECT"}, gives={"world_state": "OBJECT"})


GET = {"type": "core:JsonGet", "inputValues": {"path": "next"}, "configValues": {"missing": "default"}}
TAKES, GIVES = {"world_state": "OBJECT"}, {"next_speaker": "STRING"}
ORDER = function(
    "Order", {"get": GET}, "in.world_state > get.data", "get.value > out.next_speaker", takes=TAKES, gives=GIVES
)
ELARA: dict[str, Any] = {
    "initial_private_state_schema": {"type": "object", "properties": {"mood": {"enum": ["calm", "cross"]}}},
    "initial_private_state_values": {"mood": "calm"},
    "initial_goals_reference": [{"caiu_id": "sell"}, {"caiu_id": "rest"}],
}


def prepare(project: Tavern) -> None:
    project.write("workflows/think.json", thinking("You are {{{agent:name}}}. {{{world:state}}}"))
    project.write("tools/pay.tool.json", tool("pay", requiresApproval=True))
    for id, name, types in (("keeper", "Ada", ["rain.*"]), ("guest", "Bob", ["*"])):
        about = agent(id, READ, UPDATE, PUBLISH, "pay", name=name, subscribed_event_types=types)
        project.write(f"agents/{id}.json", about)
    project.write("agents/elara.json", agent("elara", **ELARA))
    project.write("scenes/inn.json", INN)
    project.write("scenes/life.json", LIFE)
    project.write("workflows/open.json", setting("Open", "next", "bob"))
    project.write("workflows/close.json", setting("Close", "lamp", "out"))
    project.write("workflows/order.json", ORDER)


@pytest.fixture
def scenes(bench: AgentBench) -> SceneManager:
    """Return the service of scenes."""
    return bench.host.services.get(SCENE_MANAGER)


async def tell(scenes: SceneManager, run: SceneRun, text: str = "", **more: Any) -> SceneRun:
    """Say something in a scene; return how it stands when all have answered."""
    await scenes.say(run.id, text, **more)
    return await scenes.wait(run.id)


async def heard(bench: AgentBench, run: SceneRun) -> list[str]:
    """Return the messages of a scene, each after its speaker's name."""
    kept = await bench.histories.load(run.id)
    return [f"{one.message.name}: {one.message.content}" for one in kept]


def talk(**answers: Any) -> Callable[[LlmRequest], LlmResponse]:
    """Return the function that answers for a model: for each agent, by its name, one answer after the other."""
    rest = {name: iter(texts) for name, texts in answers.items()}
    return lambda request: next(rest[request.messages[0].content[8:11]], said("[silent]"))


def texts_to(request: LlmRequest) -> list[str]:
    """Return the texts of others in an agent's request, without what the host adds."""
    said_to = [message.content for message in request.messages if message.role == "user"]
    return [text for text in said_to if not text.startswith("<OBSERVATION>")]


async def test_agents_answer_in_turn_with_names(bench: AgentBench, scenes: SceneManager) -> None:
    model = bench.model(lambda request: said(f"I am {request.messages[0].content[8:11]}.\nBob: I leave."))
    run = await scenes.start("inn")
    run = await tell(scenes, run, "Hello.", name="Cid")
    assert run.problem is None
    assert await heard(bench, run) == ["Cid: Hello.", "Ada: I am Ada.\nBob: I leave.", "Bob: I am Bob.\nBob: I leave."]
    assert texts_to(model.asked[1]) == [
        "The scene: The inn. Rain outside.\nYou are Bob. With you: Ada (keeps the inn).\nWhat is said begins with "
        "the name of who says it. Your answer is said to all, without your name before it; answer [silent] to say "
        "nothing.",
        "Cid: Hello.\n\nAda: I am Ada.\n  Bob: I leave.",
    ]
    assert model.asked[1].messages[-1].content.endswith('world:state: {"lamp": "lit", "guests": 1}\n</OBSERVATION>')


async def test_an_edited_conversation_is_told_again(bench: AgentBench, scenes: SceneManager) -> None:
    model = bench.model(talk(Ada=[said("One."), said("Two.")], Bob=[]))
    run = await scenes.start("inn")
    await tell(scenes, run, "A cat.", turns=1)
    first, last = await bench.histories.load(run.id)
    await bench.histories.edit(run.id, first.id, "A dog.", head=last.id)
    await tell(scenes, run, "Well?", turns=2)
    assert [texts_to(request)[-1] for request in model.asked] == [
        "User: A cat.",
        *(2 * ["User: A dog.\n\nUser: Well?"]),
    ]
    assert await heard(bench, run) == ["User: A dog.", "User: Well?", "Ada: Two."]


async def test_workflows_decide_the_world_and_the_turns(bench: AgentBench, scenes: SceneManager) -> None:
    changes = [said("", (UPDATE, {"state": {"next": "ada"}})), said("After you."), said("Good night.")]
    end = said("", (UPDATE, {"state": {"next": None}}))
    bench.model(talk(Bob=changes, Ada=[said("Bob first."), end, said("Lights out.")]))
    run = await scenes.start("life")
    assert run.world == {"lamp": "lit", "guests": 1, "next": "bob"}
    run = await tell(scenes, run, "Who begins?")
    assert (run.turns, run.problem) == (0, None)
    assert (await heard(bench, run))[1:] == ["Bob: After you.", "Ada: Bob first.", "Ada: Lights out."]
    await scenes.update_world({"next": "eve"}, scene=run.id)
    run = await tell(scenes, run, "And Eve?")
    assert run.problem == "the turn order names 'eve', who is not in the scene"
    ended = await scenes.stop(run.id)
    assert (ended.status, ended.world["lamp"]) == ("ended", "out")
    assert await scenes.stop(run.id) == ended
    again = "start 'life' again"
    late = (scenes.say(run.id, "Hello?"), scenes.update_world({}, scene=run.id))
    await refused([(act, Conflict, again) for act in late])


async def test_updates_of_the_world_lose_nothing(bench: AgentBench, scenes: SceneManager) -> None:
    run = await scenes.start("inn")
    await asyncio.gather(*(scenes.update_world({"at": {f"k{n}": n}}, scene=run.id) for n in range(30)))

    async def add_guest() -> bool:
        world = await scenes.read_world(scene=run.id)
        guests: Any = world.state["guests"]
        try:
            await scenes.update_world({"guests": guests + 1}, revision=world.revision, scene=run.id)
        except Conflict:
            return False
        return True

    await asyncio.gather(*(until(add_guest) for _ in range(8)))
    world = await scenes.read_world(scene=run.id)
    assert world.state == {"lamp": "lit", "guests": 9, "at": {f"k{n}": n for n in range(30)}}
    assert world.revision == 38
    large = {"x": "y" * 300_000}
    rows: list[tuple[Any, type[TavernError], str]] = [
        (scenes.update_world({"x": 1}, revision=1, scene=run.id), Conflict, "the revision 38, not 1; read it again"),
        (scenes.update_world(large, scene=run.id), InvalidInput, "at most 262,144"),
        (scenes.update_world({"x": 1}), InvalidInput, "say which scene is meant"),
        (scenes.read_world(scene="out"), NotFound, "no scene 'out' was started"),
        (scenes.publish("a b", scene=run.id), InvalidInput, "the event: $.type: String should match"),
        (scenes.publish("a", large, scene=run.id), InvalidInput, "the event would have"),
        (scenes.say(run.id, "Hm.", name="Ada"), InvalidInput, "the name 'Ada' is taken in this scene"),
        (scenes.say(run.id, "rain.heavy {}", name="Event"), InvalidInput, "the name 'Event' is taken"),
        (scenes.say(run.id, "Hm.", turns=1001), InvalidInput, "or turns, at most 1000"),
        (scenes.say(run.id, " "), InvalidInput, "give a message, or turns"),
        (scenes.say(run.id, "x", name="Eve\nBob"), InvalidInput, "1 to 100 characters, in one line"),
        (scenes.start("in"), NotFound, "there is no scene 'in' (did you mean inn?)"),
    ]
    await refused(rows)
    assert await scenes.read_world(scene="inn") == world


async def test_agents_reach_their_own_world_alone(bench: AgentBench, scenes: SceneManager) -> None:
    other, run = await scenes.start("inn"), await scenes.start("inn")
    wrong = (UPDATE, {"state": {"lamp": "out"}, "scene": other.id})
    ada = [said("", (UPDATE, {"state": {"lamp": "out"}}), wrong), said("Dark now.")]
    model = bench.model(talk(Ada=ada, Bob=[said("", (READ, {})), said("I see.")]))
    run = await tell(scenes, run, "Lamp!")
    assert (run.world["lamp"], (await scenes.get_run(other.id)).world["lamp"]) == ("out", "lit")
    assert "an agent reaches the scene that it is in, and no other" in model.asked[1].messages[-2].content
    assert '"lamp": "out"' in model.asked[1].messages[-1].content  # the macro, in the next request
    assert '"lamp": "out"' in model.asked[3].messages[-2].content  # what Bob read
    for conversation in (None, "inn.bob", f"{run.id}.eve", f"{run.id}.ada"):
        model = bench.answers(said("", (READ, {"scene": run.id})), said("None."))
        await bench.run(agent="guest", conversation_id=conversation)
        assert "this agent works in no scene" in model.asked[1].messages[-2].content
        assert model.asked[0].messages[-1].content.endswith("world:state: \n</OBSERVATION>")


async def test_events_wake_who_subscribes(bench: AgentBench, scenes: SceneManager) -> None:
    thunder = (PUBLISH, {"event_type": "thunder", "payload": {"near": True}})
    model = bench.model(talk(Ada=[said("", thunder), said("It rains.")], Bob=[said("Rain!"), said("Thunder!")]))
    run = await scenes.start("inn")
    assert await scenes.publish("rain.heavy", {"mm": 9}, scene=run.id) == ["ada", "bob"]
    run = await scenes.wait(run.id)
    assert await heard(bench, run) == ["Ada: It rains.", "Bob: Rain!", "Bob: Thunder!"]
    assert '["bob"]' in model.asked[1].messages[-2].content  # it is not woken by what it publishes
    assert texts_to(model.asked[2])[-1] == 'Ada: It rains.\n\nEvent: rain.heavy {"mm": 9}'
    assert texts_to(model.asked[3])[-1] == 'Event: thunder {"near": true}'
    assert await scenes.publish("sun", scene=run.id) == ["bob"]
    silent = await scenes.wait(run.id)
    assert await heard(bench, silent) == await heard(bench, run)


async def test_events_that_follow_from_events_end(bench: AgentBench, scenes: SceneManager) -> None:
    def echo(request: LlmRequest) -> LlmResponse:
        event = "rain.again" if "You are Bob" in request.messages[0].content else "echo"
        published = any(call.tool_calls for call in request.messages[-2:-1]) or request.messages[-2].role == "tool"
        return said("[silent]") if published else said("", (PUBLISH, {"event_type": event}))

    model = bench.model(echo)
    run = await scenes.start("inn")
    await scenes.publish("echo", scene=run.id)
    run = await scenes.wait(run.id)
    assert run.problem is None
    results = [request.messages[-2].content for request in model.asked[1::2]]
    assert len(results) == 6
    assert ["have followed from each other" in text for text in results] == [False] * 5 + [True]
    gate = model.gate = asyncio.Event()
    for _ in range(50):
        await scenes.publish("rain.drop", scene=run.id)
    with pytest.raises(LimitReached, match="more than 100 wake-ups would wait"):
        await scenes.publish("rain.drop", scene=run.id)
    assert len((await scenes.get_run(run.id)).wakes) == 100
    assert (await scenes.stop(run.id)).wakes == []
    gate.set()


async def test_the_clock_publishes_events_once(bench: AgentBench, scenes: SceneManager, held_clock: HeldClock) -> None:
    begin, provider = clock.now(), await scenes_behind(bench)
    tasks = [
        {"id": "bell", "event_type": "bell", "every": 60},
        {"id": "late", "event_type": "late", "after": 90, "payload": {"n": 1}},
        {"id": "dawn", "event_type": "dawn", "at": (begin + timedelta(hours=2)).isoformat()},
    ]
    bench.project.write("scenes/clock.json", {**INN, "id": "clock", "scheduled_tasks": tasks})
    model, passed = bench.model(lambda request: said("[silent]")), 0
    run = await scenes.start("clock")
    events = {}
    for seconds in (59, 60, 61, 120, 3600, 3659, 3660, 7200):
        held_clock.advance(seconds - passed)
        passed, model.asked = seconds, []
        await provider.look()
        if provider._tasks:
            await asyncio.wait(provider._tasks.values())
        run = await scenes.wait(run.id)
        events[seconds] = sorted(texts_to(request)[-1].partition(" ")[2] for request in model.asked)
    assert {seconds: found for seconds, found in events.items() if found} == {
        60: ["bell {}"],
        120: ["bell {}", 'late {"n": 1}'],
        3600: ["bell {}"],  # once, for all of an hour
        3660: ["bell {}"],
        7200: ["bell {}", "dawn {}"],
    }
    assert set(run.due) == {"bell"}
    await scenes.stop(run.id)
    assert await provider.store.due(begin + timedelta(days=1)) == []


async def test_a_talk_ends_where_an_agent_fails(bench: AgentBench, scenes: SceneManager) -> None:
    bench.model(talk(Ada=[RuntimeError("no line"), said("Here again.")], Bob=[said("Finally.")]))
    run = await scenes.start("inn")
    run = await tell(scenes, run, "Hello?")
    assert run.problem is not None and run.problem.startswith("Ada: ")
    assert (run.turns, run.wakes, await heard(bench, run)) == (0, [], ["User: Hello?"])
    await tell(scenes, run, "Better?", turns=1)
    run = await tell(scenes, run, "", turns=3)
    assert run.problem is None
    assert (await heard(bench, run))[2:] == ["Bob: Finally.", "Ada: Here again."]
    model = bench.answers(said("never said"))
    model.gate = asyncio.Event()
    await scenes.say(run.id, "Stop!")
    await until(lambda: model.asked)
    assert (await scenes.stop(run.id)).status == "ended"
    run = await scenes.wait(run.id)
    assert (await heard(bench, run))[-1] == "User: Stop!"
    runs = await bench.runtime.runs()
    assert runs[0].status.value == "interrupted"


async def test_an_unforeseen_failure_ends_a_talk_once(
    bench: AgentBench, scenes: SceneManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.model(lambda request: said("Good evening."))
    run = await scenes.start("inn")
    broken, sound = iter([lambda *_: 1 // 0]), turns.give_turn
    monkeypatch.setattr(turns, "give_turn", lambda *arguments: next(broken, sound)(*arguments))
    run = await tell(scenes, run, "Hello?", turns=1)
    assert (run.turns, run.wakes, await heard(bench, run)) == (0, [], ["User: Hello?"])
    assert "ZeroDivisionError" in str(run.problem)
    assert (await tell(scenes, run, "Again?", turns=1)).problem is None


async def test_scenes_say_what_agents_remember_at_first(bench: AgentBench, scenes: SceneManager) -> None:
    goals = [{"caiu_id": "warn", "activation_priority": 0.9}, {"caiu_id": "rest"}]
    overridden = {"initial_private_state_override": {"mood": "cross"}, "initial_goals_override_reference": goals}
    twins = [{"instance_id": name, "profile_id": "elara"} for name in ("one", "two")]
    instances = [{**twins[0], **overridden}, twins[1]]
    bench.project.write("scenes/twins.json", {**INN, "id": "twins", "agent_instances": instances})
    run = await scenes.start("twins")
    talks = [(member.name, member.conversation_id) for member in run.members]
    assert talks == [(name, f"{run.id}.{name}") for name in ("one", "two")]
    one, two = [await bench.runtime.memory("elara", f"{run.id}.{name}") for name in ("one", "two")]
    assert (one.state, two.state) == ({"mood": "cross"}, {"mood": "calm"})
    found = [(g.id, g.status, g.priority) for g in one.goals]
    assert found == [("sell", "dropped", 0.5), ("rest", "active", 0.5), ("warn", "active", 0.9)]
    assert [goal.id for goal in two.goals] == ["sell", "rest"]


async def test_a_turn_plays_again_when_the_world_has_moved_on(bench: AgentBench, scenes: SceneManager) -> None:
    bench.model(talk(Ada=[said("", (READ, {})), said("It is lit."), said("Good night.")], Bob=[]))
    run = await tell(scenes, await scenes.start("inn"), "Is it lit?", turns=1)
    (turn, *_) = await bench.runtime.runs()
    recording = await bench.runtime.recording(turn.id)
    await scenes.update_world({"lamp": "out"}, scene=run.id)
    assert "lit" in recording.deliberations[0].messages[-1].content
    played = await bench.runtime.replay(recording)
    assert (played.difference, played.text) == (None, "It is lit.")


async def test_a_goal_of_a_scene_is_read_in_the_base_that_it_names(bench: AgentBench, scenes: SceneManager) -> None:
    for base in ("first", "second"):
        entry = {"id": "warn", "entry_type": "goal_definition", "content": {"value": f"From the {base}."}}
        bench.project.write(f"knowledge/{base}.json", {"kb_id": base, "entries": [entry]})
    bases = [{"source_id": "first"}, {"source_id": "second", "alias": "two"}]
    goal = {"caiu_id": "warn", "kb_alias_or_id": "first"}
    about = {"knowledge_base_references": bases, "initial_goals_reference": [goal]}
    bench.project.write("agents/reader.json", agent("reader", "ReadPrivateStateTool", **about))
    for named, text in (("two", "second"), ("second", "second"), (None, "first")):
        goals = [{"caiu_id": "warn", "kb_alias_or_id": named}]
        instance = {"instance_id": "ada", "profile_id": "reader", "initial_goals_override_reference": goals}
        bench.project.write("scenes/goal.json", {**INN, "id": "goal", "agent_instances": [instance]})
        model = bench.answers(said("", ("ReadPrivateStateTool", {})), said("I see."))
        run = await tell(scenes, await scenes.start("goal"), "Well?", turns=1)
        memory = await bench.runtime.memory("reader", run.members[0].conversation_id)
        assert [(one.id, one.base) for one in memory.goals] == [("warn", named)]
        assert f"From the {text}." in model.asked[1].messages[-2].content


async def test_wrong_scenes_are_refused_and_fields_named(bench: AgentBench, scenes: SceneManager) -> None:
    platform = {
        **{"event_bus_config": {"namespace_prefix": "x"}, "associated_panels": [], "start_state": "s", "variables": {}},
        **{"states": [], "scene_lifecycle_workflows": {"on_scene_pause": "x"}},
        "agent_instances": [{**ADA, "custom_runtime_config": {"hz": 1}}],
    }
    bench.project.write("scenes/platform.json", {**INN, "id": "platform", **platform})
    (found,) = [one for one in await scenes.list_scenes() if one.id == "platform"]
    named = ["$.associated_panels", "$.event_bus_config", "$.start_state", "$.states", "$.variables"]
    named += ["$.scene_lifecycle_workflows.on_scene_pause", "$.agent_instances[0].custom_runtime_config"]
    assert [text.split(": ")[1] for text in found.warnings] == named
    large = {"x": "y" * 300_000}

    def task(**timing: Any) -> dict[str, Any]:
        return {"scheduled_tasks": [{"id": "t", "event_type": "x", **timing}]}

    def instance(**change: Any) -> dict[str, Any]:
        return {"agent_instances": [{**ADA, **change}]}

    odd = instance(profile_id="elara", initial_private_state_override={"mood": "odd"})
    rows: list[tuple[dict[str, Any], type[TavernError], str]] = [
        ({"name": " "}, Misconfigured, "$.name: String should match"),
        ({"agent_instances": []}, Misconfigured, "$.agent_instances: List should have at least 1 item"),
        ({"agent_instances": [ADA, ADA]}, Misconfigured, "'ada' stands twice"),
        (instance(instance_id="a/b"), Misconfigured, "$.agent_instances[0].instance_id"),
        (instance(profile_id="kepper"), Misconfigured, "(did you mean keeper?)"),
        (odd, InvalidInput, "$.mood: "),
        (task(), Misconfigured, "'t' needs one of every, after and at"),
        (task(every=0.1), Misconfigured, "greater than or equal to 1"),
        (task(every=9, event_type="x y"), Misconfigured, "[0].event_type"),
        (task(at="2030-01-01T00:00:00"), Misconfigured, "a zone"),
        (task(every=9, payload=large), InvalidInput, "the event of the task 't' would have"),
        ({"initial_world_state": large}, InvalidInput, "the world would have"),
        ({"scene_lifecycle_workflows": {"on_scene_start": "opne"}}, NotFound, "there is no workflow 'opne'"),
        ({"id": "inn"}, Misconfigured, "is the id of another scene already"),
    ]
    for number, (change, _, _) in enumerate(rows):
        bench.project.write(f"scenes/wrong{number}.json", {**INN, "id": f"wrong{number}", **change})
    await refused([(scenes.start(f"wrong{number}"), *expected) for number, (_, *expected) in enumerate(rows)])  # type: ignore[misc]
    runs, kept = await scenes.list_runs(), await bench.histories.list_histories(limit=1000)
    assert [run for run in runs if run.scene.id.startswith("wrong")] == []
    assert {one.id.partition(".")[0] for one in kept if one.id.startswith("scene_")} <= {run.id for run in runs}


async def test_a_workflow_reads_and_changes_a_world(bench: AgentBench, scenes: SceneManager) -> None:
    run = await scenes.start("inn")
    calls = [
        {"toolId": UPDATE, "arguments": {"scene": run.id, "state": {"lamp": "out"}}},
        {"toolId": READ, "arguments": {"scene": run.id}},
    ]
    edges = ("in.calls > call.tool_call_requests", "call.results > out.results")
    types = {"takes": {"calls": "ARRAY"}, "gives": {"results": "ARRAY"}}
    bench.project.write("workflows/call.json", function("Call", {"call": "core:ExecuteTool"}, *edges, **types))
    asked = RunRequest(workflow_id="call", inputs={"calls": calls})
    done = await bench.host.services.get(EXECUTION_ENGINE).run(asked)
    assert done.outputs["results"][1]["structured"]["state"] == {"lamp": "out", "guests": 1}, done


async def test_the_terminal_says_which_calls_wait(bench: AgentBench, scenes: SceneManager) -> None:
    bench.model(talk(Ada=[said("", ("pay", {"text": "ale"})), said("Paid.")], Bob=[]))
    context = bench.host._manager.active["tavern-worlds"].context
    run = await scenes.start("inn")
    shown = []
    async for output in commands.say({"scene": run.id, "message": "Pay!", "name": "User"}, context):
        if output.kind in ("text", "message", "progress"):
            shown.append(output.text)
        if output.kind == "progress":
            (task,) = await bench.waiting()
            await bench.tools.decide(task.id, "approve")
    assert shown == [f"A call of Ada waits: tavern approvals approve {task.id} (or refuse)", "Ada: Paid."]
