"""What the tests of the `openai` adapter talk to: a server that misbehaves as told, and clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from helpers.wire_server import WireServer

from tavern_host.contracts.blobs import Blob
from tavern_llm.anthropic_wire import ANTHROPIC
from tavern_llm.chat_client import ChatClient
from tavern_llm.gemini_wire import GEMINI
from tavern_llm.openai_options import OpenAiOptions
from tavern_llm.responses_wire import RESPONSES
from tavern_llm.wires import CHAT, Wire

WIRES: dict[str, Wire] = {wire.name: wire for wire in (CHAT, RESPONSES, ANTHROPIC, GEMINI)}
IMAGE = b"\x89PNG\r\n"


class Direct:
    """Outgoing HTTP without proxies, through a session of the test."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    def session(self) -> aiohttp.ClientSession:
        return self._session

    def proxy(self, address: str) -> str | None:
        return None

    def proxy_variables(self) -> dict[str, str]:
        return {}


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
            wire = WIRES[str(options.pop("wire", "openai"))]
            fields = {"base_url": base_url, "model": "tiny", **options}
            return ChatClient(OpenAiOptions.model_validate(fields), Direct(session), read, wire)

        yield make


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return an empty project folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "tavern.yaml").write_text("name: Test\n", encoding="utf-8")
    return folder
