"""The platform's built-in nodes that we have too are served as the platform serves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tavern_nodes.nodes
from tavern_host import nodes_of

TYPES = [
    "APISettings", "ApplyRegex", "CharacterCardLoader", "ContextBuilder", "CreateMessage", "GenericLlmRequest",
    "GroupInput", "GroupOutput", "History", "HistoryLoader", "MathOperation", "MatrixOperation", "MergeHistory",
    "MergeMessages", "NodeGroup", "OpenAI", "OpenAIChat", "PresetLoader", "RandomNumber", "RegexRuleLoader",
    "StreamLogger", "StreamSuffixRelay", "TestWidgets", "TextMerge", "WorldBookLoader",
]  # fmt: skip


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


def orders(value: dict[str, Any]) -> list[Any]:
    """Return the keys of a node's slots and modes, in order; of a mode, those of its slots."""
    groups = ("inputs", "outputs", "configSchema", "configValues", "modes")
    modes = value.get("modes", {}).values()
    return [list(value.get(group, {})) for group in groups] + [orders(mode) for mode in modes]


@pytest.mark.parametrize("type", TYPES)
def test_slots_and_modes_come_in_the_platforms_order(published: dict[str, dict[str, Any]], type: str) -> None:
    ours = next(d for d in nodes_of(tavern_nodes.nodes) if d.type == type).to_wire()
    assert orders(ours) == orders(published[type])


def texts(value: Any) -> set[str]:
    """Return every text under a key `description`."""
    if isinstance(value, dict):
        own = {value["description"]} if isinstance(value.get("description"), str) else set()
        return own.union(*map(texts, value.values()))
    return set().union(*map(texts, value)) if isinstance(value, list) else set()


def test_descriptions_are_our_own(published: dict[str, dict[str, Any]]) -> None:
    ours = {d.type: d.to_wire() for d in nodes_of(tavern_nodes.nodes) if d.type in published}
    assert {type: texts(ours[type]) & texts(published[type]) for type in ours} == {type: set() for type in ours}


def test_every_node_of_the_platform_is_there_and_no_other_takes_its_name(published: dict[str, dict[str, Any]]) -> None:
    assert set(published) == set(TYPES)
    assert {d.type for d in nodes_of(tavern_nodes.nodes)} & set(published) == set(TYPES)
