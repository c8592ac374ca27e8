"""Where a row of the table of permissions is tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from permission_rows import Row
from permission_stage import Stage


@pytest.fixture
def stage(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Return where the row's plugin is tried."""
    made = Stage(tmp_path, is_folder=row.is_folder, without=row.without)
    (tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield made
    made.forget()
