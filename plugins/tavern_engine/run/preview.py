"""Shortens values for a log."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from tavern_engine.run.json_values import clean, json_form

TEXT = 200
"""How many characters of a text are shown."""

ITEMS = 20
"""How many items, in all, a list or object may have to be shown as it is."""


def preview(value: Any) -> JsonValue:
    """Return a JSON form of a value that takes little space: of a long text its beginning, of a large list or object
    how many items it has."""
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value  # type: ignore[no-any-return]
    if kind is str:
        return clean(value if len(value) <= TEXT else value[:TEXT] + "…")
    if kind is list or kind is dict:
        items = [ITEMS]
        form = _shortened(value, items)
        return form if items[0] >= 0 else f"{'a list' if kind is list else 'an object'} of {len(value):,}"
    return json_form(value) if kind is float else _other(value)


def _shortened(value: Any, left: list[int]) -> JsonValue:
    """Return a list or object with its texts shortened, counting down how many more items it may have."""
    left[0] -= len(value)
    if left[0] < 0:
        return None
    if type(value) is list:
        return [_item(item, left) for item in value]
    return {clean(str(key)): _item(item, left) for key, item in value.items()}


def _item(value: Any, left: list[int]) -> JsonValue:
    return _shortened(value, left) if type(value) in (list, dict) else preview(value)


def _other(value: Any) -> JsonValue:
    form = json_form(value)
    if isinstance(form, str):
        return form if len(form) <= TEXT else form[:TEXT] + "…"
    return preview(form) if isinstance(form, list | dict) else form
