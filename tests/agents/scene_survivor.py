"""A host that is to be killed: `python -m tests.agents.scene_survivor FOLDER` lets two agents talk for long, changes
their world all the while, and says each change once it is kept."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from helpers.tavern_project import Tavern
from helpers.told_model import Said, said

from tavern_host.contracts.llm import LlmRequest
from tavern_host.contracts.scenes import SCENE_MANAGER
from tests.agents.agent_bench import agent, agent_bench

SCENE = {
    "id": "long",
    "name": "Long",
    "agent_instances": [{"instance_id": name, "profile_id": name} for name in ("Ada", "Bob")],
    "turn_order": {"turns": 1000, "at_start": True},
}


def prepare(project: Tavern) -> None:
    """Write the scene and its agents."""
    for name in ("Ada", "Bob"):
        project.write(f"agents/{name}.json", agent(name))
    project.write("scenes/long.json", SCENE)


def say(request: LlmRequest) -> Said:
    """Answer with how often the agent has spoken."""
    return said(str(1 + sum(message.role == "assistant" for message in request.messages)))


async def main(folder: Path) -> None:
    """Change the world until killed."""
    async with agent_bench(folder, prepare, serving=True) as bench:
        bench.model(say)
        scenes = bench.host.services.get(SCENE_MANAGER)
        run = await scenes.start("long")
        for number in range(1_000_000):
            world = await scenes.update_world({"number": number, f"key{number % 50}": number}, scene=run.id)
            print(number, world.revision, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
