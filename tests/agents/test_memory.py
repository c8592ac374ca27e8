"""What agents remember: by their own tools, by people, and with the branch."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures, refused
from helpers.stub_llm import said
from helpers.tavern_project import Tavern

import tavern_demo
from tavern_agents.api.memory import GoalChange, MemoryChange
from tavern_host.contracts.errors import Conflict, InvalidInput, Misconfigured, NotFound
from tests.agents.agent_bench import AgentBench, agent, thinking

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAMPLE = Path(tavern_demo.__file__).parent / "sample"
READ, UPDATE = "ReadPrivateStateTool", "UpdatePrivateStateTool"

MOODS = ["neutral", "friendly", "annoyed"]
KINDS = {"mood": {"type": "string", "enum": MOODS}, "reputation": {"type": "integer", "default": 0}}

ELARA = agent(
    "elara",
    READ,
    UPDATE,
    core_deliberation_workflow_id="remember",
    initial_private_state_schema={
        "type": "object",
        "properties": {**KINDS, "seen": {"type": "object"}},
        "required": ["mood", "reputation"],
    },
    initial_private_state_values={"mood": "neutral"},
    initial_goals_reference=[{"caiu_id": "keep_shop", "kb_alias_or_id": "journal", "activation_priority": 0.8}],
    knowledge_base_references=[{"source_id": "elaras_journal", "alias": "journal"}],
)

JOURNAL = {
    "kb_id": "elaras_journal",
    "entries": [{"id": "keep_shop", "entry_type": "goal_definition", "content": {"value": "Keep the herb shop open."}}],
}


def prepare(project: Tavern) -> None:
    project.profile(tool_ids_inventory=[READ, UPDATE])
    project.write("workflows/remember.json", thinking("You are Elara.\n{{{agent:memory}}}"))
    project.write("agents/elara.json", ELARA)
    project.write("knowledge/elaras_journal.json", JOURNAL)
    shutil.copytree(SAMPLE / "workflows", project.root / "workflows", dirs_exist_ok=True)
    loops = {"id": "looper", "core_deliberation_workflow_id": "agents/deliberation-with-loop"}
    project.write("agents/looper.json", {**ELARA, **loops})


async def state(bench: AgentBench, history: str, **at: Any) -> dict[str, Any]:
    return (await bench.runtime.memory("elara", history, **at)).state


async def head_of(bench: AgentBench, history: str) -> str:
    return (await bench.histories.load(history))[-1].id


async def test_an_agent_changes_what_it_remembers(bench: AgentBench) -> None:
    change = {
        "state": {"mood": "friendly", "seen": {"ada": 1}},
        "goals": [{"id": "warn_ada", "description": "Warn Ada."}, {"id": "keep_shop", "status": "done"}],
        "note": "Ada is kind.",
    }
    model = bench.answers(said("", (UPDATE, change)), said("", (READ, {})), said("Hello, Ada."))
    assert (await bench.run("I am Ada.", agent="elara", conversation_id="a")).text == "Hello, Ada."
    memory = await bench.runtime.memory("elara", "a")
    assert memory.state == {"mood": "friendly", "reputation": 0, "seen": {"ada": 1}}
    assert [(g.id, g.status, g.base, g.priority) for g in memory.goals] == [
        ("keep_shop", "done", "journal", 0.8),
        ("warn_ada", "active", None, 0.5),
    ]
    assert [(note.by, note.text) for note in memory.notes] == [("agent:elara", "Ada is kind.")]
    first, *_, last = model.asked
    assert '{"state": {"reputation": 0, "mood": "neutral"}, "goals": [{"id": "keep_shop"' in first.messages[-1].content
    assert '"description": "Keep the herb shop open."' in first.messages[-1].content
    assert '"mood": "friendly"' in last.messages[-2].content  # what the tool gave
    assert "Ada is kind." in last.messages[-1].content  # what the prompt says
    assert "keep_shop" not in last.messages[-1].content


async def test_going_back_restores_what_was_remembered(bench: AgentBench) -> None:
    kept = bench.histories
    bench.answers(said("", (UPDATE, {"state": {"reputation": 5}})), said("One."))
    await bench.run("1", agent="elara", conversation_id="b")
    one = await kept.load("b")
    bench.answers(said("", (UPDATE, {"state": {"reputation": 9}})), said("Two."))
    await bench.run("2", agent="elara", conversation_id="b")
    two = await kept.load("b")
    assert [(await state(bench, "b", leaf=m.id))["reputation"] for m in two] == [0, 5, 5, 5, 5, 9, 9, 9]
    await kept.fork("b", "early", message_id=one[0].id)
    assert (await state(bench, "b", branch="early"))["reputation"] == 0
    model = bench.answers(said("Other."))
    about = {"conversation_id": "b", "parent_id": one[-1].id, "head": await head_of(bench, "b")}
    assert (await bench.run("", agent="elara", **about)).text == "Other."
    assert '"reputation": 0' in model.asked[0].messages[-1].content
    assert (await state(bench, "b"))["reputation"] == 0
    await bench.runtime.change_memory("elara", "b", MemoryChange(state={"reputation": 3}))
    await kept.activate("b", message_id=one[1].id, head=await head_of(bench, "b"))
    assert (await state(bench, "b"))["reputation"] == 9
    await kept.edit("b", two[4].id, "2b", head=two[-1].id, keep_rest=True)
    path = await kept.load("b")
    assert [(await state(bench, "b", leaf=m.id))["reputation"] for m in path[4:]] == [5, 9, 9, 9]
    await kept.fork_history("b", "b2")
    assert (await state(bench, "b2"))["reputation"] == 9
    exported = await kept.export_history("b")
    before = {node.id: await state(bench, "b", leaf=node.id) for node in await kept.tree("b")}
    await kept.delete("b")
    assert (await state(bench, "b2"))["reputation"] == 9
    await kept.import_history(exported)
    assert {node.id: await state(bench, "b", leaf=node.id) for node in await kept.tree("b")} == before
    assert await kept.export_history("b") == exported


async def test_a_person_changes_what_an_agent_remembers(bench: AgentBench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.answers(said("Hello."))
    await bench.run(agent="elara", conversation_id="c")
    await bench.histories.fork_history("c", "long")
    begun = await bench.runtime.memory("elara", "c")
    late = MemoryChange(state={"mood": "annoyed"}, goals=[GoalChange(id="rest", priority=1)], note="Late.")
    changed = await bench.runtime.change_memory("elara", "c", late, revision=begun.revision)
    assert (changed.state["mood"], changed.goals[-1].priority, changed.notes[-1].text) == ("annoyed", 1, "Late.")

    def change(agent: str = "elara", history: str = "c", **fields: Any) -> Any:
        about = {key: fields.pop(key) for key in ("revision", "branch") if key in fields}
        return bench.runtime.change_memory(agent, history, MemoryChange(**fields), **about)

    await refused(
        [
            (change(state={"mood": "angry"}), InvalidInput, '$.mood: "angry" is not one of'),
            (change(state={"mood": None}), InvalidInput, '"mood" is a required property'),
            (change(note="x", revision=begun.revision), Conflict, "read it again"),
            (change(history="never"), NotFound, "there is no conversation 'never'"),
            (change(branch="side"), NotFound, "it has main"),
            (change("elra"), NotFound, "did you mean elara?"),
            (change(state={"seen": {"x": "y" * 300_000}}), InvalidInput, "at most 262,144"),
            (bench.runtime.recall(), InvalidInput, "only an agent at work"),
        ]
    )
    assert await bench.runtime.memory("elara", "c") == changed
    for number in range(20):
        await change(history="long", note=f"{number}" * 2000)
    texts = [note.text[:2] for note in (await bench.runtime.memory("elara", "long")).notes]
    assert texts[-1] == "19"
    assert 10 < len(texts) < 20
    await asyncio.gather(*(change(note=f"n{n}") for n in range(20)))
    found = await bench.runtime.memory("elara", "c")
    assert {note.text for note in found.notes} == {"Late.", *(f"n{n}" for n in range(20))}
    monkeypatch.setattr("tavern_agents.memory.MAX_NOTES", 3)
    await change(note="last")
    notes = (await bench.runtime.memory("elara", "c")).notes
    assert (notes[-1].text, notes[:2]) == ("last", found.notes[-2:])


async def test_each_agent_of_a_conversation_remembers_apart(bench: AgentBench) -> None:
    model = bench.answers(said("", (UPDATE, {"state": {"mood": "angry"}})), said("I stay calm."))
    assert (await bench.run(agent="elara", conversation_id="d")).text == "I stay calm."
    assert "is not one of" in model.asked[1].messages[-2].content
    assert (await state(bench, "d"))["mood"] == "neutral", "what was wrong changes nothing"
    for agent_id, change in (("keeper", {"x": 1}), ("looper", {"mood": "annoyed"}), ("elara", {"mood": "friendly"})):
        bench.answers(said("", (UPDATE, {"state": change})), said("Mine."))
        assert (await bench.run(agent=agent_id, conversation_id="e")).text == "Mine."
    found = {name: (await bench.runtime.memory(name, "e")).state for name in ("keeper", "looper", "elara")}
    assert found == {
        "keeper": {"x": 1},
        "looper": {"mood": "annoyed", "reputation": 0},  # from within its workflow
        "elara": {"mood": "friendly", "reputation": 0},
    }


async def test_a_profile_that_cannot_remember_is_refused(bench: AgentBench) -> None:
    schema = "initial_private_state_schema: is no usable JSON Schema: "
    rows: list[tuple[dict[str, Any], str]] = [
        ({"initial_private_state_values": {"mood": "angry"}}, "initial_private_state_values: $.mood"),
        ({"initial_private_state_values": {}}, 'initial_private_state_values: $: "mood" is a required'),
        ({"initial_private_state_schema": {"type": "thing"}}, schema),
        ({"initial_private_state_schema": {"$ref": "http://127.0.0.1:1/x"}}, schema),
        ({"initial_private_state_schema": {"$defs": {}, "allOf": [{"$ref": "#/$defs"}]}}, f"{schema}it has references"),
        ({"initial_goals_reference": [{"caiu_id": ""}]}, "$.initial_goals_reference[0].caiu_id"),
    ]
    with Failures() as failures:
        for number, (changes, part) in enumerate(rows):
            with failures.row(changes):
                bench.project.write("agents/elara.json", {**ELARA, "id": f"e{number}", **changes})
                with pytest.raises(Misconfigured) as caught:
                    await bench.run(agent=f"e{number}")
                assert part in caught.value.message
                (problem,) = [p for p in await bench.runtime.check(f"e{number}") if p.level == "error"]
                assert part.split(":")[0].removeprefix("$.") in problem.path
    bench.project.write("agents/elara.json", ELARA)
