"""A host that is to be killed: `python -m tests.agents.survivor FOLDER` says the runs of its agents, one for each
stage at which a kill matters, once each has reached it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable
from pathlib import Path

from helpers.tavern_project import Tavern
from helpers.told_model import Said, said, written

from tavern_host.contracts.llm import LlmRequest
from tests.agents.agent_bench import agent, agent_bench, tool, until

STAGES = {
    "streaming": None,
    "acting": written("tam", ("mark", {"text": "acting", "seconds": "60"})),
    "repeatable": written("tam", ("look", {"text": "looking", "seconds": "1"})),
    "chain": written(
        "tam", ("mark", {"text": "first"}), ("mark", {"text": "second", "seconds": "60"}), ("mark", {"text": "third"})
    ),
    "sub": written("tam", ("agent:helper", {"message": "streaming"})),
    "approve": written("tam", ("pay", {"text": "paid"})),
    "refuse": written("tam", ("pay", {"text": "robbed"})),
}
"""What the model answers to the name of a stage; nothing, for long, where it is None."""

MARKS = {"acting", "looking", "second"}


def prepare(project: Tavern) -> None:
    """Write the agent's tools."""
    for name, more in {"mark": {}, "look": {"readOnly": True}, "pay": {"requiresApproval": True}}.items():
        project.write(f"tools/{name}.tool.json", tool(name, "told:Mark", **more))
    project.profile(tool_ids_inventory=["mark", "look", "pay", "agent:helper"])
    project.write("agents/helper.json", agent("helper", "pay"))


def say(request: LlmRequest) -> Said | Awaitable[Said]:
    """Answer to the name of a stage."""
    answer = STAGES[request.messages[1].content]
    return _slowly() if answer is None else answer


async def _slowly() -> Said:
    await asyncio.sleep(60)
    return said("never")


async def main(folder: Path) -> None:
    """Let agents work until each is at its stage, say so, and stay there."""
    room = {"extensions.tavern-engine.maxConcurrentRuns": 16}
    async with agent_bench(folder, prepare, serving=True, settings=room) as bench:
        model = bench.model(say)
        runs = {stage: (await bench.start(stage, conversation_id=stage)).id for stage in STAGES}
        await bench.waiting(2)
        path = bench.project.root / "marks"
        await until(lambda: path.exists() and set(path.read_text().split()) >= MARKS)
        await until(lambda: len(model.asked) == len(STAGES) + 1)
        print(json.dumps(runs), flush=True)
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
