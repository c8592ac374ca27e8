"""What people ask for in the words of a query or the command line, as data of the contracts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import JsonValue

from tavern_host.contracts.documents import read_json_object
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.tools import ToolKind
from tavern_host.contracts.wire import Model
from tavern_tools.api.tools import ToolFilter, ToolQuery
from tavern_tools.catalog.names import quoted


def require_known(query: Mapping[str, str], model: type[Model]) -> None:
    """Raise `InvalidInput` for a key that is no field of the query."""
    for key in query:
        if key not in model.model_fields:
            raise InvalidInput(f"unknown filter {quoted(key)}{did_you_mean(key, model.model_fields)}")


def tool_filter(query: Mapping[str, str]) -> ToolFilter:
    """Return which tools a query asks for. Raises `InvalidInput` for a key or kind that does not exist."""
    require_known(query, ToolQuery)
    fields: dict[str, Any] = {key: value for key, value in query.items() if value.strip()}
    kind = fields.get("kind")
    if kind is not None and kind not in get_args(ToolKind):
        raise InvalidInput(f"there is no kind {quoted(kind)} of tool, but {', '.join(get_args(ToolKind))}")
    return ToolFilter(**fields)


def arguments_of(pairs: list[str], document: str | None) -> dict[str, JsonValue]:
    """Return the arguments of `NAME=VALUE` texts and of a JSON object; a pair wins. Raises `InvalidInput`."""
    values: dict[str, JsonValue] = {}
    for text in pairs:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidInput(f"--arg expects NAME=VALUE, got {text!r}")
        if name in values:
            raise InvalidInput(f"--arg {name} is given twice")
        values[name] = value
    return {**read_json_object(document, "--arguments"), **values} if document is not None else values
