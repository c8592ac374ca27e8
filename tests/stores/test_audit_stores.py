"""What every store of audit entries does."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from implementations import OpenAudit

from tavern_host.contracts.audit import AuditCheck, UnnumberedEntry


def entry(action: str) -> UnnumberedEntry:
    body = json.dumps({"actor": "user:operator", "action": action, "details": {"ž": [1, None]}})
    return "2026-01-02T03:04:05.678901+00:00", body.encode()[1:]


def test_a_store_without_entries_is_in_order(open_audit: OpenAudit) -> None:
    store = open_audit()
    assert (store.tail(10), store.read_after(0), store.verify()) == ([], [], AuditCheck(entries=0))
    store.close()


def test_entries_come_back_in_order_with_numbers(open_audit: OpenAudit) -> None:
    store = open_audit()
    assert store.append([entry("was.one"), entry("was.two")]) is None
    assert store.append([]) is None
    store.close()
    assert store.append([entry("was.three")]) is None
    again = open_audit()
    for one in (store, again):
        assert [(e.seq, e.action) for e in one.tail(2)] == [(2, "was.two"), (3, "was.three")]
        assert [e.seq for e in one.tail(10)] == [1, 2, 3]
        assert [e.seq for e in one.read_after(1)] == [2, 3]
        assert [e.seq for e in one.read_after(0, limit=1)] == [1]
        assert [e.seq for e in one.read_after(7)] == [1, 2, 3]  # as after a new log was begun
        assert (one.tail(0), one.verify(), one.anchor_problem) == ([], AuditCheck(entries=3), None)
    (first,) = again.read_after(0, limit=1)
    assert (first.time.isoformat(), first.details) == ("2026-01-02T03:04:05.678901+00:00", {"ž": [1, None]})
    store.close()
    again.close()


def test_several_writers_make_one_order(open_audit: OpenAudit) -> None:
    def write(name: str) -> None:
        store = open_audit()
        for number in range(20):
            assert store.append([entry(f"{name}.{number}.a"), entry(f"{name}.{number}.b")]) is None
        store.close()

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(write, ("x", "y", "z")))
    store = open_audit()
    found = store.tail(1000)
    assert ([e.seq for e in found], store.verify()) == ([*range(1, 121)], AuditCheck(entries=120))
    for first, second in zip(found[::2], found[1::2], strict=True):  # what was appended together stays together
        assert (first.action[:-2], first.action[-1], second.action[-1]) == (second.action[:-2], "a", "b")
    for name in "xyz":
        mine = [int(e.action.split(".")[1]) for e in found if e.action.startswith(name)]
        assert mine == sorted(mine)
    store.close()
