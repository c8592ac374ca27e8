"""A run of an agent that several take up at once, or stop meanwhile, is carried on by one of them at most."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from helpers.stub_llm import MODELS, said
from helpers.waiting import let_pass

from tavern_agents.api.agents import AgentStatus
from tavern_host.contracts.errors import Conflict, PluginFailure
from tests.agents.agent_bench import AgentBench, agent_bench


async def left_behind(folder: Path) -> str:
    """Return a run that a host has left in the middle of it."""
    async with agent_bench(folder) as bench:
        _, run = await bench.held(said("Never said."))
    return run.id


async def insist(bench: AgentBench, run_id: str) -> None:
    """Resume a run again and again."""
    for _ in range(20):
        with contextlib.suppress(Conflict):
            await bench.runtime.resume(run_id)
        await asyncio.sleep(0)


async def test_a_run_is_resumed_once(tmp_path: Path) -> None:
    run_id = await left_behind(tmp_path)
    async with agent_bench(tmp_path) as bench:
        MODELS["m"].gate = asyncio.Event()
        await asyncio.gather(*(insist(bench, run_id) for _ in range(5)))
        MODELS["m"].gate.set()
        await bench.ended(run_id)
        assert len(MODELS["m"].asked) == 1


@pytest.mark.parametrize("turns", range(0, 60, 20))
async def test_a_run_that_is_stopped_while_it_is_resumed_stays_so(tmp_path: Path, turns: int) -> None:
    run_id = await left_behind(tmp_path)
    async with agent_bench(tmp_path) as bench:
        MODELS["m"].gate = asyncio.Event()

        async def interrupt() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            await bench.runtime.interrupt(run_id)

        await asyncio.gather(bench.runtime.resume(run_id), interrupt(), return_exceptions=True)
        MODELS["m"].gate.set()
        await let_pass(5)
        run = await bench.runtime.get_run(run_id)
        (reply,) = [step.kind for step in await bench.trace(run_id) if step.kind in ("reply", "interrupted")] or [""]
    assert (run.status, reply) in {(AgentStatus.INTERRUPTED, "interrupted"), (AgentStatus.REPLY, "reply")}


async def test_a_resumed_run_has_not_ended_for_other_hosts(tmp_path: Path) -> None:
    async with agent_bench(tmp_path) as bench:
        bench.answers(PluginFailure("broken"), said("Resumed."))
        run_id = (await bench.run()).agent_run_id
        await bench.runtime.resume(run_id)
        kept = await bench.state.store.run(run_id)
        assert (kept.run.status, kept.run.finished_at) == (AgentStatus.RUNNING, None)
        assert (await bench.ended(run_id)).text == "Resumed."
