"""Nothing of a project leads out of it, whatever of it is a link, and no error shows what is in a file outside."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from helpers.command_line import Ran, tavern
from helpers.repetition import Failures

from tavern_host import Host
from tavern_scripts.api.scripts import SCRIPT_EXECUTION, ScriptRequest

SECRET = "secret-of-another: [x"
TOOL = {"id": "text:a", "description": "A.", "implementation": {"type": "script", "command": "python a.py"}}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return an empty project, in whose parent is a folder with things of somebody else's."""
    folder = tmp_path / "inn"
    assert tavern("init", "--empty", folder).code == 0
    outside = tmp_path / "outside"
    for name in ("plugins/acme/plugin.yaml", "a.tool.json", "a.json", "tavern.yaml", "a.py", "requirements.txt"):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_text(SECRET)
    return folder


PARTS = [
    *("tavern.yaml", "plugins", "workflows", "agents", "tools", "files", ".tavern", ".tavern/audit", ".tavern/plugins"),
    *(".tavern/plugins/tavern-scripts", ".tavern/plugins/tavern-scripts/kept"),
]
COMMANDS = ("plugins list", "workflow list", "tools check", "audit tail", "settings list")


def replaced(link: Path, target: str | Path) -> None:
    """Put a link in the place of a part of a project."""
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.exists():
        link.rename(link.with_name(f"{link.name}.before"))
    link.symlink_to(target)


def test_a_project_whose_part_leads_out_is_refused(project: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.joinpath("outside").rglob("*"))
    with Failures() as failures:
        for part in PARTS:
            link = project / part
            target = tmp_path / "outside" / ("tavern.yaml" if part == "tavern.yaml" else ".")
            relative = os.path.relpath(target, link.parent)
            for place in (target, relative, tmp_path / "nowhere"):
                with failures.row((part, place)):
                    replaced(link, place)
                    for command in COMMANDS if part == "tools" and place == target else COMMANDS[:1]:
                        ran = tavern("--project", project, *command.split())
                        assert (ran.code, ran.out) == (2, ""), ran
                        assert SECRET not in ran.err
                        assert f"{link} is a link that leads out of the project" in ran.error
                link.unlink()
                if (kept := link.with_name(f"{link.name}.before")).exists():
                    kept.rename(link)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "agents").symlink_to(tmp_path / "outside")
    ran = tavern("init", "--empty", tmp_path / "new")
    assert ran.code == 2
    assert "is a link that leads out of the project" in ran.error
    assert sorted(tmp_path.joinpath("outside").rglob("*")) == before
    assert not (tmp_path / "nowhere").exists()


def test_links_within_a_project_are_followed(project: Path, tmp_path: Path) -> None:
    (project / "tools").rename(project / "more")
    (project / "tools").symlink_to("more")
    (project / "more" / "a.tool.json").write_text(json.dumps(TOOL))
    (project / "venv").symlink_to(tmp_path / "outside")
    (tmp_path / "link").symlink_to(project)
    ran = tavern("--project", tmp_path / "link", "tools", "list", "--json")
    assert "text:a" in {tool["id"] for tool in ran.json()}


def run(project: Path, *command: str | Path) -> Ran:
    """Run a command that shows nothing of what is outside."""
    ran = tavern("--project", project, *command)
    assert "secret-of" not in ran.out + ran.err
    return ran


def test_links_among_documents_are_not_read(project: Path, tmp_path: Path) -> None:
    link = project / "tools" / "a.tool.json"
    link.symlink_to(tmp_path / "outside" / "a.tool.json")
    for part in ("workflows", "agents"):
        (project / part / "a.json").symlink_to(tmp_path / "outside" / "a.json")
    ran = run(project, "tools", "check")
    assert ran.code == 1
    assert f"{link}: is a link that leads out of {project}, and is not read" in ran.out
    for command in ("show", "check", "run"):
        run(project, "workflow", command, "a")
    assert "leads out of the project" in run(project, "agent", "run", "a", "--message", "hello").err
    (tmp_path / "outside" / "a.tool.json").write_text(json.dumps(TOOL))
    assert "text:a" not in {tool["id"] for tool in run(project, "tools", "list", "--json").json()}


async def test_scripts_behind_a_link_are_not_run(project: Path, tmp_path: Path) -> None:
    (project / "scripts").symlink_to(tmp_path / "outside")
    (tmp_path / "outside" / "told.py").write_text("print(1)")
    async with Host(project) as host:
        for path in ("a.py", "tld.py", "../outside/a.py"):
            result = await host.services.get(SCRIPT_EXECUTION).run(ScriptRequest(script_path=path))
            assert result.error.type == "SecurityError"
            assert "told" not in result.error.message
