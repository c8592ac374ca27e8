"""Calls that a run made when its host ended are not made again by the next one, at whatever place they are made."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from helpers.stub_llm import said
from helpers.tavern_project import Tavern
from helpers.waiting import until

from tavern_tools.api.toolcalls import TaskFilter
from tests.agents.agent_bench import agent_bench
from tests.agents.calling_places import PLACES, asked, beside, mark, prepare, texts


@pytest.mark.parametrize("place", PLACES)
async def test_the_next_host_makes_no_call_again(tmp_path: Path, place: str) -> None:
    calls = one, two = mark(), mark(seconds=600.0)
    async with agent_bench(tmp_path, prepare) as bench:
        bench.answers(asked(place, *calls))
        run = await bench.start(agent=place)
        path = bench.project.root / "marks"
        await until(lambda: path.exists() and path.read_text().split() == texts(one, two))
    async with agent_bench(tmp_path, prepare) as bench:
        again = [] if place == "tool" else [asked(place, *calls)]  # else the step was not complete, and is retried
        model = bench.answers(*again, said("Marked."))
        await bench.runtime.resume(run.id)
        reply = await bench.ended(run)
        assert bench.marks() == texts(one, two)
        assert (reply.outcome, reply.usage.calls) == ("reply", 2 + beside(place))
        read = "\n".join(message.content for request in model.asked for message in request.messages)
        assert "may have run, or not" in read
        assert (texts(one)[0].upper() in read) is (place != "tool")


async def test_a_call_that_waits_is_not_asked_for_twice(tmp_path: Path) -> None:
    calls = ("pay", {"text": "paid"}), mark(seconds=600.0)
    async with agent_bench(tmp_path, prepare) as bench:
        bench.answers(asked("node", *calls))
        run = await bench.start(agent="node")
        await bench.waiting()
        await until(lambda: (bench.project.root / "marks").exists())
    async with agent_bench(tmp_path, prepare, lambda request: asked("node", *calls), serving=True) as bench:
        reply = await bench.ended(run)
        (task,) = await bench.tools.tasks(TaskFilter(tool="pay"))
        assert f"as task {task.id}" in reply.text
        await bench.tools.decide(task.id, "approve")
        await until(lambda: "paid" in (bench.project.root / "marks").read_text())


async def test_a_call_that_only_reads_is_repeated_and_counted_once(tmp_path: Path) -> None:
    calls = (("look", {"text": "seen", "seconds": 600.0}),)
    async with agent_bench(tmp_path, prepare) as bench:
        bench.answers(asked("node", *calls))
        run = await bench.start(agent="node")
        await until(lambda: bench.marks())
    async with agent_bench(tmp_path, prepare) as bench:
        model = bench.answers(asked("node", *calls))
        await bench.runtime.resume(run.id)
        assert (await bench.ended(run)).usage.calls == 1
        assert bench.marks() == ["seen"]
        assert "broken off" not in str(model.asked[0].messages), "there is nothing to know of it"


async def test_an_agent_that_a_deliberation_asked_is_heard_and_not_asked_twice(tmp_path: Path) -> None:
    def write(project: Tavern) -> None:
        prepare(project, "agent:loop")

    ask = ("agent:loop", {"message": "Think."})
    async with agent_bench(tmp_path, write) as bench:
        model = bench.model(lambda request: asked("node", ask) if "Go." in str(request.messages) else held)
        held = asyncio.get_running_loop().create_future()
        run = await bench.start(agent="node")
        await until(lambda: len(model.asked) == 2)
    async with agent_bench(tmp_path, write) as bench:
        bench.model(lambda request: asked("node", ask) if "Go." in str(request.messages) else said("I thought."))
        await bench.runtime.resume(run.id)
        assert "Output: I thought." in (await bench.ended(run)).text
        assert len(await bench.runtime.runs()) == 2
