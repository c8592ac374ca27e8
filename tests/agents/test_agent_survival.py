"""Hosts that are killed while an agent works: nothing that was said is lost, nothing that has effects is done twice."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from helpers.told_model import last, said

from tavern_host.contracts.agents import AgentReply, AgentRequest, AgentStatus
from tests.agents.agent_bench import AgentBench, agent_bench
from tests.agents.survivor import prepare


async def kill_at(folder: Path, stage: str) -> str:
    """Kill a host when its agent has reached a stage; return the run."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.agents.survivor", str(folder), stage),
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            line = (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()
    assert line, "the host ended early"
    return line


def marks(bench: AgentBench) -> list[str]:
    path = bench.project.root / "marks"
    return path.read_text().split() if path.exists() else []


async def resumed(bench: AgentBench, run_id: str) -> AgentReply:
    async with asyncio.timeout(20):
        return await bench.runtime.wait(run_id)


@pytest.mark.parametrize(
    ("stage", "effects", "observed"),
    [
        ("streaming", [], "Remember me."),
        ("acting", ["acting"], "may have run, or not"),
        ("repeatable", ["looking", "looking"], "LOOKING"),
        ("chain", ["first", "second"], "may have run, or not"),
    ],
)
async def test_a_killed_run_is_resumed(tmp_path: Path, stage: str, effects: list[str], observed: str) -> None:
    run_id = await kill_at(tmp_path, stage)
    async with agent_bench(tmp_path, lambda project: prepare(project), serving=True) as bench:
        model = bench.answers(said("I am back."))
        reply = await resumed(bench, run_id)
        assert (reply.outcome, reply.text) == ("reply", "I am back.")
        assert marks(bench) == effects
        assert observed in last(model.asked[0]).content
        assert reply.history[0].content == "Remember me."
        kinds = [step.kind for step in await bench.trace(run_id)]
        assert (kinds[0], kinds[-1]) == ("started", "reply")
        assert "resumed" in kinds
        model = bench.answers(said("Of course."))
        again = await bench.run("Still there?", conversation_id="talk")
        assert [m.role for m in again.history][-4:] == ["user", "assistant", "user", "assistant"][-4:]
        assert "Remember me." in model.asked[0].messages[1].content


@pytest.mark.parametrize(("decision", "effects"), [("approve", ["paid"]), ("refuse", [])])
async def test_a_call_waits_for_approval_through_a_kill(tmp_path: Path, decision: str, effects: list[str]) -> None:
    run_id = await kill_at(tmp_path, "waiting")
    async with agent_bench(tmp_path, lambda project: prepare(project), serving=True) as bench:
        model = bench.answers(said("Settled."))
        async with asyncio.timeout(20):
            while not (run := await bench.runtime.get_run(run_id)).approvals:
                await asyncio.sleep(0.02)
        assert run.status is AgentStatus.WAITING
        (task,) = await bench.waiting()
        assert run.approvals == [task.id]
        await bench.tools.decide(task.id, decision)  # type: ignore[arg-type]
        reply = await resumed(bench, run_id)
        assert (reply.outcome, reply.text, marks(bench)) == ("reply", "Settled.", effects)
        assert len(reply.tool_results) == 1
        assert ("PAID" if effects else "ApprovalRefused") in last(model.asked[0]).content


async def test_a_host_that_stops_leaves_its_runs_to_the_next(tmp_path: Path) -> None:
    async with agent_bench(tmp_path, prepare) as bench:
        model = bench.answers(said("never said"))
        model.gate = asyncio.Event()
        run = await bench.runtime.start(AgentRequest(profile_id="keeper", message="Wait."))
        async with asyncio.timeout(10):
            while not model.asked:
                await asyncio.sleep(0.01)
    async with agent_bench(tmp_path, prepare, serving=True) as bench:
        bench.answers(said("Now."))
        assert (await resumed(bench, run.id)).text == "Now."
