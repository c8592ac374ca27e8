"""How arguments, results and streams become messages of a link and come back: by annotations that both sides know.

Each side reads what arrives by its own annotations, never by what the other says it is. A stream among the arguments is
read back from the caller, who keeps it under a number until it is read or the call has ended.
"""

from __future__ import annotations

import itertools
import re
import types
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from functools import lru_cache, partial
from typing import Any

from pydantic import JsonValue
from pydantic_core import to_json

from tavern_host.contracts.errors import InvalidInput, NotFound, PluginFailure, TavernError
from tavern_host.contracts.wire import WireError
from tavern_host.runtime.boundary import signature_without_self
from tavern_host.runtime.codec import decode, encode
from tavern_host.storage.values import MAX_VALUES
from tavern_isolation.edges import BYTES, Edges
from tavern_isolation.frames import Message
from tavern_isolation.in_flight import Stream
from tavern_isolation.link import Link

Head = dict[str, Any]
"""What a message begins with, as JSON."""

READ = "read"
"""The call that reads a stream among the arguments of another."""


_TEXTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')


def write(value: Any, annotation: Any) -> bytes:
    """Return a value as bytes. Raises `WireError`."""
    return value if annotation is bytes and type(value) is bytes else encode(value, annotation)


def read(data: bytes, annotation: Any) -> Any:
    """Return the value that `write` made these bytes of. Raises `WireError`."""
    if annotation is bytes:
        return data
    _check_size(data)
    return decode(data, annotation)


def _check_size(data: bytes) -> None:
    if data.count(b",") > MAX_VALUES and _TEXTS.sub(b"", data).count(b",") > MAX_VALUES:
        raise WireError(f"it has more than {MAX_VALUES:,} values")  # before they take twenty times the memory


def parts_of(value: Any, annotation: Any) -> Message:
    """Return a value of an edge, or of an annotation, as parts of a message: bytes of an edge are one of their own,
    which nobody looks through or copies. Raises `WireError`."""
    if not isinstance(annotation, Edges):
        return (write(value, annotation),)
    return (BYTES, value) if type(value) is bytes else (annotation.write(value),)


def value_of(parts: Iterator[bytes], annotation: Any) -> Any:
    """Return the value that `parts_of` made the next of these parts of. Raises `WireError`, and what says that a value
    is gone."""
    try:
        data = next(parts)
        if not isinstance(annotation, Edges):
            return read(data, annotation)
        if data == BYTES:
            return next(parts)
        _check_size(data)
        return annotation.read(data)
    except StopIteration:
        raise WireError("a part of it is missing") from None
    except (TavernError, WireError):
        raise
    except Exception as error:  # bytes that `write` did not make may lead to any
        raise WireError(f"these bytes are no value: {type(error).__name__}: {error}") from None


class Lending:
    """What lends streams, each of items of a type, until its block ends."""

    __slots__ = ("_mine", "_numbers", "_streams")

    def __init__(self, streams: dict[int, tuple[AsyncIterator[Any], Any]], numbers: Iterator[int]) -> None:
        self._streams = streams
        self._numbers = numbers
        self._mine: list[int] = []

    def __enter__(self) -> Callable[[AsyncIterator[Any], Any], int]:
        return self._lend

    def _lend(self, stream: AsyncIterator[Any], item: Any) -> int:
        number = next(self._numbers)
        self._streams[number] = stream, item
        self._mine.append(number)
        return number

    def __exit__(self, *error: object) -> None:
        for number in self._mine:
            self._streams.pop(number, None)


class Lent:
    """The streams that this side lent to the other, by number."""

    def __init__(self) -> None:
        self._streams: dict[int, tuple[AsyncIterator[Any], Any]] = {}
        self._numbers = itertools.count(1)

    def during(self) -> Lending:
        """Return the block in which streams are lent, which are taken back when it ends."""
        return Lending(self._streams, self._numbers)

    def read(self, number: int) -> AsyncIterator[Message]:
        """Return the items of a stream as messages, once. Raises `NotFound`."""
        found = self._streams.pop(number, None)
        if found is None:
            raise NotFound("this stream is read already, or the call that it came with has ended")
        return sent_items(*found)


