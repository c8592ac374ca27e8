"""A host with this plugin in it, as it lies in its folder; nothing needs to be installed but `tavern-host`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tavern_host import Host

PLUGIN = Path(__file__).parents[1] / "my_awesome_plugin"


@pytest.fixture(autouse=True)
def operator_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep this machine's own grants and settings out of the tests."""
    for kind in ("CONFIG", "STATE", "DATA"):
        monkeypatch.setenv(f"TAVERN_{kind}_DIR", str(tmp_path / "operator" / kind.lower()))
    for variable in ("TAVERN_PROJECT", "TAVERN_SETTINGS"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def make_host(tmp_path: Path) -> Callable[..., Host]:
    """Return a function that makes a host with the plugin, granted, and these settings of it."""

    def make(**settings: Any) -> Host:
        return Host(
            tmp_path / "project",
            plugins=[PLUGIN],
            trust=["my-awesome-plugin"],
            settings={f"extensions.my-awesome-plugin.{key}": value for key, value in settings.items()},
        )

    return make
