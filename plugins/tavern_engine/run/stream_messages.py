"""Publishes the items of streams to clients: soon, and many in one message where many come, so that a quick stream
costs few messages. Streams themselves and their readers are in `streams.py`.

A message brings text as one `text_chunk`, however many pieces it came in; any other item as `{"type": "custom",
"content": item}`, and several as `{"type": "custom", "content": [item, …], "count": how many}`. An item that has the
shape of a chunk already is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from pydantic import JsonValue

from tavern_engine.run.json_values import clean, json_form
from tavern_engine.run.streams import Stream
from tavern_workflows.api.dataflow import Converter

INTERVAL = 0.03
"""Seconds between two publications where items come one after another; a first one is published at once.
Where very many come it is done more often, so that no single publication blocks the event loop for long."""

MOST_ITEMS = 1000
"""How many items one message brings at most."""

MOST_TEXT = 2**16
"""How many characters one message brings at most."""

MOST_CHUNKS = 32
"""How many items in the shape of a chunk are published one by one, of those that come together; more go as items."""

Message = tuple[str, dict[str, Any]]

Publish = Callable[[Iterable[Message]], None]

IsRead = Callable[[str], bool]
"""Whether messages of a type are to be made."""

Outputs = Sequence[tuple[str, Converter | None]]
"""The interface outputs that publish a stream, and what converts its items for them."""

_LEAST_INTERVAL = 0.001
_CHUNKS = frozenset(("text_chunk", "tool_call_chunk", "finish_reason_chunk", "usage_chunk", "error_chunk", "custom"))
_PLAIN = frozenset((int, bool, type(None)))
_TEXT, _CHUNK, _OTHER = range(3)
_NO_TEXT: JsonValue = {"type": "text_chunk", "content": ""}


@dataclass(eq=False, slots=True)
class _Published:
    """A stream that is published; `number` is its node's. `is_new`: it has unpublished items."""

    stream: Stream
    number: int
    key: str
    outputs: Outputs
    is_new: bool = False


class StreamMessages:
    """The streams of one run, as its clients see them. Messages that nobody would read are not made."""

    def __init__(self, run_id: str, ids: Sequence[str], publish: Publish, is_read: IsRead) -> None:
        self._run_id = run_id
        self._ids = ids
        self._publish = publish
        self._is_read = is_read
        self._streams: dict[Stream, _Published] = {}
        self._left: dict[str, int] = {}
        self._timer: asyncio.Handle | None = None
        self._interval = _LEAST_INTERVAL
        self._next = self._last = 0.0
        self._is_closed = False

    def expect(self, interface: Mapping[tuple[int, str], Outputs]) -> None:
        """Count the streams of each interface output: one with several ends with the last of them."""
        for outputs in interface.values():
            for output, _ in outputs:
                self._left[output] = self._left.get(output, 0) + 1

    def watch(self, stream: Stream, number: int, key: str, outputs: Outputs) -> None:
        """Publish the items of a stream from now on."""
        published = self._streams[stream] = _Published(stream, number, key, outputs)
        stream.published = 0
        stream.watchers.append(partial(self._on_item, published))

    def end(self, stream: Stream) -> None:
        """Publish the last items of a stream, and its end."""
        published = self._streams.pop(stream, None)
        if published is None:
            return
        messages = self._new_messages(published)
        stream.published = None
        content: JsonValue = _NO_TEXT if stream.error is None else {"type": "error_chunk", "content": stream.error}
        if published.number >= 0:
            messages.append(self._node(published, content, is_last=True))
        messages.extend(self._interface_ends(output, content) for output, _ in published.outputs)
        self._publish(messages)

    def whole(self, output: str, items: Iterable[Any]) -> None:
        """Publish all items of an interface output that is complete already, and its end."""
        messages = [self._interface(output, one) for one in (contents(list(items)) if self._are_read() else ())]
        self._publish([*messages, self._interface_ends(output, _NO_TEXT)])

    def close(self) -> None:
        """Publish what is left, and nothing any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        messages = [message for published in self._streams.values() for message in self._new_messages(published)]
        for stream in self._streams:
            stream.published = None
        self._streams.clear()
        if messages:
            self._publish(messages)

    # --- publishing -------------------------------------------------------------------------------

    def _on_item(self, published: _Published) -> None:
        """A stream has a further item."""
        published.is_new = True
        if self._timer is None and not self._is_closed:
            loop = asyncio.get_running_loop()
            wait = self._next - loop.time()
            self._timer = loop.call_later(wait, self._publish_new) if wait > 0 else loop.call_soon(self._publish_new)

    def _publish_new(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        messages: list[Message] = []
        count = 0
        for published in self._streams.values():
            if published.is_new:
                count += len(published.stream.items) - (published.stream.published or 0)
                messages += self._new_messages(published)
                published.is_new = False
                published.stream.watchers.append(partial(self._on_item, published))
        if messages:
            self._publish(messages)
        # Short intervals at first: it is not known yet how many items come.
        self._interval = min(INTERVAL, 2 * self._interval, (now - self._last) * MOST_ITEMS / max(count, 1))
        self._interval = max(_LEAST_INTERVAL, self._interval)
        self._next = now + self._interval
        self._last = now

    def _new_messages(self, published: _Published) -> list[Message]:
        """Return the messages for the unpublished items of a stream."""
        stream = published.stream
        items = stream.items[stream.published or 0 :]
        if not items:
            return []
        stream.published = len(stream.items)
        if not self._are_read():
            return []
        found = contents(items)
        messages = [self._node(published, content) for content in found] if published.number >= 0 else []
        for output, convert in published.outputs:
            pieces = found if convert is None else contents(_fitting(items, convert))
            messages.extend(self._interface(output, content) for content in pieces)
        return messages

    def _are_read(self) -> bool:
        return self._is_read("NODE_YIELD") or self._is_read("WORKFLOW_INTERFACE_YIELD")

    def _node(self, published: _Published, content: JsonValue, *, is_last: bool = False) -> Message:
        about = {"promptId": self._run_id, "sourceNodeId": self._ids[published.number], "outputKey": published.key}
        return "NODE_YIELD", {**about, "yieldedContent": content, "isLastChunk": is_last}

    def _interface(self, output: str, content: JsonValue, *, is_last: bool = False) -> Message:
        about = {"promptId": self._run_id, "interfaceOutputKey": output}
        return "WORKFLOW_INTERFACE_YIELD", {**about, "yieldedContent": content, "isLastChunk": is_last}

    def _interface_ends(self, output: str, content: JsonValue) -> Message:
        left = self._left[output] = self._left.get(output, 1) - 1
        return self._interface(output, content, is_last=left <= 0)


def placeholder(message: str, **more: JsonValue) -> JsonValue:
    """Return the placeholder of a stream in a message that does not bring it."""
    return {"type": "stream_placeholder", "message": message, **more}


def brief(outputs: dict[str, JsonValue], streams: Collection[str]) -> dict[str, JsonValue]:
    """Return a node's outputs for a message: of a long stream its items came in others, and are not copied again."""
    found = dict(outputs)
    for key in streams:
        value = found.get(key)
        if (isinstance(value, list) and len(value) > MOST_ITEMS) or (isinstance(value, str) and len(value) > MOST_TEXT):
            found[key] = placeholder("the output is a stream; its items came as NODE_YIELD", outputKey=key)
    return found


