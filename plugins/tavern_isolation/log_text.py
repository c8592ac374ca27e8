"""Texts of a child for the log of its host: they can neither look like lines of others nor command a terminal."""

from __future__ import annotations

from typing import Final

_MARKS = {*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029} - {ord("\t"), ord("\n")}
_SHOWN: Final = {mark: f"\\x{mark:02x}" if mark < 0x100 else f"\\u{mark:04x}" for mark in _MARKS}


def for_log(text: str) -> str:
    """Return a text with its control characters written out, and its further lines moved to the right."""
    return text.translate(_SHOWN).replace("\n", "\n    ")
