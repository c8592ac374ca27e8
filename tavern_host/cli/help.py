"""Writes the help of commands in the language of the terminal."""

from __future__ import annotations

from collections.abc import Iterable

import click

from tavern_host.contracts.languages import say


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


class Group(click.Group):
    """Commands whose help is in the language of the terminal."""

    context_class = _Context
