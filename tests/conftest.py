"""Every test gets operator folders of its own, so that none sees this machine's grants or settings."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def operator_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point the operator's folders below a temporary one and return it."""
    root = tmp_path / "operator"
    for kind in ("CONFIG", "STATE", "DATA"):
        monkeypatch.setenv(f"TAVERN_{kind}_DIR", str(root / kind.lower()))
    monkeypatch.delenv("TAVERN_PROJECT", raising=False)
    monkeypatch.delenv("TAVERN_SETTINGS", raising=False)
    return root
