"""Searching by the vectors of a model."""

from __future__ import annotations

import sys
from pathlib import Path

from helpers.folder_plugins import write_plugin

from tavern_host import Folders, Host
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE, BaseHeader, KnowledgeEntry

ADAPTER = """
from tavern_host import hookimpl
from tavern_llm.api.llm import LlmAdapterInfo, LlmEmbeddings, LlmResponse

ASKED = []
MEANINGS = (("dragon", "wyrm", "beast"), ("inn", "tavern", "客栈"), ("debt", "coin"))

@hookimpl
def tavern_register_llm_adapters():
    return [LlmAdapterInfo(name="meaning", handler=f"{__name__}:Adapter", network=False)]

class Adapter:
    def __init__(self, options, context):
        pass
    async def complete(self, request, call):
        return LlmResponse(text="", model="m")
    async def stream(self, request, call):
        yield None
    async def embed(self, texts, call):
        ASKED.extend(texts)
        if any("break" in text for text in texts):
            raise ConnectionError("the model is gone")
        found = [[float(sum(word in text for word in words)) for words in MEANINGS] for text in texts]
        return LlmEmbeddings(vectors=[vector if any(vector) else [1.0, -1.0, 1.0] for vector in found], model="m")
    async def close(self):
        pass
"""


def entry(id: str, text: str) -> KnowledgeEntry:
    return KnowledgeEntry.model_validate({"id": id, "content": {"value": text}})


async def test_a_model_finds_what_is_meant(tmp_path: Path) -> None:
    permissions = {"hooks": ["hook:server:llm:register-adapters"]}
    plugin = write_plugin(tmp_path / "meaning", {"__init__.py": ADAPTER}, permissions=permissions)
    models = {"extensions.tavern-llm.models": {"m": {"adapter": "meaning"}}}
    named = {**models, "extensions.tavern-knowledge.embeddingModel": "m"}
    root, folders = tmp_path / "project", Folders(*(tmp_path / name for name in ("config", "state", "data")))
    async with Host(root, dev=[plugin], folders=folders, settings=models) as host:
        kb = host.services.get(KNOWLEDGE_BASE)
        await kb.save_base(BaseHeader(kb_id="lore"))
        texts = {"red": "A dragon sleeps.", "bed": "The inn is full.", "owed": "A debt of a coin."}
        await kb.put("lore", [entry(id, text) for id, text in texts.items()])
        assert await kb.search("where is the wyrm") == []
        assert sys.modules["tavern_plugins.meaning"].ASKED == []
    async with Host(root, dev=[plugin], folders=folders, settings=named) as host:
        kb = host.services.get(KNOWLEDGE_BASE)
        asked = sys.modules["tavern_plugins.meaning"].ASKED
        assert [hit.id for hit in await kb.search("where is the wyrm")] == ["red"]
        assert {hit.id for hit in await kb.search("客栈 sleeps")} == {"red", "bed"}
        assert sum("dragon" in text for text in asked) == 1
        await kb.put("lore", [entry("red", "A coin sleeps.")])
        assert "red" not in [hit.id for hit in await kb.search("wyrm")]
        assert [hit.id for hit in await kb.search("break sleeps")] == ["red"]
