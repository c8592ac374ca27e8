"""The scenes in the platform's documents are read; what has no effect in them is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tavern_host.contracts.documents import without_comments
from tavern_worlds.files import read_scenes

GUIDE = "scene__DesignDocs_architecture_agent-configuration-guide.md"
RUNTIME = "$.agent_instances[{}].custom_runtime_config: has no effect"


@pytest.mark.parametrize(("name", "warnings"), [("L146", []), ("L285", [RUNTIME.format(0), RUNTIME.format(1)])])
def test_the_guides_scenes_are_read_without_loss(
    spec_dir: Path, tmp_path: Path, name: str, warnings: list[str]
) -> None:
    text = (spec_dir / "data" / "comfytavern" / f"{GUIDE}__{name}.json").read_text(encoding="utf-8")
    (tmp_path / "scenes").mkdir()
    (tmp_path / "scenes" / "example.json").write_text(text, encoding="utf-8")
    scenes, (summary,) = read_scenes(tmp_path / "scenes")
    assert (summary.problems, summary.warnings) == ([], [f"scenes/example.json: {one}" for one in warnings])
    assert summary.agents == ["elara_the_herbalist_instance_1", "main_storyteller_gm"]
    (scene,) = scenes.values()
    assert scene.model_dump(mode="json", exclude_unset=True) == json.loads(without_comments(text))
