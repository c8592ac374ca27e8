"""No pattern keeps the host waiting, whatever its threads do: their work really takes time here."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from node_bench import Nodes
from test_context_builder import build, entry

from tavern_host import InvalidInput
from tavern_nodes.api.patterns import GRACE_SECONDS, compile_pattern, within

TYPES = ["RegexMatch", "RegexExtract", "RegexReplace"]


@pytest.mark.timeout(60)
async def test_endless_patterns_end_while_the_host_runs(nodes: Any) -> None:
    inputs = {"text": "a" * 5_000 + "!", "pattern": "(a|aa)+(a|aa)+(a|aa)+$"}
    turns = 0
    searches = asyncio.gather(*(nodes.run(type, inputs) for type in TYPES), return_exceptions=True)
    while not searches.done():
        await asyncio.sleep(0.01)
        turns += 1
    for type, error in zip(TYPES, await searches, strict=True):
        assert isinstance(error, InvalidInput)
        assert error.message.startswith(f"{type}: the patterns took longer than 2 s on this text")
    assert turns > 5


async def test_the_limit_holds_while_other_threads_keep_the_interpreter_busy() -> None:
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            sum(range(1000))

    workers = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for worker in workers:
        worker.start()
    compiled = compile_pattern("(a|aa)+$", "i")
    try:
        with pytest.raises(InvalidInput, match="took longer than"):
            await within(lambda left: compiled.occurs_in("a" * 60 + "!", left), "Node", 0.3)
    finally:
        done.set()


async def test_work_that_never_looks_at_its_allowance_is_left_behind() -> None:
    ended = threading.Event()
    with pytest.raises(InvalidInput, match=r"took longer than 0\.1 s"):
        await within(lambda left: ended.wait(60), "Node", 0.1)
    ended.set()
    assert GRACE_SECONDS < 60


async def test_keys_without_end_fail_in_one_line(nodes: Nodes) -> None:
    said = [{"role": "user", "content": "a" * 60 + "!"}]
    with pytest.raises(InvalidInput, match="ContextBuilder: the patterns took longer than 2 s on this text"):
        await build(nodes, worldBookData=[entry("A", "/(a|aa)+$/i")], historyMessages=said)
