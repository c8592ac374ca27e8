"""Many agents at once: all end, and each costs little memory."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path

from helpers.repetition import repetitions
from helpers.stub_llm import said, written
from helpers.tavern_project import Tavern
from helpers.waiting import until

from tavern_llm.api.llm import LlmRequest, LlmResponse
from tests.agents.agent_bench import agent_bench

AGENTS = repetitions(8, 500)
AT_ONCE = min(AGENTS, 64)  # requests that are with a model by default
CALLS = 5
MOST_MEMORY = 150_000
"""Bytes for each agent at work, beyond its messages."""


def say(request: LlmRequest) -> LlmResponse:
    turns = sum(message.role == "assistant" for message in request.messages)
    return written("tam", ("shout", {"text": f"n{turns}"})) if turns < CALLS else said("Done.")


def prepare(project: Tavern) -> None:
    project.profile(tool_ids_inventory=["shout"])


async def test_many_agents_at_once_all_end(tmp_path: Path) -> None:
    async with agent_bench(tmp_path, prepare) as bench:
        model = bench.model(say)
        await bench.run()
        model.asked, model.gate = [], asyncio.Event()
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            runs = [await bench.start() for _ in range(AGENTS)]
            await until(lambda: len(model.asked) == AT_ONCE)
            gc.collect()
            at_work, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (at_work - before) / AGENTS < MOST_MEMORY
        model.gate.set()
        replies = [await bench.runtime.wait(run.id) for run in runs]
        assert {(reply.outcome, reply.text, len(reply.tool_results)) for reply in replies} == {
            ("reply", "Done.", CALLS)
        }
