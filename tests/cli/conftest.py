"""An empty project for commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command_line import tavern


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of an empty project."""
    folder = tmp_path / "inn"
    assert tavern("init", folder).code == 0
    return folder
