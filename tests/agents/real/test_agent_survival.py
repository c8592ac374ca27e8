"""Hosts that end while agents work: nothing that was said is lost, nothing that has effects is done twice."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from helpers.repetition import repetitions
from helpers.stub_llm import MODELS, said, written
from helpers.survival import killed

from tavern_agents.api.agents import AgentStatus
from tavern_host.contracts.errors import Conflict
from tavern_llm.api.llm import LlmRequest, LlmResponse
from tests.agents.agent_bench import agent_bench
from tests.agents.calling_places import PLACES, asked, beside
from tests.agents.calling_places import prepare as prepare_places
from tests.agents.survivor import STAGES, at_every_place, call_tools, prepare, work

OBSERVED = {
    "streaming": "streaming",
    "acting": "may have run, or not",
    "repeatable": "LOOKING",
    "chain": "may have run, or not",
    "sub": "Output: Back at streaming.",  # the helper's run is resumed, and heard, not begun again
    "approve": "PAID",
    "refuse": "ApprovalRefused",
}
"""What the model reads first in the next host."""


@pytest.mark.parametrize("_", range(repetitions(1, 5)))
async def test_runs_of_a_killed_host_are_resumed(tmp_path: Path, _: int) -> None:
    (runs,) = await killed(work, tmp_path, lines=1)
    (kept,) = tmp_path.rglob("agents.sqlite3")
    with closing(sqlite3.connect(kept)) as store, store:  # as where the clock was set back before sub-agents began
        store.execute("UPDATE runs SET started = started - 3600000000 WHERE parent IS NOT NULL")
    asked: dict[str, list[LlmRequest]] = {stage: [] for stage in STAGES}

    def say(request: LlmRequest) -> LlmResponse:
        stage = request.messages[1].content
        asked[stage].append(request)
        return said(f"Back at {stage}.")

    async with agent_bench(tmp_path, prepare, say, serving=True) as bench:
        for stage in ("approve", "refuse"):
            await bench.reached(await bench.runtime.get_run(runs[stage]), lambda one: one.approvals)
        for task in await bench.waiting(2):
            await bench.tools.decide(task.id, "approve" if task.arguments["text"] == "paid" else "refuse")
        for stage, run_id in runs.items():
            reply = await bench.ended(run_id)
            assert (reply.outcome, reply.text) == ("reply", f"Back at {stage}.")
            assert OBSERVED[stage] in asked[stage][0].messages[-1].content
            kinds = [step.kind for step in await bench.trace(run_id)]
            assert (kinds[0], kinds[-1], "resumed" in kinds) == ("started", "reply", True)
        assert sorted(bench.marks()) == ["acting", "first", "looking", "looking", "paid", "second"]
        again = await bench.run("And now?", conversation_id="acting")
        assert [message.content for message in again.history][-2:] == ["And now?", "Back at acting."]


async def test_no_call_is_made_again_at_any_place(tmp_path: Path) -> None:
    (runs,) = await killed(call_tools, tmp_path, lines=1)
    read: dict[str, list[str]] = {place: [] for place in PLACES}

    def say(request: LlmRequest) -> LlmResponse:
        said_before = [message.content for message in request.messages]
        place = next(text for text in said_before if text in PLACES)
        read[place] += said_before
        observed = ["OBSERVATION" in text and "broken off" not in text for text in said_before]
        is_first = place != "tool" and not any(observed)
        return asked(place, *at_every_place()[place]) if is_first else said(f"Back at {place}.")

    async with agent_bench(tmp_path, prepare_places, say, serving=True) as bench:
        for place, run_id in runs.items():
            reply = await bench.ended(run_id)
            assert (reply.outcome, reply.usage.calls) == ("reply", 2 + beside(place)), place
            assert any("may have run, or not" in text for text in read[place]), place
        assert sorted(bench.marks()) == sorted(f"{place}{more}" for place in PLACES for more in ("", "2"))


async def test_a_call_is_decided_about_while_no_host_serves(tmp_path: Path) -> None:
    async with agent_bench(tmp_path, prepare) as bench:
        calls = {f"c{n}": [("mark", {"text": f"m{n}"}), ("pay", {"text": f"p{n}"})] for n in range(2)}
        bench.model(lambda request: written("tam", *calls[request.messages[1].content]))
        runs = [(await bench.start(name, conversation_id=name)).id for name in calls]
        await bench.waiting(2)
    async with agent_bench(tmp_path, prepare) as bench:
        decided, left = await bench.waiting(2)
        await bench.tools.decide(decided.id, "approve")
        with pytest.raises(Conflict):
            await bench.tools.decide(decided.id, "refuse")
        if decided.arguments["text"] != "p0":
            runs.reverse()
        await bench.runtime.interrupt(runs[1])
        with pytest.raises(Conflict):
            await bench.tools.decide(left.id, "approve")
    async with agent_bench(tmp_path, prepare, lambda request: said("Aha."), serving=True) as bench:
        model = MODELS["m"]
        assert (await bench.ended(runs[0])).text == "Aha."
        assert decided.arguments["text"].upper() in model.asked[0].messages[-1].content
        stopped = await bench.runtime.get_run(runs[1])
        assert stopped.status is AgentStatus.INTERRUPTED
        await bench.run("Well?", conversation_id=stopped.conversation_id)
        read = model.asked[-1].messages[-2].content
        assert ("Output: M" in read, "Cancelled" in read) == (True, True), read
        assert sorted(bench.marks()) == ["m0", "m1", decided.arguments["text"]]


async def test_an_interrupt_while_no_host_serves_reaches_sub_agents(tmp_path: Path) -> None:
    async with agent_bench(tmp_path, prepare) as bench:
        bench.answers(written("tam", ("agent:helper", {"message": "Pay."})), written("tam", ("pay", {"text": "deep"})))
        run = await bench.start()
        (task,) = await bench.waiting()
    async with agent_bench(tmp_path, prepare) as bench:
        await bench.runtime.interrupt(run.id)
        assert {run.status for run in await bench.runtime.runs()} == {AgentStatus.INTERRUPTED}
        with pytest.raises(Conflict):
            await bench.tools.decide(task.id, "approve")
        model = bench.answers(said("Aha."))
        await bench.run("Well?", conversation_id=run.id)
        assert "may have run" in model.asked[0].messages[-2].content
        assert bench.marks() == []
