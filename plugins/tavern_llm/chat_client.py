"""Talks to one server of models over HTTP, in the wire that it is made with: whole answers, streams, embeddings, its
models.

Follows no redirect, so that prompts and keys go to the configured server and nowhere else.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

from tavern_host import clock
from tavern_host.context import Http
from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput, PluginFailure
from tavern_llm.answers import pieces_of
from tavern_llm.api.llm import MAX_IMAGE_BYTES, LlmChunk, LlmEmbeddings, LlmRequest, LlmResponse
from tavern_llm.chat_body import Dialect
from tavern_llm.chat_wire import ServerError, TooLong, WireError, error_message, parse_json, raise_error
from tavern_llm.dialects import MAY_LEARN, with_hints
from tavern_llm.failures import ServerFailures
from tavern_llm.openai_options import OpenAiOptions
from tavern_llm.sse import SseParser
from tavern_llm.wires import CHAT, Reader, Wire

if TYPE_CHECKING:
    import aiohttp

MAX_BYTES = 16 << 20
"""The largest answer that is read whole, and the largest event of a streamed one."""

MAX_STREAM_BYTES = 64 << 20
"""The longest stream that is read: of an event with a few characters most is wrapping."""

_PIECE = 8 << 10
"""How many bytes of an answer are read before others get their turn."""

MAX_ERROR_BYTES = 64 << 10
"""How much of an error answer is read."""


class BrokenOff(WireError):
    """The answer broke off; trying again may help."""


class ChatClient:
    """Sends requests to one server through its caller's session; `read` returns the bytes of a Blob.

    What the server was found not to take is remembered as long as the client lives. Of the calls that its methods are
    given, as those of every adapter, nothing is sent.
    """

    def __init__(
        self,
        options: OpenAiOptions,
        http: Http,
        read: Callable[[Blob], Awaitable[bytes]],
        wire: Wire = CHAT,
    ) -> None:
        self._options = options
        self._wire = wire
        self._http = http
        self._read = read
        self._failures = ServerFailures(options, http.proxy)
        self._dialect = Dialect(shapes=frozenset(() if options.takes_tools else ("text_tools",)))

    async def complete(self, request: LlmRequest, call: CallContext | None = None) -> LlmResponse:
        """Return the whole answer; leaving early closes the connection."""
        async with self._answer(request, stream=False) as (response, notices):
            reader = self._wire.reader(self._options.model)
            return with_hints(request, reader.whole(await _json(response), notices))

    async def stream(self, request: LlmRequest, call: CallContext | None = None) -> AsyncIterator[LlmChunk]:
        """Yield the answer's pieces, then one with the whole; closing early closes the connection.

        Raises `PluginFailure` with the `partial_text` where the answer breaks off. Calls that had come until then are
        never whole.
        """
        reader = self._wire.reader(self._options.model)
        try:
            async with self._answer(request, stream=True) as (response, notices):
                if response.content_type == "text/event-stream":
                    async with aclosing(self._chunks(response, reader)) as chunks:
                        async for chunk in chunks:
                            yield chunk
                    answer, pieces = reader.response(notices), []
                else:
                    answer = reader.whole(await _json(response), notices)
                    pieces = pieces_of(answer)[:-1]
                for chunk in [*pieces, LlmChunk(response=with_hints(request, answer))]:
                    yield chunk
        except PluginFailure as error:
            if reader.text:
                error.info.details["partial_text"] = reader.text
            raise

    async def embed(self, texts: list[str], call: CallContext | None = None) -> LlmEmbeddings:
        """Return the vector of each text, in order. Raises `PluginFailure` also where the wire has none."""
        model = self._options.model
        if (asked := self._wire.embeddings(model, texts)) is None:
            raise self._failures.failure("gives no embeddings", missing="embed")
        async with self._sent("POST", *asked) as response:
            await self._check(response)
            return self._wire.read_embeddings(await _json(response), model, len(texts))

    async def list_models(self, call: CallContext | None = None) -> list[str]:
        """Return the names of the models that the server has, in order."""
        async with self._sent("GET", self._wire.models_path()) as response:
            await self._check(response)
            return self._wire.read_models(await _json(response))

    async def count_tokens(self, request: LlmRequest, call: CallContext | None = None) -> int:
        """Return how many tokens the prompt of a request has, as the server counts them. Raises `PluginFailure` also
        where the wire has no such thing."""
        options, wire = self._options, self._wire
        images = await self._images(request)
        body = wire.body(request, options.model, options.parameters, stream=False, dialect=self._dialect, images=images)
        if (asked := wire.counting(options.model, body)) is None:
            raise self._failures.failure("counts no tokens of a prompt", missing="count_tokens")
        path, sent, field = asked
        async with self._sent("POST", path, sent) as response:
            await self._check(response)
            found = (await _json(response)).get(field)
        if type(found) is not int or found < 0:
            raise self._failures.failure("answered without a number of tokens")
        return found

    @asynccontextmanager
    async def _answer(
        self, request: LlmRequest, *, stream: bool
    ) -> AsyncIterator[tuple[aiohttp.ClientResponse, list[str]]]:
        """Send a request, once more for each thing that the server turns out not to take; give the response and what
        was done differently from what was asked."""
        options, dialect, wire = self._options, self._dialect, self._wire
        images = await self._images(request)
        async with AsyncExitStack() as stack:
            while True:
                body = wire.body(
                    request, options.model, options.parameters, stream=stream, dialect=dialect, images=images
                )
                path = wire.path(options.model, stream=stream)
                response = await stack.enter_async_context(self._sent("POST", path, body, stream=stream))
                if response.status == 200:
                    break
                said = await _read_error(response)
                failure = self._failures.refusal(response, said)
                may_learn = response.status in MAY_LEARN and not failure.info.details.get("overflow")
                better = wire.learned(dialect, request, body, said) if may_learn else None
                if better is None:
                    raise failure
                response.close()
                dialect = better
            self._dialect = Dialect(self._dialect.omitted | dialect.omitted, self._dialect.shapes | dialect.shapes)
            yield response, wire.notices(dialect, request, options.parameters)

    @asynccontextmanager
    async def _sent(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, stream: bool = False
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; give the response, whatever its status, and report every failure in one line."""
        import aiohttp

        options, failures = self._options, self._failures
        silence = None if stream else options.timeout
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=options.connect_timeout, sock_read=silence)
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace") if body is not None else None
        response: aiohttp.ClientResponse | None = None
        try:
            async with asyncio.timeout(options.first_token if stream else None):
                response = await self._http.session().request(
                    method,
                    options.address(path, self._wire.version),
                    data=data,
                    headers=self._headers(),
                    timeout=timeout,
                    allow_redirects=False,
                )
            yield response
        except ServerError as error:
            raise failures.said(str(error), error.status) from None
        except BrokenOff as error:
            raise failures.failure(str(error), retryable=True) from None
        except WireError as error:
            hint = "" if isinstance(error, TooLong) else "; is the address right (most end in /v1)?"
            raise failures.failure(f"{error}{hint}") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            silence = options.first_token if stream else options.timeout
            raise failures.broken(error, answered=response is not None, seconds=silence) from None
        finally:
            if response is not None:
                response.close()

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        if response.status != 200:
            raise self._failures.refusal(response, await _read_error(response))

    def _headers(self) -> dict[str, str]:
        key = self._options.key()
        headers = {
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        }
        own = {name: value for name, value in self._options.own_headers().items() if value}
        sent = {**headers, **self._wire.headers(key or ""), **own}
        given = {name.lower() for name in own}  # in whatever case: one of each name is sent
        return {name: value for name, value in sent.items() if name in own or name.lower() not in given}

    async def _images(self, request: LlmRequest) -> dict[str, str]:
        """Return the images that are kept here as data URLs. Raises `InvalidInput`, `NotFound`."""
        found: dict[str, str] = {}
        if not self._options.takes_images and any(message.images for message in request.messages):
            raise InvalidInput(
                f"the model {self._options.model!r} sees no pictures; ask another one, or leave them out"
            )
        blobs = [image.blob for message in request.messages for image in message.images if image.blob is not None]
        for blob in blobs:
            if blob.length > MAX_IMAGE_BYTES:
                raise InvalidInput(f"an image of {blob.length >> 20} MiB is too large: {MAX_IMAGE_BYTES >> 20} MiB go")
            if blob.hash not in found:
                data = await self._read(blob)
                found[blob.hash] = f"data:{blob.media_type};base64,{base64.b64encode(data).decode()}"
        return found

    async def _chunks(self, response: aiohttp.ClientResponse, reader: Reader) -> AsyncGenerator[LlmChunk]:
        """Yield what a stream adds to the answer. Raises `BrokenOff` where it ends early or falls silent."""
        first_until: float | None = clock.monotonic() + self._options.first_token
        ended = False
        async with aclosing(_events(response)) as events:
            while True:
                seconds = self._options.timeout if first_until is None else first_until - clock.monotonic()
                try:
                    async with asyncio.timeout(max(seconds, 0)):
                        data = await anext(events, None)
                except TimeoutError:
                    silent = self._options.timeout if first_until is None else self._options.first_token
                    raise BrokenOff(f"stayed silent for {silent:g} s") from None
                if data is None or data.strip() == "[DONE]":
                    ended = data is not None
                    break
                for chunk in reader.add(parse_json(data)):
                    first_until = None
                    yield chunk
                if reader.is_over:
                    break
        if not (ended or reader.is_finished):
            raise BrokenOff("ended the stream before the answer was finished")
        for chunk in reader.end():
            yield chunk


