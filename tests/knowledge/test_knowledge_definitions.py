"""The host's own node types and tools as knowledge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.folder_plugins import write_plugin
from helpers.repetition import refused

from tavern_host import Host
from tavern_host.contracts.errors import PermissionDenied
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE, NODES, TOOLS, KnowledgeEntry
from tests.knowledge.conftest import Bench

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTIONS = json.loads(Path(__file__).with_name("questions.json").read_text(encoding="utf-8"))


async def test_questions_find_the_right_nodes_and_tools(bench: Bench) -> None:
    recalls: dict[str, list[float]] = {"Chinese": [], "English": []}
    missed = []
    for question, right in QUESTIONS:
        found = {hit.id for hit in await bench.kb.search(question, bases=["host:*"], limit=5)}
        recalls["English" if question.isascii() else "Chinese"].append(len(found & set(right)) / len(right))
        missed += [(question, sorted(found))] if not found >= set(right) else []
    assert all(len(values) >= 30 for values in recalls.values())
    for language, values in recalls.items():
        assert sum(values) / len(values) >= 0.9, (language, missed)


async def test_a_definition_is_an_entry_that_nobody_writes(bench: Bench) -> None:
    node = (await bench.kb.get(NODES, "core:UpperCase")).entry
    assert (node.entry_type, node.management_metadata.source) == ("node_definition", "host")
    assert node.extensions["inputs"] == {"text": "STRING"}
    tool = (await bench.kb.get(TOOLS, "FileOperator.ReadFile")).entry
    assert "parametersSchema" in tool.extensions
    assert "filePath" in tool.content.value
    assert await bench.kb.search("capital letters") == []
    put = bench.kb.put(NODES, [KnowledgeEntry(id="core:UpperCase")])
    acts = (put, bench.kb.delete(TOOLS, ["FileOperator.ReadFile"]))
    await refused([(act, PermissionDenied, "may not") for act in acts])


async def test_definitions_follow_plugins_and_tool_files(tmp_path: Path) -> None:
    code = """from tavern_host import node
@node(category='sea')
async def hoist(sail: str) -> str:
    '''Hoist the mizzen sail. 升起后帆。'''
    return sail
"""
    plugin = write_plugin(tmp_path / "ahoy", {"__init__.py": "", "nodes.py": code}, nodes={"entry": "./nodes"})
    shout = {"type": "node", "nodeType": "core:UpperCase"}
    tool = {"id": "sea:anchor", "description": "Drops the anchor.", "implementation": shout}
    root = tmp_path / "project"
    async with Host(root, dev=[plugin]) as host:
        kb = host.services.get(KNOWLEDGE_BASE)

        async def found(query: str) -> list[str]:
            return [hit.id for hit in await kb.search(query, bases=["host:*"], limit=1)]

        assert await found("mizzen") == await found("后帆") == ["ahoy:Hoist"]
        assert await found("anchor") == []
        (root / "tools").mkdir(exist_ok=True)
        (root / "tools" / "anchor.tool.json").write_text(json.dumps(tool))
        await host.disable("ahoy")
        assert await found("mizzen") == []
        assert await found("anchor") == ["sea:anchor"]
        await host.enable("ahoy")
        assert await found("mizzen") == ["ahoy:Hoist"]


async def test_the_tools_of_a_long_list_that_fit_come_first(bench: Bench) -> None:
    tools = [f"other:{n}" for n in range(40)] + ["node:core:UpperCase", "FileOperator.DeleteFile"]
    assert (await bench.kb.select_tools("删除文件", tools, limit=2)) == ["FileOperator.DeleteFile", "other:0"]
    assert "node:core:UpperCase" in await bench.kb.select_tools("capital letters", tools, limit=3)
    assert await bench.kb.select_tools("nothing at all", ["a", "b"], limit=5) == ["a", "b"]
