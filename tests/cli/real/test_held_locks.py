"""Nobody who holds a lock of the operator's files keeps a decision waiting for ever."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.command_line import tavern
from helpers.repetition import Failures
from test_operator_files import AGAIN, DECISIONS, decide, lock_of

HOLDS = """
import fcntl, sys, time
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


@contextmanager
def holding(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """Have another process hold a lock file."""
    command = [sys.executable, "-c", HOLDS, str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_held_lock_names_its_holder(
    acme_project: Path, operator_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(acme_project)
    for module in ("storage.files", "settings.file"):
        monkeypatch.setattr(f"tavern_host.{module}.LOCK_SECONDS", 0.2)
    with Failures() as failures:
        for name, command in AGAIN.items():
            lock = lock_of(operator_folders, name)
            with failures.row(name), holding(lock) as process:
                process.send_signal(signal.SIGSTOP)
                ran = tavern("--project", acme_project, *command)
                assert ran.code == 1, ran
                assert f"process {process.pid} (python" in ran.error
                assert str(lock) in ran.error
            assert tavern("--project", acme_project, *command).code == 0, "the lock of a killed process is free"
    lock = lock_of(operator_folders, "grants")
    lock.unlink()
    lock.symlink_to(tmp_path / "elsewhere")
    ran = tavern("--project", acme_project, *DECISIONS["grants"])
    assert (ran.code, (tmp_path / "elsewhere").exists()) == (2, False)
    assert f"grants.json cannot be written: {lock}: " in ran.error
