"""What people ask for in the words of a query, a request's body or the command line, as data of the contracts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import JsonValue

from tavern_host.contracts.documents import json_type, read_json_object
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.toolcalls import ToolCallRequest
from tavern_host.contracts.tools import ToolFilter, ToolKind, ToolQuery
from tavern_tools.catalog.names import quoted

_FILTERS = tuple(ToolQuery.model_fields)
_ID_KEYS = ("toolId", "tool_id", "id")
_KEYS = ("text", "arguments", "protocols", "callback", *_ID_KEYS)


def tool_filter(query: Mapping[str, str]) -> ToolFilter:
    """Return which tools a query asks for. Raises `InvalidInput` for a key or kind that does not exist."""
    for key in query:
        if key not in _FILTERS:
            raise InvalidInput(f"unknown filter {quoted(key)}{did_you_mean(key, _FILTERS)}")
    given: dict[str, Any] = {key: value for key, value in query.items() if value.strip()}
    kind = given.get("kind")
    if kind is not None and kind not in get_args(ToolKind):
        raise InvalidInput(f"there is no kind {quoted(kind)} of tool, but {', '.join(get_args(ToolKind))}")
    return ToolFilter(**given)


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
    return {**json_object(document), **values} if document is not None else values


def call_of(body: Any) -> str | ToolCallRequest:
    """Return the action text or the call that a body asks for. Raises `InvalidInput`."""
    if not isinstance(body, dict):
        raise InvalidInput(f'expected an object with "text" or "toolId", got {json_type(body)}')
    for key in body:
        if key not in _KEYS:
            raise InvalidInput(f"unknown key {quoted(key)}{did_you_mean(key, _KEYS)}")
    used = [key for key in _ID_KEYS if key in body]
    if len(used) + ("text" in body) != 1:
        raise InvalidInput('expected either "text" or "toolId" (with "arguments")')
    named = "text" if "text" in body else used[0]
    if not isinstance(body[named], str):
        raise InvalidInput(f'"{named}" must be text, got {json_type(body[named])}')
    if named == "text":
        if "arguments" in body:
            raise InvalidInput('"arguments" goes with "toolId", not with "text"')
        return str(body["text"])
    if "protocols" in body:
        raise InvalidInput('"protocols" goes with "text", not with "toolId"')
    arguments = body.get("arguments", {})
    if not isinstance(arguments, dict):
        raise InvalidInput(f'"arguments" must be an object, got {json_type(arguments)}')
    return ToolCallRequest(tool_id=body[named], arguments=arguments)


def protocols_asked(body: Mapping[str, Any]) -> list[str] | None:
    """Return the protocols that a body names, None for all. Raises `InvalidInput`."""
    names = body.get("protocols")
    if names is not None and (not isinstance(names, list) or not all(isinstance(name, str) for name in names)):
        raise InvalidInput('"protocols" must be an array of names')
    return names


def callback_asked(body: Mapping[str, Any]) -> str | None:
    """Return the address that a body names for the callback. Raises `InvalidInput`."""
    address = body.get("callback")
    if address is not None and not isinstance(address, str):
        raise InvalidInput(f'"callback" must be an address, got {json_type(address)}')
    return address


def json_object(text: str) -> dict[str, JsonValue]:
    """Return the JSON object that `--arguments` gives. Raises `InvalidInput`."""
    return read_json_object(text, "--arguments")
