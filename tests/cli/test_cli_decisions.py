"""`tavern plugins enable|disable|reload`, `tavern why`, and which plugins one run leaves out."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from helpers.audit_logs import tail
from helpers.command_line import tavern
from helpers.folder_plugins import write_plugin

BROKEN = {"__init__.py": "import no_such_module\n"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with a plugin that needs no grant."""
    folder = tmp_path / "inn"
    assert tavern("init", "--empty", folder).code == 0
    requires = {"plugins": {"tavern-nodes": ""}}
    write_plugin(folder / "plugins" / "looks", {"web/a.css": ""}, description="Nothing but looks.", requires=requires)
    return folder


def state(project: Path, name: str, *options: str) -> str:
    """Return the state of a plugin as it is listed."""
    plugins = tavern("--project", project, *options, "plugins", "list", "--json").json()
    return next(str(plugin["state"]) for plugin in plugins if plugin["name"] == name)


def test_a_plugin_is_disabled_until_it_is_enabled(project: Path) -> None:
    ran = tavern("--project", project, "plugins", "disable", "looks")
    assert (ran.code, ran.out) == (0, "looks is disabled. No host runs for this project.\n")
    assert state(project, "looks") == "disabled"
    shown = tavern("--project", project, "plugins", "show", "looks")
    assert "the operator has disabled it (`tavern plugins enable looks`)" in shown.out
    assert tavern("--project", project, "--strict", "plugins", "list").code == 0, "a disabled plugin is in order"

    ran = tavern("--project", project, "plugins", "enable", "looks")
    assert ran.out == "looks is enabled; it is discovered. No host runs for this project.\n"
    assert state(project, "looks") == "discovered"
    entries = tavern("--project", project, "audit", "tail", "--json").json()
    assert [(e["actor"], e["action"], e["subject"]) for e in entries] == [
        ("user:operator", "plugin.disabled", "looks"),
        ("user:operator", "plugin.enabled", "looks"),
    ]
    assert tavern("--project", project, "audit", "verify").code == 0


def test_what_the_operators_file_keeps_out_is_not_enabled(project: Path, operator_folders: Path) -> None:
    (operator_folders / "config").mkdir(parents=True, exist_ok=True)
    (operator_folders / "config" / "host.yaml").write_text("disabled: [looks]\n")
    ran = tavern("--project", project, "plugins", "enable", "looks")
    why = "the operator has disabled it (take it out of `disabled` in host.yaml)"
    assert (ran.code, ran.error) == (2, f"Error: looks cannot be enabled here: {why}")


def test_one_run_leaves_plugins_out(project: Path) -> None:
    assert state(project, "looks", "--no-plugin", "looks") == "disabled"
    assert state(project, "tavern-llm", "--no-plugin", "tavern-llm") == "disabled"
    assert state(project, "looks") == "discovered"
    assert state(project, "looks", "--no-plugins") == "disabled"
    assert state(project, "tavern-engine", "--no-plugins") == "discovered"
    ran = tavern("--project", project, "--no-plugin", "lookz", "plugins", "list")
    assert (ran.code, ran.error) == (2, "Error: there is no plugin 'lookz'; did you mean looks?")


def test_the_list_loads_nothing_unless_it_is_to_check(project: Path) -> None:
    write_plugin(project / "plugins" / "broken", BROKEN)
    tavern("--project", project, "plugins", "grant", "broken")
    assert state(project, "broken") == "discovered"
    ran = tavern("--project", project, "--strict", "plugins", "list", "--check", "--json")
    (broken,) = [plugin for plugin in ran.json() if plugin["name"] == "broken"]
    assert (ran.code, broken["state"]) == (1, "failed")
    assert "No module named 'no_such_module'" in broken["problems"][0]["message"]


def test_something_is_explained(project: Path) -> None:
    lines = tavern("--project", project, "why", "plugin:looks").out.splitlines()
    assert lines[0] == "looks is loaded: it is loaded, and the host has not started"
    assert f"  it comes from folder:{project / 'plugins' / 'looks'}" in lines
    assert [line for line in lines if line != line.rstrip(" ,:")] == []
    answer = tavern("--project", project, "why", "service:executionEngine", "--json").json()
    assert answer["answer"] == "tavern-engine provides executionEngine (version 3)"
    ran = tavern("--project", project, "why", "service:executionEngin")
    assert (ran.code, ran.error) == (2, "Error: there is no service 'executionEngin'; did you mean executionEngine?")


ASKS = {
    "permissions": {"hooks": ["hook:server:tool:before-call"]},
    "configOptions": [{"key": "extensions.asks.size", "type": "number", "label": "Size", "defaultValue": 1}],
}
DECISIONS = {
    "plugin.granted": ["plugins", "grant", "asks"],
    "plugin.disabled": ["plugins", "disable", "asks"],
    "plugin.enabled": ["plugins", "enable", "asks"],
    "settings.saved": ["settings", "set", "asks.size", "2"],
    "plugin.revoked": ["plugins", "revoke", "asks"],
}


def operators_files(folders: Path) -> dict[str, bytes]:
    """Return the files of the operator's decisions, by path."""
    names = ("grants.json", "plugins.json", "settings.json")
    return {str(f): f.read_bytes() for f in sorted(folders.rglob("*.json")) if f.name in names}


def test_a_decision_is_on_disk_or_refused(project: Path, operator_folders: Path) -> None:
    write_plugin(project / "plugins" / "asks", {"__init__.py": ""}, **ASKS)
    log = project / ".tavern" / "audit"
    threads = set(threading.enumerate())
    for action, arguments in DECISIONS.items():
        before = operators_files(operator_folders)
        log.exists() and log.rename(project / "away")
        log.parent.mkdir(exist_ok=True)
        log.write_text("a file where the folder should be")
        ran = tavern("--project", project, *arguments)
        assert ran.code == 1, action
        assert "this was not carried out, since the audit log" in ran.err, action
        assert operators_files(operator_folders) == before, action
        log.unlink()
        (project / "away").exists() and (project / "away").rename(log)

        ran = tavern("--project", project, *arguments)

        assert ran.code == 0, ran.error
        assert operators_files(operator_folders) != before, action
        # This process has not ended: what stands there was written before the decision was reported.
        assert action in [entry.action for entry in tail(log / "audit.sqlite3", 20)]
    begun = {thread.name for thread in set(threading.enumerate()) - threads}
    assert "audit log" not in begun, "a command left its log open"
