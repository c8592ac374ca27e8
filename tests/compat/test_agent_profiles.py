"""The profiles in the platform's documents are read, and its required fields are ours."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tavern_agents.api.agents import AgentProfile
from tavern_agents.profiles import read_profiles

GUIDE = "agent_profile__DesignDocs_architecture_agent-configuration-guide.md"
COMMENTED = "agent_profile__DesignDocs_architecture_agent_architecture_consolidated.md__L191.json"


def published(spec_dir: Path, name: str) -> str:
    return (spec_dir / "data" / "comfytavern" / name).read_text(encoding="utf-8")


def put(project: Path, name: str, text: str) -> None:
    (project / "agents").mkdir(exist_ok=True)
    (project / "agents" / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", [f"{GUIDE}__L22.json", f"{GUIDE}__L196.json"])
def test_the_guides_profiles_are_read_without_loss(spec_dir: Path, tmp_path: Path, name: str) -> None:
    text = published(spec_dir, name).replace('"number"', "0.5")  # one names the types of its values
    put(tmp_path, "example.json", text)
    profiles = read_profiles(tmp_path)
    assert profiles.problems == []
    (profile,) = profiles.by_id.values()
    assert profile.model_dump(mode="json", exclude_unset=True) == json.loads(text)


def test_what_an_agent_may_call_and_where_it_deliberates(spec_dir: Path, tmp_path: Path) -> None:
    put(tmp_path, "elara.json", published(spec_dir, f"{GUIDE}__L196.json"))
    profile = read_profiles(tmp_path).get("comfytavern_advanced_npc_v1.2")
    assert profile.core_deliberation_workflow_id == "workflows/core_npc_deliberation_v1.json"
    assert "QueryKnowledgeBaseTool" in profile.tool_ids_inventory


def test_the_fields_that_the_platform_requires_are_those_that_we_require(spec_dir: Path) -> None:
    required = re.findall(r'"(\w+)":.*\(必需\)', published(spec_dir, COMMENTED))
    assert required == [name for name, field in AgentProfile.model_fields.items() if field.is_required()]
