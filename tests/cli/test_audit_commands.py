"""`tavern audit …`: what was done, and whether somebody changed the record of it."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from helpers.command_line import tavern
from helpers.folder_plugins import write_plugin

from tavern_host import Host
from tavern_host.audit.log import AuditLog


def tamper(log: AuditLog, statement: str) -> None:
    """Change a log as anybody can who may write the file."""
    with contextlib.closing(sqlite3.connect(log.path)) as connection, connection:
        connection.execute(statement)


def test_the_newest_entries_are_shown_oldest_first(project: Path, log: AuditLog) -> None:
    """None can steer the terminal, or pretend to be another."""
    log.record(
        "acme.done", actor="plugin:acme", subject="x\x1b[2J\nuser:operator  plugin.granted"
    )  # no line of its own
    log.flush()

    first, second, third = tavern("--project", project, "audit", "tail", "--lines", "3").out.splitlines()
    assert first.endswith("  plugin:acme  acme.done  job 3")
    assert second.endswith('  user:operator  plugin.granted  acme  {"permissions": ["a:b"], "token": "********"}')
    assert "x\\x1b[2J\\nuser:operator  plugin.granted" in third
    entries = tavern("--project", project, "audit", "tail", "--json").json()
    assert [entry["seq"] for entry in entries] == [1, 2, 3, 4, 5, 6]
    assert entries[4]["details"] == {"permissions": ["a:b"], "token": "********"}
    assert entries[0].keys() == {"seq", "time", "actor", "action", "subject", "details"}
    ran = tavern("--project", project, "audit", "tail", "--lines", "-1")
    assert (ran.code, ran.error) == (2, "Error: --lines -1: how many entries to show is a number from 0")


def test_a_log_that_is_not_there_is_empty(project: Path) -> None:
    """No plugin is imported to read it."""
    write_plugin(project / "acme", {"__init__.py": "raise SystemExit('imported')\n"})
    tail = ("--dev", project / "acme", "--project", project, "audit", "tail")
    assert tavern(*tail).out == "The audit log is empty.\n"
    assert tavern(*tail, "--json").json() == []
    ran = tavern(*tail[:-1], "verify")
    assert (ran.code, ran.out, ran.err) == (0, "0 entries; nothing was changed or removed.\n", "")
    assert not (project / ".tavern" / "audit").exists()


def test_a_log_in_pieces_is_shown_and_checked_as_one(project: Path, operator_folders: Path) -> None:
    host_file = operator_folders / "config" / "host.yaml"
    host_file.parent.mkdir(parents=True)
    host_file.write_text("audit: {megabytes: 1, days: 0.0000000000001}\n")
    log = Host(project).audit
    for number in range(5):
        log.record("acme.done", actor="plugin:acme", subject=f"job {number}")
        log.flush()
    assert len(list(log.path.parent.glob("audit.*.db"))) == 5

    assert tavern("--project", project, "audit", "verify").out == "5 entries; nothing was changed or removed.\n"
    assert tavern("--project", project, "audit", "tail", "--lines", "3").out.count("acme.done") == 3
    min(log.path.parent.glob("audit.*.db")).unlink()
    assert "entry 2 follows entry 0" in tavern("--project", project, "audit", "verify").error
    host_file.write_text("audit: {days: 0}\n")
    assert tavern("--project", project, "audit", "tail").code == 2


def test_a_changed_log_fails_with_the_entry(project: Path, log: AuditLog) -> None:
    verify = ("--project", project, "audit", "verify")
    fine = tavern(*verify)
    assert (fine.code, fine.out) == (0, "5 entries; nothing was changed or removed.\n")
    assert tavern(*verify, "--json").json() == {"entries": 5}
    tamper(log, "UPDATE entries SET entry = CAST(replace(entry, 'job 1', 'job 7') AS BLOB) WHERE seq = 2")

    ran = tavern(*verify)
    as_json = tavern(*verify, "--json")

    what = "entry 2 is not as it was written: it was changed, inserted or moved"
    assert (ran.code, ran.out, ran.err) == (1, "", f"Error: {log.path}:2: {what}\n")
    assert (as_json.code, as_json.json()["line"], as_json.json()["problem"]) == (1, 2, what)


def test_a_log_that_cannot_be_read_is_the_operators_to_mend(project: Path) -> None:
    path = Host(project).audit.path
    path.mkdir(parents=True)
    for command in ("tail", "verify"):
        ran = tavern("--project", project, "audit", command)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"Error: the audit log {path} cannot be read: ")
