"""How a manifest is refused: with the file, the line and what to do instead."""

from __future__ import annotations

from tavern_scripts.api.scripts import ScriptErrorType
from tavern_scripts.results.refusal import Refused


def refuse(source: str, problem: str, *, line: int | None = None, text: str = "") -> Refused:
    """Return the error for a manifest `source`; `text` is what stands there."""
    place = source if line is None else f"{source}, line {line}"
    shown = f" ({_shown(text)})" if text else ""
    return Refused(ScriptErrorType.DEPENDENCY, f"{place}{shown}: {problem}")


def line_of(text: str, *needles: str) -> int | None:
    """Return the number of the first line in which all of these stand, else that of the last one of them."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if all(needle in line for needle in needles):
            return number
    return next((number for number, line in enumerate(lines, 1) if needles and needles[-1] in line), None)


def _shown(text: str) -> str:
    plain = "".join(letter if letter.isprintable() else "·" for letter in text.strip())
    return plain if len(plain) <= 120 else f"{plain[:117]}…"
