"""What `tavern` says of itself, and of arguments that it does not understand."""

from __future__ import annotations

from pathlib import Path

from helpers.command_line import tavern
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures

from tavern_host import __version__
from tavern_host.cli.help import SECTIONS

COMMANDS = (
    "agent list | agent run | demo | init | nodes list | parse | plugins grant"
    " | plugins list | plugins revoke | plugins show | serve | stop | tools call | tools list | tools show"
    " | workflow check | workflow list | workflow run"
)

POURS = """from tavern_host import CommandInfo, hookimpl


@hookimpl
def tavern_register_commands():
    return [CommandInfo(name="pour", help="Pour.", handler=f"{__name__}:pour")]


async def pour(arguments, context):
    yield
"""


def test_help_names_every_group_of_commands(tmp_path: Path) -> None:
    for option in ("--version", "-V"):
        ran = tavern(option)
        assert (ran.code, ran.out, ran.err) == (0, f"tavern-host {__version__}\n", "")
    ran = tavern()
    assert (ran.code, [line.split("  ")[0] for line in ran.out.splitlines() if not line.startswith(" ")]) == (
        0,
        ["tavern demo", "tavern init DIR", "tavern serve", "tavern --help"],
    )
    for arguments in (["--help"], ["-h"]):
        ran = tavern(*arguments, TAVERN_DATA_DIR=str(tmp_path / "data"))
        assert ran.code == 0
        for name in {command.split()[0] for command in COMMANDS.split(" | ")}:
            assert f"\n  {name} " in ran.out
        for option in ("--project", "--dev", "--strict", "--verbose", "--version"):
            assert option in ran.out
    assert not (tmp_path / "data").exists(), "help makes no project"
    ran = tavern("workflow")
    assert (ran.code, "check" in ran.err and "run" in ran.err) == (2, True)


def test_help_shows_the_commands_that_the_host_would_have(project: Path) -> None:
    """It is shown without a host where all commands are known without one."""
    here, demo, hooks = ("--project", project), "\n  demo ", {"hooks": ["hook:server:commands:register"]}
    quiet = write_plugin(project.parent / "quiet-one")
    for words in ("", "plugins", "agent run", "no-such"):
        known, of_host = (tavern(*here, *more, *words.split(), "--help") for more in ([], ["--dev", quiet]))
        assert known == of_host
    assert demo in tavern(*here, "--help").out
    assert demo not in tavern(*here, "--no-plugin", "tavern-demo", "--help").out
    write_plugin(project / "plugins" / "acme", {"__init__.py": POURS}, permissions=hooks)
    assert tavern(*here, "plugins", "grant", "acme").code == 0
    assert "\n  pour " in tavern(*here, "--help").out
    assert "\n  pour " not in tavern(*here, "--no-plugins", "--help").out
    assert tavern(*here, "plugins", "disable", "tavern-demo").code == 0
    assert demo not in tavern(*here, "--no-plugins", "--help").out


def test_every_group_has_a_sentence_and_stands_under_a_heading() -> None:
    page = tavern("--help").out
    assert "Other commands" not in page and "Commands: " not in page
    headings = [line.rstrip(":") for line in page.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Options", *SECTIONS.values()]
    assert "Check, show, save, run and restore workflows." in tavern("workflow", "--help").out


def test_every_command_explains_itself() -> None:
    pages = {command: tavern(*command.split(), "--help") for command in COMMANDS.split(" | ")}
    for command, page in pages.items():
        assert (page.code, page.out.startswith(f"Usage: tavern {command} [OPTIONS]")) == (0, True)
        assert "--json" in page.out
    assert "PROFILE: The agent's id." in pages["agent run"].out
    assert "--max-steps INTEGER" in pages["agent run"].out
    assert "[default: 8188]" in pages["serve"].out
    empty = [command for command, page in pages.items() if '[default: ""]' in " ".join(page.out.split())]
    assert (empty, [command for command, page in pages.items() if "\n\n\n" in page.out]) == ([], [])


def test_arguments_that_cannot_be_are_refused_in_one_line() -> None:
    rows = {
        "nods": "No such command 'nods'.",
        "plugins shw x": "No such command 'shw'.",
        "--nope": "No such option '--nope'.",
        "plugins list --nope": "No such option '--nope'.",
        "--project": "Option '--project' requires an argument.",
        "init": "Missing argument 'FOLDER'.",
        "plugins show": "Missing argument 'NAME'.",
        "agent run assistant": "there is no message: give --message TEXT",
        "agent run assistant --message": "Option '--message' requires an argument.",
        "serve --port http": "Invalid value for '--port': 'http' is not a valid integer.",
        "tools list more": "Got unexpected extra argument (more)",
        "tools list --no-plugin p": "--no-plugin stands before the command: tavern --no-plugin … tools …",
        "serve --port -1": "--port -1: a port is a number from 0 to 65535; 0 takes any free one",
        "serve --port 65536": "--port 65536: a port is a number from 0 to 65535; 0 takes any free one",
    }
    with Failures() as failures:
        for words, error in rows.items():
            with failures.row(words):
                ran = tavern(*words.split())
                assert (ran.code, ran.out) == (2, "")
                assert ran.error.startswith(f"Error: {error}"), ran.err
