"""The audit log of a host: entries are taken at once, written soon, and never keep the host from its work."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers.audit_logs import tail, unwritable, verify
from helpers.repetition import Failures
from helpers.waiting import until

from tavern_host import clock
from tavern_host.audit import log as audit
from tavern_host.audit.log import AuditLog, HostAudit
from tavern_host.contracts.audit import AuditCheck, AuditEntry
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import InvalidInput, Misconfigured


def written(log: AuditLog) -> list[AuditEntry]:
    return tail(log.path, 100_000)


# --- what is recorded ---------------------------------------------------------------------------------


async def test_entries_name_actor_action_subject_and_time(log: AuditLog) -> None:
    before = clock.seconds()
    details: dict[str, Any] = {"permissions": ["a"], "token": "x"}
    log.record("plugin.granted", actor="user:operator", subject="acme", details=details)
    details["permissions"].append("changed later")
    log.record("plugin.revoked", actor=Principal(kind="user", id="operator"))
    log.flush()
    first, second = written(log)
    assert (first.seq, first.actor, first.action, first.subject) == (1, "user:operator", "plugin.granted", "acme")
    assert first.details == {"permissions": ["a"], "token": "********"}
    assert before - 1 <= first.time.timestamp() <= clock.seconds() + 1
    assert (second.seq, second.actor, second.subject, second.details) == (2, "user:operator", "", {})


async def test_entries_reach_the_disk_unasked(log: AuditLog) -> None:
    log.record("plugin.granted", actor="user:operator")
    await until(lambda: written(log))
    log.record("plugin.revoked", actor="user:operator")
    await until(lambda: len(written(log)) == 2)
    await until(lambda: verify(log.path, log.anchor) == AuditCheck(entries=2))


async def test_a_log_that_is_not_used_touches_nothing(log: AuditLog, tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    log.flush()
    await log.close()
    assert not log.path.parent.exists()
    assert set(threading.enumerate()) <= threads


async def test_threads_record_in_the_order_of_each(log: AuditLog) -> None:
    def work(name: int) -> None:
        for number in range(200):
            log.record("thing.done", actor=f"plugin:p{name}", details={"n": number})

    before = set(threading.enumerate())
    await asyncio.gather(*(asyncio.to_thread(work, name) for name in range(4)))
    (writer,) = {thread for thread in set(threading.enumerate()) - before if "audit" in thread.name}
    await log.close()
    entries = written(log)
    assert [entry.seq for entry in entries] == list(range(1, 801)), "closing writes all"
    for name in range(4):
        assert [e.details["n"] for e in entries if e.actor == f"plugin:p{name}"] == list(range(200))
    assert verify(log.path, log.anchor) == AuditCheck(entries=800)
    writer.join(60)
    assert not writer.is_alive()
    await log.close()


# --- what goes wrong ----------------------------------------------------------------------------------


async def test_entries_without_room_are_counted(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_PENDING", 100_000)
    mend = unwritable(log)
    for number in range(2000):
        log.record("thing.done", actor="system:host", details={"n": number, "text": "x" * 100})
    assert 0 < log.lost < 2000
    lost = log.lost
    mend()
    log.flush()
    kept = [entry.details["n"] for entry in written(log) if entry.action == "thing.done"]
    assert kept == list(range(2000 - lost))
    told = [entry for entry in written(log) if entry.action == "audit.lost"]  # two, where the thread was at work
    assert {entry.actor for entry in told} == {"system:host"}
    assert sum(entry.details["entries"] for entry in told) == lost
    log.record("thing.done", actor="system:host")
    log.flush()
    assert written(log)[-1].action == "thing.done"


async def test_plugins_cannot_crowd_out_what_the_host_records(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_PENDING", 100_000)
    mend = unwritable(log)
    service = HostAudit(log, {"tool", "account"})
    for _ in range(2000):
        await service.record("acme.done", call=call("plugin", "acme"))
    log.record("plugin.revoked", actor="user:operator", subject="acme")
    mend()
    log.flush()
    assert [entry.action for entry in written(log)][-2:] == ["plugin.revoked", "audit.lost"]


async def test_closing_reports_entries_that_are_lost(log: AuditLog, caplog: pytest.LogCaptureFixture) -> None:
    mend = unwritable(log)
    for _ in range(3):
        log.record("thing.done", actor="system:host")
    await log.close()
    assert (log.lost, caplog.messages[-1]) == (3, f"3 entries of the audit log {log.path} are lost")
    mend()
    log.record("host.started", actor="system:host")
    await log.close()
    assert [entry.action for entry in written(log)] == ["host.started", "audit.lost"]


async def test_an_unwritable_anchor_is_told_once(log: AuditLog, caplog: pytest.LogCaptureFixture) -> None:
    log.anchor.parent.write_text("a file where the folder should be")
    for _ in range(3):
        log.record("thing.done", actor="system:host")
        log.flush()
    problems = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert problems == [f"the audit log's anchor is not kept: {log.anchor} cannot be used: Not a directory"]
    assert len(written(log)) == 3


# --- the service --------------------------------------------------------------------------------------


def call(kind: Any, id: str) -> CallContext:
    return CallContext(principal=Principal(kind=kind, id=id))


RECORDED = [
    ("plugin:acme", "acme.index.rebuilt", "acme.index.rebuilt"),
    ("plugin:acme", "index.rebuilt", "acme.index.rebuilt"),
    ("plugin:acme", "plugin.granted", "acme.plugin.granted"),
    ("plugin:acme", "acme", "acme.acme"),
    ("plugin:acme", "acmeplus.done", "acme.acmeplus.done"),
    ("plugin:plugin", "plugin.granted", "plugin.plugin.granted"),
    ("plugin:audit", "audit.lost", "audit.audit.lost"),
    ("agent:keeper", "page.read", "page.read"),
    ("agent:keeper", "tool.called", "agent.tool.called"),
    ("plugin:tool", "tool.called", "tool.tool.called"),
    ("agent:keeper", "plugin.granted", "agent.plugin.granted"),
    ("user:operator", "plugin.granted", "user.plugin.granted"),
    ("system:host", "audit.broken", "system.audit.broken"),
    ("system:host", "plugin", "system.plugin"),
]


async def test_nobody_can_record_what_the_host_records(log: AuditLog) -> None:
    service = HostAudit(log, {"tool", "account"})
    for who, action, _ in RECORDED:
        await service.record(action, subject="x", details={"a": 1}, call=call(*who.split(":")))
    log.flush()
    assert [(entry.actor, entry.action) for entry in written(log)] == [(who, as_) for who, _, as_ in RECORDED]
    assert {(entry.subject, str(entry.details)) for entry in written(log)} == {("x", "{'a': 1}")}
    with Failures() as failures:
        for action in ("", ".", "a.", ".a", "a..b", "a b", "a\nb", "a\n", "x" * 201, 7, None):
            with failures.row(repr(action)), pytest.raises(InvalidInput, match="an action is a dotted name"):
                await service.record(action, call=call("plugin", "acme"))
    for limit in (0, -1, 1001):
        with pytest.raises(InvalidInput, match=f"limit {limit}: from 1 to 1000"):
            await service.tail(limit)


async def test_an_unreadable_log_is_misconfigured(log: AuditLog) -> None:
    log.path.mkdir(parents=True)
    with pytest.raises(Misconfigured, match="cannot be read"):
        await HostAudit(log, {"tool", "account"}).tail()
