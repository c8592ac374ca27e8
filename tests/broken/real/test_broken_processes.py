"""Broken plugins that only show with a process of their own, or in the time that a thread takes."""

from __future__ import annotations

import logging
import sys
import time

import pytest
from base_project import BaseProject
from broken_plugins import Broken
from corpus import EVERY, fails_alone
from helpers.command_line import tavern_process

RUDE = (
    "print('hello')",
    "import threading; threading.Thread(target=threading.Event().wait).start()",
    "import warnings; warnings.simplefilter('error')",
    "import logging; logging.disable(); logging.shutdown()",
    "import os; os.chdir('/')",
    "sys.stdout = sys.stderr = None",
)


@pytest.mark.parametrize("statements", [RUDE, ["sys.stdout.close()"]], ids=["takes", "closes"])
async def test_no_plugin_takes_output_or_keeps_commands_running(inn: BaseProject, statements: list[str]) -> None:
    for number, statement in enumerate(statements):
        inn.code(f"rude-{number}", f"import sys\n{statement}\n")
    await (await inn.reviewed()).stop()
    words = ("workflow", "run", "toast", "--input", "name=Ada", "--json")
    ran = tavern_process("--project", inn.root, *words, cwd=inn.root)
    assert (ran.code, ran.json()["outputs"]) == (0, {"said": "HELLO, ADA"})


REAL = [row for row in EVERY if row.real]


@pytest.mark.parametrize("row", REAL, ids=[row.name for row in REAL])
async def test_a_plugin_that_blocks_the_loop_fails_alone(
    row: Broken, inn: BaseProject, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def block_until_blamed() -> None:
        while not any("blocks the event loop" in message for message in caplog.messages):
            time.sleep(0.01)

    caplog.set_level(logging.WARNING, "tavern.watchdog")
    monkeypatch.setattr("tavern_operations.watchdog.LIMIT", 1.0)  # as for users
    monkeypatch.setattr(sys, "block_until_blamed", block_until_blamed, raising=False)
    await fails_alone(inn, row)
