"""The platform's LLM nodes at a real server, which is a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.openai_server import OpenAiServer, answer, openai_server
from node_bench import node_call
from test_llm_nodes import host_with, openai_inputs


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAiServer]:
    answers = [
        answer("greeting", said=["good morning"], content="Good morning to you, too."),
        answer("long", said=["tell me everything"], content="word " * 2000, stream_chunk_delay_ms=20),
        answer("locked", said=["secret door"], content="", http_status=401, error_message="Wrong key."),
    ]
    with openai_server(tmp_path_factory.mktemp("openai"), answers) as running:
        yield running


# --- what is asked of a real server ---------------------------------------------------------------------------


def served(server: OpenAiServer, **more: Any) -> dict[str, Any]:
    return {"tiny": {"adapter": "openai", "base_url": server.base_url, "model": "tiny-1", **more}}


async def test_a_reader_that_leaves_ends_the_answer(tmp_path: Path, server: OpenAiServer) -> None:
    async with host_with(tmp_path / "project", served(server)) as hosted:
        inputs = openai_inputs("tell me everything", model="tiny", stream=True)
        stream = hosted.open("OpenAI").stream(inputs, node_call())
        assert "word".startswith((await anext(stream))["stream_output"].strip())
        await stream.aclose()  # type: ignore[attr-defined]
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
