"""Runs `tavern` on a terminal, and reads what stands on its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

from helpers.command_line import COMMAND, SECONDS, minds_ctrl_c

_CODE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


class Screen:
    """A terminal without an end: what was written, as it stands there."""

    def __init__(self) -> None:
        self.lines: list[list[str]] = [[]]
        self._row = self._column = 0
        self.colours: set[str] = set()
        """The colours, and other ways to write, that were asked for."""

    def feed(self, text: str) -> None:
        """Write a text with the codes that move the cursor and erase; of colours it is noted which."""
        place = 0
        while place < len(text):
            code = _CODE.match(text, place)
            if code:
                self._obey(code[2], code[1])
                place = code.end()
                continue
            self._put(text[place])
            place += 1

    def _put(self, letter: str) -> None:
        if letter == "\r":
            self._column = 0
        elif letter == "\n":
            self._row += 1
            self.lines += [[] for _ in range(self._row - len(self.lines) + 1)]
        else:
            line = self.lines[self._row]
            line += " " * (self._column - len(line) + 1)
            line[self._column] = letter
            self._column += 1

    def _obey(self, code: str, argument: str) -> None:
        if code == "A":
            self._row = max(0, self._row - int(argument or 1))
        elif code == "K":
            self.lines[self._row] = []
        elif code == "m":
            self.colours.add(argument)
        else:
            assert code in "hl", f"a code that this screen does not know: {argument}{code}"

    @property
    def text(self) -> str:
        """What stands there."""
        return "\n".join("".join(line).rstrip() for line in self.lines)


def on_screen(
    *arguments: str | Path,
    columns: int = 80,
    until: Callable[[str], object] | None = None,
    redirect_out: Path | None = None,
    typed: str = "",
    **environment: str,
) -> tuple[int, Screen, list[str]]:
    """Run `tavern` on a terminal; return its exit code, the screen, and all that stood there meanwhile.

    Once what stands there meets `until`, Ctrl-C is sent. `typed` is what somebody types.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    out = redirect_out.open("wb") if redirect_out is not None else None
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdin=theirs,
        stdout=out or theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", **environment},
        preexec_fn=minds_ctrl_c,  # noqa: PLW1509
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    screen, seen = Screen(), [""]
    rest = b""
    end = time.monotonic() + SECONDS
    try:
        while time.monotonic() < end:
            if not select.select([ours], [], [], 0.05)[0]:
                continue
            try:
                data = os.read(ours, 65536)
            except OSError:  # the terminal's other end is closed
                break
            if not data:
                break
            text, rest = _decoded(rest + data)
            screen.feed(text)
            seen.append(screen.text)
            if until is not None and until(screen.text):
                until = None
                process.send_signal(signal.SIGINT)
        code = process.wait(timeout=SECONDS)
    finally:
        process.kill()
        os.close(ours)
        if out is not None:
            out.close()
    return code, screen, seen


def _decoded(data: bytes) -> tuple[str, bytes]:
    """Return the text of the whole letters and codes in `data`, and the bytes of one that is not all there."""
    cut = len(data)
    escape = data.rfind(b"\x1b")
    if escape >= 0 and not re.search(rb"\x1b\[[?0-9;]*[A-Za-z]", data[escape:]):
        cut = escape
    for length in range(4):
        try:
            return data[: cut - length].decode(), data[cut - length :]
        except UnicodeDecodeError:
            continue
    raise AssertionError(f"no text: {data!r}")