class Typed:
    """A function whose values cross a link: `hints` are the annotations of its parameters, and of `return`. What has
    none is JSON."""

    def __init__(self, what: str, hints: Mapping[str, Any], *, plugin: str) -> None:
        self._what = what
        self.hints = hints
        self._plugin = plugin

    async def call(self, link: Link, lent: Lent, name: str, head: Head, arguments: Mapping[str, Any]) -> Any:
        """Call the function on the other side; return its result, or an iterator over the stream that it gives.

        Raises `InvalidInput` for an argument that is no wire value, `PluginFailure` for such a result, and what the
        other side raises.
        """
        with lent.during() as lend:
            return await self.result_of(partial(link.call, name, *self.message(head, arguments, lend)))

    async def result_of(self, asked: Callable[[], Awaitable[Message | Stream]]) -> Any:
        """Return the result of a call, or an iterator over the stream that it gives. Raises as `call`."""
        answer = await asked()
        return self._read(answer, self.hints["return"]) if isinstance(answer, tuple) else self.items(answer)

    async def stream(
        self, link: Link, lent: Lent, name: str, head: Head, arguments: Mapping[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield the stream that the function gives, which is called when this is read. Raises as `call`."""
        with lent.during() as lend:
            items = self.stream_of(partial(link.call, name, *self.message(head, arguments, lend)))
            async with aclosing(items):
                async for item in items:
                    yield item

    async def stream_of(self, asked: Callable[[], Awaitable[Message | Stream]]) -> AsyncGenerator[Any, None]:
        """Yield the stream that a call gives. Raises as `call`."""
        answer = await asked()
        if isinstance(answer, tuple):
            raise PluginFailure(f"{self._what} gave no stream", plugin=self._plugin)
        async with aclosing(self.items(answer)) as items:
            async for item in items:
                yield item

    def message(self, head: Head, arguments: Mapping[str, Any], lend: Callable[..., int]) -> list[bytes]:
        """Return a call as the parts of a message; `lend` lends a stream. Raises `InvalidInput`."""
        keys, parts, streams = [], [], {}
        for key, value in arguments.items():
            item = item_of(self.hints.get(key))
            if item is not None and isinstance(value, AsyncIterator):
                streams[key] = lend(value, item)
            else:
                keys.append(key)
                parts.append(self._sent(key, value))
        return [to_json({**head, "keys": keys, "streams": streams}), *parts]

    def _sent(self, key: str, value: Any) -> bytes:
        try:
            return write(value, self.hints.get(key, JsonValue))
        except WireError as error:
            raise InvalidInput(f"{self._what}: the argument {key} is no wire value: {error}") from None

    async def items(self, stream: Stream) -> AsyncGenerator[Any, None]:
        """Yield the items of a stream, as what the function is said to give."""
        item = item_of(self.hints["return"])
        async with aclosing(stream):
            async for parts in stream:
                yield self._read(parts, item)

    def _read(self, parts: Message, hint: Any) -> Any:
        if len(parts) != 1:
            raise PluginFailure(f"{self._what}: its result has {len(parts)} parts", plugin=self._plugin)
        return received(parts, hint, f"{self._what}: its result", self._plugin)

    def arguments(self, head: Head, parts: Message, link: Link) -> dict[str, Any]:
        """Return the arguments of a call from the other side. Raises `InvalidInput`."""
        keys: list[str] = head["keys"]
        try:
            found = {key: read(part, self.hints.get(key, JsonValue)) for key, part in zip(keys, parts, strict=True)}
        except ValueError as error:
            raise InvalidInput(f"{self._what}: {error}") from None
        for key, number in head["streams"].items():
            if (item := item_of(self.hints.get(key))) is None:
                raise InvalidInput(f"{self._what}: the argument {key} is no stream")
            found[key] = borrowed(link, int(number), item)
        return found

    def answer(self, value: Any) -> Message | AsyncIterator[Message]:
        """Return a result as a message, or as a stream of messages. Raises `PluginFailure`."""
        hint = self.hints["return"]
        if isinstance(value, AsyncIterator):
            return sent_items(value, item_of(hint), f"{self._what}: an item of its result", self._plugin)
        return (sent(value, hint, f"{self._what}: its result", self._plugin),)


def sent(value: Any, annotation: Any, what: str, plugin: str | None) -> bytes:
    """Return a value of a plugin as bytes. Raises `PluginFailure`."""
    (data,) = _sent_parts(value, annotation, what, plugin)
    return data


def _sent_parts(value: Any, annotation: Any, what: str, plugin: str | None) -> Message:
    try:
        return parts_of(value, annotation)
    except WireError as error:
        raise PluginFailure(f"{what} is no wire value: {error}", plugin=plugin) from None


def received(parts: Message, annotation: Any, what: str, plugin: str) -> Any:
    """Return the value that a message of the other side is. Raises `PluginFailure`."""
    try:
        return value_of(iter(parts), annotation)
    except ValueError as error:  # `WireError` is one
        raise PluginFailure(f"{what} is no wire value: {error}", plugin=plugin) from None


async def sent_items(
    stream: AsyncIterator[Any], item: Any, what: str = "an item", plugin: str | None = None
) -> AsyncGenerator[Message, None]:
    """Yield the items of a stream as messages; the stream is closed when its reader leaves."""
    try:
        async for value in stream:
            yield _sent_parts(value, item, what, plugin)
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


async def borrowed(link: Link, number: int, item: Any) -> AsyncGenerator[Any, None]:
    """Yield the items of a stream that the other side lent."""
    stream = await link.call(READ, to_json({"stream": number}))
    assert isinstance(stream, Stream)
    async with aclosing(stream):
        async for parts in stream:
            yield value_of(iter(parts), item)


def is_stream(annotation: Any) -> bool:
    """Return whether an annotation is of a stream."""
    return typing.get_origin(annotation) is AsyncIterator


def item_of(annotation: Any) -> Any:
    """Return the type of the items of the stream that an annotation is, or may be; None where it is none."""
    members = (annotation, *typing.get_args(annotation))
    stream = next((member for member in members if typing.get_origin(member) is AsyncIterator), None)
    return None if stream is None else typing.get_args(stream)[0]


def remote_method(
    crossing: Typed,
    function: Callable[..., Any],
    lent: Lent,
    link: Callable[[], Awaitable[Link]],
    name: str,
    head: Head,
) -> Callable[..., Any]:
    """Return a function that has the signature of `function`, of a class that both sides know, and asks the other side
    to do it by the call `name`; `link` returns the link when it is needed."""
    signature = signature_without_self(function)

    async def call(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        return await crossing.call(await link(), lent, name, head, arguments)

    def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        return items(signature.bind(*args, **kwargs).arguments)

    async def items(arguments: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        async with aclosing(crossing.stream(await link(), lent, name, head, arguments)) as found:
            async for item in found:
                yield item

    method: Any = stream if is_stream(crossing.hints["return"]) else call
    method.__name__, method.__signature__ = function.__name__, signature
    return method  # type: ignore[no-any-return]


@lru_cache(4096)
def typed_hook(spec: Callable[..., Any], plugin: str) -> Typed:
    """Return how an implementation of a hook is called, which may always answer None."""
    crossing = typed(spec, spec.__name__, plugin)
    return Typed(spec.__name__, {**crossing.hints, "return": crossing.hints["return"] | None}, plugin=plugin)


@lru_cache(4096)
def typed(function: Callable[..., Any], what: str, plugin: str) -> Typed:
    """Return how a function that both sides know is called: a hook's specification, or a method of an interface."""
    return Typed(what, typing.get_type_hints(function, include_extras=True), plugin=plugin)


def answer_type(hints: Mapping[str, Any], how: str, first: str = "") -> Any:
    """Return the type of what a caller of a hook gets: for a filter that of its argument `first`, otherwise of one
    plugin's answer."""
    if how == "filter":
        return hints[first]
    members = typing.get_args(hints["return"])
    kept = tuple(one for one in members if one is not type(None))
    is_union = typing.get_origin(hints["return"]) in (typing.Union, types.UnionType)
    answer: Any = typing.Union[kept] if is_union else hints["return"]  # noqa: UP007  # of any number
    return types.GenericAlias(list, answer) if how == "collect" and typing.get_origin(answer) is not list else answer
