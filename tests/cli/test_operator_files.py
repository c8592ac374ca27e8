"""The operator's files are the operator's alone, and nobody who holds a lock keeps a decision waiting for ever."""

from __future__ import annotations

import os
from pathlib import Path

from helpers.command_line import tavern
from helpers.repetition import Failures
from helpers.systems import on_linux

DECISIONS = {
    "grants": ["plugins", "grant", "acme"],
    "plugins": ["plugins", "disable", "acme"],
    "settings": ["settings", "set", "extensions.acme.word", "hello"],
}
"""What writes each of the operator's files."""
AGAIN = DECISIONS | {
    "plugins": ["plugins", "enable", "acme"],
    "settings": ["settings", "set", "extensions.acme.word", "good evening"],
}
"""What writes each of them once more; a value that is saved already is not."""


def decide(project: Path, *more: list[str]) -> None:
    """Make each decision, so that all files are there."""
    for command in (*DECISIONS.values(), *more):
        assert tavern("--project", project, *command, stdin="hidden").code == 0, command


def lock_of(folders: Path, name: str) -> Path:
    """Return the lock of a file of the operator."""
    (lock,) = folders.rglob(f".{name}.json.lock")
    return lock


@on_linux
def test_no_other_user_reads_the_operators_files(acme_project: Path, operator_folders: Path) -> None:
    before = os.umask(0)  # files may be made that everybody may read and write, unless their maker says otherwise
    try:
        decide(acme_project, ["settings", "set", "extensions.acme.key", "--stdin"], ["demo"])
    finally:
        os.umask(before)
    found = [path for path in operator_folders.rglob("*") if "data" not in path.relative_to(operator_folders).parts]
    assert {path.name for path in found} >= {"grants.json", ".grants.json.lock", ".settings.json.lock", "settings.json"}
    with Failures() as failures:
        for path in found:
            with failures.row(path.relative_to(operator_folders)):
                assert oct(path.lstat().st_mode & 0o777) == ("0o700" if path.is_dir() else "0o600")
        for name, command in AGAIN.items():
            lock = lock_of(operator_folders, name)
            lock.chmod(0o666)
            with failures.row(f"a lock that others could read: {name}"):
                tavern("--project", acme_project, *command)
                assert oct(lock.stat().st_mode & 0o777) == "0o600"
