"""Node types say what their names are in other languages; those of first-party plugins in Chinese and in English."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tavern_engine.web.languages import SHOWN
from tavern_host import Host
from tavern_host.testing.http import served

NAMES = SHOWN - {"description"}
HAN = re.compile("[\u4e00-\u9fff]")
SAME = re.compile(r"[\W\d_]*|[a-zA-Z]|LLM|JSON|Top P|(chatgpt|claude|deepseek|gemini)[\w.-]*|Markdown|URL|[A-Z]{3,6}")
"""What is the same in both languages."""

MANIFEST = """
name: acme-greeter
displayName: Greeter
version: 1.0.0
nodes: {entry: ./nodes.py}
locale: {entry: ./locale}
"""
NODES = '''
from typing import Annotated
from tavern_host import Slot, node

@node(category="Greetings", display_name="Greet")
async def greet(whom: Annotated[dict, Slot("Whom.", default={"label": "Whom."})]) -> str:
    """Greet somebody."""
    return str(whom)

@node(category="Greetings", display_name="Trim")
async def trim(beard: Annotated[dict, Slot("A beard.", default={"label": "Only data"})]) -> str:
    """Cut a beard."""
    return str(beard)
'''
CHINESE = {"Greet": "问候", "Greetings": 7, "Trim": "修剪", "Upper case": "大写", "Whom.": "谁", "Only data": "数据"}


async def definitions(host: Host) -> dict[str, dict[str, Any]]:
    async with served(host) as site:
        listed = await (await site.get("/api/nodes")).json()
    return {f"{one['namespace']}:{one['type']}": one for one in listed}


def named(value: Any, key: str = "") -> set[str]:
    """Return the names and labels of a definition."""
    if isinstance(value, str):
        return {value} if key in NAMES else set()
    if isinstance(value, list):
        return set().union(*(named(part) for part in value))
    if not isinstance(value, dict):
        return set()
    return set().union(*(named(part, name) for name, part in value.items() if name != "texts"))


async def test_names_of_first_party_nodes_are_there_in_both_languages(tmp_path: Path) -> None:
    async with Host(tmp_path / "project", third_party=False) as host:
        found = await definitions(host)
    missing = set()
    for definition in found.values():
        texts = definition.get("texts", {})
        for text in named(definition):
            language = "en" if HAN.search(text) else "zh"
            if text not in texts.get(language, {}) and not SAME.fullmatch(text):
                missing.add((language, text))
    assert missing == set()
    merge = found["core:TextMerge"]
    assert merge["texts"]["en"][merge["displayName"]] == "📝Merge texts"
    assert not any(HAN.search(text) for one in found.values() for text in one.get("texts", {}).get("en", {}).values())


async def test_a_plugin_brings_catalogues(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plugin = tmp_path / "project" / "plugins" / "acme-greeter"
    (plugin / "locale").mkdir(parents=True)
    (plugin / "plugin.yaml").write_text(MANIFEST)
    (plugin / "nodes.py").write_text(NODES)
    (plugin / "locale" / "zh.json").write_text(json.dumps(CHINESE))
    (plugin / "locale" / "en.json").write_text(json.dumps({"Trim": "Wipe the disk", "Read file": "Read nothing"}))
    (plugin / "locale" / "fr.json").write_text("no JSON")
    async with Host(tmp_path / "project", trust=["acme-greeter"]) as host:
        found = await definitions(host)
    greet, trim = (found[f"acme-greeter:{name}"]["texts"] for name in ("Greet", "Trim"))
    assert greet["zh"]["Greet"] == "问候"
    assert greet["zh"]["Whom."] == "谁"
    assert "Greetings" not in greet["zh"]
    assert trim["zh"]["Trim"] == "修剪", "of its own nodes a plugin's catalogue counts first"
    assert trim["en"]["Trim"] == "Wipe the disk"
    assert "Only data" not in trim["zh"], "a default is no text"
    assert "result" in trim["zh"], "common words are those of first-party plugins"
    assert found["core:Trim"]["texts"]["zh"]["Trim"] == "去除空白"
    english = [one["texts"].get("en", {}) for name, one in found.items() if not name.startswith("acme-greeter:")]
    renamed = {text for texts in english for text in texts.values()} & {"Wipe the disk", "Read nothing"}
    assert renamed == set(), "no plugin says what another's node is called"
    assert "fr.json" in caplog.text
