"""A host that is to be killed: `python -m tests.knowledge.survivor PROJECT` writes entries one after the other, and
says the id of each once it is acknowledged."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tavern_host import Host
from tavern_host.contracts.knowledge import KNOWLEDGE_BASE, BaseHeader, KnowledgeEntry


async def main(root: Path) -> None:
    """Write until the process is killed."""
    async with Host(root) as host:
        kb = host.services.get(KNOWLEDGE_BASE)
        await kb.save_base(BaseHeader(kb_id="diary"))
        for number in range(1_000_000):
            text = f"Day {number}: " + "the harbour was quiet " * 20
            await kb.put("diary", [KnowledgeEntry.model_validate({"id": f"day{number}", "content": {"value": text}})])
            print(f"day{number}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
