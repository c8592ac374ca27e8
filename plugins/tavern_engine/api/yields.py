"""The items of the streams that a run gives by its interface, read from the messages about it."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterator, Mapping
from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.events import Event, Gap

INTERFACE_YIELD = "WORKFLOW_INTERFACE_YIELD"


def items_of(payload: Mapping[str, Any]) -> Iterator[JsonValue]:
    """Yield the items that a message brings; the one that tells of an end brings none."""
    content: Any = payload.get("yieldedContent")
    if payload.get("isLastChunk") is True or not isinstance(content, dict):
        return
    kind, inner = content.get("type"), content.get("content")
    if kind == "custom" and len(content) == 3 and isinstance(inner, list) and content.get("count") == len(inner):
        yield from inner
    elif kind in ("custom", "text_chunk") and len(content) == 2:
        yield inner
    else:
        yield content


async def interface_items(
    events: AsyncIterable[Event | Gap], run_id: str, keys: Collection[str]
) -> AsyncIterator[JsonValue]:
    """Yield the items of the outputs `keys` of a run, out of its messages, as they come; lost ones are left out."""
    async for event in events:
        if isinstance(event, Gap) or event.type != INTERFACE_YIELD or event.payload.get("promptId") != run_id:
            continue
        if event.payload.get("interfaceOutputKey") in keys:
            for item in items_of(event.payload):
                yield item
