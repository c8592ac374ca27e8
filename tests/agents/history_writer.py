"""A host that is to be killed: `python -m tests.agents.history_writer FOLDER` changes conversations until then, and
says each change once it is acknowledged."""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path

from tavern_host.contracts.histories import CHAT_HISTORY
from tavern_host.contracts.llm import ChatMessage
from tavern_host.contracts.memory import MemoryChange
from tests.agents.agent_bench import AgentBench, agent_bench


async def write(bench: AgentBench, history: str) -> None:
    """Append, edit, swipe and fork, let an agent remember the number, and print the head of the active branch after
    each."""
    kept = bench.host.services.get(CHAT_HISTORY)
    (last, *_) = await kept.append(history, [ChatMessage(role="user", content="0")])
    for number in itertools.count(1):
        text = f"{history} {number} " + "x" * 2000
        said, answer = ChatMessage(role="user", content=text), ChatMessage(role="assistant", content=text)
        if number % 4 == 0:
            added = await kept.edit(history, last.id, text, head=last.id)
        elif number % 4 == 1:
            added = await kept.swipe(history, last.id, [answer, said], head=last.id)
        else:
            added = await kept.append(history, [said, answer], parent_id=last.id)
        last = added[-1]
        print(history, last.id, len(added), flush=True)
        await bench.runtime.change_memory("keeper", history, MemoryChange(state={"n": number}))
        print(history, last.id, f"n{number}", flush=True)
        if number % 10 == 0:
            await kept.fork(history, f"b{number}")
            print(history, f"b{number}", 0, flush=True)


async def main(folder: Path) -> None:
    """Write to several conversations at once."""
    async with agent_bench(folder, lambda project: project.profile()) as bench, asyncio.TaskGroup() as together:
        for name in ("a", "b", "c"):
            together.create_task(write(bench, name))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
