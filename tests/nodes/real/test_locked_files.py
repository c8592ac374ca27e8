"""A file that another program keeps locked is waited for, and told."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from tavern_host import InvalidInput
from tavern_nodes import files
from tavern_nodes.files import append_inside


def test_a_file_that_another_program_keeps_locked_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.05)
    append_inside(tmp_path, "log", b"1")
    with (tmp_path / "log").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InvalidInput, match=r"^'log' is kept locked by another program$"):
            append_inside(tmp_path, "log", b"2")
    assert append_inside(tmp_path, "log", b"3") == 2
