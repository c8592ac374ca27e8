"""Entries of the audit log that nobody waits for are written at the end of the program, or when they can be again."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.audit_logs import tail, unwritable, verify
from helpers.waiting import until

from tavern_host.audit.log import AuditLog
from tavern_host.contracts.audit import AuditCheck

ENDS_AT_ONCE = """
import sys
from pathlib import Path
from tavern_host.audit.log import AuditLog

log = AuditLog(Path(sys.argv[1]))
log.record("plugin.granted", actor="user:operator", subject="acme")
"""


def test_entries_survive_a_program_ending_at_once(tmp_path: Path) -> None:
    path = tmp_path / "audit.sqlite3"
    subprocess.run([sys.executable, "-c", ENDS_AT_ONCE, str(path)], check=True)
    assert [entry.action for entry in tail(path, 10)] == ["plugin.granted"]
    assert verify(path) == AuditCheck(entries=1)


async def test_an_unwritable_log_is_told_once_and_retried(log: AuditLog, caplog: pytest.LogCaptureFixture) -> None:
    mend = unwritable(log)
    for number in range(5):
        log.record("thing.done", actor="system:host", details={"n": number})
        log.flush()
    (problem,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert problem.getMessage() == f"the audit log {log.path} cannot be written: File exists"
    mend()
    await until(lambda: len(tail(log.path, 10)) == 5)
    assert [entry.details["n"] for entry in tail(log.path, 10)] == [0, 1, 2, 3, 4]
    await until(lambda: "is written again; 0 entries were lost" in caplog.messages[-1])
