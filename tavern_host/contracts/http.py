"""Routes and socket messages that plugins register, and the plain request and response they exchange.

The kernel owns the transport (`server.py`); a plugin sees data, never a socket.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, ClassVar, Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.contributions import ContributionKind
from tavern_host.contracts.documents import read_json
from tavern_host.contracts.wire import Model


class HttpRequest(Model):
    """A request as data. Header names are lower-case; cookies and credentials are not passed on."""

    method: str
    path: str
    parameters: dict[str, str] = Field(default_factory=dict)
    query: dict[str, str] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    body: bytes = b""
    call: CallContext

    def json_body(self) -> Any:
        """Return the body as JSON. Raises `InvalidInput` with the place of the first mistake; see `read_json`."""
        return read_json(self.body, "the body")


class ServerEvent(Model):
    """A server-sent event: its name, and what becomes its JSON data. One without a name is a sign of life."""

    event: str = ""
    data: JsonValue = None


class HttpResponse(Model):
    """A response as data: give `data` for JSON, `body` with its `content_type`, or a `blob`, which is sent as a stream
    of its own media type; ranges of it too (RFC 9110 §14)."""

    status: int = 200
    data: JsonValue = None
    body: bytes | None = None
    blob: Blob | None = None
    content_type: str = "application/json"
    headers: dict[str, str] = Field(default_factory=dict)


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
    """

    KIND: ClassVar[ContributionKind] = ContributionKind(answer=HttpResponse | AsyncIterator[ServerEvent])

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    handler: str
    summary: str = ""


class MessageInfo(Model):
    """A message type that clients may send on `/ws`.

    The handler is `async def handler(message: SocketMessage, context: PluginContext) -> list[SocketReply]`;
    the replies go to the sender alone. What everybody should see is published as an event.
    """

    KIND: ClassVar[ContributionKind] = ContributionKind(answer=list[SocketReply])

    type: str
    handler: str
    summary: str = ""
