"""Shows the output of a running command: its status in the last lines of the terminal, and text as it arrives. Without
a terminal, the text alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import TYPE_CHECKING, TextIO

import click

from tavern_host.contracts.commands import CommandOutput

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

_STYLES = {"good": "green", "bad": "red", "active": "cyan", "quiet": "dim"}
_TAIL_LINES = 8
_TAIL_LETTERS = 4000


class LiveDisplay:
    """The `live`, `chunk` and `progress` outputs of one command. `visible` is what every text passes through first."""

    def __init__(self, out: TextIO, err: TextIO, visible: Callable[[str], str], *, may_live: bool) -> None:
        self._out = out
        self._err = err
        self._visible = visible
        self._may_live = may_live and err.isatty()
        self._live: Live | None = None
        self._status: RenderableType = ""
        self._held: list[str] = []
        self._carriage = ""
        self._is_line_open = False

    def show(self, output: CommandOutput) -> None:
        """Show an output of one of these kinds."""
        if output.kind == "live":
            self._show_status(output)
        elif output.kind == "chunk":
            self._write(output.text)
        else:
            self._say(output.text)

    def _show_status(self, output: CommandOutput) -> None:
        """Show the status in place of the one before; nothing where there is no terminal."""
        if self._may_live and self._live is None:
            self._begin()
        if self._live is not None:
            self._status = self._rendered(output)
            self._draw(self._live)

    def _write(self, text: str) -> None:
        """Write text as it comes; below a status, which must not be torn, only the end of it for now."""
        text = self._carriage + text
        self._carriage = "\r" if text.endswith("\r") else ""  # perhaps the half of an end of line
        text = self._visible(text.removesuffix("\r"))
        if text and self._live is not None and self._out.isatty():
            self._held.append(text)
            self._draw(self._live)
        elif text:
            self._put(text)

    def _say(self, line: str) -> None:
        """Write a line for a person, unless there is a status, which says it all."""
        if self._live is not None:
            return
        if self._is_line_open and self._out.isatty():
            self._put("\n")
        click.echo(self._visible(line), file=self._err)

    def close(self) -> None:
        """Leave the status where it is, write what was held back, and end the line."""
        if self._live is not None:
            self._live.update(self._status, refresh=True)
            self._live.stop()
            self._live = None
        held, self._held, self._carriage = "".join(self._held), [], ""
        if held:
            self._put(held)
        if self._is_line_open:
            self._put("\n")

    def _put(self, text: str) -> None:
        click.echo(text, nl=False, file=self._out)
        self._is_line_open = not text.endswith("\n")

    def _begin(self) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=self._err, markup=False, highlight=False)
        if console.is_dumb_terminal or not console.is_terminal:
            self._may_live = False
            return
        if self._is_line_open:
            self._put("\n")
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._live.start()

    def _draw(self, live: Live) -> None:
        """Draw the status, and under it the last lines of the text that is held back, as the terminal wraps
        them."""
        from rich.console import Group
        from rich.text import Text

        end = "".join(self._held[-_TAIL_LETTERS:])[-_TAIL_LETTERS:]
        tail = [Text("\n").join(Text(end).wrap(live.console, live.console.width)[-_TAIL_LINES:])] if end else []
        live.update(Group(self._status, *tail), refresh=True)

    def _rendered(self, output: CommandOutput) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        def cell(text: str) -> Text:
            return Text(" ".join(self._visible(text).split("\n")), no_wrap=True, overflow="ellipsis")

        head, rows = Table.grid(padding=(0, 1)), Table.grid(padding=(0, 1))
        bar = ProgressBar(total=output.total, completed=output.done, width=24)
        count: list[RenderableType] = [bar, Text(f"{output.done:,}/{output.total:,}")] if output.total else []
        head.add_row(*count, cell(output.title or ""))
        for row, tone in zip_longest(output.rows, output.tones[: len(output.rows)]):
            rows.add_row(*map(cell, row), style=_STYLES.get(tone))
        return Group(head, rows)
