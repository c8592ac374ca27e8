"""The project that the tests of agents work on."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.tavern_project import Tavern


@pytest.fixture
def tavern(tmp_path: Path) -> Tavern:
    """Return a project with the agent `keeper`, which may call the tool `shout`."""
    return Tavern(tmp_path / "project")
