"""A real HTTP server that speaks OpenAI's chat completions and answers each request as a test has planned."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Plan = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


@dataclass
class ModelServer:
    """Answers requests with `plans`, one after the other, then always with `default`. `bodies` and `keys` are what
    came; `models` is what it has, and lists if it `lists`, and `key` the one that it takes, if any."""

    models: list[str] = field(default_factory=lambda: ["tiny"])
    lists: bool = True
    key: str | None = None
    plans: list[Plan] = field(default_factory=list)
    default: Plan = field(default_factory=lambda: says("Hello."))
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request for a chat completion, an embedding, or the list of models."""
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.key is not None and key != self.key:
            return web.json_response({"error": {"message": "Wrong key."}}, status=401)
        if request.path == "/v1/models" and request.method == "GET" and self.lists:
            listed = [{"id": model, "object": "model"} for model in self.models]
            return web.json_response({"object": "list", "data": listed})
        if request.path not in ("/v1/chat/completions", "/v1/embeddings"):
            return web.json_response({"error": {"message": "There is nothing here."}}, status=404)
        body = await request.json()
        self.bodies.append(body)
        self.keys.append(key)
        if request.path == "/v1/embeddings":
            vectors = [{"index": index, "embedding": [float(len(text))]} for index, text in enumerate(body["input"])]
            return web.json_response({"data": vectors, "model": body["model"], "usage": {"prompt_tokens": 7}})
        if body["model"] not in self.models:
            return web.json_response({"error": {"message": f"There is no model {body['model']}."}}, status=404)
        plan = self.plans.pop(0) if self.plans else self.default
        return await plan(request, body)


def says(text: str, *, prompt: int = 10, completion: int = 5) -> Plan:
    """Return a plan to answer with a text, streamed word by word if that is asked for."""
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}

    async def plan(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if not body.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            return web.json_response({"id": "r1", "choices": [choice], "usage": usage})
        response = await _stream(request, text)
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
        await response.write(f"data: {json.dumps(end)}\n\ndata: [DONE]\n\n".encode())
        return response

    return plan


def refuses(status: int, *, retry_after: int | None = None, message: str = "Not now.") -> Plan:
    """Return a plan to answer with an error."""

    async def plan(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        headers = {"Retry-After": str(retry_after)} if retry_after is not None else None
        return web.json_response({"error": {"message": message}}, status=status, headers=headers)

    return plan


def breaks_off(text: str = "") -> Plan:
    """Return a plan to break the connection, in a stream after a text."""

    async def plan(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse()
        if body.get("stream") and text:
            response = await _stream(request, text)
        assert request.transport is not None
        request.transport.abort() if not text else request.transport.close()
        return response

    return plan


async def _stream(request: web.Request, text: str) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for word in text.split(" "):
        piece = {"choices": [{"index": 0, "delta": {"content": f"{word} "}}]}
        await response.write(f"data: {json.dumps(piece)}\n\n".encode())
    return response


@asynccontextmanager
async def model_server(**options: Any) -> AsyncIterator[ModelServer]:
    """Run a server until the end of the `with`."""
    server = ModelServer(**options)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()
