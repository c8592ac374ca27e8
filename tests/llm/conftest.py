"""Servers that the tests of the `openai` adapter talk to: a real one, and one that misbehaves as told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from helpers.openai_server import OpenAiServer, answer, openai_server

from tavern_llm.openai import ChatClient, OpenAiOptions


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


@dataclass
class WireServer:
    """Answers every connection with the same bytes, in the given pieces; a piece of None waits until the
    client has gone. `requests` are what clients sent, `closed` is set when one has gone."""

    pieces: list[bytes | None] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def body(self) -> dict[str, object]:
        """Return the JSON of the last request."""
        data: dict[str, object] = json.loads(self.requests[-1].partition(b"\r\n\r\n")[2])
        return data

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0
            )
            self.requests.append(head + await reader.readexactly(length))
            for piece in self.pieces:
                if piece is None:
                    await reader.read()
                    self.closed.set()
                    return
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


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

        async def make(base_url: str, **options: object) -> ChatClient:
            given = {"base_url": base_url, "model": "tiny", **options}
            return ChatClient(OpenAiOptions.model_validate(given), lambda: session)

        yield make


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return an empty project folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "tavern.yaml").write_text("name: Test\n", encoding="utf-8")
    return folder
