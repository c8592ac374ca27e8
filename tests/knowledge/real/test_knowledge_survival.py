"""What was written survives the end of the process, at any moment."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from helpers.repetition import repetitions
from helpers.survival import killed, say

from tavern_host import Host
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE, BaseHeader, KnowledgeEntry


async def write(root: Path) -> None:
    """Write entries one after the other, and say the id of each once it is acknowledged."""
    async with Host(root) as host:
        kb = host.services.get(KNOWLEDGE_BASE)
        await kb.save_base(BaseHeader(kb_id="diary"))
        for number in itertools.count():
            text = f"Day {number}: " + "the harbour was quiet " * 20
            await kb.put("diary", [KnowledgeEntry.model_validate({"id": f"day{number}", "content": {"value": text}})])
            say(f"day{number}")


async def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    for round in range(repetitions(2, 20)):
        root = tmp_path / f"inn{round}"
        said = await killed(write, root, lines=10 + 7 * round)
        ids = [entry["id"] for entry in json.loads((root / "knowledge" / "diary.json").read_text())["entries"]]
        assert ids[: len(said)] == said
        assert len(ids) <= len(said) + 1
        async with Host(root) as host:
            kb = host.services.get(KNOWLEDGE_BASE)
            assert (await kb.list_entries("diary")).total == len(ids)
            assert len(await kb.search("harbour", limit=1000)) == len(ids)
