"""`GET /api/nodes` answers for the platform's built-in nodes as the platform does, field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.testing.http import served


def without_descriptions(value: Any) -> Any:
    """Return `value` with every text under a key `description` replaced by whether it says anything."""
    if isinstance(value, dict):
        return {k: bool(v) if k == "description" else without_descriptions(v) for k, v in value.items()}
    return [without_descriptions(item) for item in value] if isinstance(value, list) else value


def orders(value: dict[str, Any]) -> list[Any]:
    """Return the keys of a node's slots and modes, in order; of a mode, those of its slots."""
    groups = ("inputs", "outputs", "configSchema", "configValues", "modes")
    modes = value.get("modes", {}).values()
    return [list(value.get(group, {})) for group in groups] + [orders(mode) for mode in modes]


def texts(value: Any) -> set[str]:
    """Return every text under a key `description`."""
    if isinstance(value, dict):
        own = {value["description"]} if isinstance(value.get("description"), str) else set()
        return own.union(*map(texts, value.values()))
    return set().union(*map(texts, value)) if isinstance(value, list) else set()


async def test_nodes_are_served_as_the_platform_serves_them(spec_dir: Path, tmp_path: Path) -> None:
    published = json.loads((spec_dir / "data" / "comfytavern" / "api_nodes.json").read_text(encoding="utf-8"))
    async with Host(tmp_path / "project") as host, served(host) as site:
        answered = await (await site.get("/api/nodes")).json()

    ours = {node["type"]: node for node in answered if node["namespace"] == "core"}
    assert len(published) == 25
    with Failures() as failures:
        for theirs in published:
            with failures.row(theirs["type"]):
                node = ours[theirs["type"]]
                node.pop("texts", None)  # names in other languages, which the platform does not have
                assert without_descriptions(node) == without_descriptions(theirs)
                assert orders(node) == orders(theirs)
                assert texts(node) & texts(theirs) == set()  # the descriptions are our own
