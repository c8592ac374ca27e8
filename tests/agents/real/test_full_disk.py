"""Agents on a disk that is full for a while."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from helpers.stub_llm import said
from helpers.unwritable import small_disk

from tests.agents.agent_bench import agent_bench


async def test_a_reply_that_found_no_room_is_there_when_there_is_some(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with agent_bench(tmp_path) as bench:
        folder = bench.host._manager.active["tavern-agents"].context.operator_dir / "agents"
        with small_disk(folder, "2m"):
            model, run = await bench.held(said("Long. " * 20_000), conversation_id="full")
            assert model.gate is not None
            filler = folder / "filler"
            with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
                while True:
                    file.write(b"x" * 4096)
            model.gate.set()
            async with asyncio.timeout(60):
                while caplog.text.count("the disk is full: make room") < 2:
                    await asyncio.sleep(0.05)
            filler.unlink()
            reply = await bench.ended(run)
            assert (reply.outcome, reply.text) == ("reply", ("Long. " * 20_000).strip())
            bench.answers(said("Short."))
            assert (await bench.run(conversation_id="full")).text == "Short."
