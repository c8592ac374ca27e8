"""The client of OpenAI-compatible servers at a real server, which is a process of its own."""

from __future__ import annotations

from pathlib import Path

from helpers.openai_server import answer, openai_server
from test_llm_openai import MakeClient, ask, collect

from tavern_llm.api.llm import LlmUsage


async def test_a_real_server_answers_whole_and_streamed(tmp_path: Path, client: MakeClient) -> None:
    chinese = "你好，旅人。要喝点什么？"
    answers = [
        answer("greeting", said=["good morning"], content="Good morning to you, too."),
        answer("chinese", said=["你好"], content=chinese),
    ]
    with openai_server(tmp_path, answers) as server:
        made = await client(server.base_url)
        whole = await made.complete(ask("Good morning!"))
        chunks = await collect(made, ask("你好"))
    assert (whole.text, whole.model, whole.finish_reason) == ("Good morning to you, too.", "tiny", "stop")
    assert whole.usage == LlmUsage(prompt_tokens=10, completion_tokens=20)
    assert ("".join(chunk.text for chunk in chunks), len(chunks) > 2) == (chinese, True)
    last = chunks[-1].response
    assert last is not None and (last.text, last.finish_reason) == (chinese, "stop")
