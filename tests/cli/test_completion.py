"""Completion of commands, options and names in a shell, as the shell asks for it."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest
from helpers.command_line import tavern
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures
from helpers.tavern_project import deliberation

from tavern_host.cli.completion import complete

AGENT = {
    "id": "mine",
    "name": "Mine",
    "version": "1.0.0",
    "schema_version": "1.0",
    "core_deliberation_workflow_id": "think",
}


def asked(line: str) -> dict[str, str]:
    """Return the variables that bash sets in the environment at the end of a line."""
    return {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_TAVERN_COMPLETE": "bash_complete"}


def offered(line: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the words that bash is offered at the end of a line, in the current folder."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with monkeypatch.context() as patch, contextlib.redirect_stdout(out):
        for variable, value in asked(line).items():
            patch.setenv(variable, value)
        assert complete() == 0
    out.seek(0)
    return [one.removeprefix("plain,") for one in out.read().split()]


def test_commands_options_and_names_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "inn"
    assert tavern("init", "--empty", project).code == 0
    write_plugin(project / "plugins" / "waits", {"__init__.py": "print('noise')\n"})
    write_plugin(project / "plugins" / "looks", {"plugin.yaml": "name: looks\nversion: [\n"})
    (project / "workflows" / "one.json").write_text('{"nodes": [], "edges": []}')
    (project / "workflows" / "think.json").write_text(json.dumps(deliberation()))
    models = '{"extensions.tavern-llm.models": {"mine": {"adapter": "scripted", "file": "replies.yaml"}}}'
    with (project / "tavern.yaml").open("a") as settings:
        settings.write(f"\nsettings: {models}\n")
    (project / "agents" / "mine.json").write_text(json.dumps(AGENT))
    spoken = tavern("--project", project, "agent", "run", "mine", "--message", "Hello.", "--max-steps", "1")
    assert "there is no" not in spoken.err
    [agent_run] = tavern("--project", project, "agent", "runs", "--json").json()
    monkeypatch.chdir(project)
    run_id = tavern("--project", project, "workflow", "run", "one", "--json").json()["id"]
    with Failures() as failures:
        for line, names in (
            ("tavern plu", ["plugins"]),
            ("tavern plugins gr", ["grant"]),
            ("tavern plugins grant wa", ["waits"]),
            ("tavern tools show FileOperator.Write", ["FileOperator.WriteFile"]),
            ("tavern --project . tools show system:list", ["system:list_tools"]),
            ("tavern workflow run o", ["file,o", "one"]),
            (f"tavern runs show {run_id[:5]}", [run_id[:12]]),
            ("tavern agent run m", ["mine"]),
            ("tavern agent trace agent_", [agent_run["id"]]),
            ("tavern plugins check ", ["file,"]),
            ("tavern models rem", ["remove"]),
            ("tavern models remove m", ["mine"]),
            ("tavern plugins list --che", ["--check"]),
            ("tavern --project /no/such/folder tools show ", []),
            ("tavern plugins list ", []),
        ):
            with failures.row(line):
                assert offered(line, monkeypatch) == names
