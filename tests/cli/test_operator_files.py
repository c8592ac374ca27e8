"""The operator's files are the operator's alone, and nobody who holds a lock keeps a decision waiting for ever."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.command_line import tavern
from helpers.folder_plugins import INTERCEPTING, write_plugin
from helpers.forking import PYTHON
from helpers.repetition import Failures

HOLDS = """
import fcntl, sys, time
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""
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


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with a plugin that needs a grant and has a setting."""
    folder = tmp_path / "inn"
    assert tavern("init", folder).code == 0
    options = [
        {"key": f"extensions.acme.{key}", "type": "string", "label": key, "secret": key == "key"}
        for key in ("word", "key")
    ]
    write_plugin(folder / "plugins" / "acme", {}, configOptions=options, **INTERCEPTING)
    return folder


@contextmanager
def holding(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """Have another process hold a lock file."""
    command = [*PYTHON, "-c", HOLDS, str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def decide(project: Path, *more: list[str]) -> None:
    """Make each decision, so that all files are there."""
    for command in (*DECISIONS.values(), *more):
        assert tavern("--project", project, *command, stdin="hidden").code == 0, command


def lock_of(folders: Path, name: str) -> Path:
    """Return the lock of a file of the operator."""
    (lock,) = folders.rglob(f".{name}.json.lock")
    return lock


def test_no_other_user_reads_the_operators_files(project: Path, operator_folders: Path) -> None:
    before = os.umask(0)  # files may be made that everybody may read and write, unless their maker says otherwise
    try:
        decide(project, ["settings", "set", "extensions.acme.key", "--stdin"], ["demo"])
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
                tavern("--project", project, *command)
                assert oct(lock.stat().st_mode & 0o777) == "0o600"


def test_a_held_lock_names_its_holder(
    project: Path, operator_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(project)
    for module in ("storage.files", "settings.file"):
        monkeypatch.setattr(f"tavern_host.{module}.LOCK_SECONDS", 0.2)
    with Failures() as failures:
        for name, command in AGAIN.items():
            lock = lock_of(operator_folders, name)
            with failures.row(name), holding(lock) as process:
                process.send_signal(signal.SIGSTOP)
                ran = tavern("--project", project, *command)
                assert ran.code == 1, ran
                assert f"process {process.pid} (python" in ran.error
                assert str(lock) in ran.error
            assert tavern("--project", project, *command).code == 0, "the lock of a killed process is free"
    lock = lock_of(operator_folders, "grants")
    lock.unlink()
    lock.symlink_to(tmp_path / "elsewhere")
    ran = tavern("--project", project, *DECISIONS["grants"])
    assert (ran.code, (tmp_path / "elsewhere").exists()) == (2, False)
    assert f"grants.json cannot be written: {lock}: " in ran.error