def contents(items: list[Any]) -> list[JsonValue]:
    """Return items of a stream as what messages bring, in their order."""
    found: list[JsonValue] = []
    kinds = set(map(type, items))
    groups: Iterable[tuple[int, Iterable[Any]]]
    if kinds <= _PLAIN:
        return _others(items)
    if kinds == {str}:
        groups = [(_TEXT, items)]
    elif dict not in kinds and not any(issubclass(kind, str | dict) for kind in kinds):
        groups = [(_OTHER, items)]
    else:
        groups = groupby(items, _kind)
    for kind, group in groups:
        if kind == _TEXT:
            found += _texts(group)
        elif kind == _CHUNK:
            found += _chunks(list(group))
        else:
            found += _others(json_form(list(group)))
    return found


def _kind(item: Any) -> int:
    if isinstance(item, str):
        return _TEXT
    if type(item) is not dict:
        return _OTHER
    kind = item.get("type")
    if type(kind) is not str or kind not in _CHUNKS or "content" not in item:
        return _OTHER
    return _TEXT if kind == "text_chunk" and len(item) == 2 and type(item["content"]) is str else _CHUNK


def _texts(items: Iterable[Any]) -> list[JsonValue]:
    text = clean("".join(item if isinstance(item, str) else item["content"] for item in items))
    pieces = [text[start : start + MOST_TEXT] for start in range(0, len(text), MOST_TEXT)] or [""]
    return [{"type": "text_chunk", "content": piece} for piece in pieces]


def _chunks(items: list[Any]) -> list[JsonValue]:
    forms = [json_form(item) for item in items]
    return forms if len(forms) <= MOST_CHUNKS else _others(forms)


def _others(forms: Any) -> list[JsonValue]:
    if len(forms) == 1:
        return [{"type": "custom", "content": forms[0]}]
    parts = [forms[start : start + MOST_ITEMS] for start in range(0, len(forms), MOST_ITEMS)]
    return [{"type": "custom", "content": part, "count": len(part)} for part in parts]


def _fitting(items: list[Any], convert: Converter) -> list[Any]:
    """Return the items that can be converted; the node of the outputs reports the others."""
    found = []
    for item in items:
        try:
            found.append(convert(item))
        except (OverflowError, ValueError):
            continue
    return found
