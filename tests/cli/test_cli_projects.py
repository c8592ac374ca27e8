"""Which project `tavern` works on, and how it says what is wrong with a project's or the operator's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import tavern
from helpers.repetition import Failures


def test_init_makes_a_project_with_its_parts(tmp_path: Path) -> None:
    ran = tavern("init", "inn", cwd=tmp_path)

    assert (ran.code, ran.out, ran.err) == (0, f"Made a project in {tmp_path / 'inn'}\n", "")
    assert (tmp_path / "inn" / "tavern.yaml").read_text() == 'name: "inn"\n'
    assert {p.name for p in (tmp_path / "inn").iterdir() if p.is_dir()} >= {"workflows", "agents", "tools", "plugins"}


def test_init_leaves_alone_what_is_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "mine.json").write_text("{}")

    ran = tavern("init", tmp_path, "--json")

    assert ran.json() == {"project": str(tmp_path)}
    assert (tmp_path / "workflows" / "mine.json").read_text() == "{}"


def test_init_refuses_a_folder_that_is_a_project(project: Path) -> None:
    ran = tavern("init", project)

    assert (ran.code, ran.out, ran.err) == (2, "", f"Error: {project} is a project already\n")


def test_init_says_where_no_project_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    ran = tavern("init", tmp_path / "file" / "inn")

    assert ran.code == 2
    assert ran.err == f"Error: no project can be made in {tmp_path / 'file' / 'inn'}: Not a directory\n"


def test_init_refuses_an_empty_name(tmp_path: Path) -> None:
    assert tavern("init", "", cwd=tmp_path).code == 2
    assert list(tmp_path.glob("*.yaml")) == []


def test_a_folder_without_a_tavern_yaml_is_no_project(tmp_path: Path) -> None:
    ran = tavern("--project", tmp_path, "tools", "list")

    hint = f"make one with `tavern init {tmp_path}`"
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"Error: {tmp_path} is not a project: it has no tavern.yaml ({hint})\n"


def test_the_project_is_named_or_in_the_environment_or_where_one_stands(project: Path, tmp_path: Path) -> None:
    (project / "agents" / "keeper.json").write_text(
        '{"id": "keeper", "name": "Keeper", "version": "1", "schema_version": "1.0",'
        ' "core_deliberation_workflow_id": "think"}'
    )
    here = tmp_path / "elsewhere"
    assert tavern("init", here).code == 0

    named = tavern("--project", project, "agent", "list", "--json", cwd=here)
    by_environment = tavern("agent", "list", "--json", cwd=here, TAVERN_PROJECT=str(project))
    standing_in = tavern("agent", "list", "--json", cwd=project)
    elsewhere = tavern("agent", "list", "--json", cwd=here)

    for ran in (named, by_environment, standing_in):
        assert [agent["id"] for agent in ran.json()["agents"]] == ["keeper", "creation-assistant"]
    assert [agent["id"] for agent in elsewhere.json()["agents"]] == ["creation-assistant"]


def test_without_any_project_the_default_one_is_made_with_a_sample(tmp_path: Path, operator_folders: Path) -> None:
    ran = tavern("workflow", "list", "--json", cwd=tmp_path)

    own = {workflow["id"] for workflow in ran.json()}
    assert {"conversation", "deliberation", "greeting", "agents/deliberation"} <= own
    assert (operator_folders / "data" / "default" / "tavern.yaml").is_file()


def test_a_broken_tavern_yaml_is_told_with_line_and_column(project: Path) -> None:
    rows: Any = [
        ("name: inn\nsetings: {}\n", "tavern.yaml:2:1: unknown key 'setings' (did you mean settings?)"),
        (
            "name: inn\n\ntrust: [acme]\n",
            "tavern.yaml:3:1: unknown key 'trust' "
            "(this is the operator's to decide: write it in host.yaml, not in a project)",
        ),
        ("name: [\n", "tavern.yaml:2:1: not valid YAML: expected a value, but found the end of the file"),
        ("- a\n- b\n", "tavern.yaml:1:1: expected keys and values, found a list"),
        ("name: 7\n", 'tavern.yaml:1:1: name: input should be a valid string, found 7 (write it in quotes: "7")'),
    ]
    with Failures() as failures:
        for content, error in rows:
            with failures.row(content):
                (project / "tavern.yaml").write_text(content)

                ran = tavern("--project", project, "plugins", "list")

                assert (ran.code, ran.out) == (2, "")
                assert ran.err == f"Error: {project / 'tavern.yaml'} cannot be used:\n  {project}/{error}\n"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("trusts: [acme]\n", "host.yaml:1:1: unknown key 'trusts' (did you mean trust?)"),
        ("disabled: []\ntrust: acme\n", "host.yaml:2:1: trust: input should be a valid list, found 'acme'"),
    ],
)
def test_a_broken_host_yaml_is_told_with_line_and_column(operator_folders: Path, content: str, error: str) -> None:
    config = operator_folders / "config"
    config.mkdir(parents=True)
    (config / "host.yaml").write_text(content)

    ran = tavern("nodes", "list")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"Error: {config / 'host.yaml'} cannot be used:\n  {config}/{error}\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "Error: TAVERN_SETTINGS is not JSON"),
        ("[]", "Error: TAVERN_SETTINGS must be a JSON object"),
    ],
)
def test_broken_settings_in_the_environment_are_named(text: str, error: str) -> None:
    ran = tavern("plugins", "list", TAVERN_SETTINGS=text)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(error)


def test_a_setting_that_no_plugin_declares_is_a_warning(project: Path) -> None:
    (project / "tavern.yaml").write_text("settings: {extensions.tavern-llm.modles: {}}\n")

    ran = tavern("--project", project, "tools", "list", "--kind", "script", "--json")

    assert (ran.code, ran.json()) == (0, [])
    assert "Warning: the plugin tavern-llm: the project's settings have 'extensions.tavern-llm.modles'" in ran.err
    assert "did you mean extensions.tavern-llm.models" in ran.err
