"""Separates what a model thinks between `<think>` and `</think>` from what it says, as its text arrives.

Thoughts stand before the answer; anywhere else the tags are part of the text. Never raises.
"""

from __future__ import annotations

import re
from typing import Literal

OPEN, CLOSE = "<think>", "</think>"

_MOST_HELD = 1000

Kind = Literal["text", "reasoning", "void"]
"""What a piece is; `void` says that all text so far was thought, whose beginning the model was given."""


class ThoughtSplitter:
    """Splits the text of one answer; linear in its length."""

    def __init__(self) -> None:
        self._state: Literal["start", "thought", "text"] = "start"
        self._held = ""
        self._texts: list[str] = []
        self._may_close = True

    def feed(self, text: str) -> list[tuple[Kind, str]]:
        """Take more text; return the pieces that are certain by now."""
        return self._split(text, is_end=False)

    def finish(self) -> list[tuple[Kind, str]]:
        """Say that the answer has ended; return the last pieces."""
        return self._split("", is_end=True)

    def _split(self, text: str, *, is_end: bool) -> list[tuple[Kind, str]]:
        self._held += text
        pieces: list[tuple[Kind, str]] = []
        while True:
            before = self._state
            kind, piece = getattr(self, f"_{self._state}")(is_end)
            if kind == "void":
                pieces += [("void", ""), ("reasoning", "".join(self._texts))]
                self._texts = []
            if piece:
                pieces.append(("reasoning" if kind == "void" else kind, piece))
                if kind == "text" and self._may_close:
                    self._texts.append(piece)
            if self._state == before:
                return pieces

    def _start(self, is_end: bool) -> tuple[Kind, str]:
        """Look for a thought at the beginning, or after another one."""
        start = self._held.lstrip()
        if start.startswith(OPEN):
            self._held, self._state, self._may_close = start[len(OPEN) :], "thought", False
        elif not OPEN.startswith(start) or (is_end and self._held):
            self._state = "text"
            if not self._may_close:
                self._held = start
        return "text", ""

    def _thought(self, is_end: bool) -> tuple[Kind, str]:
        thought, closed, rest = self._held.partition(CLOSE)
        if closed:
            self._held, self._state = rest, "start"
        else:
            kept = 0 if is_end else _overlap(thought, CLOSE)
            thought, self._held = thought[: len(thought) - kept], thought[len(thought) - kept :]
        return "reasoning", thought

    def _text(self, is_end: bool) -> tuple[Kind, str]:
        """Give text, and look for the end of a thought that was never opened."""
        text, closed, rest = self._held.partition(CLOSE) if self._may_close else (self._held, "", "")
        if not closed:
            kept = 0 if is_end or not self._may_close else _overlap(text, CLOSE)
            text, self._held = text[: len(text) - kept], text[len(text) - kept :]
            return "text", text
        line = rest[:_MOST_HELD]
        if len(line) < _MOST_HELD and not line.strip(" \t") and not is_end:
            self._held = closed + rest
            return "text", text  # what follows decides
        self._may_close = False
        if re.match(r"[ \t]*(\r?\n|$)", line) and not _quotes("".join([*self._texts, text])):
            self._held, self._state = rest, "start"
            return "void", text
        self._held = ""
        return "text", text + closed + rest


def _quotes(text: str) -> bool:
    """Whether a closing tag after `text` would be one that an answer speaks of."""
    line = text.rpartition("\n")[2]
    return OPEN in text or text.count("```") % 2 == 1 or line.count("`") % 2 == 1


def _overlap(text: str, tag: str) -> int:
    """Return how many characters at the end of `text` may be the beginning of `tag`."""
    return next((size for size in range(len(tag) - 1, 0, -1) if text.endswith(tag[:size])), 0)
