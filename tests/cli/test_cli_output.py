"""What goes to stdout and what to stderr, for a person, a script, a pipe that ends and a disk that is full."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from helpers.command_line import COMMAND, tavern, tavern_process

QUIET = [
    ["plugins", "list"],
    ["plugins", "show", "tavern-engine"],
    ["plugins", "grant", "tavern-engine"],
    ["nodes", "list"],
    ["workflow", "list"],
    ["workflow", "run", "greeting", "--input", "name=Ada"],
    ["tools", "list"],
    ["tools", "show", "text:shout"],
    ["tools", "call", "text:shout", "--arg", "text=hi"],
    ["agent", "list"],
    ["agent", "run", "assistant", "--message", "Please greet Ada."],
    ["parse", "-"],
]


@pytest.mark.parametrize("arguments", QUIET, ids=lambda a: " ".join(a[:2]))
def test_with_json_there_is_one_document_on_stdout_and_nothing_on_stderr(arguments: list[str]) -> None:
    ran = tavern(*arguments, "--json")

    assert (ran.code, ran.err) == (0, "")
    assert isinstance(ran.json(), dict | list)


@pytest.mark.parametrize("arguments", [["nodes", "list"], ["nodes", "list", "--json"], ["demo"]])
def test_a_reader_that_goes_away_is_no_error(arguments: list[str]) -> None:
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    with process.stderr:
        err = process.stderr.read()

    assert (process.wait(timeout=60), err) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full to write to")
def test_a_disk_that_is_full_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "plugins", "list"], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
        )

    assert done.returncode == 1
    assert done.stderr.decode().startswith("Error: OSError: [Errno 28]")
    assert b"Traceback" not in done.stderr


def test_a_terminal_that_knows_few_letters_gets_escapes() -> None:
    text = tavern_process("tools", "call", "text:shout", "--arg", "text=a 你", PYTHONIOENCODING="latin-1")
    document = tavern_process("tools", "call", "text:shout", "--arg", "text=a 你", "--json", PYTHONIOENCODING="latin-1")

    assert (text.code, text.out) == (0, "A \\u4f60\n")
    assert (document.code, document.json()["structured"]) == (0, "A 你")


def test_the_log_is_shown_only_on_request(tmp_path: Path) -> None:
    folder = tmp_path / "inn"
    assert tavern("init", folder).code == 0
    (folder / "tools" / "bad.tool.json").write_text("{")

    quiet = tavern("--project", folder, "tools", "list")
    verbose = tavern("--project", folder, "--verbose", "tools", "list")

    assert "WARNING" not in quiet.err
    assert "WARNING tavern.plugin.tavern-tools" in verbose.err


def test_nothing_is_written_where_one_stands(tmp_path: Path) -> None:
    assert tavern("tools", "list", cwd=tmp_path / "..").code == 0
    here = tmp_path / "here"
    here.mkdir()

    assert tavern("tools", "list", cwd=here).code == 0
    assert list(here.iterdir()) == []
