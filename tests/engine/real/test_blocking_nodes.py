"""Nodes that hang in threads: they are left behind at their time limit, and by an interrupt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from apart_bench import apart
from engine_bench import Bench, give, state, workflow
from loops_bench import notes, policy

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_apart"]


@pytest.fixture
def blocked(file: Path) -> Iterator[Path]:
    """Return where a node takes notes that hangs until the test ends."""
    yield file
    file.with_name(f"{file.name}.over").touch()


async def test_a_blocking_node_is_left_behind_at_its_limit(shared: Bench, blocked: Path) -> None:
    run = await shared.run(workflow({"b": policy(apart("Block", file=blocked, seconds=90), timeout=0.1)}))

    error = state(run, "b").error
    assert error is not None and error.code == "deadline_exceeded"
    assert notes(blocked) == []


async def test_a_blocking_node_is_left_behind_by_an_interrupt(shared: Bench, blocked: Path) -> None:
    run_id = await shared.start(workflow({"b": apart("Block", file=blocked, seconds=90)}))
    await shared.until("NODE_EXECUTING", nodeId="b", promptId=run_id)

    run = await shared.interrupted(run_id)

    assert (run.status, state(run, "b").status, notes(blocked)) == ("interrupted", "interrupted", [])
    assert (await shared.run(workflow({"one": give(1)}))).status == "complete"
