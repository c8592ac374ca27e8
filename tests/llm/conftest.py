"""Servers that the tests of the `openai` adapter talk to: a real one, and one that misbehaves as told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from helpers.openai_server import OpenAiServer, answer, openai_server
from helpers.wire_server import WireServer

from tavern_host.contracts.blobs import Blob
from tavern_llm.chat_client import ChatClient
from tavern_llm.openai_options import OpenAiOptions

IMAGE = b"\x89PNG\r\n"


@pytest.fixture(scope="session")
def chat_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAiServer]:
    """Run a real OpenAI-compatible server that knows a few conversations."""
    answers = [
        answer("greeting", said=["good morning"], content="Good morning to you, too."),
        answer("busy", said=["hurry"], content="", http_status=429, error_message="Slow down, please."),
        answer("locked", said=["secret door"], content="", http_status=401, error_message="Wrong key."),
        answer("long", said=["tell me everything"], content="word " * 2000, stream_chunk_delay_ms=20),
        answer("chinese", said=["你好"], content="你好，旅人。要喝点什么？"),
    ]
    with openai_server(tmp_path_factory.mktemp("openai"), answers) as server:
        yield server


@pytest.fixture
async def wire_server() -> AsyncIterator[WireServer]:
    """Run a server that answers with whatever bytes a test puts into it."""
    server = WireServer()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield server


@pytest.fixture
async def client() -> AsyncIterator[Callable[..., Awaitable[ChatClient]]]:
    """Return how to make a client for a base URL, with more options if need be."""
    async with aiohttp.ClientSession() as session:

        async def read(blob: Blob) -> bytes:
            return IMAGE

        async def make(base_url: str, **options: object) -> ChatClient:
            given = {"base_url": base_url, "model": "tiny", **options}
            return ChatClient(OpenAiOptions.model_validate(given), lambda: session, read)

        yield make


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return an empty project folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "tavern.yaml").write_text("name: Test\n", encoding="utf-8")
    return folder
