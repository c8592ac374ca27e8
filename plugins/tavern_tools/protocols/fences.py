"""Code fences in the text before a call: a protocol drops one that holds nothing but its calls, so it must see it."""

from __future__ import annotations

from tavern_tools.api.fences import fence_at_end, toggles


class FenceTracker:
    """Follows the lines of a text, to distinguish a fence that opens from one that closes."""

    def __init__(self) -> None:
        self._line_is_blank = True
        self._in_code = False

    def follow(self, text: str) -> None:
        """Take text that was released."""
        self._in_code ^= self._toggles(text)
        line = text[text.rfind("\n") + 1 :]
        self._line_is_blank = (self._line_is_blank or len(line) < len(text)) and not line.strip(" \t")

    def break_off(self) -> None:
        """Say that something else than text stands here."""
        self._line_is_blank = False

    def at_end(self, text: str, *, arriving: bool = False, cut: bool = False) -> int:
        """Return where the opening fence begins that ends `text`, the text behind what was released; else its length.

        With `arriving` it may be incomplete, or turn out to be a closing one. With `cut` the text begins anywhere.
        """
        begin = fence_at_end(text, 0, len(text), self._line_is_blank and not cut, whole=not arriving)
        if begin is None or (not arriving and self._in_code ^ self._toggles(text[:begin])):
            return len(text)
        return begin

    def _toggles(self, text: str) -> bool:
        """Return whether the fences in `text` are odd in number."""
        return toggles(text, self._line_is_blank) % 2 == 1
