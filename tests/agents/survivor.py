"""A host that is to be killed. `python -m tests.agents.survivor FOLDER STAGE` says when its agent is at that stage."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from helpers.tavern_project import Tavern
from helpers.told_model import in_turn, said, written

from tavern_host.contracts.agents import AgentRequest, AgentRun
from tests.agents.agent_bench import AgentBench, agent_bench

LONG = "A long story. " * 200

STAGES = {
    "streaming": said(LONG),
    "acting": written("tam", ("mark", {"text": "acting", "seconds": "60"})),
    "repeatable": written("tam", ("look", {"text": "looking", "seconds": "1"})),
    "waiting": written("tam", ("pay", {"text": "paid"})),
    "chain": written(
        "tam", ("mark", {"text": "first"}), ("mark", {"text": "second", "seconds": "60"}), ("mark", {"text": "third"})
    ),
}
"""What the model answers first, by the stage at which the host is killed."""


def prepare(project: Tavern) -> None:
    """Write the agent's tools."""
    mark = {"type": "node", "nodeType": "told:Mark"}
    for name, more in {"mark": {}, "look": {"readOnly": True}, "pay": {"requiresApproval": True}}.items():
        project.write(f"tools/{name}.tool.json", {"id": name, "implementation": mark, **more})
    project.profile(tool_ids_inventory=["mark", "look", "pay"])


async def _reached(bench: AgentBench, run: AgentRun, stage: str) -> bool:
    marks = bench.project.root / "marks"
    written_now = marks.read_text() if marks.exists() else ""
    if stage == "streaming":
        return bool(bench.asked)
    if stage == "waiting":
        return bool((await bench.runtime.get_run(run.id)).approvals) and bool(await bench.waiting())
    return {"acting": "acting", "repeatable": "looking", "chain": "second"}[stage] in written_now


async def main(folder: Path, stage: str) -> None:
    """Let an agent work until the stage is reached, say so, and stay there."""
    async with agent_bench(folder, prepare, serving=True) as bench:
        model = bench.model(in_turn(STAGES[stage]))
        model.delay = 0.05
        model.gate = asyncio.Event() if stage == "streaming" else None
        bench.asked = model.asked
        run = await bench.runtime.start(
            AgentRequest(profile_id="keeper", message="Remember me.", conversation_id="talk")
        )
        while not await _reached(bench, run, stage):
            await asyncio.sleep(0.01)
        print(run.id, flush=True)
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