async def _bytes(response: aiohttp.ClientResponse, most: int) -> AsyncGenerator[bytes]:
    """Yield what arrives of an answer. Raises `TooLong` past the limit."""
    size = 0
    async for data in response.content.iter_chunked(_PIECE):
        size += len(data)
        _check_size(size, most)
        yield data
        await asyncio.sleep(0)  # what is there already is read without waiting


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise TooLong(f"sent more than {most >> 20} MiB; the answer was cut off")


async def _json(response: aiohttp.ClientResponse) -> dict[str, Any]:
    return parse_json(b"".join([data async for data in _bytes(response, MAX_BYTES)]))


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[str]:
    """Yield the data of each event that has some. Raises `ServerError` for an event of the type `error`."""
    parser, waiting = SseParser(), 0
    async with aclosing(_bytes(response, MAX_STREAM_BYTES)) as pieces:
        async for data in pieces:
            events = parser.feed(data)
            waiting = len(data) if events else waiting + len(data)
            _check_size(waiting, MAX_BYTES)
            for event in events:
                if event.data.strip():
                    yield _event_data(event.type, event.data)
    for event in parser.finish():
        if event.data.strip():
            yield _event_data(event.type, event.data)


def _event_data(kind: str, data: str) -> str:
    if kind != "error":
        return data
    try:
        found = parse_json(data)
    except WireError:
        raise ServerError(data) from None
    raise_error(found)
    raise ServerError(error_message(found) or data)


async def _read_error(response: aiohttp.ClientResponse) -> str:
    """Return the text of an error answer, as far as it can be read."""
    import aiohttp

    body = bytearray()
    try:
        async for data in response.content.iter_any():
            body += data
            if len(body) > MAX_ERROR_BYTES:
                break
    except (aiohttp.ClientError, TimeoutError, OSError):
        pass  # the status says enough
    return bytes(body).decode("utf-8", errors="replace")
