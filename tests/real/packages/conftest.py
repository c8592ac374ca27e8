"""Wheels, a project, and installers that reach nothing but these wheels."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command_line import tavern
from helpers.wheel_maker import acme, plugin_wheel, wheel


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with wheels of the plugin acme, and of the versions of what it depends on."""
    folder = tmp_path_factory.mktemp("wheels")
    for number in (1, 2):
        wheel(folder, "dep-a", f"{number}.0", {"dep_a.py": f"VERSION = {number}\n"})
    for version in ("1.0.0", "1.1.0"):
        acme(folder, version)
    acme(folder, "1.2.0", "tavern_before_execute")
    acme(folder, "2.0.0", dependency="==2.0")
    plugin_wheel(folder, "older", needs=["dep-a"], requires={"plugins": {"acme": "<2"}})
    return folder


@pytest.fixture
def project(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an empty project."""
    for variable, value in {"UV_OFFLINE": "1", "UV_FIND_LINKS": str(wheels), "PIP_NO_INDEX": "1"}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    folder = tmp_path / "inn"
    assert tavern("init", "--empty", folder).code == 0
    return folder
