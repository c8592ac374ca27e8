"""What a plugin's command may say, and where it goes: text as it comes, lines for a person, how things stand."""

from __future__ import annotations

from pathlib import Path

from helpers.command_line import tavern

STREAM = """[
 {"kind": "chunk", "text": "one "}, {"kind": "progress", "text": "half"}, {"kind": "chunk", "text": "two\\r"},
 {"kind": "chunk", "text": "\\nthree"}, {"kind": "live", "title": "on the way", "rows": [["a", "b"]]},
 {"kind": "progress", "text": "nearly"}, {"kind": "chunk", "text": " \\u001b[2J"}, {"kind": "text", "text": "line"},
 {"kind": "chunk", "text": "four\\n"}, {"kind": "result", "data": {"done": true}}
]"""


def test_text_is_one_and_lines_for_a_person_beside_it(plugin: Path) -> None:
    ran = tavern("--dev", plugin, "say", STREAM)
    assert (ran.code, ran.out) == (0, "one two\nthree \\x1b[2J\nline\nfour\n")
    assert ran.err == "half\nnearly\n"
    ran = tavern("--dev", plugin, "say", STREAM, "--json")
    assert (ran.json(), ran.err) == ({"done": True}, "")
    ran = tavern("--dev", plugin, "say", '[{"kind": "chunk", "text": "a"}, {"kind": "failure", "text": "no"}]')
    assert (ran.code, ran.out, ran.err) == (1, "a\n", "Error: no\n")
    ran = tavern("--dev", plugin, "say", '[{"kind": "table", "columns": ["c"], "rows": [["x\\u001b[2J"]]}]')
    assert "x\\x1b[2J" in ran.out
    assert "\x1b" not in ran.out
