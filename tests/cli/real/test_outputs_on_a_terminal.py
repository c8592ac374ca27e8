"""What a plugin's command says on a terminal: what stands is replaced, and text follows it whole."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_on_a_terminal_what_stands_is_replaced_and_text_follows_it_whole(plugin: Path) -> None:
    from helpers.screen import on_screen

    stands = """[
     {"kind": "live", "title": "first", "done": 1, "total": 4, "rows": [["x", "y"]], "tones": ["good"]},
     {"kind": "chunk", "text": "one "}, {"kind": "progress", "text": "unseen"}, {"kind": "chunk", "text": "two"},
     {"kind": "live", "title": "second", "rows": [["a\\u001b", "b"], ["c"]]},
     {"kind": "text", "text": "end"}, {"kind": "progress", "text": "seen"}
    ]"""

    code, screen, seen = on_screen("--dev", plugin, "say", stands)

    assert (code, screen.text.rstrip()) == (0, "second\na\\x1b b\nc\none two\nend\nseen")
    assert len(seen) > 1
