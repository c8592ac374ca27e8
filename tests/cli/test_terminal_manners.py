"""What holds for every command at the terminal: where options stand, errors as JSON, tables, warnings, Ctrl-C."""

from __future__ import annotations

import os
from pathlib import Path

from helpers.command_line import tavern
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures


def test_the_project_stands_before_or_after_the_command(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    tavern("init", "--empty", other)
    write_plugin(project / "plugins" / "looks")
    with Failures() as failures:
        for words in (
            ["--project", project, "plugins", "show", "looks"],
            ["plugins", "show", "looks", "--project", project],
            ["plugins", "show", "--project", project, "looks"],
            ["plugins", "show", f"--project={project}", "looks"],
            ["--project", other, "plugins", "show", "looks", "--project", project],
            ["tools", "list", "--project", project],
        ):
            with failures.row(str(words)):
                assert tavern(*words).code == 0
        with failures.row("no project"):
            ran = tavern("tools", "list", "--project", tmp_path / "nope")
            assert ran.code == 2
            assert "is not a project" in ran.error


def test_errors_are_json_where_json_is_asked_for(project: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "tavern.yaml").write_text("name: x\nsettings: [\n")
    with Failures() as failures:
        for words, ends, code in (
            (["tools", "show", "nope"], 2, "not_found"),
            (["plugins", "show", "nope"], 2, "not_found"),
            (["plugins", "lust"], 2, "invalid_input"),
            (["nodez"], 2, "invalid_input"),
            (["plugins", "show"], 2, "invalid_input"),
            (["plugins", "list", "--project", str(bad)], 2, "invalid_file"),
            (["workflow", "run", "nope"], 2, "not_found"),
            (["completion", "ksh"], 2, "invalid_input"),
        ):
            with failures.row(str(words)):
                ran = tavern(*words, "--json", cwd=project)
                error = ran.json()
                assert (ran.code, error["code"], error["success"]) == (ends, code, False)
                assert error["message"].splitlines()[0] in ran.err
                if code == "invalid_file":
                    (problem,) = error["details"]["problems"]
                    assert (problem["file"], problem["line"]) == (str(bad / "tavern.yaml"), 3)
        with failures.row("a result and a failure are one document"):
            write_plugin(project / "plugins" / "broken", {"plugin.yaml": "name: broken\n"})
            ran = tavern("--strict", "plugins", "list", "--json", cwd=project)
            assert (ran.code, isinstance(ran.json(), list)) == (1, True)


def test_tables_fold_no_id(project: Path) -> None:
    name = "a-" + "very-" * 15 + "long-name"
    write_plugin(project / "plugins" / name, description="d " * 200)
    shown = tavern("plugins", "list", cwd=project).out
    assert any(name in line and "discovered" in line for line in shown.splitlines())
    shown = tavern("plugins", "show", "tavern-engine", cwd=project).out
    assert "services.use:executionEngine:interrupt" in shown
    workflow, title = "-".join(["an-id"] * 19), "a-name" * 10  # nothing in the row could be narrower
    document = f'{{"name": "{title}", "nodes": [], "edges": []}}'
    (project / "workflows" / f"{workflow}.json").write_text(document)
    shown = tavern("workflow", "list", cwd=project).out
    assert any(f" {workflow} " in line and f" {title} " in line for line in shown.splitlines())


def test_broken_plugins_take_one_line(project: Path) -> None:
    write_plugin(project / "plugins" / "one", {"plugin.yaml": "name: one\n"})
    ran = tavern("tools", "list", cwd=project)
    assert len(ran.err.splitlines()) == 1
    assert ran.error.startswith("Warning: the plugin one is invalid: one/plugin.yaml:1:1: ")
    write_plugin(project / "plugins" / "two", {"plugin.yaml": "name: two\nversion: [\n"})
    write_plugin(project / "plugins" / "three", requires={"plugins": {"no-such": ">=1"}})
    ran = tavern("tools", "list", cwd=project)
    assert ran.err == (
        "Warning: plugins are not in order: one (invalid), three (incompatible), two (invalid); "
        "`tavern plugins list --check` says why\n"
    )


def test_a_path_that_is_not_utf_8_is_a_sentence(project: Path, tmp_path: Path) -> None:
    raw = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    Path(raw).mkdir()
    (Path(raw) / "tavern.yaml").write_text("name: x\n")
    with Failures() as failures:
        for words in (
            ["--project", raw, "tools", "list"],
            ["plugins", "list", "--project", raw],
            ["init", f"{raw}/inn"],
            ["--dev", raw, "plugins", "list"],
        ):
            with failures.row(str(words)):
                path = next(word for word in words if word.startswith(raw))
                ran = tavern(*words, cwd=project)
                assert (ran.code, ran.error) == (
                    2,
                    f"Error: the path {os.fsencode(path)!r} is not UTF-8: rename the folder",
                )
    assert tavern("tools", "list", cwd=Path(raw)).error.endswith("is not UTF-8: rename the folder")
