"""`tavern kb …`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Ran, tavern

from tests.knowledge.cards import V2, picture, text_chunk
from tests.knowledge.test_knowledge_exchange import missing


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the folder of an empty project."""
    assert tavern("init", "--empty", tmp_path / "inn").code == 0
    return tmp_path / "inn"


def test_entries_are_added_found_and_removed(root: Path) -> None:
    def ran(*arguments: str) -> Ran:
        return tavern("--project", root, "kb", *arguments)

    def kb(*arguments: str) -> Any:
        done = ran(*arguments, "--json")
        assert done.code == 0, done.err
        return done.json()

    added = kb("add", "lore", "余烬山上住着红龙。", "--name", "红龙", "--keyword", "dragon", "--tag", "creature")
    assert (added["base"], added["isEnabled"]) == ("lore", True)
    kb("add", "lore", "余烬山上没有龙。", "--id", added["id"])
    (hit,) = kb("search", "红龙", "--tag", "creature")
    assert (hit["id"], hit["name"], hit["text"]) == (added["id"], "红龙", "余烬山上没有龙。")
    assert kb("search", "upper case", "--base", "host:nodes", "--limit", "1")[0]["id"] == "core:UpperCase"
    assert kb("show", "lore", added["id"])["entry"]["activation_criteria"]["keywords"] == ["dragon"]
    (root / "knowledge" / "wrong.json").write_text("{")
    assert "knowledge/wrong.json: it is not JSON: line 1" in ran("list").err
    assert "红龙" in ran("show", "lore").out
    kb("remove", "lore", added["id"])
    assert kb("show", "lore")["total"] == 0
    kb("remove", "lore", "--all")
    assert not (root / "knowledge" / "lore.json").exists()


def test_nodes_and_tools_are_found_too(root: Path) -> None:
    for query, found in (
        ("join texts", ("host:nodes", "core:TextMerge")),
        ("run code in a sandbox", ("host:tools", "CodeInterpreter")),
    ):
        hits = tavern("kb", "search", query, "--json", "--limit", "20", cwd=root).json()
        assert any(hit["base"] == found[0] and hit["id"].startswith(found[1]) for hit in hits), query
    assert tavern("kb", "search", "TextMerge", "--base", "inn", "--json", cwd=root).json() == []


def test_a_card_is_imported_and_exported(root: Path, tmp_path: Path) -> None:
    def ran(*arguments: str) -> Ran:
        return tavern("--project", root, "kb", *arguments, cwd=tmp_path)

    (tmp_path / "elara.png").write_bytes(picture(text_chunk("chara", V2)))
    imported = ran("import", "elara.png")
    assert (imported.code, imported.out) == (0, "elara: 11 entries (card_v2)\n")
    assert "kept, without effect here: character_book.entries.acme" in imported.err
    exported = ran("export", "elara", "--format", "card_v3", "--output", "out.json")
    assert exported.code == 0, exported.err
    assert missing(V2["data"], json.loads((tmp_path / "out.json").read_text())["data"]) == []
    for arguments, problem in [
        (["remove", "elara"], "say which entry"),
        (["remove", "elara", "none"], "there is no elara/none"),
        (["show", "elra"], "did you mean"),
        (["import", "elara.png"], "there is a base 'elara' already"),
        (["export", "elara", "--format", "none"], "format"),
    ]:
        done = ran(*arguments)
        assert (done.code, problem in done.err) == (2, True), done.err
