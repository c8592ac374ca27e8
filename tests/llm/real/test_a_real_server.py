"""The client of models' servers at a real server, in each wire; it is a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.openai_server import answer, openai_server
from test_llm_openai import MakeClient, ask, collect

from tavern_llm.api.llm import LlmUsage


@pytest.mark.parametrize("wire", ["openai", "anthropic", "gemini"])
async def test_a_real_server_answers_whole_and_streamed(tmp_path: Path, client: MakeClient, wire: str) -> None:
    chinese = "你好，旅人。要喝点什么？"
    answers = [
        answer("greeting", said=["good morning"], content="Good morning to you, too.", provider=wire),
        answer("chinese", said=["你好"], content=chinese, provider=wire),
    ]
    with openai_server(tmp_path, answers) as server:
        url = server.base_url if wire == "openai" else server.base_url.removesuffix("/v1")
        made = await client(url, wire=wire)
        whole = await made.complete(ask("Good morning!"))
        chunks = await collect(made, ask("你好"))
    assert (whole.text, whole.model, whole.finish_reason) == ("Good morning to you, too.", "tiny", "stop")
    assert whole.usage == LlmUsage(prompt_tokens=10, completion_tokens=20)
    streamed = chinese[:-4] if wire == "anthropic" else chinese  # the last piece of which this server leaves out
    assert ("".join(chunk.text for chunk in chunks), len(chunks) > 2) == (streamed, True)
    last = chunks[-1].response
    assert last is not None and (last.text, last.finish_reason) == (streamed, "stop")
