"""A host that is killed while agents talk: the next one resumes the talk, and the world is as it was acknowledged."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from helpers.repetition import repetitions

from tavern_host.contracts.histories import CHAT_HISTORY, HistoryMessage
from tavern_host.contracts.scenes import SCENE_MANAGER
from tests.agents.agent_bench import AgentBench, agent_bench
from tests.agents.scene_survivor import prepare, say

LINES = 200
"""How many changes of the world are acknowledged before the host is killed."""


async def killed(folder: Path) -> tuple[int, int]:
    """Kill a host while its agents talk; return the number and the revision of the last change that it acknowledged."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = (sys.executable, "-m", "tests.agents.scene_survivor", str(folder))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environment)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(40):
            lines = [await process.stdout.readline() for _ in range(LINES)]
    finally:
        process.kill()
        rest = await process.stdout.read()
        await process.wait()
    lines += [line for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]
    number, revision = lines[-1].split()
    return int(number), int(revision)


async def said_by(bench: AgentBench, scene: str) -> list[HistoryMessage]:
    return await bench.host.services.get(CHAT_HISTORY).load(scene)


@pytest.mark.parametrize("_", range(repetitions(1, 10)))
async def test_a_talk_survives_a_kill(tmp_path: Path, _: int) -> None:
    number, revision = await killed(tmp_path)
    async with agent_bench(tmp_path, prepare, serving=True) as bench:
        bench.model(say)
        scenes = bench.host.services.get(SCENE_MANAGER)
        (run,) = await scenes.list_runs()
        assert run.world["number"] >= number
        assert run.revision >= revision
        before = await said_by(bench, run.id)
        async with asyncio.timeout(30):
            while len(after := await said_by(bench, run.id)) < len(before) + 4:
                await asyncio.sleep(0.05)
        assert after[: len(before)] == before
        spoken = [(one.message.name, one.message.content) for one in after]
        assert spoken == [(("Ada", "Bob")[n % 2], str(1 + n // 2)) for n in range(len(spoken))]
        assert len({one.run_id for one in after}) == len(after)
        ended = await scenes.stop(run.id)
        assert (ended.status, ended.problem) == ("ended", None)
