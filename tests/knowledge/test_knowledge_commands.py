"""`tavern kb …`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.command_line import tavern

from tests.knowledge.cards import V2, picture, text_chunk
from tests.knowledge.test_knowledge_exchange import missing


def test_commands_do_what_the_service_does(tmp_path: Path) -> None:
    def kb(*arguments: str) -> Any:
        ran = tavern("--project", tmp_path, "kb", *arguments, "--json")
        assert ran.code == 0, ran.err
        return ran.json()

    assert tavern("init", tmp_path).code == 0
    added = kb("add", "lore", "余烬山上住着红龙。", "--name", "红龙", "--keyword", "dragon", "--tag", "creature")
    assert (added["base"], added["isEnabled"]) == ("lore", True)
    kb("add", "lore", "余烬山上没有龙。", "--id", added["id"])
    (hit,) = kb("search", "红龙", "--tag", "creature")
    assert (hit["id"], hit["name"], hit["text"]) == (added["id"], "红龙", "余烬山上没有龙。")
    assert kb("search", "upper case", "--base", "host:nodes", "--limit", "1")[0]["id"] == "core:UpperCase"
    assert kb("show", "lore")["total"] == 1
    assert kb("show", "lore", added["id"])["entry"]["activation_criteria"]["keywords"] == ["dragon"]
    (tmp_path / "knowledge" / "wrong.json").write_text("{")
    listed = tavern("--project", tmp_path, "kb", "list")
    assert "knowledge/wrong.json: it is not JSON: line 1" in listed.err
    assert "红龙" in tavern("--project", tmp_path, "kb", "show", "lore").out
    for arguments, code, problem in [
        (["remove", "lore"], 2, "say which entry"),
        (["remove", "lore", "none"], 2, "there is no lore/none"),
        (["show", "lroe"], 2, "did you mean"),
    ]:
        ran = tavern("--project", tmp_path, "kb", *arguments)
        assert (ran.code, problem in ran.err) == (code, True), ran.err
    kb("remove", "lore", added["id"])
    kb("remove", "lore", "--all")
    assert not (tmp_path / "knowledge" / "lore.json").exists()


def test_commands_move_documents(tmp_path: Path) -> None:
    assert tavern("init", tmp_path / "inn").code == 0
    (tmp_path / "elara.png").write_bytes(picture(text_chunk("chara", V2)))

    def kb(*arguments: str) -> Any:
        return tavern("--project", tmp_path / "inn", "kb", *arguments, cwd=tmp_path)

    imported = kb("import", "elara.png")
    assert (imported.code, imported.out) == (0, "elara: 11 entries (card_v2)\n")
    assert "kept, without effect here: character_book.entries.acme" in imported.err
    assert kb("import", "elara.png", "--json").code == 2
    exported = kb("export", "elara", "--format", "card_v3", "--output", "out.json")
    assert exported.code == 0, exported.err
    assert missing(V2["data"], json.loads((tmp_path / "out.json").read_text())["data"]) == []
    assert kb("export", "elara", "--format", "none").code == 2
