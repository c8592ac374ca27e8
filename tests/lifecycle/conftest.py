"""A project, a folder for installed packages, and a stage for each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.stage import STAGE


@pytest.fixture(autouse=True)
def stage() -> Iterator[None]:
    """Let each test find the stage empty."""
    STAGE.reset()
    yield
    STAGE.reset()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of a project."""
    return tmp_path / "project"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder on `sys.path`; what was imported from it is forgotten after the test."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name, module in sys.modules.copy().items():
        file = getattr(module, "__file__", None)
        if file is not None and Path(file).is_relative_to(folder):
            del sys.modules[name]
