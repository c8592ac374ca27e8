"""Settings: four layers, each value with its origin, copies, and wrong values told and left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plugin_maker import context_of, contextual, host_with, problems_of

from tavern_host import Host
from tavern_host.contracts.errors import InvalidInput, TavernError

OPTIONS = [
    {"key": "extensions.acme.colour", "type": "string", "label": "Colour", "defaultValue": "red"},
    {"key": "extensions.acme.size", "type": "number", "label": "Size", "min": 1, "max": 9},
    {"key": "extensions.acme.loud", "type": "boolean", "label": "Loud", "defaultValue": False},
    {"key": "extensions.acme.table", "type": "json", "label": "Table", "defaultValue": {"a": [1]}},
]


def write_layers(
    root: Path, operator_folders: Path, project: dict[str, Any] | None = None, operator: dict[str, Any] | None = None
) -> None:
    """Write the project's and the operator's settings, keys without their prefix."""
    root.mkdir()
    (root / "tavern.yaml").write_text(json.dumps({"name": "p", "settings": full(project)}))
    (operator_folders / "config").mkdir(parents=True)
    (operator_folders / "config" / "host.yaml").write_text(json.dumps({"settings": full(operator)}))


def full(values: dict[str, Any] | None) -> dict[str, Any]:
    return {f"extensions.acme.{key}": value for key, value in (values or {}).items()}


async def test_later_layers_win_and_each_value_has_its_origin(
    tmp_path: Path, operator_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_layers(tmp_path / "p", operator_folders, {"size": 2, "loud": True, "colour": "p"}, {"size": 3, "colour": "o"})
    monkeypatch.setenv("TAVERN_SETTINGS", json.dumps(full({"colour": "e"})))
    async with host_with(tmp_path / "p", contextual(tmp_path, configOptions=OPTIONS)) as host:
        settings = context_of().settings
        assert {k: (settings.get(k), settings.origin(k)) for k in ("colour", "size", "loud", "table")} == {
            "colour": ("e", "environment"),
            "size": (3, "operator"),
            "loud": (True, "project"),
            "table": ({"a": [1]}, "default"),
        }
        assert settings.layers("colour") == {"default": "red", "project": "p", "operator": "o", "environment": "e"}
        assert list(settings.layers("colour")) == ["default", "project", "operator", "environment"]
        assert problems_of(host) == []


async def test_what_nobody_set_is_what_the_caller_says(tmp_path: Path) -> None:
    async with host_with(tmp_path / "p", contextual(tmp_path, configOptions=OPTIONS)):
        settings = context_of().settings
        assert settings.get("size") is None
        assert settings.get("size", 5) == 5
        assert settings.get("nothing", "x") == "x"
        assert settings.origin("size") == "default"
        assert settings.layers("size") == {}


async def test_settings_of_the_embedding_program_stand_above_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAVERN_SETTINGS", json.dumps(full({"size": 4})))
    folder = contextual(tmp_path, configOptions=OPTIONS)
    async with host_with(tmp_path / "p", folder, settings=full({"size": 7})):
        assert context_of().settings.get("size") == 7


async def test_a_plugin_sees_its_own_settings_only(tmp_path: Path, operator_folders: Path) -> None:
    write_layers(tmp_path / "p", operator_folders, {"colour": "secret"})
    async with host_with(tmp_path / "p", contextual(tmp_path, configOptions=OPTIONS), contextual(tmp_path, "other")):
        settings = context_of("other").settings
        for key in ("colour", "extensions.acme.colour", "../acme.colour", ""):
            assert settings.get(key) is None


async def test_a_setting_that_the_plugin_does_not_declare_is_told(tmp_path: Path, operator_folders: Path) -> None:
    write_layers(tmp_path / "p", operator_folders, {"color": "blue"})
    async with host_with(tmp_path / "p", contextual(tmp_path, configOptions=OPTIONS)) as host:
        (problem,) = problems_of(host)
        assert problem.startswith(
            "the project's settings have 'extensions.acme.color', which the plugin does not declare "
            "(did you mean extensions.acme.colour"
        )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "TAVERN_SETTINGS is not JSON: "),
        ("[]", "TAVERN_SETTINGS must be a JSON object"),
        ("5", "TAVERN_SETTINGS must be a JSON object"),
        ("[" * 100_000, "TAVERN_SETTINGS is not JSON: "),
    ],
)
def test_settings_in_the_environment_that_are_no_object_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, complaint: str
) -> None:
    monkeypatch.setenv("TAVERN_SETTINGS", text)
    with pytest.raises(InvalidInput, match=complaint):
        Host(tmp_path / "p")


@pytest.mark.parametrize("text", ["", "   "])
def test_no_settings_in_the_environment_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TAVERN_SETTINGS", text)
    Host(tmp_path / "p")


def test_a_wrong_operators_file_says_where(tmp_path: Path, operator_folders: Path) -> None:
    file = operator_folders / "config" / "host.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("trust: [acme]\ndisable: [x]\n")
    with pytest.raises(TavernError, match=r"host\.yaml:2:1: unknown key 'disable' \(did you mean disabled\?\)"):
        Host(tmp_path / "p")
