"""The node and the tool, against a server of 127.0.0.1 that answers as OpenAI's does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tavern_host import TOOL_MANAGER, Host
from tavern_host.testing import MakeHost
from tavern_host.testing.http import served
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult

pytestmark = pytest.mark.tavern(plugins=["../speech"])

PREFIX = "extensions.speech."
MP3 = b"ID3\x04recording"


class Server:
    """An OpenAI-compatible server: what it answers, and the bodies and keys that it got."""

    def __init__(self) -> None:
        self.answer = MP3
        self.status = 200
        self.asked: list[tuple[dict[str, Any], str | None]] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append((await request.json(), request.headers.get("Authorization")))
        return web.Response(body=self.answer, status=self.status)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def settings(server: Server) -> AsyncIterator[dict[str, Any]]:
    app = web.Application()
    app.router.add_post("/v1/audio/speech", server.handle)
    async with TestServer(app) as running:
        yield {f"{PREFIX}address": str(running.make_url("/v1")), f"{PREFIX}key": "a-long-secret-key"}


async def say(host: Host, **arguments: str) -> ToolResult:
    request = ToolCallRequest(tool_id="speech:say", arguments={"text": "Good evening.", **arguments})
    return await host.services.get(TOOL_MANAGER).call(request)


async def test_a_recording_is_a_blob_that_the_host_sends(
    make_host: MakeHost, server: Server, settings: dict[str, Any]
) -> None:
    async with make_host(settings={**settings, f"{PREFIX}model": "speaker"}) as host:
        result = await say(host)
        assert result.status == "done", result.error
        recording: Any = result.structured
        assert (recording["type"], recording["mediaType"]) == ("blob", "audio/mpeg")
        async with served(host) as client:
            answer = await client.get(f"/api/blobs/{recording['hash']}", params={"mediaType": "audio/mpeg"})
            assert (answer.content_type, await answer.read()) == ("audio/mpeg", MP3)
        await say(host, voice="onyx")
    wanted = {"input": "Good evening.", "voice": "alloy", "response_format": "mp3", "model": "speaker"}
    assert server.asked == [
        (wanted, "Bearer a-long-secret-key"),
        ({**wanted, "voice": "onyx"}, "Bearer a-long-secret-key"),
    ]


@pytest.mark.parametrize(
    ("status", "answer", "message"),
    [
        (400, json.dumps({"error": {"message": "not this one"}}).encode(), "answered with 400: not this one"),
        (500, b"<html>", "answered with 500: no reason"),
        (200, b"<html>", "no MP3, WAV, Ogg or FLAC"),
        (200, b"", "no MP3, WAV, Ogg or FLAC"),
    ],
)
async def test_what_goes_wrong_is_said(
    make_host: MakeHost, server: Server, settings: dict[str, Any], status: int, answer: bytes, message: str
) -> None:
    server.status, server.answer = status, answer
    async with make_host(settings=settings) as host:
        result = await say(host)
    assert result.error is not None and message in result.error.message
    assert "a-long-secret-key" not in result.error.message


async def test_without_a_server_the_tool_says_what_to_set(host: Host) -> None:
    result = await say(host)
    assert result.error is not None and "set speech.address" in result.error.message
