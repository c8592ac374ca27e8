"""`/mcp`: the SDK's streamable HTTP behind a route of the host, which has checked who asks. A session belongs to the
user who began it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import Misconfigured, ServiceUnavailable
from tavern_host.contracts.http import HttpRequest, HttpResponse, ServerEvent
from tavern_mcp import State
from tavern_mcp.service import MISSING, is_installed

_MOST_SESSIONS, _IDLE = 200, 600.0
_ALIVE = 10.0
_TAVERN = "tavern.call"
_INVALID_REQUEST = -32600
_PASSED_ON = ("mcp-session-id", "allow")


async def answer(request: HttpRequest, context: PluginContext) -> HttpResponse | AsyncIterator[ServerEvent]:
    """Answer a client's request."""
    if not is_installed():
        raise Misconfigured(MISSING)
    state = context.own(State)
    if state.sessions is None:
        state.sessions = sessions = asyncio.get_running_loop().create_future()
        running = context.tasks.spawn(_run(context, sessions), name="sessions of MCP clients")
        running.add_done_callback(lambda _: None if sessions.done() else sessions.set_exception(_closed()))
    ready = await asyncio.shield(state.sessions)
    exchange = _Exchange(request)
    task = context.tasks.spawn(exchange.run(ready), name="answer an MCP client")
    try:
        status, headers = await exchange.started()
    except BaseException:
        task.cancel()
        raise
    kind = headers.get("content-type", "").partition(";")[0]
    is_first = request.method == "POST" and b'"initialize"' in request.body
    if kind != "text/event-stream" or status != 200 or is_first:  # the answer to the first message has a header to it
        body = b"".join([piece async for piece in exchange.pieces(None)])
        kept = {name: headers[name] for name in _PASSED_ON if name in headers}
        if status >= 400 and kind != "application/json":  # the SDK says some in bare words
            error = {"code": _INVALID_REQUEST, "message": body.decode(errors="replace")}
            kind, body = "application/json", json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        return HttpResponse(status=status, body=body, content_type=kind or "text/plain", headers=kept)
    return _events(exchange, task)


async def _run(context: PluginContext, manager: asyncio.Future[Any]) -> None:
    """Hold the sessions of all clients."""
    await asyncio.to_thread(import_module, "tavern_mcp.offering")  # the SDK takes a second or two
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from tavern_mcp.offering import make_server

    server = make_server(context, lambda ctx: ctx.request.scope[_TAVERN])  # type: ignore[union-attr]
    made = StreamableHTTPSessionManager(server, session_idle_timeout=_IDLE, max_sessions=_MOST_SESSIONS)
    async with made.run():
        manager.set_result(made)
        await asyncio.Event().wait()


class _Exchange:
    """One request and its answer, as the SDK wants them."""

    def __init__(self, request: HttpRequest) -> None:
        from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
        from mcp.server.auth.provider import AccessToken

        who = str(request.call.principal)
        headers = {**request.headers, "content-length": str(len(request.body))}
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.path,
            "raw_path": request.path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()],
            "user": AuthenticatedUser(AccessToken(token="", client_id=who, scopes=[], subject=who)),
            _TAVERN: request.call,
        }
        self._body: bytes | None = request.body
        self._sent: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(8)
        self.gone = asyncio.Event()

    async def run(self, manager: Any) -> None:
        """Have it answered."""
        try:
            await manager.handle_request(self._scope, self._receive, self._sent.put)
        finally:
            with contextlib.suppress(asyncio.QueueFull):
                self._sent.put_nowait(None)

    async def started(self) -> tuple[int, dict[str, str]]:
        """Return status and headers of the answer."""
        first = await self._sent.get()
        if first is None:
            raise _closed()
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in first.get("headers", ())}
        return int(first["status"]), headers

    async def pieces(self, alive: float | None) -> AsyncIterator[bytes]:
        """Yield the body; with `alive`, nothing where nothing comes for so many seconds."""
        while True:
            try:
                async with asyncio.timeout(alive):
                    sent = await self._sent.get()
            except TimeoutError:
                yield b""
                continue
            if sent is None:
                return
            yield sent.get("body", b"")
            if not sent.get("more_body", False):
                return

    async def _receive(self) -> dict[str, Any]:
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}


def _closed() -> ServiceUnavailable:
    return ServiceUnavailable("the host takes no MCP clients now")


async def _events(exchange: _Exchange, task: asyncio.Task[None]) -> AsyncIterator[ServerEvent]:
    """Yield the events of an answer."""
    waiting = b""
    try:
        async for piece in exchange.pieces(_ALIVE):
            if not piece:
                yield ServerEvent()
            waiting += piece.replace(b"\r\n", b"\n")
            while b"\n\n" in waiting:
                text, waiting = waiting.split(b"\n\n", 1)
                data = b"\n".join(line[5:].strip() for line in text.split(b"\n") if line.startswith(b"data:"))
                yield ServerEvent(event="message", data=json.loads(data)) if data else ServerEvent()
    finally:
        exchange.gone.set()
        _, pending = await asyncio.wait([task], timeout=1)
        if pending:
            task.cancel()
