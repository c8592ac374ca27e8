"""Settings: four layers, each value with its origin, copies, and wrong values told and left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plugin_maker import context_of, contextual, host_with, problems_of, write
from settings_maker import full

from tavern_host import Host
from tavern_host.contracts.errors import InvalidInput, TavernError

OPTIONS = [
    {"key": "extensions.acme.colour", "type": "string", "label": "Colour", "defaultValue": "red"},
    {"key": "extensions.acme.size", "type": "number", "label": "Size", "min": 1, "max": 9},
    {"key": "extensions.acme.loud", "type": "boolean", "label": "Loud", "defaultValue": False},
    {"key": "extensions.acme.pace", "type": "number", "label": "Pace"},
    {"key": "extensions.acme.table", "type": "json", "label": "Table", "defaultValue": {"a": [1]}},
]


async def test_later_layers_win_and_name_their_origin(
    tmp_path: Path, operator_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = full({"size": 2, "loud": True, "colour": "p", "color": "blue"})
    write(tmp_path / "p" / "tavern.yaml", json.dumps({"name": "p", "settings": project}))
    operator = json.dumps({"settings": full({"size": 3, "colour": "o"})})
    write(operator_folders / "config" / "host.yaml", operator)
    monkeypatch.setenv("TAVERN_SETTINGS", json.dumps(full({"colour": "e", "pace": 4})))
    folders = [contextual(tmp_path, configOptions=OPTIONS), contextual(tmp_path, "other")]
    async with host_with(tmp_path / "p", *folders, settings=full({"pace": 7})) as host:
        settings = context_of().settings
        assert {k: (settings.get(k), settings.origin(k)) for k in ("colour", "size", "loud", "table", "pace")} == {
            "colour": ("e", "environment"),
            "size": (3, "operator"),
            "loud": (True, "project"),
            "table": ({"a": [1]}, "default"),
            "pace": (7, "environment"),
        }
        assert (settings.get("nothing"), settings.get("nothing", "x")) == (None, "x")
        (problem,) = problems_of(host)
        assert problem.startswith("the project's settings have 'extensions.acme.color', which the plugin does not dec")
        for key in ("colour", "extensions.acme.colour", "../acme.colour", ""):
            assert context_of("other").settings.get(key) is None, "a plugin sees its own settings only"


def test_the_environments_settings_are_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("", "   "):
        monkeypatch.setenv("TAVERN_SETTINGS", text)
        Host(tmp_path / "p")
    for text, complaint in (("{", "is not JSON: "), ("[]", "must be a JSON object"), ("[" * 100_000, "is not JSON: ")):
        monkeypatch.setenv("TAVERN_SETTINGS", text)
        with pytest.raises(InvalidInput, match=f"TAVERN_SETTINGS {complaint}"):
            Host(tmp_path / "p")


def test_a_wrong_operators_file_says_where(tmp_path: Path, operator_folders: Path) -> None:
    file = operator_folders / "config" / "host.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("trust: [acme]\ndisable: [x]\n")
    with pytest.raises(TavernError, match=r"host\.yaml:2:1: unknown key 'disable' \(did you mean disabled\?\)"):
        Host(tmp_path / "p")
