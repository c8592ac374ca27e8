"""Routes and socket messages that plugins register, and the plain request and response they exchange.

The kernel owns the transport; a plugin sees data, never a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from json import dumps
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, Field, JsonValue

from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.contributions import ContributionKind, Handler
from tavern_host.contracts.documents import LARGE_TEXT, read_json, read_model, to_thread_if_large
from tavern_host.contracts.wire import Model

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=BaseModel)

Access = Literal["public", "read", "create", "operate"]
"""Who may use a route or message: anybody, also without the token; who may look; who may change things and run them;
who may decide over plugins, settings and people."""


class HttpRequest(Model):
    """A request as data. Header names are lower-case; cookies and credentials are not passed on: `call.principal` is
    who sent it, `session` the id of the session or API token of a user, and `client` the address that it came from.
    `base` is what the client calls the first page, without a slash at its end: `https://inn.example/tavern`. `cookies`
    are those that an answer of this plugin has set. `may_create` says whether who sent it may also change what is
    there: who may only look is shown no secret that somebody wrote into a document."""

    method: str
    path: str
    parameters: dict[str, str] = Field(default_factory=dict)
    query: dict[str, str] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    body: bytes = b""
    cookies: dict[str, str] = Field(default_factory=dict)
    client: str = ""
    session: str = ""
    base: str = ""
    may_create: bool = False
    call: CallContext

    @property
    def is_large(self) -> bool:
        """Whether its body is to be read in a thread: `to_thread_if_large(request.is_large, …)`."""
        return len(self.body) > LARGE_TEXT

    def json_body(self) -> Any:
        """Return the body as JSON. Raises `InvalidInput` with the place of the first mistake; see `read_json`."""
        return read_json(self.body, "the body")

    def read(self, model: type[ModelT]) -> ModelT:
        """Return the JSON body as a model. Raises `InvalidInput` with the place of each mistake."""
        return read_model(model, read_json(self.body, "the body"), "the body")

    async def body_as(self, model: type[ModelT]) -> ModelT:
        """As `read`, in a thread where the body is large."""
        return await asyncio.to_thread(self.read, model) if self.is_large else self.read(model)

    def read_query(self, model: type[ModelT]) -> ModelT:
        """Return the query as a model, whose fields are read from texts. Raises `InvalidInput` as `read`."""
        return read_model(model, self.query, "the query")


class ServerEvent(Model):
    """A server-sent event: its name, and what becomes its JSON data, or the `text` that is sent as it stands. One
    without a name and a text is a sign of life."""

    event: str = ""
    data: JsonValue = None
    text: str | None = None


class HttpResponse(Model):
    """A response as data: give `data` for JSON, `body` with its `content_type`, or a `blob`, which is sent as a stream
    of its own media type; ranges of it too (RFC 9110 §14).

    A `session` is the token that the client's browser is to have from now on as its cookie, for `session_seconds`; an
    empty one takes it away. `cookies` are short texts by a name of letters, which the browser sends back to this plugin
    alone for ten minutes, also when a page of another site leads here; an empty one is taken away. With an `ETag`
    among the `headers`, a GET from a client that has this very state is answered with 304.
    """

    status: int = 200
    data: JsonValue = None
    body: bytes | None = None
    blob: Blob | None = None
    content_type: str = "application/json"
    headers: dict[str, str] = Field(default_factory=dict)
    session: str | None = None
    session_seconds: int = 0
    cookies: dict[str, str] = Field(default_factory=dict)


async def answer_with(
    make: Callable[[], JsonValue], *, is_large: bool, status: int = 200, headers: dict[str, str] | None = None
) -> HttpResponse:
    """Return the answer whose JSON `make` returns. Where that is large it is made, and encoded, in a thread, so that
    nobody waits for it."""
    body = await to_thread_if_large(is_large, lambda: dumps(make(), allow_nan=False).encode())
    return HttpResponse(status=status, body=body, headers=headers or {})


class EncodedOnce(Generic[T]):
    """Answers with a list as JSON that is encoded again only when the list has changed, under an `ETag` of its bytes.

    Items are compared by `==`. Who knows a value that differs whenever the list may be another one gives it as the
    `revision`, and need not even make the list while `known` has the answer; a plugin asks `of_service`.
    """

    def __init__(self, encode: Callable[[T], JsonValue]) -> None:
        self._encode = encode
        self._items: list[T] | None = None
        self._revision: object = None
        self._answer = HttpResponse()

    def known(self, revision: object) -> HttpResponse | None:
        """Return the last answer where it was made for this revision."""
        return self._answer if revision is not None and revision == self._revision else None

    def answer(self, items: list[T], revision: object = None) -> HttpResponse:
        """Return the answer that holds the items, each as `encode` gives it."""
        if items != self._items:
            body = dumps([self._encode(item) for item in items], allow_nan=False).encode()
            tag = blake2b(body, digest_size=16).hexdigest()
            headers = {"ETag": f'"{tag}"', "Cache-Control": "private, no-cache"}  # a browser may keep it, and asks
            self._items, self._answer = list(items), HttpResponse(body=body, headers=headers)
        self._revision = revision
        return self._answer

    async def of_service(
        self,
        revision: object,
        listed: Callable[[], Awaitable[list[T]]],
        stack: Callable[[], Awaitable[Sequence[object]]],
    ) -> HttpResponse:
        """Return the answer for the list that a service gives. While its `stack` has an override, which may change the
        list at any time, the list is asked for each time."""
        if (known := self.known(revision)) is not None:
            return known
        items = await listed()
        return self.answer(items, revision if len(await stack()) == 1 else None)


class SocketMessage(Model):
    """A message that a client sent on `/ws`."""

    type: str
    payload: dict[str, JsonValue] = Field(default_factory=dict)
    call: CallContext


class SocketReply(Model):
    """A message for the client that asked."""

    type: str
    payload: dict[str, JsonValue] = Field(default_factory=dict)


class RouteInfo(Model):
    """An HTTP route: `path` may hold `{name}` parts. `handler` is `module:function` in the plugin.

    The handler is `async def handler(request: HttpRequest, context: PluginContext) -> HttpResponse`. It may return an
    `AsyncIterator[ServerEvent]` in its place: the events are sent as `text/event-stream` as they come. They are closed
    when the client is gone, so give one at least every few seconds.

    `body`, `query` and `answer` say what goes in and out, for `GET /api/openapi.json`: `module:Type`, the pydantic
    model that the handler itself reads with (`HttpRequest.read`, `read_query`) or answers with, in the plugin, in
    `tavern_host.contracts` or in the `api` of a first-party plugin; `module:Type[]` is a list of them. They are looked
    up when somebody asks. `status` and `content_type` are those of success, several types with commas between; with
    `accepts`, success may be 202 without content, too, with `creates` 201 where there was nothing. `error_type` is that
    of errors that a protocol has a form of its own for, beside problem details. `error_form` is `module:function`,
    which is given the problem details of a failure and returns the `HttpResponse` that is sent in their place, wherever
    a request fails whose path begins with the same first part; only first-party routes outside of `/api` have one.
    With `ends_with_client` the handler is cancelled when the client is gone before it has answered. The body of a
    `raw` route is given as it came, also where it names a project, and the log has the route's path in the place of the
    request's, which may end with a secret. Without `access` a GET needs `read`, any other method `create`.
    """

    KIND: ClassVar[ContributionKind] = ContributionKind(answer=HttpResponse | AsyncIterator[ServerEvent])

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    handler: Handler
    summary: str = ""
    body: str = ""
    query: str = ""
    answer: str = ""
    status: int = 200
    content_type: str = "application/json"
    accepts: bool = False
    creates: bool = False
    error_type: str = ""
    error_form: str = ""
    ends_with_client: bool = False
    raw: bool = False
    access: Access | None = None

    @classmethod
    def of_module(
        cls, module: str, method: str, path: str, function: str, summary: str, types: Mapping[str, Any]
    ) -> Self:
        """Return the route that `module:function` answers. `types` may say `body`, `query`, `answer`, `status` and the
        rest; a type without a colon is one of the module, `api.runs:RunEntry` one of the
        package's `api`, `http:HttpResponse` one of the host's contracts."""
        named = {key: _reference(module, types[key]) for key in ("body", "query", "answer") if key in types}
        return cls.model_validate(
            {**types, **named, "method": method, "path": path, "handler": f"{module}:{function}", "summary": summary}
        )

    @cached_property
    def needs(self) -> Access:
        """Who may use it."""
        return self.access or ("read" if self.method == "GET" else "create")


def _reference(module: str, name: str) -> str:
    if ":" not in name:
        return f"{module}:{name}"
    if name.startswith("api."):
        return f"{module.partition('.')[0]}.{name}"
    return name if "." in name else f"tavern_host.contracts.{name}"


class MessageInfo(Model):
    """A message type that clients may send on `/ws`.

    The handler is `async def handler(message: SocketMessage, context: PluginContext) -> list[SocketReply]`;
    the replies go to the sender alone. What everybody should see is published as an event.
    """

    KIND: ClassVar[ContributionKind] = ContributionKind(answer=list[SocketReply])

    type: str
    handler: Handler
    summary: str = ""
    access: Access = "create"
