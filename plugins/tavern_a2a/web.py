"""The handlers of the routes: cards, and JSON-RPC requests."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from typing import Any

from tavern_a2a.api.requests import RpcBody, SendParams, TaskParams
from tavern_a2a.cards import card_of, cards_of, require_offered
from tavern_a2a.failures import (
    INVALID_REQUEST,
    NO_CARD,
    NO_METHOD,
    NO_PUSHES,
    UNREADABLE,
    WRONG_VERSION,
    Refused,
    error_of,
)
from tavern_a2a.tasks import Tasks, with_signs_of_life
from tavern_a2a.versions import OLD_METHODS, VERSIONS, in_old_form, speaks
from tavern_host.context import PluginContext
from tavern_host.contracts.documents import read_model, to_thread_if_large
from tavern_host.contracts.errors import InvalidInput, NotFound, TavernError
from tavern_host.contracts.http import HttpRequest, HttpResponse, ServerEvent

_METHODS = frozenset({"SendMessage", "SendStreamingMessage", "GetTask", "CancelTask", "SubscribeToTask"})

Reply = Callable[[dict[str, Any] | TavernError | Refused], dict[str, Any]]


async def only_card(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the card of the only agent. Raises `NotFound` where there are none or several."""
    found = await cards_of(context, request)
    if len(found) != 1:
        raise NotFound(f"{len(found)} agents are offered, and each has its own card; GET /a2a lists them")
    return HttpResponse(data=found[0])


async def cards(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with all cards."""
    return HttpResponse(data=await cards_of(context, request))


async def card(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the card of an agent."""
    return HttpResponse(data=card_of(await require_offered(context, request.parameters["agent"]), context, request))


async def answer(request: HttpRequest, context: PluginContext) -> HttpResponse | AsyncIterator[ServerEvent]:
    """Answer a JSON-RPC request; what fails is answered as the protocol says it, with status 200."""
    agent = (await require_offered(context, request.parameters["agent"])).id
    reply = partial(_reply, None, is_old=False)
    try:
        body = await to_thread_if_large(request.is_large, _read, request)
        reply = partial(_reply, body.id, is_old=body.method in OLD_METHODS)
        return await _answer(body, reply, Tasks(agent, context, request.call), request)
    except (TavernError, Refused) as error:
        return HttpResponse(data=reply(error))


def _read(request: HttpRequest) -> RpcBody:
    """Return a request. Raises `Refused`."""
    try:
        body = request.json_body()
    except InvalidInput as error:
        raise Refused(UNREADABLE, error.message) from None
    try:
        return read_model(RpcBody, body, "the request")
    except InvalidInput as error:
        raise Refused(INVALID_REQUEST, error.message) from None


async def _answer(
    body: RpcBody, reply: Reply, tasks: Tasks, request: HttpRequest
) -> HttpResponse | AsyncIterator[ServerEvent]:
    version = request.headers.get("a2a-version", "").strip()
    if not speaks(version):
        raise Refused(WRONG_VERSION, f"A2A {version:.40} is not spoken here; {' and '.join(VERSIONS)} are")
    method = OLD_METHODS.get(body.method, body.method)
    if "PushNotificationConfig" in method:
        raise Refused(NO_PUSHES, "push notifications are not supported; use SendStreamingMessage or GetTask")
    if method == "GetExtendedAgentCard":
        raise Refused(NO_CARD, "there is no other card than the one at .well-known/agent-card.json")
    if method not in _METHODS:
        raise Refused(NO_METHOD, f"no method {body.method!r:.100}; there are {', '.join(sorted(_METHODS))}")
    if method in ("SendMessage", "SendStreamingMessage"):
        send = read_model(SendParams, body.params, "params")
        if method == "SendStreamingMessage":
            return await _streamed(tasks.stream(lambda: tasks.begin(send)), reply)
        return HttpResponse(data=reply({"task": await tasks.sent(send)}))
    params = read_model(TaskParams, body.params, "params")
    if method == "SubscribeToTask":
        return await _streamed(tasks.stream(lambda: tasks.open(params.id)), reply)
    return HttpResponse(data=reply(await (tasks.cancelled(params) if method == "CancelTask" else tasks.task(params))))


def _reply(id: str | int | None, result: dict[str, Any] | TavernError | Refused, *, is_old: bool) -> dict[str, Any]:
    """Return the response to a request, in the form of the version that it was made in."""
    if isinstance(result, TavernError | Refused):
        return {"jsonrpc": "2.0", "id": id, "error": error_of(result)}
    return {"jsonrpc": "2.0", "id": id, "result": in_old_form(result) if is_old else result}


async def _streamed(events: AsyncGenerator[dict[str, Any]], reply: Reply) -> AsyncIterator[ServerEvent]:
    """Return a stream of responses once it has begun. Raises what keeps it from that."""
    try:
        first = await anext(events)
    except BaseException:
        await events.aclose()
        raise
    return _events(first, events, reply)


async def _events(
    first: dict[str, Any], events: AsyncGenerator[dict[str, Any]], reply: Reply
) -> AsyncIterator[ServerEvent]:
    passed = with_signs_of_life(events)
    try:
        yield _event(reply(first))
        async for one in passed:
            yield ServerEvent() if one is None else _event(reply(one))
    except TavernError as error:
        yield _event(reply(error))
    finally:
        await passed.aclose()


def _event(response: dict[str, Any]) -> ServerEvent:
    return ServerEvent(text=json.dumps(response, ensure_ascii=False))
