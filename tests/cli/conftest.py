"""Projects and plugins for commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.command_line import tavern
from helpers.folder_plugins import GREETS_IN_ITS_OWN_WAY, INTERCEPTING, write_plugin

from tavern_host import Host
from tavern_host.audit.log import AuditLog

SAYS = '''"""A plugin with a command that says whatever it is told."""
import json

from tavern_host import CommandInfo, CommandOutput, CommandParameter, hookimpl


@hookimpl
def tavern_register_commands():
    what = CommandParameter(name="what", required=True)
    return [CommandInfo(name="say", help="Say it.", handler=f"{__name__}:say", standalone=True, parameters=[what])]


async def say(arguments, context):
    for item in json.loads(arguments["what"]):
        yield CommandOutput(**item)
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of an empty project."""
    folder = tmp_path / "inn"
    assert tavern("init", "--empty", folder).code == 0
    return folder


@pytest.fixture
def acme_project(project: Path) -> Path:
    """Return a project with a plugin that needs a grant and has settings."""
    options = [
        {"key": f"extensions.acme.{key}", "type": "string", "label": key, "secret": key == "key"}
        for key in ("word", "key")
    ]
    write_plugin(project / "plugins" / "acme", {}, configOptions=options, **INTERCEPTING)
    return project


@pytest.fixture
def log(project: Path) -> AuditLog:
    """Return the project's log with five entries in it."""
    log = Host(project).audit
    for number in range(4):
        log.record("acme.done", actor="plugin:acme", subject=f"job {number}")
        log.flush()
    log.record("plugin.granted", actor="user:operator", subject="acme", details={"permissions": ["a:b"], "token": "x"})
    log.flush()
    return log


@pytest.fixture
def saved(project: Path, tmp_path: Path) -> Path:
    """Return a backup of the project, which has a plugin that was granted what it asks for."""
    write_plugin(project / "plugins" / "acme", {"__init__.py": GREETS_IN_ITS_OWN_WAY}, **INTERCEPTING)
    assert tavern("--project", project, "plugins", "grant", "acme").code == 0
    files, cache = project / "files", project / ".tavern" / "cache"
    built = Host(project).folders.project_state(Host(project).project) / "isolation" / "environments"
    for folder in (files, cache, built):
        folder.mkdir(parents=True, exist_ok=True)
    (files / "run.sh").write_text("echo")
    (files / "run.sh").chmod(0o755)
    os.utime(files / "run.sh", ns=(0, 10**18))
    (files / "uv.lock").write_text("")
    (files / "link").symlink_to("run.sh")
    (cache / "x").write_text("derived")
    (built / "x").write_text("built")
    file = tmp_path / "inn.backup"
    ran = tavern("--project", project, "backup", file, "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["leftOut"] == ["project/files/link"]
    return file


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """Return a plugin with a command `say`, which says whatever it is told."""
    hooks = {"hooks": ["hook:server:commands:register"]}
    return write_plugin(tmp_path / "acme_says", {"__init__.py": SAYS}, permissions=hooks)
