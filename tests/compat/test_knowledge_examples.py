"""The knowledge base and the entry of the platform's documents: read, changed and written back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tavern_host import Host
from tavern_host.contracts.documents import without_comments
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE, ActivationRequest, KnowledgeEntry


def example(spec_dir: Path, line: str) -> Any:
    (path,) = (spec_dir / "data" / "comfytavern").glob(f"caiu__*{line}.json")
    return json.loads(without_comments(path.read_text("utf-8")))


async def test_the_published_base_and_entry_survive_a_change(spec_dir: Path, tmp_path: Path) -> None:
    base, entry = example(spec_dir, "L128"), example(spec_dir, "L32")
    (tmp_path / "knowledge").mkdir()
    (tmp_path / "knowledge" / "eldoria.json").write_text(json.dumps({**base, "entries": [entry]}))
    async with Host(tmp_path) as host:
        kb = host.services.get(KNOWLEDGE_BASE)
        header = await kb.header(base["kb_id"])
        assert (header.display_name, header.tags) == (base["kb_displayName"], base["tags"])
        await kb.put("eldoria", [KnowledgeEntry(id="other")])
        found = await kb.activate(ActivationRequest(messages=["The dragon spreads its wings."]))
        assert [one.id for one in found.entries] == [entry["id"]]
    kept = json.loads((tmp_path / "knowledge" / "eldoria.json").read_text())
    assert kept["entries"][0] == entry
    assert {**kept, "entries": [], "updated_at": base["updated_at"]} == {**base, "entries": []}
