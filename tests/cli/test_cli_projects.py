"""Which project `tavern` works on, and how it says what is wrong with a project's or the operator's file."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from helpers.command_line import tavern
from helpers.repetition import Failures


def test_init_makes_a_project_with_its_parts(tmp_path: Path) -> None:
    inn = tmp_path / "inn"
    (inn / "workflows").mkdir(parents=True)
    (inn / "workflows" / "mine.json").write_text("{}")
    (tmp_path / "file").write_text("")

    ran = tavern("init", "--empty", "inn", cwd=tmp_path)

    made = f"Made a project in {inn}\nThere, `tavern serve` opens its page.\n"
    assert (ran.code, ran.out, ran.err) == (0, made, "")
    assert (inn / "tavern.yaml").read_text() == 'name: "inn"\n'
    assert {p.name for p in inn.iterdir() if p.is_dir()} >= {"workflows", "agents", "tools", "plugins"}
    assert (inn / "workflows" / "mine.json").read_text() == "{}"
    assert tavern("init", "other", "--json", cwd=tmp_path).json() == {"project": str(tmp_path / "other")}
    beneath = tmp_path / "file" / "inn"
    for words, error in (
        (("init", inn), f"{inn} is a project already"),
        (("init", beneath), f"no project can be made in {beneath}: Not a directory"),
        (("init", ""), ""),
        (
            ("--project", tmp_path, "tools", "list"),
            f"{tmp_path} is not a project: it has no tavern.yaml (make one with `tavern init {tmp_path}`)",
        ),
    ):
        ran = tavern(*words, cwd=tmp_path)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"Error: {error}") and ran.err.count("\n") == 1
    assert list(tmp_path.glob("*.yaml")) == []


def test_a_new_project_runs_as_it_says(tmp_path: Path) -> None:
    said = tavern("init", "inn", cwd=tmp_path).out
    command = re.search("`tavern (workflow run [^`]*)`", said)
    assert command is not None, said
    ran = tavern(*shlex.split(command[1]), cwd=tmp_path / "inn")
    assert ran.code == 0
    assert "Hello, Ada" in ran.out
    assert tavern("plugins", "list", "--check", cwd=tmp_path / "inn").code == 0
    listed = tavern("workflow", "list", "--json", cwd=tmp_path / "inn").json()
    assert {one["id"] for one in listed} >= {"greeting", "agents/deliberation"}


def test_the_project_is_named_or_in_the_environment_or_where_one_stands(project: Path, tmp_path: Path) -> None:
    (project / "agents" / "keeper.json").write_text(
        '{"id": "keeper", "name": "Keeper", "version": "1", "schema_version": "1.0",'
        ' "core_deliberation_workflow_id": "think"}'
    )
    here = tmp_path / "elsewhere"
    assert tavern("init", "--empty", here).code == 0

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


def test_what_the_operator_wrote_wrong_is_told(operator_folders: Path) -> None:
    config = operator_folders / "config"
    config.mkdir(parents=True)
    for content, error in (
        ("trusts: [acme]\n", "host.yaml:1:1: unknown key 'trusts' (did you mean trust?)"),
        ("disabled: []\ntrust: acme\n", "host.yaml:2:1: trust: input should be a valid list, found 'acme'"),
    ):
        (config / "host.yaml").write_text(content)
        ran = tavern("nodes", "list")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err == f"Error: {config / 'host.yaml'} cannot be used:\n  {config}/{error}\n"
    (config / "host.yaml").unlink()
    for text, error in (("{", "is not JSON"), ("[]", "must be a JSON object")):
        ran = tavern("plugins", "list", TAVERN_SETTINGS=text)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"Error: TAVERN_SETTINGS {error}")


def test_a_setting_that_no_plugin_declares_is_a_warning(project: Path) -> None:
    (project / "tavern.yaml").write_text("settings: {extensions.tavern-llm.modles: {}}\n")

    ran = tavern("--project", project, "tools", "list", "--kind", "script", "--json")

    assert (ran.code, ran.json()) == (0, [])
    assert "Warning: the plugin tavern-llm: the project's settings have 'extensions.tavern-llm.modles'" in ran.err
    assert "did you mean extensions.tavern-llm.models" in ran.err
