"""The platform's built-in nodes that we have too are served as the platform serves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tavern_nodes.nodes
from tavern_host import nodes_of

TYPES = ["GroupInput", "GroupOutput", "TextMerge", "MathOperation", "RandomNumber"]


@pytest.fixture
def published(spec_dir: Path) -> dict[str, dict[str, Any]]:
    text = (spec_dir / "data" / "comfytavern" / "api_nodes.json").read_text(encoding="utf-8")
    return {entry["type"]: entry for entry in json.loads(text)}


def without_descriptions(value: Any) -> Any:
    """Return `value` with every text under a key `description` replaced by whether it says anything."""
    if isinstance(value, dict):
        return {k: bool(v) if k == "description" else without_descriptions(v) for k, v in value.items()}
    if isinstance(value, list):
        return [without_descriptions(item) for item in value]
    return value


@pytest.mark.parametrize("type", TYPES)
def test_node_is_served_as_the_platform_serves_it(published: dict[str, dict[str, Any]], type: str) -> None:
    ours = next(d for d in nodes_of(tavern_nodes.nodes) if d.type == type).to_wire()
    assert without_descriptions(json.loads(json.dumps(ours))) == without_descriptions(published[type])


def test_slots_and_modes_come_in_the_platforms_order(published: dict[str, dict[str, Any]]) -> None:
    ours = next(d for d in nodes_of(tavern_nodes.nodes) if d.type == "MathOperation").to_wire()
    theirs = published["MathOperation"]
    assert list(ours["modes"]) == list(theirs["modes"])
    assert [list(m["inputs"]) for m in ours["modes"].values()] == [list(m["inputs"]) for m in theirs["modes"].values()]


def test_our_own_nodes_take_no_name_of_the_platform(published: dict[str, dict[str, Any]]) -> None:
    assert {d.type for d in nodes_of(tavern_nodes.nodes)} & set(published) == set(TYPES)
