"""Agents on branches of conversations: swipes with their calls, runs side by side, and what outlives the host."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import refused, repetitions
from helpers.stub_llm import MODELS, in_turn, said, written
from helpers.tavern_project import Tavern

import tavern_demo
from tavern_agents.api.agents import AgentReply, AgentRequest, AgentStatus
from tavern_agents.api.histories import ChatHistory
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound, PluginFailure, TavernError
from tavern_llm.api.llm import ChatMessage, LlmRequest, LlmResponse
from tests.agents.agent_bench import AgentBench, agent, agent_bench, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAMPLE = Path(tavern_demo.__file__).parent / "sample"
SHOUT = ("shout", {"text": "ale"})


def prepare(project: Tavern) -> None:
    project.write("tools/shout.tool.json", tool("shout", readOnly=True))
    project.write("tools/mark.tool.json", tool("mark", "told:Mark"))
    project.profile(tool_ids_inventory=["shout", "mark", "UpdatePrivateStateTool"])
    shutil.copytree(SAMPLE / "workflows", project.root / "workflows", dirs_exist_ok=True)
    looper = agent("looper", "mark", core_deliberation_workflow_id="agents/deliberation-with-loop")
    project.write("agents/looper.json", looper)


@pytest.fixture
def kept(bench: AgentBench) -> ChatHistory:
    return bench.histories


async def head_of(kept: ChatHistory, history: str, branch: str | None = None) -> str:
    details = await kept.get_history(history)
    return next(one.head for one in details.branches if one.name == (branch or details.active))


async def texts(kept: ChatHistory, history: str, branch: str = "main") -> list[str]:
    return [one.message.content for one in await kept.load_branch(history, branch)]


async def again(bench: AgentBench, history: str, message: str, **more: Any) -> AgentReply:
    """Let the agent answer anew."""
    head = await head_of(bench.histories, history)
    return await bench.run("", conversation_id=history, parent_id=message, head=head, **more)


async def test_a_swipe_replaces_the_turn_with_its_calls(bench: AgentBench, kept: ChatHistory) -> None:
    model = bench.answers(said("I call.", SHOUT), said("Heard."), written("tam", SHOUT), said("Heard, too."))
    await bench.run("Shout.", conversation_id="a")
    old = await kept.load("a")
    reply = await again(bench, "a", old[2].id)
    assert (reply.text, [m.role for m in reply.history]) == ("Heard, too.", ["assistant", "user", "assistant"])
    assert [m.content for m in model.asked[2].messages][1:] == ["Shout."]
    new = await kept.load("a")
    assert [m.message.role for m in new] == ["user", "assistant", "user", "assistant"]
    assert (new[0], new[-1].message.content) == (old[0], "Heard, too.")
    assert [m.id for m in await kept.children("a", old[0].id)] == [old[1].id, new[1].id]
    assert [m.run_id == reply.agent_run_id for m in new] == [False, True, True, True]
    await kept.activate("a", message_id=old[1].id, head=new[-1].id)
    assert await kept.load("a") == old
    model = bench.answers(said("On."))
    assert (await bench.run("Go on.", conversation_id="a")).text == "On."
    assert [m.role for m in model.asked[0].messages][1:] == ["user", "assistant", "tool", "assistant", "user"]


async def test_side_effects_are_repeated_with_consent_only(bench: AgentBench, kept: ChatHistory) -> None:
    calls = [("mark", {"text": "one"}), ("UpdatePrivateStateTool", {"note": "x"}), SHOUT]
    bench.answers(said("", *calls), said("Marked."), said("", ("mark", {"text": "two"})), said("And two."))
    await bench.run("Mark.", conversation_id="f")
    first, *_, reply = await kept.load("f")
    assert (await bench.run("Again.", conversation_id="f")).text == "And two."  # goes on: nothing is repeated
    rows: Any = [("refuse", "ApprovalRefused", reply.id), ("approve", "MARKED", first.id)]
    for decision, observed, message in rows:
        model = bench.answers(said("", ("mark", {"text": "marked"}), *calls[1:]), said("Done."))
        run = await bench.start("", conversation_id="f", parent_id=message, head=await head_of(kept, "f"))
        (task,) = await bench.waiting()
        assert (task.tool_id, (await bench.runtime.get_run(run.id)).approvals) == ("mark", [task.id])
        await bench.tools.decide(task.id, decision)
        assert (await bench.ended(run)).text == "Done."
        assert observed in str(model.asked[1].messages)
    call = said("", ("mark", {"text": "looped"}))
    bench.answers(call, said("Looped."))
    await bench.run("Loop.", agent="looper", conversation_id="g")
    bench.answers(call, said("It waits."))
    assert (await again(bench, "g", await head_of(kept, "g"), agent="looper")).text == "It waits."
    (task,) = await bench.waiting()
    await bench.tools.decide(task.id, "refuse")
    assert bench.marks() == ["one", "two", "marked", "looped"]


async def test_an_edited_message_is_answered(bench: AgentBench, kept: ChatHistory) -> None:
    model = bench.answers(said("Ale."), said("Wine."))
    await bench.run("Ale?", conversation_id="b")
    first, reply = await kept.load("b")
    (edited,) = await kept.edit("b", first.id, "Wine?", head=reply.id)
    assert (await again(bench, "b", edited.id)).text == "Wine."
    assert [m.content for m in model.asked[1].messages][1:] == ["Wine?"]
    assert await texts(kept, "b") == ["Wine?", "Wine."]
    beside = AgentRequest(profile_id="keeper", message="Water?", conversation_id="b", parent_id=reply.id)
    (greeting,) = await kept.append("hello", [ChatMessage(role="assistant", content="Hello.")])
    rows: list[tuple[AgentRequest, type[TavernError], str]] = [
        (beside, Conflict, "load it again"),
        (beside.model_copy(update={"head": reply.id}), Conflict, "load it again"),
        (beside.model_copy(update={"parent_id": "msg_0"}), NotFound, "has no message"),
        (beside.model_copy(update={"branch": "side"}), NotFound, "it has main"),
        (beside.model_copy(update={"conversation_id": None}), NotFound, "no conversation"),
    ]
    runs = len(await bench.runtime.runs())
    await refused([(bench.runtime.start(request), *expected) for request, *expected in rows])  # type: ignore[misc]
    await refused([(again(bench, "hello", greeting.id), InvalidInput, "answers nothing")])
    assert len(await bench.runtime.runs()) == runs
    bench.answers(said("Water."))
    request = beside.model_copy(update={"head": await head_of(kept, "b")})
    assert (await bench.runtime.run(request)).text == "Water."
    assert await texts(kept, "b") == ["Ale?", "Ale.", "Water?", "Water."]


async def test_runs_work_side_by_side_on_branches(bench: AgentBench, kept: ChatHistory) -> None:
    (one,) = await kept.append("c", [ChatMessage(role="user", content="1")])
    await kept.fork("c", "side")
    await kept.fork("c", "free")
    model, first = await bench.held(said("A."), said("B."), conversation_id="c")
    runs = [first, await bench.start(conversation_id="c", branch="side")]
    assert [run.branch for run in runs] == ["main", "side"]
    busy = await head_of(kept, "c", "side")
    text = ChatMessage(role="user", content="x")
    rows: Any = [
        (bench.start(conversation_id="c"), "works on the conversation 'c' already"),
        (kept.add("c", [text], branch="side"), "(branch 'side') already"),
        (kept.edit("c", one.id, "x", branch="side", head=busy), "interrupt it"),
        (kept.activate("c", "side", message_id=one.id, head=busy, exactly=True), "interrupt it"),
        (kept.delete_branch("c", "side"), "interrupt it"),
        (kept.delete("c"), "interrupt it"),
    ]
    await refused([(act, Conflict, part) for act, part in rows])
    await kept.add("c", [text], branch="free")
    await kept.activate("c", "free")
    await kept.rename_branch("c", "side", "aside")
    model.gate.set()  # type: ignore[union-attr]
    assert {(await bench.ended(run)).text for run in runs} == {"A.", "B."}
    for branch in ("main", "aside"):
        found = await texts(kept, "c", branch)
        assert (found[:2], len(found)) == (["1", "Go."], 3)
    assert await texts(kept, "c", "free") == ["1", "x"]


async def test_a_run_resumes_where_its_branch_still_stands(bench: AgentBench, kept: ChatHistory) -> None:
    bench.answers(said("First."), RuntimeError("down"))
    await bench.run("1", conversation_id="d")
    reply = (await kept.load("d"))[-1]
    failed = await again(bench, "d", reply.id)
    assert failed.outcome == "error"
    assert await texts(kept, "d") == ["1"]
    await kept.activate("d", message_id=reply.id, head=await head_of(kept, "d"))
    with pytest.raises(Conflict, match="has moved on since the run"):
        await bench.runtime.resume(failed.agent_run_id)
    assert (await bench.runtime.get_run(failed.agent_run_id)).status is AgentStatus.ERROR
    first = (await kept.load("d"))[0]
    await kept.activate("d", message_id=first.id, head=reply.id, exactly=True)
    bench.answers(said("Second."))
    run = await bench.runtime.resume(failed.agent_run_id)
    assert (await bench.ended(run)).text == "Second."
    assert [m.message.content for m in await kept.children("d", first.id)] == ["First.", "Second."]


async def test_a_summary_holds_where_it_was_made(bench: AgentBench, kept: ChatHistory) -> None:
    bench.answers(*(said(f"a{n}") for n in range(3)))
    for number in range(3):
        await bench.run(f"q{number} " + "long " * 40, conversation_id="e")
    path = await kept.load("e")
    too_long = PluginFailure("too long", overflow=True)
    model = bench.answers(too_long, said("They counted."), said("a3"))
    await bench.run("q3", conversation_id="e")
    assert "They counted." in model.asked[-1].messages[1].content
    (summary,) = (await kept.export_history("e")).summaries
    assert summary.text == "They counted."
    (node,) = [node for node in await kept.tree("e") if node.summary is not None]
    assert (node.id, node.summary) == (summary.until, summary.text)
    await kept.fork("e", "early", message_id=path[1].id)
    model = bench.answers(said("early"), said("late"))
    await bench.run("And?", conversation_id="e", branch="early")
    assert [m.content for m in model.asked[0].messages][1:] == [path[0].message.content, "a0", "And?"]
    await bench.run("And?", conversation_id="e")
    assert "They counted." in model.asked[1].messages[1].content
    assert await kept.load_branch("e", leaf=path[-1].id) == path


async def test_a_swipe_outlives_its_host(tmp_path: Path) -> None:
    async with agent_bench(tmp_path, prepare) as bench:
        bench.answers(said("", ("mark", {"text": "one"})), said("Old."))
        await bench.run("Mark.", conversation_id="a")
        first, *_, reply = await bench.histories.load("a")
        _, run = await bench.held(
            said("never said"), message="", conversation_id="a", parent_id=reply.id, head=reply.id
        )
    says = in_turn(said("", ("mark", {"text": "one"})), said("New."))
    async with agent_bench(tmp_path, prepare, says, serving=True) as bench:
        assert (await bench.runtime.get_run(run.id)).status is AgentStatus.RUNNING
        model = MODELS["m"]
        (task,) = await bench.waiting()
        await bench.tools.decide(task.id, "refuse")
        assert (await bench.ended(run)).text == "New."
        assert [m.content for m in model.asked[0].messages][1:] == ["Mark."]
        path = await bench.histories.load("a")
        assert ([path[0].id, path[-1].message.content], len(path)) == ([first.id, "New."], 4)
        assert bench.marks() == ["one"]


# --- two hundred turns --------------------------------------------------------------------------------


class Story:
    """A conversation that is talked, swiped, edited and forked at random, and what it must be."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.messages: dict[str, tuple[str | None, ChatMessage]] = {}
        self.heads = {"main": ""}
        self.active = "main"
        self.turns = 0

    def answers(self, request: LlmRequest) -> LlmResponse:
        """Answer in text, by a native call, or by one in text."""
        last, number = request.messages[-1], len(self.messages)
        if last.role == "user" and not last.content.startswith("<OBSERVATION>"):
            kind = self.random.choice(["text", "native", "tam", "text"])
            if kind != "text":
                return written(kind, ("shout", {"text": f"ale {number} {self.turns}"}))
        return said(f"Answer {number} to {last.content[:30]} 酒")

    def path(self, head: str) -> list[str]:
        """Return the ids of the messages that lead to one."""
        found: list[str] = []
        at: str | None = head
        while at:
            found.insert(0, at)
            at = self.messages[at][0]
        return found

    async def learn(self, kept: ChatHistory, branch: str, expected: list[ChatMessage]) -> None:
        """Take in what a branch got: its ids, behind what was there."""
        path = await kept.load_branch("story", branch, last=len(expected))
        assert [one.message for one in path] == expected
        for one in path:
            assert one.id not in self.messages
            self.messages[one.id] = (one.parent_id, one.message)
        self.heads[branch] = path[-1].id

    async def turn(self, bench: AgentBench) -> None:
        """Do one thing."""
        kept, branch, head = bench.histories, self.active, self.heads[self.active]
        what = self.random.choice(["say", "say", "say", "swipe", "edit", "back", "fork", "switch"]) if head else "say"
        self.turns += 1
        request = AgentRequest(profile_id="keeper", message=f"Turn {self.turns}", conversation_id="story")
        if what == "say":
            await self.learn(kept, branch, (await bench.runtime.run(request)).history)
        elif what in ("swipe", "edit"):
            parent = self.random.choice([m for m in self.path(head) if m in self.messages])
            if what == "edit":
                text = f"Edited {self.turns}"
                (edited,) = await kept.edit("story", parent, text, head=head)
                old = self.messages[parent][1]
                self.messages[edited.id] = (self.messages[parent][0], old.model_copy(update={"content": text}))
                self.heads[branch] = edited.id
                if old.role != "user":
                    return
                parent, head = edited.id, edited.id
            again = request.model_copy(update={"message": "", "parent_id": parent, "head": head})
            await self.learn(kept, branch, (await bench.runtime.run(again)).history)
        elif what == "back":
            to = self.random.choice(list(self.messages))
            details = await kept.activate("story", message_id=to, head=head)
            (self.heads[branch],) = [one.head for one in details.branches if one.name == branch]
            assert to in self.path(self.heads[branch])
        elif what == "fork":
            name = f"branch {self.turns}"
            self.heads[name] = self.random.choice(list(self.messages))
            await kept.fork("story", name, message_id=self.heads[name])
        else:
            self.active = self.random.choice(list(self.heads))
            await kept.activate("story", self.active)

    async def check(self, kept: ChatHistory) -> None:
        """Compare everything."""
        details = await kept.get_history("story")
        assert (details.active, details.messages) == (self.active, len(self.messages))
        assert {branch.name: branch.head for branch in details.branches} == self.heads
        for branch, head in self.heads.items():
            expected = [(id, *self.messages[id]) for id in self.path(head)]
            found = await kept.load_branch("story", branch)
            assert [(one.id, one.parent_id, one.message) for one in found] == expected
        nodes = await kept.tree("story", limit=10_000)
        assert {node.id: node.parent_id for node in nodes} == {id: m[0] for id, m in self.messages.items()}


@pytest.mark.parametrize("seed", range(repetitions(1, 10)))
async def test_many_turns_read_back_exactly(tmp_path: Path, seed: int) -> None:
    story = Story(seed)
    for _ in range(2):
        async with agent_bench(tmp_path / "one", prepare) as bench:
            bench.model(story.answers)
            for _ in range(repetitions(20, 100)):
                await story.turn(bench)
            await story.check(bench.histories)
            exported = await bench.histories.export_history("story")
    assert len({message.role for _, message in story.messages.values()}) == 3
    async with agent_bench(tmp_path / "one", prepare) as bench:
        await story.check(bench.histories)
    async with agent_bench(tmp_path / "two", prepare) as bench:
        await bench.histories.import_history(exported)
        await story.check(bench.histories)
        assert await bench.histories.export_history("story") == exported
