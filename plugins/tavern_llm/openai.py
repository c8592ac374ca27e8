"""The adapter `openai`: OpenAI-compatible chat completions over HTTP, whole or streamed.

Follows no redirect, so that prompts and keys go to the configured server and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Misconfigured, PluginFailure
from tavern_host.contracts.llm import LlmChunk, LlmEmbeddings, LlmRequest, LlmResponse, LlmUsage
from tavern_host.contracts.wire import Model
from tavern_llm.chat_wire import (
    ServerError,
    WireError,
    error_message,
    parse_json,
    read_answer,
    read_embeddings,
    read_models,
    read_piece,
    request_body,
)
from tavern_llm.failures import RetryableFailure, one_line, redact, secrets_of
from tavern_llm.options import options_problem
from tavern_llm.sse import SseParser

if TYPE_CHECKING:
    import aiohttp

MAX_BYTES = 16 << 20
"""The largest answer that is read, whole or streamed."""

MAX_ERROR_BYTES = 64 << 10
"""How much of an error answer is read."""

CONNECT_SECONDS = 15.0


class OpenAiOptions(Model):
    """What an `openai` model is set up with. `timeout` is how many seconds the server may stay silent;
    `parameters` are sent with each request unless the request has its own."""

    model_config = ConfigDict(alias_generator=None)

    base_url: str
    model: str = Field(min_length=1)
    api_key: str | None = Field(default=None, repr=False)
    api_key_env: str | None = None
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    timeout: float = Field(default=120, gt=0, le=3600)

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            port_is_right = parts.port is None or parts.port > 0
        except ValueError:
            port_is_right = False
        if not port_is_right or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be an address such as https://api.example.com/v1")
        if parts.username is not None or parts.password is not None:
            raise ValueError("must not hold credentials; use api_key or api_key_env")
        return value

    @model_validator(mode="after")
    def _has_one_key(self) -> OpenAiOptions:
        if self.api_key is not None and self.api_key_env is not None:
            raise ValueError("give api_key or api_key_env, not both")
        return self

    def address(self, path: str = "chat/completions") -> str:
        """Return the address of a part of the API, with the query of `base_url` if it has one."""
        parts = urlsplit(self.base_url)
        return urlunsplit((parts.scheme, parts.netloc, f"{parts.path.rstrip('/')}/{path}", parts.query, ""))

    def origin(self) -> str:
        """Return scheme, host and port: how messages name the server."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}"

    def key(self) -> str | None:
        """Return the API key. Raises `Misconfigured` where the named variable is not set or no key."""
        key = self.api_key
        if self.api_key_env is not None:
            key = os.environ.get(self.api_key_env)
            if not key:
                raise Misconfigured(f"the environment variable {self.api_key_env}, named by api_key_env, is not set")
        if key is not None and not (key.isascii() and key.isprintable() and key.strip()):
            raise Misconfigured("the API key has characters that cannot be sent; check for line ends and blanks")
        return key.strip() if key is not None else None


class OpenAiAdapter:
    """One model of one server. Errors are `PluginFailure`, retryable where trying again may help."""

    def __init__(self, options: dict[str, JsonValue], context: PluginContext) -> None:
        try:
            self._options = OpenAiOptions.model_validate(options)
        except ValidationError as error:
            raise Misconfigured(options_problem("openai", error)) from None
        self._options.key()
        self._client = ChatClient(self._options, context.http.session)

    async def complete(self, request: LlmRequest, call: CallContext) -> LlmResponse:
        """Return the whole answer."""
        return await self._client.complete(request)

    def stream(self, request: LlmRequest, call: CallContext) -> AsyncIterator[LlmChunk]:
        """Yield the answer piece by piece."""
        return self._client.stream(request)

    async def embed(self, texts: list[str], call: CallContext) -> LlmEmbeddings:
        """Return the vector of each text."""
        return await self._client.embed(texts)

    async def list_models(self, call: CallContext) -> list[str]:
        """Return the names of the models that the server has."""
        return await self._client.list_models()

    async def close(self) -> None:
        """Hold nothing: the session is the plugin's."""


