"""Draws the edges between rows as rails to the left of them. Pure: rows are numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MOST = 12
"""How many rails may run side by side; a graph that needs more is drawn without."""

_GLYPHS = {
    # from above, from below, from the left, from the right
    (True, True, False, True): "├",
    (True, True, True, False): "┤",
    (True, True, True, True): "┼",
    (True, False, False, True): "╰",
    (True, False, True, False): "╯",
    (True, False, True, True): "┴",
    (False, True, False, True): "╭",
    (False, True, True, False): "╮",
    (False, True, True, True): "┬",
}


@dataclass(frozen=True, slots=True)
class Rails:
    """What stands to the left of a row: of a line above it, of the line that leads into it (where there is one), of
    its own, and of those below."""

    above: str
    join: str | None
    node: str
    below: str


def rails(count: int, links: Iterable[tuple[int, int]]) -> list[Rails] | None:
    """Return the rails of so many rows with these links, each from an earlier row to a later one; all of one width.

    None where more than `MOST` rails would run side by side.
    """
    last: dict[int, int] = {}
    sources: dict[int, set[int]] = {}
    for source, target in links:
        last[source] = max(last.get(source, 0), target)
        sources.setdefault(target, set()).add(source)
    lanes: list[int | None] = []
    drawn: list[tuple[str, str | None, str, str]] = []
    for row in range(count):
        above = _bars(lanes)
        arriving = [lane for lane, source in enumerate(lanes) if source in sources.get(row, ())]
        ending = {lane for lane in arriving if last[_source(lanes, lane)] == row}
        own = min(ending, default=None)
        if own is None:
            own = next((lane for lane, source in enumerate(lanes) if source is None), len(lanes))
        if own >= MOST:
            return None
        if own == len(lanes):
            lanes.append(None)
        join = _join(lanes, own, set(arriving), ending) if arriving and arriving != [own] else None
        for lane in ending:
            lanes[lane] = None
        node = _bars(lanes, own)
        lanes[own] = row if row in last else None
        while lanes and lanes[-1] is None:
            lanes.pop()
        drawn.append((above, join, node, _bars(lanes)))
    width = max((len(part) for parts in drawn for part in parts if part is not None), default=0)
    return [
        Rails(above.ljust(width), join if join is None else join.ljust(width), node.ljust(width), below.ljust(width))
        for above, join, node, below in drawn
    ]


def _source(lanes: list[int | None], lane: int) -> int:
    source = lanes[lane]
    assert source is not None
    return source


def _bars(lanes: list[int | None], own: int | None = None) -> str:
    return " ".join("●" if lane == own else " " if source is None else "│" for lane, source in enumerate(lanes))


def _join(lanes: list[int | None], own: int, arriving: set[int], ending: set[int]) -> str:
    """Return the line in which the arriving rails turn to the row's own lane."""
    first, end = min(arriving | {own}), max(arriving | {own})
    parts = []
    for lane, source in enumerate(lanes):
        if lane in arriving or lane == own:
            below = lane == own or lane not in ending
            parts.append(_GLYPHS.get((source is not None, below, lane > first, lane < end), "│"))
        elif source is not None:
            parts.append("│")
        else:
            parts.append("─" if first < lane < end else " ")
        parts.append("─" if first <= lane < end else " ")
    return "".join(parts).rstrip()
