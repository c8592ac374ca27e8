"""`tavern demo`: the whole line, and nothing left behind."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from helpers.command_line import tavern


def test_the_demo_shows_the_whole_line(tmp_path: Path, operator_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ran = tavern("demo")

    assert (ran.code, ran.err) == (0, "")
    titles = re.findall(r"^\d\. .*", ran.out, re.MULTILINE)
    assert [title[0] for title in titles] == ["1", "2", "3", "4", "5"]
    assert "tavern-engine" in ran.out and "cheerful-guest" in ran.out
    assert "✓ merge    {'merged_text': 'Hello, Ada'}" in ran.out
    assert "→ done: Hello, Grace" in ran.out
    assert "[2] reply: Done. I greeted Ada for you" in ran.out
    greetings = re.findall(r"→ (.*), Ada$", ran.out, re.MULTILINE)
    assert greetings == ["Hello", "A very hello", "Hello"]
    assert re.search(r"That was all, in \d+\.\d s", ran.out)
    assert [p for p in tmp_path.iterdir() if p.name.startswith("tavern-demo")] == []
    assert not operator_folders.exists()


def test_the_demo_as_json() -> None:
    told = tavern("demo", "--json").json()

    assert told["workflow"] == {"text": "Hello, Ada"}
    assert told["tool"] == ["Hello, Grace"]
    assert told["agent"]["outcome"] == "reply"
    assert told["guest"] == ["needs-review", "started", "needs-review"]
    assert (told["granted"], told["revoked"]) == ({"text": "A very hello, Ada"}, {"text": "Hello, Ada"})
    assert told["plugins"]["cheerful-guest"] == "needs-review"
    assert told["seconds"] > 0
