"""Where elements stand that have no place of their own: below the others. Pure; the page does the rest."""

from __future__ import annotations

from collections.abc import Sequence

from tavern_panels.api.panels import COLUMNS, PanelElement

SIZES = {"workflow": (12, 10), "agent": (6, 12), "text": (12, 2)}
"""Columns and rows of an element that does not say how large it is."""

Place = tuple[int, int, int, int]
"""x, y, w, h."""


def places(elements: Sequence[PanelElement]) -> list[Place]:
    """Return the place of each element, in their order. One that would stand beyond the last column is moved left."""
    bottom = max((one.y + _size(one)[1] for one in elements if one.y is not None), default=0)
    found: list[Place] = []
    for element in elements:
        width, height = _size(element)
        if element.x is None or element.y is None:
            found.append((0 if element.x is None else min(element.x, COLUMNS - width), bottom, width, height))
            bottom += height
        else:
            found.append((min(element.x, COLUMNS - width), element.y, width, height))
    return found


def _size(element: PanelElement) -> tuple[int, int]:
    width, height = SIZES[element.kind]
    return element.w or width, element.h or height
