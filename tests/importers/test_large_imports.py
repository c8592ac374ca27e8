"""Files with thousands of parts: nobody else waits while one is read. Steps are counted, not seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from helpers.repetition import Failures

from tests.importers.foreign_files import api, dumped, in_yaml
from tests.importers.imports_bench import Imports
from tests.knowledge.cards import ENTRY, V2

MANY, STEPS = 3000, 20_000
"""How many parts a file has, and how many calls the event loop makes at once; one for each part in turn is too many."""


@contextmanager
def longest_turn() -> Iterator[list[int]]:
    """Count the calls of each turn of the event loop, in its thread; the first of the list is of the longest."""
    found, now = [0], 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal now
        if event == "call":
            now = 0 if frame.f_code.co_name == "_run" else now + 1
            found[0] = max(found[0], now)

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield found
    finally:
        sys.setprofile(before)


def _entries(number: int) -> dict[str, Any]:
    return {str(at): {**ENTRY, "uid": at, "key": [f"key {at}"], "content": f"Text {at}."} for at in range(number)}


def _of_cards(number: int) -> dict[str, Any]:
    entries = [
        {"keys": [f"key {at}"], "content": f"Text {at}.", "enabled": True, "insertion_order": at, "extensions": {}}
        for at in range(number)
    ]
    return {**V2, "data": {**V2["data"], "character_book": {"extensions": {}, "entries": entries}}}


def _comfy(number: int) -> dict[str, Any]:
    nodes = [
        {
            **{"id": at, "type": "CLIPTextEncode", "pos": [at, 0], "widgets_values": [f"text {at}"]},
            "inputs": [{"name": "clip", "type": "CLIP", "link": at}] if at else [],
            "outputs": [{"name": "CONDITIONING", "type": "CONDITIONING", "links": [at + 1]}],
        }
        for at in range(number)
    ]
    return {"nodes": nodes, "links": [[at, at - 1, 0, at, 0, "CLIP"] for at in range(1, number)], "version": 0.4}


async def test_nobody_waits_while_a_file_with_thousands_of_parts_is_imported(imports: Imports) -> None:
    large = {
        "card.json": dumped(_of_cards(MANY)),
        "world.json": dumped({"entries": _entries(MANY)}),
        "graph.json": dumped(_comfy(MANY // 3)),
        "things.yaml": in_yaml(api("3.1.0", 300)),
    }
    small = {"card.json": _of_cards(1), "world.json": {"entries": _entries(1)}, "graph.json": _comfy(2)}
    for name, content in small.items():  # what an import needs is imported itself
        await imports.take(name, content, name=f"small-{name.partition('.')[0]}")
    await imports.take("things.yaml", in_yaml(api("3.1.0", 1, "Small")))
    with Failures() as failures:
        for name, data in large.items():
            with failures.row(name):
                with longest_turn() as steps:
                    assert (await imports.take(name, data)).things
                assert steps[0] < STEPS
