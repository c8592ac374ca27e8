"""`tavern settings …`: what holds and where it comes from, values by type, secrets by standard input, and hooks."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Ran, tavern
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures

PREFIX = "extensions.acme-bar."
OPTIONS = [
    {"key": f"{PREFIX}colour", "type": "string", "label": "Colour", "defaultValue": "red"},
    {"key": f"{PREFIX}rules", "type": "textarea", "label": "Rules"},
    {"key": f"{PREFIX}size", "type": "number", "label": "Size", "min": -9, "max": 9},
    {"key": f"{PREFIX}loud", "type": "boolean", "label": "Loud"},
    {
        "key": f"{PREFIX}pick",
        "type": "select",
        "label": "Pick",
        "options": [{"value": value, "label": "x"} for value in ("a", 2, True, "2.5", "true")],
    },
    {"key": f"{PREFIX}table", "type": "json", "label": "Table"},
    {"key": f"{PREFIX}token", "type": "password", "label": "Token"},
    {"key": f"{PREFIX}pin", "type": "number", "label": "Pin", "secret": True},
    {"key": f"{PREFIX}models", "type": "json", "label": "Models", "secretKeys": ["api_key"]},
    {"key": f"{PREFIX}tidy", "type": "action", "label": "Tidy"},
]
ASKED = {"permissions": {"hooks": ["hook:server:settings:before-save"]}}
REFUSES = """
from tavern_host import Veto, hookimpl

