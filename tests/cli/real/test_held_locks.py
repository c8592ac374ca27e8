"""Nobody who holds a lock of the operator's files keeps a decision waiting for ever."""

from __future__ import annotations

import asyncio
import fcntl
import signal
from pathlib import Path

import pytest
from helpers.command_line import tavern
from helpers.repetition import Failures
from helpers.survival import Child, say
from test_operator_files import AGAIN, DECISIONS, decide, lock_of


def hold(lock: Path) -> None:
    """Hold a lock file until the process is killed."""
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        say("held")
        signal.pause()


async def test_a_held_lock_names_its_holder(
    acme_project: Path, operator_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(decide, acme_project)
    for module in ("storage.files", "settings.file"):
        monkeypatch.setattr(f"tavern_host.{module}.LOCK_SECONDS", 0.2)
    with Failures() as failures:
        for name, command in AGAIN.items():
            lock = lock_of(operator_folders, name)
            with failures.row(name):
                async with Child(hold, lock) as child:
                    assert await child.said() == "held"
                    child.send(signal.SIGSTOP)
                    ran = await asyncio.to_thread(tavern, "--project", acme_project, *command)
                    assert ran.code == 1, ran
                    assert f"process {child.process.pid} (python" in ran.error
                    assert str(lock) in ran.error
            ran = await asyncio.to_thread(tavern, "--project", acme_project, *command)
            assert ran.code == 0, "the lock of a killed process is free"
    lock = lock_of(operator_folders, "grants")
    lock.unlink()
    lock.symlink_to(tmp_path / "elsewhere")
    ran = await asyncio.to_thread(tavern, "--project", acme_project, *DECISIONS["grants"])
    assert (ran.code, (tmp_path / "elsewhere").exists()) == (2, False)
    assert f"grants.json cannot be written: {lock}: " in ran.error
