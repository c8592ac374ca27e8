"""A host that is to be killed: `python -m tests.agents.history_writer FOLDER` changes conversations until then, and
says each change once it is acknowledged."""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path

from tavern_host.contracts.histories import CHAT_HISTORY, ChatHistory
from tavern_host.contracts.llm import ChatMessage
from tests.agents.agent_bench import agent_bench


async def write(kept: ChatHistory, history: str) -> None:
    """Append, edit, swipe and fork, and print the head of the active branch after each."""
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
        if number % 10 == 0:
            await kept.fork(history, f"b{number}")
            print(history, f"b{number}", 0, flush=True)


async def main(folder: Path) -> None:
    """Write to several conversations at once."""
    async with agent_bench(folder) as bench, asyncio.TaskGroup() as together:
        for name in ("a", "b", "c"):
            together.create_task(write(bench.host.services.get(CHAT_HISTORY), name))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
