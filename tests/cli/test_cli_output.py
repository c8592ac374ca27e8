"""What goes to stdout and what to stderr, for a person, a script, a pipe that ends and a disk that is full."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

from helpers.command_line import tavern
from helpers.repetition import Failures, repetitions

from tavern_host.cli.terminal import run

QUIET = (
    "plugins list | plugins show tavern-engine | plugins grant tavern-engine | nodes list | workflow list"
    " | workflow run greeting --input name=Ada | tools list | tools show text:shout"
    " | tools call text:shout --arg text=hi | agent list | agent run assistant --message Ada | parse -"
)


def test_with_json_there_is_one_document_alone() -> None:
    with Failures() as failures:
        for words in QUIET.split(" | ")[:: repetitions(2, 1)]:
            with failures.row(words):
                ran = tavern(*words.split(), "--json")
                assert (ran.code, ran.err) == (0, "")
                assert isinstance(ran.json(), dict | list)


def test_a_terminal_that_knows_few_letters_gets_escapes() -> None:
    said = []
    for more in ([], ["--json"]):
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "latin-1")) as out:
            assert run(["tools", "call", "text:shout", "--arg", "text=a 你", *more]) == 0
            out.flush()
            said.append(out.buffer.getvalue().decode("latin-1"))
    assert said[0] == "A \\u4f60\n"
    assert json.loads(said[1])["structured"] == "A 你"


def test_a_command_is_quiet_and_leaves_nothing(project: Path, tmp_path: Path) -> None:
    (project / "tools" / "bad.tool.json").write_text("{")
    here = tmp_path / "here"
    here.mkdir()
    quiet = tavern("--project", project, "tools", "list", cwd=here)
    verbose = tavern("--project", project, "--verbose", "tools", "list", cwd=here)
    assert "WARNING" not in quiet.err
    assert "WARNING tavern.plugin.tavern-tools" in verbose.err
    assert tavern("tools", "list", cwd=here).code == 0
    assert list(here.iterdir()) == []
