"""What `tavern` says of itself, and of arguments that it does not understand."""

from __future__ import annotations

import subprocess
import sys

import pytest
from helpers.command_line import tavern
from helpers.forking import PYTHON

from tavern_host import __version__

COMMANDS = [
    "agent list",
    "agent run",
    "demo",
    "init",
    "nodes list",
    "parse",
    "plugins grant",
    "plugins list",
    "plugins revoke",
    "plugins show",
    "serve",
    "tools call",
    "tools list",
    "tools show",
    "workflow check",
    "workflow list",
    "workflow run",
]


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_shown(option: str) -> None:
    ran = tavern(option)

    assert (ran.code, ran.out, ran.err) == (0, f"tavern-host {__version__}\n", "")


def test_the_version_costs_no_import_of_what_does_the_work() -> None:
    script = (
        "import sys; sys.argv = ['tavern', '--version']\n"
        "from tavern_host.cli import main; main()\n"
        "print(sorted({'pluggy', 'aiohttp', 'pydantic', 'yaml', 'click', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help_names_every_group_of_commands(arguments: list[str]) -> None:
    ran = tavern(*arguments)

    assert ran.code == 0
    for name in {command.split()[0] for command in COMMANDS}:
        assert f"\n  {name} " in ran.out
    for option in ("--project", "--dev", "--strict", "--verbose", "--version"):
        assert option in ran.out


def test_every_command_explains_itself() -> None:
    script = (
        f"from tavern_host.cli.terminal import run\nfor c in {COMMANDS}: print('exit', run([*c.split(), '--help']))"
    )
    done = subprocess.run([*PYTHON, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    pages = done.stdout.split("exit 0\n")
    assert pages.pop() == ""
    for command, page in zip(COMMANDS, pages, strict=True):
        assert page.startswith(f"Usage: tavern {command} [OPTIONS]")
        assert "--json" in page


def test_help_of_a_command_says_what_its_arguments_are() -> None:
    ran = tavern("agent", "run", "-h")

    assert "PROFILE: The agent's id." in ran.out
    assert "--max-steps INTEGER" in ran.out
    assert "[default: 8188]" in tavern("serve", "-h").out


def test_help_makes_no_project(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("home") / "data"

    assert tavern("--help", TAVERN_DATA_DIR=str(data)).code == 0
    assert not data.exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["nods"], "Error: No such command 'nods'. Did you mean 'nodes'?"),
        (["plugins", "shw", "x"], "Error: No such command 'shw'."),
        (["--nope"], "Error: No such option '--nope'."),
        (["plugins", "list", "--nope"], "Error: No such option '--nope'."),
        (["--project"], "Error: Option '--project' requires an argument."),
        (["init"], "Error: Missing argument 'FOLDER'."),
        (["plugins", "show"], "Error: Missing argument 'NAME'."),
        (["tools", "show"], "Error: Missing argument 'ID'."),
        (["agent", "run", "assistant"], "Error: there is no message: give --message TEXT"),
        (["agent", "run", "assistant", "--message"], "Error: Option '--message' requires an argument."),
        (
            ["agent", "run", "assistant", "--message", "hi", "--max-steps", "many"],
            "Error: Invalid value for '--max-steps': 'many' is not a valid integer.",
        ),
        (["tools", "list", "more"], "Error: Got unexpected extra argument (more)"),
        (["serve", "--port", "http"], "Error: Invalid value for '--port': 'http' is not a valid integer."),
        (
            ["tools", "list", "--no-plugin", "p"],
            "Error: --no-plugin stands before the command: tavern --no-plugin … tools …",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_arguments_that_cannot_be_are_refused_in_one_line(arguments: list[str], error: str) -> None:
    ran = tavern(*arguments)

    assert (ran.code, ran.out) == (2, "")
    assert ran.error.startswith(error.split(" Did you mean")[0]), ran.err


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_cannot_be_is_refused(port: str) -> None:
    ran = tavern("serve", "--port", port)

    assert ran.code == 2
    assert ran.error == f"Error: --port {port}: a port is a number from 0 to 65535; 0 takes any free one"


def test_a_group_without_a_command_shows_what_there_is() -> None:
    ran = tavern("workflow")

    assert ran.code == 2
    assert "check" in ran.err and "run" in ran.err
