"""What a plugin's command may say, and where it goes: text as it comes, lines for a person, how things stand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers.command_line import tavern
from helpers.folder_plugins import write_plugin

SAYS = '''"""A plugin with a command that says whatever it is told."""
import json

from tavern_host import CommandInfo, CommandOutput, CommandParameter, hookimpl


@hookimpl
def tavern_register_commands():
    what = CommandParameter(name="what", required=True)
    return [CommandInfo(name="say", help="Say it.", handler=f"{__name__}:say", standalone=True, parameters=[what])]


async def say(arguments, context):
    for item in json.loads(arguments["what"]):
        yield CommandOutput(**item)
'''
STREAM = """[
 {"kind": "chunk", "text": "one "}, {"kind": "progress", "text": "half"}, {"kind": "chunk", "text": "two\\r"},
 {"kind": "chunk", "text": "\\nthree"}, {"kind": "live", "title": "on the way", "rows": [["a", "b"]]},
 {"kind": "progress", "text": "nearly"}, {"kind": "chunk", "text": " \\u001b[2J"}, {"kind": "text", "text": "line"},
 {"kind": "chunk", "text": "four\\n"}, {"kind": "result", "data": {"done": true}}
]"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    hooks = {"hooks": ["hook:server:commands:register"]}
    return write_plugin(tmp_path / "acme_says", {"__init__.py": SAYS}, permissions=hooks)


def test_text_is_one_and_lines_for_a_person_beside_it(plugin: Path) -> None:
    ran = tavern("--dev", plugin, "say", STREAM)
    assert (ran.code, ran.out) == (0, "one two\nthree \\x1b[2J\nline\nfour\n")
    assert ran.err == "half\nnearly\n"
    ran = tavern("--dev", plugin, "say", STREAM, "--json")
    assert (ran.json(), ran.err) == ({"done": True}, "")
    ran = tavern("--dev", plugin, "say", '[{"kind": "chunk", "text": "a"}, {"kind": "failure", "text": "no"}]')
    assert (ran.code, ran.out, ran.err) == (1, "a\n", "Error: no\n")
    ran = tavern("--dev", plugin, "say", '[{"kind": "table", "columns": ["c"], "rows": [["x\\u001b[2J"]]}]')
    assert ("x\\x1b[2J" in ran.out, "\x1b" in ran.out) == (True, False)


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
