"""A scene in two hosts, one after the other, and the time that passes between them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from helpers.held_time import HeldClock
from helpers.tavern_project import Tavern

from tavern_worlds.api.scenes import SCENE_MANAGER
from tests.agents.agent_bench import agent, agent_bench, scenes_behind
from tests.agents.survivor import SCENE, count, prepare_scene


async def test_what_fell_due_while_no_host_ran_is_published_once(tmp_path: Path, held_clock: HeldClock) -> None:
    def ringing(project: Tavern) -> None:
        prepare_scene(project)
        project.write("agents/Bob.json", agent("Bob", subscribed_event_types=["bell"]))
        bell = {"id": "bell", "event_type": "bell", "every": 60}
        project.write("scenes/long.json", {**SCENE, "turn_order": {}, "scheduled_tasks": [bell]})

    async with agent_bench(tmp_path, ringing) as bench:
        before = await bench.host.services.get(SCENE_MANAGER).start("long")
    held_clock.advance(3600)
    async with agent_bench(tmp_path, ringing) as bench:
        model, provider = bench.model(count), await scenes_behind(bench)
        await provider.look()
        await asyncio.wait(provider._tasks.values())
        run = await provider.get_run("long")
        assert [one.message.name for one in await bench.histories.load(run.id)] == ["Bob"]
    assert len(model.asked) == 1
    assert set(run.due) == {"bell"}
    assert 3600 <= (run.due["bell"] - before.due["bell"]).total_seconds() < 3630
