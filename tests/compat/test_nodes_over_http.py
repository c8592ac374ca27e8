"""`GET /api/nodes` answers for the platform's nodes as the platform does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.served import served

from tavern_host import Host


def without_descriptions(value: Any) -> Any:
    """Return `value` without the texts under keys `description`; our nodes have their own."""
    if isinstance(value, dict):
        return {k: without_descriptions(v) for k, v in value.items() if k != "description"}
    return [without_descriptions(item) for item in value] if isinstance(value, list) else value


async def test_the_answer_equals_the_platforms_field_by_field(spec_dir: Path, tmp_path: Path) -> None:
    published = json.loads((spec_dir / "data" / "comfytavern" / "api_nodes.json").read_text(encoding="utf-8"))
    async with Host(tmp_path / "project") as host, served(host) as site:
        answered = await (await site.get("/api/nodes")).json()

    theirs = {node["type"]: node for node in published}
    ours = {node["type"]: node for node in answered if node["namespace"] == "core" and node["type"] in theirs}

    assert without_descriptions(ours) == without_descriptions(theirs)
    assert len(ours) == 25
