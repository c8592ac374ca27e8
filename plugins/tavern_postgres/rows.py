"""Runs as rows of PostgreSQL, whose texts have neither NUL nor lone surrogates."""

from __future__ import annotations

from tavern_engine.api.run_rows import RunRows


def text(value: str) -> str:
    """Return a text that PostgreSQL has; of a NUL or a lone surrogate its code is written out."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


ROWS = RunRows(text=text, moment=lambda moment: moment, time=lambda value: value, find="strpos")
