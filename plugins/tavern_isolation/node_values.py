"""Values of slots of a node, as parts of a message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_core import from_json

from tavern_host.contracts.errors import InvalidInput, PluginEnded, PluginFailure
from tavern_host.contracts.wire import WireError
from tavern_isolation.edges import Edges
from tavern_isolation.frames import Message
from tavern_isolation.typed import parts_of, value_of

Values = dict[str, Any]
"""Values by the key of their slot."""


def packed(values: Values, edges: Edges, what: str) -> tuple[list[str], list[bytes]]:
    """Return the keys and the parts of values. Raises `InvalidInput` for one that cannot cross, with its slot."""
    parts: list[bytes] = []
    for key, value in values.items():
        try:
            parts += parts_of(value, edges)
        except WireError as error:
            raise InvalidInput(f"node {what}, slot {key}: {error}") from None
    return list(values), parts


def values_of(keys: Sequence[str], parts: Iterator[bytes], edges: Edges, what: str) -> Values:
    """Return the values that `packed` made the next of these parts of. Raises `PluginEnded` for one that is gone, with
    its slot."""
    values: Values = {}
    for key in keys:
        try:
            values[str(key)] = value_of(parts, edges)
        except PluginEnded as error:
            raise PluginEnded(f"node {what}, slot {key}: {error.message}", plugin=error.info.plugin) from None
    return values


def unpacked(parts: Message, edges: Edges, what: str) -> Values:
    """Return the values of a message whose first part holds the keys. Raises `PluginFailure`."""
    try:
        return values_of(from_json(parts[0])["keys"], iter(parts[1:]), edges, what)
    except (ValueError, LookupError, TypeError) as error:
        raise PluginFailure(f"node {what}: its outputs are no values: {error}") from None
