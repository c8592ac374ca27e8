"""Finds the platform's documents and data; these tests skip, saying so, where they are absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def spec_dir() -> Path:
    """Return the folder with `spec/` and `data/`: `TAVERN_SPEC_DIR`, else `../shared`."""
    folder = Path(os.environ.get("TAVERN_SPEC_DIR") or Path(__file__).parents[3] / "shared")
    if not (folder / "data").is_dir():
        pytest.skip(f"the platform's documents are not at {folder}; set TAVERN_SPEC_DIR")
    return folder
