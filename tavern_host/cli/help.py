"""Writes the help of commands in the language of the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from tavern_host.contracts.languages import say

FIRST = (
    ("tavern demo", "Show what the host does, in a throw-away project, within seconds."),
    ("tavern init DIR", "Make a project in a folder, with a sample that runs."),
    ("tavern serve", "Run the host and its web page on this machine."),
    ("tavern --help", "Show all commands."),
)
"""What `tavern` without a command says: what to begin with."""


def first_steps() -> str:
    """Return the first commands to try, in the language of the terminal."""
    formatter = _Formatter()
    formatter.write_dl(FIRST)
    return formatter.getvalue().rstrip("\n")


class _Formatter(click.HelpFormatter):
    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, f"{say('Usage:')} ")

    def write_heading(self, heading: str) -> None:
        super().write_heading(say(heading))

    def write_text(self, text: str) -> None:
        super().write_text("\n\n".join(map(say, text.split("\n\n"))))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(term, _said(text)) for term, text in rows], col_max, col_spacing)


def _said(text: str) -> str:
    """Return the help of an option in the chosen language, with the note that it is required, or its default."""
    text, mark, more = text.partition("  [")
    word, blank, value = more.partition(" ")
    return say(text) + mark + say(word) + blank + value


class _Context(click.Context):
    formatter_class = _Formatter


class Command(click.Command):
    """A command whose help is in the language of the terminal."""

    context_class = _Context


SECTIONS = {
    "start": "Start",
    "build": "Build workflows, tools and agents",
    "run": "Run them, and look at what they did",
    "plugins": "Plugins",
    "people": "People",
    "operate": "Operate a host",
}
"""The headings of the help of `tavern`, in their order."""
_OTHERS = "Other commands"


class Group(click.Group):
    """Commands whose help is in the language of the terminal, under headings where `sections` has their names."""

    context_class = _Context

    def __init__(self, name: str, *, sections: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(name, **more)
        self._sections = sections

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, each with the whole first paragraph of its help."""
        headings = {**SECTIONS, "": _OTHERS} if self._sections is not None else {"": "Commands"}
        rows: dict[str, list[tuple[str, str]]] = {key: [] for key in headings}
        for name, command in sorted(self.commands.items()):
            key = (self._sections or {}).get(name, "")
            rows[key].append((name, (command.short_help or command.help or "").split("\n\n")[0]))
        for key, heading in headings.items():
            if rows[key]:
                with formatter.section(heading):
                    formatter.write_dl(rows[key])
