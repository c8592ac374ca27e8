"""A scene in two hosts: after one was killed, the other resumes the talk, and the world is as it was acknowledged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from helpers.repetition import repetitions
from helpers.stub_llm import said
from helpers.survival import killed
from helpers.waiting import until

from tavern_agents.api.histories import HistoryMessage
from tavern_host import Host
from tavern_llm.api.llm import LlmRequest, LlmResponse
from tavern_worlds.api.scenes import SCENE_MANAGER
from tests.agents.agent_bench import AgentBench, agent_bench
from tests.agents.survivor import SCENE, count, prepare_scene, talk

LINES = 60
"""How many changes of the world are acknowledged before the host is killed."""


async def said_by(bench: AgentBench, scene: str, least: int = 0) -> list[HistoryMessage]:
    """Return the messages of a scene; empty until there are at least so many."""
    found = await bench.histories.load(scene)
    return found if len(found) >= least else []


@pytest.mark.parametrize("_", range(repetitions(1, 10)))
async def test_a_talk_survives_a_kill(tmp_path: Path, _: int) -> None:
    *_, (number, revision) = await killed(talk, tmp_path, lines=LINES)
    async with agent_bench(tmp_path, prepare_scene, count, serving=True) as bench:
        scenes = bench.host.services.get(SCENE_MANAGER)
        (run,) = await scenes.list_runs()
        assert run.world["number"] >= number
        assert run.revision >= revision
        before = await said_by(bench, run.id)
        after = await until(lambda: said_by(bench, run.id, len(before) + 4))
        assert after[: len(before)] == before
        spoken = [(one.message.name, one.message.content) for one in after]
        assert spoken == [(("Ada", "Bob")[n % 2], str(1 + n // 2)) for n in range(len(spoken))]
        assert len({one.run_id for one in after}) == len(after)
        ended = await scenes.stop(run.id)
        assert (ended.status, ended.problem) == ("ended", None)


async def test_two_hosts_let_one_agent_act_at_a_time(tmp_path: Path) -> None:
    acting = most = 0

    async def answer(request: LlmRequest) -> LlmResponse:
        nonlocal acting, most
        acting += 1
        most = max(most, acting)
        await asyncio.sleep(0)
        acting -= 1
        return said("Yes.")

    async with agent_bench(tmp_path, prepare_scene) as bench:
        bench.project.write("scenes/long.json", {**SCENE, "turn_order": {}})
        bench.model(answer)
        async with Host(project=bench.project.root, plugins=[tmp_path / "told"], trust=["told"]) as other:
            both = [host.services.get(SCENE_MANAGER) for host in (bench.host, other)]
            run = await both[0].start("long")
            await asyncio.gather(*(one.say(run.id, "Who?", name=f"N{n}", turns=10) for n, one in enumerate(both)))
            await asyncio.gather(*(one.wait(run.id) for one in both))
            await asyncio.gather(*(one.update_world({f"w{n}": n}, scene=run.id) for n, one in enumerate(both * 10)))
            run = await both[1].get_run(run.id)
        assert (most, run.problem, run.revision, len(run.world)) == (1, None, 20, 20)
        names = [one.message.name for one in await said_by(bench, run.id) if one.message.content == "Yes."]
        assert 10 <= len(names) <= 20
        assert names == [("Ada", "Bob")[n % 2] for n in range(len(names))]
