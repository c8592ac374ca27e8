"""The node and the tool, against a server of 127.0.0.1 that answers as OpenAI's does."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tavern_host import TOOL_MANAGER, Host
from tavern_host.testing import MakeHost
from tavern_host.testing.http import served
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult

pytestmark = pytest.mark.tavern(plugins=["../image_generation"])

PREFIX = "extensions.image-generation."
PNG = b"\x89PNG\r\n\x1a\n" + b"picture"


def drawn(picture: bytes) -> dict[str, Any]:
    return {"data": [{"b64_json": base64.b64encode(picture).decode()}]}


class Server:
    """An OpenAI-compatible server: what it answers, and the bodies and keys that it got."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] | str = drawn(PNG)
        self.status = 200
        self.asked: list[tuple[dict[str, Any], str | None]] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append((await request.json(), request.headers.get("Authorization")))
        if isinstance(self.answer, str):
            return web.Response(text=self.answer, status=self.status)
        return web.json_response(self.answer, status=self.status)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def settings(server: Server) -> AsyncIterator[dict[str, Any]]:
    app = web.Application(client_max_size=10_000_000)
    app.router.add_post("/v1/images/generations", server.handle)
    async with TestServer(app) as running:
        yield {f"{PREFIX}address": str(running.make_url("/v1")), f"{PREFIX}key": "a-long-secret-key"}


async def draw(host: Host, **arguments: str) -> ToolResult:
    request = ToolCallRequest(tool_id="image:draw", arguments={"prompt": "a lighthouse", **arguments})
    return await host.services.get(TOOL_MANAGER).call(request)


async def test_a_picture_is_a_blob_that_the_host_sends(
    make_host: MakeHost, server: Server, settings: dict[str, Any]
) -> None:
    more = {f"{PREFIX}model": "painter", f"{PREFIX}parameters": {"quality": "low"}}
    async with make_host(settings={**settings, **more}) as host:
        result = await draw(host, size="512x512")
        assert result.status == "done", result.error
        picture: Any = result.structured
        assert (picture["type"], picture["mediaType"]) == ("blob", "image/png")
        async with served(host) as client:
            answer = await client.get(f"/api/blobs/{picture['hash']}", params={"mediaType": "image/png"})
            assert (answer.content_type, await answer.read()) == ("image/png", PNG)
    wanted = {"prompt": "a lighthouse", "n": 1, "model": "painter", "size": "512x512", "quality": "low"}
    assert server.asked == [(wanted, "Bearer a-long-secret-key")]


@pytest.mark.parametrize(
    ("status", "answer", "message"),
    [
        (400, {"error": {"message": "not this one"}}, "answered with 400: not this one"),
        (500, "<html>", "answered with 500: no reason"),
        (200, "<html>", "no picture in data"),
        (200, {"data": []}, "no picture in data"),
        (200, {"data": [{"url": "https://example.org/a.png"}]}, '"response_format": "b64_json"'),
        (200, drawn(b"<svg onload='alert(1)'/>"), "no PNG, JPEG, WebP or GIF"),
    ],
)
async def test_what_goes_wrong_is_said(
    make_host: MakeHost, server: Server, settings: dict[str, Any], status: int, answer: Any, message: str
) -> None:
    server.status, server.answer = status, answer
    async with make_host(settings=settings) as host:
        result = await draw(host)
    assert result.error is not None
    assert re.search(message, result.error.message)
    assert "a-long-secret-key" not in result.error.message


async def test_without_a_server_the_tool_says_what_to_set(host: Host) -> None:
    result = await draw(host)
    assert result.error is not None
    assert "set image-generation.address" in result.error.message
