"""Values of slots of a node, as parts of a message."""

from __future__ import annotations

import json
from typing import Any

from tavern_host.contracts.errors import InvalidInput, PluginFailure
from tavern_host.contracts.wire import WireError
from tavern_isolation.frames import Message
from tavern_isolation.typed import LOOSE, read, write

Values = dict[str, Any]
"""Values by the key of their slot."""


def packed(values: Values, what: str) -> tuple[list[str], list[bytes]]:
    """Return the keys and the bytes of values. Raises `InvalidInput` for one that cannot cross, with its slot."""
    parts = []
    for key, value in values.items():
        try:
            parts.append(write(value, LOOSE))
        except WireError as error:
            raise InvalidInput(f"node {what}, slot {key}: {error}") from None
    return list(values), parts


def unpacked(parts: Message, what: str) -> Values:
    """Return the values of a message that `packed` made, whose first part holds the keys. Raises `PluginFailure`."""
    try:
        keys = json.loads(parts[0])["keys"]
        return {str(key): read(part, LOOSE) for key, part in zip(keys, parts[1:], strict=True)}
    except (ValueError, LookupError, TypeError) as error:
        raise PluginFailure(f"node {what}: its outputs are no values: {error}") from None
