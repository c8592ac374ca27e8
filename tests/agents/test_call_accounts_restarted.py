"""Calls that a run made when its host ended are not made again by the next one, at whatever place they are made."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.told_model import said
from helpers.waiting import until

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