@hookimpl
def tavern_before_save_settings(change):
    return Veto(reason="not on Sundays")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with a plugin that has settings."""
    folder = tmp_path / "inn"
    assert tavern("init", "--empty", folder).code == 0
    write_plugin(folder / "plugins" / "acme_bar", configOptions=OPTIONS)
    return folder


def settings(project: Path, *arguments: str | Path, **options: Any) -> Ran:
    return tavern("--project", project, "settings", *arguments, **options)


def value_of(project: Path, key: str) -> Any:
    return settings(project, "get", f"acme-bar.{key}", "--json").json()["value"]


def test_all_settings_are_listed_with_where_they_come_from(project: Path, tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'imported')!r}, 'w').close()"
    write_plugin(project / "plugins" / "acme_code", {"__init__.py": code}, configOptions=[])
    environment = {"TAVERN_SETTINGS": json.dumps({f"{PREFIX}size": 3})}
    ran = settings(project, "list", "acme-bar", **environment)
    rows = [line.split() for line in ran.out.splitlines() if PREFIX in line]
    assert rows[:3] == [
        [f"{PREFIX}colour", "red", "default"],
        [f"{PREFIX}rules", "(not", "set)"],
        [f"{PREFIX}size", "3", "environment"],
    ]
    assert ran.err == ""
    everything = settings(project, "list", "--json", **environment).json()
    assert {"acme-bar", "tavern-llm"} <= {value["plugin"] for value in everything}
    size = {"key": f"{PREFIX}size", "plugin": "acme-bar", "value": 3, "origin": "environment"}
    assert size | {"isSet": True, "secret": False} in everything
    assert not [value for value in everything if value["key"].endswith("tidy")]

    ran = settings(project, "set", "acme-bar.size", "5", **environment)
    stays = "The environment (TAVERN_SETTINGS) sets it too, so 3 stays in force."
    assert ran.out.splitlines() == [f"{PREFIX}size is saved.", stays]
    assert value_of(project, "size") == 5
    assert not (tmp_path / "imported").exists()


def test_settings_that_are_wrong_or_belong_to_nobody_are_told(project: Path) -> None:
    environment = {"TAVERN_SETTINGS": json.dumps({f"{PREFIX}size": "big", "extensions.acme-bat.size": 3, "x": 1})}
    ran = settings(project, "list", **environment)
    assert ran.code == 0
    assert ran.err.splitlines() == [
        f"Warning: the environment's setting '{PREFIX}size' must be a number, found 'big' "
        "(it is left out until it is right)",
        "Warning: the environment's settings have 'extensions.acme-bat.size', but there is no plugin 'acme-bat' "
        "(did you mean acme-bar?)",
        "Warning: the environment's settings have 'x', which is no setting (keys are extensions.{plugin}.{option})",
    ]
    assert len(settings(project, "list", "acme-bar", **environment).err.splitlines()) == 1


def test_a_mistake_is_told_in_one_line(project: Path) -> None:
    rows: Any = [
        (["get", "acme-bar.color"], f"there is no setting 'acme-bar.color' (did you mean {PREFIX}colour?)"),
        (["get", "x" * 5000], "there is no setting 'xxx"),
        (["get", "acme-ba.colour"], "there is no setting 'acme-ba.colour' (did you mean acme-bar?)"),
        (["get", "acme-bar.tidy"], f"{PREFIX}tidy is a button and holds no value"),
        (["set", "acme-bar.tidy", "1"], f"'{PREFIX}tidy' is a button and holds no value"),
        (["set", "acme-bar.colour"], "give either a value or --stdin"),
        (["set", "acme-bar.colour", "red", "--stdin"], "give either a value or --stdin"),
        (["set", "acme-bar.size", "10"], f"'{PREFIX}size' must be at most 9, found 10"),
        (["set", "acme-bar.size", "many"], f"'{PREFIX}size' must be a number, found 'many'"),
        (["set", "acme-bar.size", "true"], f"'{PREFIX}size' must be a number, found True"),
        (["set", "acme-bar.size", "NaN"], f"'{PREFIX}size' must be a number, found 'NaN'"),
        (["set", "acme-bar.loud", "yes"], f"'{PREFIX}loud' must be true or false, found 'yes'"),
        (["set", "acme-bar.pick", "b"], f"'{PREFIX}pick' must be one of 'a', 2, True, '2.5', 'true', found 'b'"),
        (["set", "acme-bar.table", "{"], f"the value of {PREFIX}table is not JSON: line 1, column 2: "),
        (["set", "acme-bar.table", "[" * 5000], f"the value of {PREFIX}table is not JSON: line 1, column 101: "),
        (["set", "acme-bar.colour", "two\nlines"], rf"'{PREFIX}colour' must be a single line, found 'two\nlines'"),
        (["list", "acme-ba"], "there is no plugin 'acme-ba' with settings (did you mean acme-bar?)"),
        (["reset", "acme-bar.color"], "there is no setting 'acme-bar.color'"),
        (["reset", "acme-bar.tidy"], f"'{PREFIX}tidy' is a button and holds no value"),
    ]
    with Failures() as failures:
        for arguments, error in rows:
            with failures.row(arguments):
                ran = settings(project, *arguments)
                assert ran.code == 2
                assert ran.err.startswith(f"Error: {error}")
                assert len(ran.err.splitlines()) == 1
                assert ran.out == ""


# --- what is saved ----------------------------------------------------------------------------------------


def test_a_value_is_read_by_the_type_of_its_setting(project: Path) -> None:
    rows: Any = [
        ("colour", "5", "5"),
        ("colour", "", ""),
        ("rules", "a\nb", "a\nb"),
        ("size", "5", 5),
        ("size", "-2.5", -2.5),
        ("size", "0.5e1", 5.0),
        ("loud", "true", True),
        ("pick", "a", "a"),
        ("pick", "2", 2),
        ("pick", "2.5", "2.5"),
        ("table", '{"a": [1, null]}', {"a": [1, None]}),
        ("table", '"text"', "text"),
    ]
    with Failures() as failures:
        for key, text, value in rows:
            with failures.row((key, text)):
                assert settings(project, "set", f"acme-bar.{key}", "--", text).code == 0
                saved = value_of(project, key)
                assert (saved, type(saved)) == (value, type(value))


def test_a_value_is_saved_printed_and_reset(project: Path) -> None:
    assert settings(project, "get", "acme-bar.size").out == "(not set)\n"
    for key in (f"{PREFIX}colour", "acme-bar.colour"):
        assert settings(project, "set", key, "dark  blue").out == f"{PREFIX}colour is saved.\n"
        assert settings(project, "get", key).out == "dark  blue\n"
        assert settings(project, "reset", key).out == f"{PREFIX}colour is red again, from the default.\n"
    assert settings(project, "set", "acme-bar.rules", "--stdin", stdin="first\nlast\n\n").code == 0
    assert value_of(project, "rules") == "first\nlast\n"
    assert settings(project, "set", "acme-bar.size", "--stdin", stdin="7\r\n").code == 0
    assert value_of(project, "size") == 7
    assert settings(project, "reset", f"{PREFIX}size").out == f"{PREFIX}size is not set any more.\n"
    too_long = f"'{PREFIX}rules' is longer than 1024 KiB"
    for stdin, error in (("\udcff", "standard input is not UTF-8 text (byte 0)"), ("x" * (5 << 20), too_long)):
        ran = settings(project, "set", "acme-bar.rules", "--stdin", stdin=stdin)
        assert (ran.code, ran.err) == (2, f"Error: {error}\n")


def test_what_was_saved_for_a_plugin_that_is_gone_can_be_reset(project: Path) -> None:
    settings(project, "set", "acme-bar.size", "5")
    shutil.rmtree(project / "plugins" / "acme_bar")
    assert f"`tavern settings reset {PREFIX}size` takes it back" in settings(project, "list").err
    ran = settings(project, "reset", f"{PREFIX}size")
    assert (ran.code, ran.out) == (0, f"What was saved for {PREFIX}size is taken back.\n")
    assert settings(project, "list").err == ""


# --- secrets ----------------------------------------------------------------------------------------------


def test_a_secret_comes_by_standard_input_and_is_never_printed(project: Path, operator_folders: Path) -> None:
    with Failures() as failures:
        inner = '{"api_key": "hunter2"}'
        of_models = (("models", f'{{"m": {inner}}}'), ("models", f"[{inner}]"))
        for key, value in (("token", "hunter2"), ("pin", "1234"), *of_models):
            with failures.row(value):
                ran = settings(project, "set", f"acme-bar.{key}", value)
                assert (ran.code, ran.err) == (
                    2,
                    f"Error: {PREFIX}{key} is or holds a secret, and every user can see what a command is given: "
                    f"`tavern settings set {PREFIX}{key} --stdin` reads the value from standard input\n",
                )
    ran = settings(project, "set", "acme-bar.token", "--stdin", "--json", stdin="hunter2\n")
    assert ran.json()["value"] == "********"
    warned = settings(project, "set", "acme-bar.token", "--stdin", stdin="hunter2\n")
    assert "Warning: The secret is short (7 of at least 8 characters)" in warned.err
    shown = [ran, *(settings(project, *words) for words in (["list"], ["list", "--json"], ["get", "acme-bar.token"]))]
    assert "hunter2" not in str(shown)
    assert shown[-1].out == "********\n"
    files = [file for file in operator_folders.rglob("*") if file.is_file()]
    assert not [file for file in files if b"hunter2" in file.read_bytes()]
    private = [file for file in files if file.name in ("secret.key", "settings.json")]
    assert [stat.S_IMODE(file.stat().st_mode) for file in private] == [0o600, 0o600]

    (key_file,) = operator_folders.rglob("secret.key")
    key_file.chmod(0o644)
    for words in (("get", "acme-bar.token"), ("list",)):
        ran = settings(project, *words)
        assert f"the key {key_file} cannot be used: every user can read or write it" in ran.err, words
    key_file.unlink()
    assert f"the key {key_file} is missing" in settings(project, "get", "acme-bar.token").err


def test_a_plugin_that_refuses_cannot_be_passed_by(project: Path) -> None:
    write_plugin(project / "plugins" / "acme_asked", {"__init__.py": REFUSES}, **ASKED)
    settings(project, "set", "acme-bar.size", "5")
    assert tavern("--project", project, "plugins", "grant", "acme-asked").code == 0
    for change in (["set", "acme-bar.size", "7"], ["reset", "acme-bar.size"]):
        ran = settings(project, *change)
        assert (ran.code, ran.out) == (1, "")
        assert ran.error == "Error: acme-asked refused: not on Sundays"
    assert value_of(project, "size") == 5
