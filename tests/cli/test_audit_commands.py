"""`tavern audit …`: what was done, and whether somebody changed the record of it."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest
from helpers.command_line import COMMAND, minds_ctrl_c, tavern

from tavern_host import Host
from tavern_host.audit.log import AuditLog


@pytest.fixture
def log(project: Path) -> AuditLog:
    """Return the project's log with five entries in it."""
    log = Host(project).audit
    for number in range(4):
        log.record("acme.done", actor="plugin:acme", subject=f"job {number}")
        log.flush()
    log.record("plugin.granted", actor="user:operator", subject="acme", details={"permissions": ["a:b"], "token": "x"})
    log.flush()
    return log


def tamper(log: AuditLog, statement: str) -> None:
    """Change a log as anybody can who may write the file."""
    with contextlib.closing(sqlite3.connect(log.path)) as connection, connection:
        connection.execute(statement)


def test_the_newest_entries_are_shown_oldest_first(project: Path, log: AuditLog) -> None:
    ran = tavern("--project", project, "audit", "tail", "--lines", "2")

    first, second = ran.out.splitlines()
    assert first.endswith("  plugin:acme  acme.done  job 3")
    assert second.endswith('  user:operator  plugin.granted  acme  {"permissions": ["a:b"], "token": "********"}')


def test_a_program_gets_the_entries_as_json(project: Path, log: AuditLog) -> None:
    entries = tavern("--project", project, "audit", "tail", "--json").json()

    assert [entry["seq"] for entry in entries] == [1, 2, 3, 4, 5]
    assert entries[4]["details"] == {"permissions": ["a:b"], "token": "********"}
    assert entries[0].keys() == {"seq", "time", "actor", "action", "subject", "details"}


def test_a_log_that_is_not_there_is_empty_and_in_order(project: Path) -> None:
    assert tavern("--project", project, "audit", "tail").out == "The audit log is empty.\n"
    assert tavern("--project", project, "audit", "tail", "--json").json() == []
    ran = tavern("--project", project, "audit", "verify")
    assert (ran.code, ran.out) == (0, "0 entries; nothing was changed or taken out.\n")
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

    assert tavern("--project", project, "audit", "verify").out == "5 entries; nothing was changed or taken out.\n"
    assert tavern("--project", project, "audit", "tail", "--lines", "3").out.count("acme.done") == 3
    min(log.path.parent.glob("audit.*.db")).unlink()
    assert "entry 2 follows entry 0" in tavern("--project", project, "audit", "verify").error
    host_file.write_text("audit: {days: 0}\n")
    assert tavern("--project", project, "audit", "tail").code == 2


def test_an_entry_cannot_steer_the_terminal_or_pretend_to_be_another(project: Path, log: AuditLog) -> None:
    log.record("acme.done", actor="plugin:acme", subject="x\x1b[2J\nuser:operator  plugin.granted")
    log.flush()

    ran = tavern("--project", project, "audit", "tail", "--lines", "1")

    assert ran.out.count("\n") == 1
    assert "x\\x1b[2J\\nuser:operator  plugin.granted" in ran.out


def test_a_number_of_lines_below_none_is_the_users_mistake(project: Path) -> None:
    ran = tavern("--project", project, "audit", "tail", "--lines", "-1")

    assert (ran.code, ran.error) == (2, "Error: --lines -1: how many entries to show is a number from 0")


def test_following_shows_what_is_recorded_until_it_is_ended(project: Path, log: AuditLog) -> None:
    command = [*COMMAND, "--project", str(project), "audit", "tail", "--lines", "1", "--follow"]
    following = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=minds_ctrl_c,  # noqa: PLW1509
    )
    try:
        assert "plugin.granted" in following.stdout.readline()
        for number in range(3):
            log.record("acme.followed", actor="plugin:acme", subject=str(number))
            log.flush()
            assert following.stdout.readline().endswith(f"  acme.followed  {number}\n")
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 130
    finally:
        following.kill()
        _, err = following.communicate()
    assert err == "interrupted\n"


def test_following_as_json_gives_one_document_for_each_entry(project: Path, log: AuditLog) -> None:
    command = [*COMMAND, "--project", str(project), "audit", "tail", "--lines", "2", "--follow", "--json"]
    following = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    documents, text = [], ""
    try:
        while len(documents) < 2:
            text += following.stdout.readline()
            if text.endswith("\n}\n"):
                documents.append(json.loads(text))
                text = ""
    finally:
        following.kill()
        following.communicate()
    assert [document["seq"] for document in documents] == [4, 5]


def test_a_log_in_order_is_said_to_be_so(project: Path, log: AuditLog) -> None:
    ran = tavern("--project", project, "audit", "verify")

    assert (ran.code, ran.out) == (0, "5 entries; nothing was changed or taken out.\n")
    assert tavern("--project", project, "audit", "verify", "--json").json() == {
        "entries": 5,
    }


def test_a_changed_log_fails_with_the_entry(project: Path, log: AuditLog) -> None:
    tamper(log, "UPDATE entries SET entry = CAST(replace(entry, 'job 1', 'job 7') AS BLOB) WHERE seq = 2")

    ran = tavern("--project", project, "audit", "verify")
    as_json = tavern("--project", project, "audit", "verify", "--json")

    what = "entry 2 is not as it was written: it was changed, inserted or moved"
    assert (ran.code, ran.out, ran.err) == (1, "", f"Error: {log.path}:2: {what}\n")
    assert as_json.code == 1
    assert (as_json.json()["line"], as_json.json()["problem"]) == (2, what)


@pytest.mark.parametrize("command", ["tail", "verify"])
def test_a_log_that_cannot_be_read_is_the_operators_to_mend(project: Path, command: str) -> None:
    path = Host(project).audit.path
    path.mkdir(parents=True)

    ran = tavern("--project", project, "audit", command)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"Error: the audit log {path} cannot be read: ")


@pytest.mark.parametrize("command", ["tail", "verify"])
def test_no_plugin_is_imported_to_read_it(project: Path, tmp_path: Path, command: str) -> None:
    plugin = project / "plugins" / "acme"
    plugin.mkdir()
    (plugin / "plugin.yaml").write_text("name: acme\ndisplayName: Acme\nversion: 1.0.0\n")
    (plugin / "__init__.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n")

    assert tavern("--dev", plugin, "--project", project, "audit", command).code == 0
    assert not (tmp_path / "imported").exists()