class ChatClient:
    """Sends requests to one server through a session that its caller owns."""

    def __init__(self, options: OpenAiOptions, session: Callable[[], aiohttp.ClientSession]) -> None:
        self._options = options
        self._session = session

    async def complete(self, request: LlmRequest) -> LlmResponse:
        """Return the whole answer; leaving early closes the connection."""
        async with self._answer(request, stream=False) as response:
            return await _whole(response, self._options.model)

    async def stream(self, request: LlmRequest) -> AsyncIterator[LlmChunk]:
        """Yield the answer's pieces, then one with the finish reason; closing early closes the connection."""
        async with self._answer(request, stream=True) as response:
            if response.content_type != "text/event-stream":
                answer = await _whole(response, self._options.model)
                yield LlmChunk(text=answer.text)
                yield LlmChunk(response=answer)
                return
            texts: list[str] = []
            finish: str | None = None
            usage: LlmUsage | None = None
            ended = False
            async with aclosing(_events(response)) as events:
                async for data in events:
                    if data.strip() == "[DONE]":
                        ended = True
                        break
                    piece = read_piece(parse_json(data))
                    finish = piece.finish_reason or finish
                    usage = piece.usage or usage
                    if piece.text:
                        texts.append(piece.text)
                        yield LlmChunk(text=piece.text)
            if not ended and finish is None:
                raise _Broken("ended the stream before the answer was finished")
            yield LlmChunk(
                response=LlmResponse(
                    text="".join(texts), model=self._options.model, finish_reason=finish, usage=usage or LlmUsage()
                )
            )

    async def embed(self, texts: list[str]) -> LlmEmbeddings:
        """Return the vector of each text, in order."""
        body = {"model": self._options.model, "input": texts}
        async with self._sent("POST", "embeddings", body) as response:
            return read_embeddings(await _json(response), self._options.model, len(texts))

    async def list_models(self) -> list[str]:
        """Return the names of the models that the server has, in order."""
        async with self._sent("GET", "models") as response:
            return read_models(await _json(response))

    def _answer(self, request: LlmRequest, *, stream: bool) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        options = self._options
        body = request_body(request, options.model, options.parameters, stream=stream)
        return self._sent("POST", "chat/completions", body)

    @asynccontextmanager
    async def _sent(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; give the response if it is a success, and report every failure in one line."""
        import aiohttp

        options = self._options
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=min(CONNECT_SECONDS, options.timeout), sock_read=options.timeout
        )
        response: aiohttp.ClientResponse | None = None
        try:
            response = await self._session().request(
                method,
                options.address(path),
                json=body,
                headers=self._headers(),
                timeout=timeout,
                allow_redirects=False,
            )
            if response.status != 200:
                raise await self._refusal(response)
            yield response
        except ServerError as error:
            raise self._failure(f"answered with an error: {error}") from None
        except _Broken as error:
            raise self._failure(str(error), retryable=True) from None
        except WireError as error:
            hint = "; is base_url right (most end in /v1)?" if "HTML" in str(error) else ""
            raise self._failure(f"{error}{hint}") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._broken(error, answered=response is not None) from None
        finally:
            if response is not None:
                response.close()

    def _headers(self) -> dict[str, str]:
        key = self._options.key()
        headers = {"Accept": "application/json, text/event-stream", "Accept-Encoding": "identity"}
        return {**headers, "Authorization": f"Bearer {key}"} if key else headers

    async def _refusal(self, response: aiohttp.ClientResponse) -> PluginFailure:
        """Return the failure that a status other than 200 means."""
        status = response.status
        if 300 <= status < 400:
            return self._failure(
                f"redirects elsewhere ({status}), which is not followed; set base_url to the address itself"
            )
        said = await _said(response)
        retryable = status in (408, 409, 425, 429) or status >= 500
        meaning = {
            401: "refuses the API key",
            403: "refuses the API key, or the key may not use this model",
            404: "knows no such model or address; check base_url and model",
            429: "is asked too often, or the quota is used up",
        }.get(status, "has failed" if status >= 500 else "refuses the request")
        details: dict[str, Any] = {"status": status}
        wait = response.headers.get("Retry-After", "")
        if retryable and wait.isdecimal():
            details["retry_after"] = int(wait[:9])
        return self._failure(f"{meaning} ({status}){f': {said}' if said else ''}", retryable=retryable, **details)

    def _broken(self, error: BaseException, *, answered: bool) -> PluginFailure:
        """Return the failure that a broken or impossible connection means."""
        import aiohttp

        if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
            return self._failure("has a certificate that is not trusted, or speaks no TLS")
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return self._failure("cannot be found: its name has no address", retryable=True)
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return self._failure("cannot be reached: nobody took the connection", retryable=True)
        if isinstance(error, TimeoutError):
            return self._failure(f"stayed silent for {self._options.timeout:g} s", retryable=True)
        if isinstance(error, aiohttp.ClientConnectorError):
            reason = os.strerror(error.os_error.errno) if error.os_error.errno else "no connection"
            return self._failure(f"cannot be reached: {reason}", retryable=True)
        if isinstance(error, aiohttp.InvalidURL):
            return self._failure("is not an address that can be reached; check base_url")
        where = "in the middle of its answer" if answered else "before it answered"
        return self._failure(f"broke the connection {where}", retryable=True)

    def _failure(self, text: str, *, retryable: bool = False, **details: Any) -> PluginFailure:
        options = self._options
        line = redact(one_line(text), secrets_of(options.model_dump()))
        kind = RetryableFailure if retryable else PluginFailure
        return kind(f"the model {options.model!r} at {options.origin()} {line}", **details)


class _Broken(WireError):
    """The answer broke off; trying again may help."""


class _Size:
    """Counts what has arrived of one answer. Raises `WireError` past the limit."""

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes > MAX_BYTES:
            raise WireError(f"sent more than {MAX_BYTES >> 20} MiB; the answer was cut off")


async def _whole(response: aiohttp.ClientResponse, model: str) -> LlmResponse:
    """Return an answer that comes in one piece."""
    return read_answer(await _json(response), model)


async def _json(response: aiohttp.ClientResponse) -> dict[str, Any]:
    body, size = bytearray(), _Size()
    async for data in response.content.iter_any():
        size.add(data)
        body += data
    return parse_json(bytes(body))


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[str]:
    """Yield the data of each event. Raises `ServerError` for an event of the type `error`."""
    parser, size = SseParser(), _Size()
    async for data in response.content.iter_any():
        size.add(data)
        for event in parser.feed(data):
            yield _event_data(event.type, event.data)
    for event in parser.finish():
        yield _event_data(event.type, event.data)


def _event_data(kind: str, data: str) -> str:
    if kind != "error":
        return data
    try:
        message = error_message(parse_json(data))
    except WireError:
        message = None
    raise ServerError(message or data)


async def _said(response: aiohttp.ClientResponse) -> str:
    """Return what an error answer says, as far as it can be read: its message, or the start of plain text."""
    import aiohttp

    body = bytearray()
    try:
        async for data in response.content.iter_any():
            body += data
            if len(body) > MAX_ERROR_BYTES:
                break
    except (aiohttp.ClientError, TimeoutError, OSError):
        pass  # the status says enough
    try:
        return error_message(parse_json(bytes(body))) or ""
    except WireError:
        text = bytes(body[:2000]).decode("utf-8", errors="replace").strip()
        return "" if text.startswith("<") else text
