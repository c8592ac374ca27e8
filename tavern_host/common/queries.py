"""Reads what a query of a URL or a command line asks for, with errors that say what there is."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.names import did_you_mean

StatusT = TypeVar("StatusT", bound=StrEnum)
FilterT = TypeVar("FilterT", bound=BaseModel)


def statuses(kind: type[StatusT], text: str) -> list[StatusT]:
    """Return the statuses that a text names, with commas between them. Raises `InvalidInput` with near ones."""
    return [_status(kind, word.strip().lower()) for word in text.split(",") if word.strip()]


def _status(kind: type[StatusT], word: str) -> StatusT:
    try:
        return kind(word)
    except ValueError:
        known = [status.value for status in kind]
        hint = did_you_mean(word, known) or f"; there are {', '.join(known)}"
        raise InvalidInput(f"status: there is no status {word!r:.60}{hint}") from None


def read_filter(model: type[FilterT], found: Mapping[str, Any]) -> FilterT:
    """Return the filter with these values. Raises `InvalidInput` for the first that cannot be."""
    try:
        return model.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place, message = str(first["loc"][0]), first["msg"]
        raise InvalidInput(f"{place}: {message[:1].lower()}{message[1:]}, got {found.get(place)!r:.60}") from None
