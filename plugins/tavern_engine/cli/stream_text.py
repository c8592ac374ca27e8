"""Serializes the text streams of several outputs into one text for the terminal."""

from __future__ import annotations

from collections.abc import Callable


class StreamTexts:
    """The interface outputs of one run that come as text. The first that comes is shown as it comes; the others wait
    until it has ended. `title` says what an output is called."""

    def __init__(self, title: Callable[[str], str]) -> None:
        self._title = title
        self._came: dict[str, list[str]] = {}
        self._waiting: dict[str, list[str]] = {}
        self._ended: set[str] = set()
        self._current: str | None = None
        self._is_first = True

    def add(self, key: str, text: str, *, is_last: bool) -> None:
        """Take in a piece of an output."""
        if text:
            self._came.setdefault(key, []).append(text)
            self._waiting.setdefault(key, []).append(text)
        if is_last:
            self._ended.add(key)

    def take(self, *, all_ended: bool = False) -> str:
        """Return the text that can be shown by now and was not returned before."""
        parts = []
        while True:
            if self._current is None:
                self._current = next(iter(self._waiting), None)
                if self._current is None:
                    break
                parts.append(("" if self._is_first else "\n") + f"{self._title(self._current)}: ")
                self._is_first = False
            parts += self._waiting.pop(self._current, [])
            if not (all_ended or self._current in self._ended):
                break
            self._current = None
        return "".join(parts)

    def text(self, key: str) -> str | None:
        """Return all that came of an output; None where nothing did."""
        came = self._came.get(key)
        return "".join(came) if came is not None else None
