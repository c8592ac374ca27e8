"""Fields of a service's result that are null because there is nothing to say, where a tool's `output` knows no null."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from tavern_tools.catalog.schemas import Location, Schema


def leave_out_nulls(output: Schema, value: JsonValue) -> bool:
    """Return whether a result that `output` forbids is right without fields that are null; then they are taken out.

    A service writes every field of its result, with `null` for what is not there; a JSON Schema says of such a field
    that it is not required. A value that would be wrong without them, too, stays as it is.
    """
    taken: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for place, _ in output.mistakes(value):
        owner = _owner(value, place)
        if owner is not None and owner.get(place[-1], ...) is None:
            taken.append((owner, dict(owner)))
            del owner[place[-1]]
    if taken and output.allows(value):
        return True
    for owner, whole in reversed(taken):
        owner.update(whole)
    return False


def _owner(value: JsonValue, place: Location) -> dict[Any, Any] | None:
    """Return the object in `value` that a place is a field of, or None."""
    found: Any = value
    for part in place[:-1]:
        if not isinstance(found, dict | list):
            return None
        try:
            found = found[part]  # type: ignore[index]
        except (LookupError, TypeError):
            return None
    return found if place and isinstance(found, dict) else None
