"""`tavern plugins …`: what there is, why it is not loaded, and the operator's decisions."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command_line import Ran, tavern
from helpers.folder_plugins import GREETS_IN_ITS_OWN_WAY, INTERCEPTING, write_plugin

PLUGINS = Path(__file__).parents[2] / "plugins"
LOOKS = "hook:client:node:render:after"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with a plugin that needs a grant, in a folder of its own."""
    folder = tmp_path / "inn"
    assert tavern("init", "--empty", folder).code == 0
    marked = f"open({str(tmp_path / 'imported')!r}, 'w').close()\n"
    code = {"__init__.py": marked + GREETS_IN_ITS_OWN_WAY}
    write_plugin(folder / "plugins" / "ahoy", code, displayName="Ahoy", **INTERCEPTING)
    return folder


def states(ran: Ran) -> dict[str, str]:
    """Return the state of each plugin by name."""
    return {plugin["name"]: plugin["state"] for plugin in ran.json()}


def test_all_plugins_are_listed_and_none_is_imported(project: Path, tmp_path: Path) -> None:
    first_party = {path.parent.name.replace("_", "-") for path in PLUGINS.glob("*/plugin.yaml")}
    ran = tavern("--project", project, "plugins", "list", "--json")
    assert states(ran) == {**dict.fromkeys(first_party, "discovered"), "ahoy": "needs-review"}

    text = " ".join(tavern("--project", project, "plugins", "list").out.split())
    for word in ("needs-review", "hook:server:workflow:before-execute", "tavern plugins grant"):
        assert word in text

    ran = tavern("--project", project, "plugins", "show", "ahoy")
    assert ran.out.splitlines()[0] == "Ahoy (ahoy 1.0.0) — needs-review"
    assert "See every workflow run before it starts, change its inputs or refuse it." in ran.out
    assert "Run the code that is in its folder now." in ran.out
    shown = tavern("--project", project, "plugins", "show", "ahoy", "--json").json()
    assert {p["name"]: p["granted"] for p in shown["permissions"] if p["name"].startswith("hook:")} == {
        "hook:server:workflow:before-execute": False
    }
    assert not (tmp_path / "imported").exists()


def test_a_plugin_cannot_steer_the_terminal_of_its_review(project: Path) -> None:
    hidden = "\x1b[8m\u202e\x9b"
    write_plugin(project / "plugins" / "ahoy", displayName=f"Ahoy{hidden}", description=hidden, apiVersion=hidden)
    for command in (["list"], ["show", "ahoy"], ["grant", "ahoy"]):
        ran = tavern("--project", project, "plugins", *command)
        assert not [character for character in hidden[0] + hidden[4:] if character in ran.out + ran.err]
        assert "\\x1b[8m" in ran.out + ran.err


def test_a_plugin_that_is_not_there_is_the_users_mistake(project: Path) -> None:
    for command in ("show", "grant", "revoke", "enable", "disable", "reload"):
        ran = tavern("--project", project, "plugins", command, "tavern-engin", "--json")
        assert (ran.code, ran.json()["code"]) == (2, "not_found")
        assert ran.err.splitlines() == [ran.error]
        assert ran.error.startswith("Error: there is no plugin 'tavern-engin'; did you mean tavern-engine")


def test_taking_back_a_grant_that_nobody_needs_says_so(project: Path, operator_folders: Path) -> None:
    (operator_folders / "config").mkdir(parents=True)
    (operator_folders / "config" / "host.yaml").write_text("trust: [looks]\n")
    asks = {"hooks": [LOOKS]}
    for name, permissions in (("adds", {}), ("looks", asks)):
        files = {"tools/none.txt": ""}
        write_plugin(project / "plugins" / name, files, tools={"entry": "./tools"}, permissions=permissions)
    for name, why in (("tavern-engine", "first-party"), ("looks", "trust"), ("adds", "only adds")):
        ran = tavern("--project", project, "plugins", "revoke", name)
        assert (ran.code, ran.out) == (2, "")
        assert f"Error: {name} needs no grant: " in ran.err
        assert why in ran.err and "`tavern plugins disable" in ran.err


def test_a_folder_that_no_entry_names_is_shown_with_the_line_to_add(project: Path) -> None:
    write_plugin(project / "plugins" / "unnamed", {"tools/a.tool.json": "{}"}, permissions={"hooks": [LOOKS]})
    for command in (["list"], ["show", "unnamed"]):
        said = " ".join(tavern("--project", project, "plugins", *command).out.split())
        assert "add the line `tools: {entry: ./tools}`" in said
        assert f"it asks for {LOOKS}, which nobody has granted" in said


def test_a_broken_plugin_cannot_be_granted_anything(project: Path) -> None:
    (project / "plugins" / "ahoy" / "plugin.yaml").write_text("name: ahoy\nversoin: 1\n")

    ran = tavern("--project", project, "plugins", "grant", "ahoy")
    shown = tavern("--project", project, "plugins", "show", "ahoy")

    assert ran.code == 1
    assert ran.error.startswith("Error: ahoy cannot be granted anything: ")
    assert "plugin.yaml:2:1: unknown key 'versoin' (did you mean version?)" in shown.out


def test_a_plugin_that_fails_costs_a_warning_and_nothing_else(project: Path, operator_folders: Path) -> None:
    write_plugin(project / "plugins" / "broken", {"__init__.py": "raise RuntimeError('no')\n"})
    assert tavern("--project", project, "plugins", "grant", "broken").code == 0

    ran = tavern("--project", project, "nodes", "list", "--json")

    assert ran.code == 0
    assert any(node["type"] == "UpperCase" for node in ran.json())
    assert "Warning: the plugin broken is failed: " in ran.err
    assert "__init__.py:1: " in ran.err and "RuntimeError: no" in ran.err


def test_strict_turns_a_plugin_that_is_not_in_order_into_an_exit_code(project: Path) -> None:
    listed = tavern("--project", project, "--strict", "plugins", "list")
    used = tavern("--project", project, "--strict", "nodes", "list")

    assert (listed.code, listed.err) == (1, "Error: not in order: ahoy\n")
    assert used.code == 1
    assert "ahoy is needs-review" in used.err
    assert tavern("--strict", "nodes", "list").code == 0


def test_a_folder_that_is_being_written_has_all_it_asks_for(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path / "ahoy", {"__init__.py": GREETS_IN_ITS_OWN_WAY}, **INTERCEPTING)

    ran = tavern("--dev", plugin, "workflow", "run", "greeting", "--input", "name=Ada", "--json")
    assert ran.json()["outputs"] == {"text": "Ahoy, Ada"}
    ran = tavern("--dev", tmp_path / "nowhere", "plugins", "list", "--json")
    (nowhere,) = [plugin for plugin in ran.json() if plugin["name"] == "nowhere"]
    assert nowhere["state"] == "invalid"
    assert nowhere["problems"][0]["message"] == f"there is no plugin.yaml in {tmp_path / 'nowhere'}"


def test_a_disabled_plugin_takes_its_commands_with_it(operator_folders: Path) -> None:
    config = operator_folders / "config"
    config.mkdir(parents=True)
    (config / "host.yaml").write_text("disabled: [tavern-engine]\n")

    assert states(tavern("plugins", "list", "--json"))["tavern-engine"] == "disabled"
    assert tavern("workflow", "run", "greeting").error == "Error: No such command 'run'."
    called = tavern("tools", "call", "text:shout", "--arg", "text=hi")
    assert (called.code, called.out) == (1, "")
    assert called.error == ("Error: ServiceUnavailable: text:shout cannot be called now: needs service executionEngine")
