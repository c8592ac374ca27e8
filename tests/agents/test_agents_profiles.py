"""Reading agent profiles: every problem told, none hiding another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tavern_agents.profiles import read_profiles
from tavern_host.contracts.errors import Misconfigured, NotFound

PROFILE = {
    "id": "elara",
    "name": "Elara",
    "version": "1.0.0",
    "schema_version": "1.0",
    "core_deliberation_workflow_id": "workflows/think.json",
}


def put(project: Path, file: str, content: Any) -> None:
    path = project / "agents" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def test_profiles_are_found_in_files_and_in_folders(tmp_path: Path) -> None:
    put(tmp_path, "b.json", {**PROFILE, "id": "bruno"})
    put(tmp_path, "a/agent_profile.json", {**PROFILE, "tool_ids_inventory": ["FileOperator.WriteFile"]})
    put(tmp_path, "a/notes.json", {"not": "a profile"})
    profiles = read_profiles(tmp_path)
    assert list(profiles.by_id) == ["bruno", "elara"]
    assert profiles.problems == []
    assert profiles.get("elara").tool_ids_inventory == ["FileOperator.WriteFile"]


def test_keys_that_we_do_not_know_are_kept(tmp_path: Path) -> None:
    put(tmp_path, "a.json", {**PROFILE, "knowledge_base_references": [{"source_id": "kb"}]})
    profile = read_profiles(tmp_path).get("elara")
    assert profile.model_dump(exclude_unset=True) == {**PROFILE, "knowledge_base_references": [{"source_id": "kb"}]}


def test_a_profile_may_have_comments(tmp_path: Path) -> None:
    put(tmp_path, "a.json", "// who she is\n" + json.dumps(PROFILE)[:-1] + ', /* where */ "home": "a//b" } // end')
    assert read_profiles(tmp_path).get("elara").model_dump()["home"] == "a//b"


def test_a_project_without_agents_has_none(tmp_path: Path) -> None:
    assert read_profiles(tmp_path).by_id == {}


def test_every_problem_of_every_file_is_told_with_its_path(tmp_path: Path) -> None:
    put(
        tmp_path, "a.json", {"id": "", "name": 5, "version": "1", "schema_version": "1", "tool_ids_inventory": ["x", 7]}
    )
    put(tmp_path, "b.json", '{"id": "b",\n "name": }')
    put(tmp_path, "c.json", [])
    put(tmp_path, "d.json", {**PROFILE, "id": " ", "name": ""})
    put(tmp_path, "e.json", PROFILE)
    profiles = read_profiles(tmp_path)
    assert list(profiles.by_id) == ["elara"]
    assert profiles.problems == [
        "agents/a.json: $.name: input should be a valid string, found an integer",
        "agents/a.json: $.core_deliberation_workflow_id: is missing",
        "agents/a.json: $.tool_ids_inventory[1]: input should be a valid string, found an integer",
        "agents/b.json: is not JSON: line 2, column 10: Expecting value",
        "agents/c.json: must hold a JSON object, not an array",
        "agents/d.json: $.id: must not be empty",
        "agents/d.json: $.name: must not be empty",
    ]


def test_of_two_profiles_with_one_id_the_second_is_told(tmp_path: Path) -> None:
    put(tmp_path, "a.json", PROFILE)
    put(tmp_path, "b.json", {**PROFILE, "name": "Impostor"})
    profiles = read_profiles(tmp_path)
    assert profiles.get("elara").name == "Elara"
    assert profiles.problems == ["agents/b.json: $.id: 'elara' is the id of agents/a.json already; give it another"]


def test_a_broken_profile_that_is_asked_for_says_why(tmp_path: Path) -> None:
    put(tmp_path, "smith.json", {**PROFILE, "id": "the-smith", "version": None})
    for name in ("the-smith", "smith"):
        with pytest.raises(Misconfigured) as caught:
            read_profiles(tmp_path).get(name)
        assert caught.value.message == (
            f"the agent '{name}' cannot be used: agents/smith.json: "
            "$.version: input should be a valid string, found null"
        )


def test_an_unknown_agent_is_told_with_near_names(tmp_path: Path) -> None:
    put(tmp_path, "a.json", PROFILE)
    with pytest.raises(NotFound, match=r"there is no agent 'elra' \(did you mean elara\?\)"):
        read_profiles(tmp_path).get("elra")
    with pytest.raises(NotFound, match=r"there is no agent 'zzz' \(there is elara\)"):
        read_profiles(tmp_path).get("zzz")


def test_a_link_out_of_the_project_and_a_link_to_nowhere_are_problems(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (tmp_path / "outside.json").write_text(json.dumps(PROFILE), encoding="utf-8")
    put(project, "c.json", {**PROFILE, "id": "c"})
    (project / "agents" / "a.json").symlink_to(tmp_path / "outside.json")
    (project / "agents" / "b.json").symlink_to(tmp_path / "nowhere.json")
    profiles = read_profiles(project)
    assert list(profiles.by_id) == ["c"]
    assert profiles.problems[0] == "agents/a.json: leads out of the project; only files of the project are read"
    assert profiles.problems[1].startswith("agents/b.json: cannot be read: FileNotFoundError")
