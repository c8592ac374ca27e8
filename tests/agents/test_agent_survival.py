"""Hosts that end while agents work: nothing that was said is lost, nothing that has effects is done twice."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from helpers.repetition import repetitions
from helpers.told_model import said

from tavern_host.contracts.agents import AgentReply, AgentRequest, AgentStatus
from tavern_host.contracts.llm import LlmRequest, LlmResponse
from tests.agents.agent_bench import AgentBench, agent_bench
from tests.agents.survivor import STAGES, marks, prepare


async def killed(folder: Path) -> dict[str, str]:
    """Kill a host when its agents are at their stages; return their runs."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.agents.survivor", str(folder)), stdout=asyncio.subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(40):
            line = await process.stdout.readline()
    finally:
        process.kill()
        await process.wait()
    assert line, "the host ended early"
    found: dict[str, str] = json.loads(line)
    return found


async def ended(bench: AgentBench, run_id: str) -> AgentReply:
    async with asyncio.timeout(20):
        return await bench.runtime.wait(run_id)


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
    runs = await killed(tmp_path)
    asked: dict[str, list[LlmRequest]] = {stage: [] for stage in STAGES}

    def say(request: LlmRequest) -> LlmResponse:
        stage = request.messages[1].content
        asked[stage].append(request)
        return said(f"Back at {stage}.")

    async with agent_bench(tmp_path, prepare, serving=True) as bench:
        bench.model(say)
        async with asyncio.timeout(20):
            while not all([(await bench.runtime.get_run(runs[stage])).approvals for stage in ("approve", "refuse")]):
                await asyncio.sleep(0.02)
        for task in await bench.waiting(2):
            await bench.tools.decide(task.id, "approve" if task.arguments["text"] == "paid" else "refuse")
        for stage, run_id in runs.items():
            reply = await ended(bench, run_id)
            assert (reply.outcome, reply.text) == ("reply", f"Back at {stage}.")
            assert OBSERVED[stage] in asked[stage][0].messages[-1].content
            kinds = [step.kind for step in await bench.trace(run_id)]
            assert (kinds[0], kinds[-1], "resumed" in kinds) == ("started", "reply", True)
        assert sorted(marks(bench)) == ["acting", "first", "looking", "looking", "paid", "second"]
        again = await bench.run("And now?", conversation_id="acting")
        assert [message.content for message in again.history][-2:] == ["And now?", "Back at acting."]


async def test_a_host_that_stops_leaves_its_runs_to_the_next(tmp_path: Path) -> None:
    async with agent_bench(tmp_path, prepare) as bench:
        model = bench.answers(said("never said"))
        model.gate = asyncio.Event()
        run = await bench.runtime.start(AgentRequest(profile_id="keeper", message="Wait."))
        async with asyncio.timeout(10):
            while not model.asked:
                await asyncio.sleep(0.01)
    async with agent_bench(tmp_path, prepare, serving=True) as bench:
        assert (await bench.runtime.get_run(run.id)).status is AgentStatus.RUNNING
        bench.answers(said("Now."))
        assert (await ended(bench, run.id)).text == "Now."
