"""What every store of runs does."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from helpers.run_entries import DOCUMENT, accepted, entry, finished
from helpers.waiting import until
from implementations import OpenRuns

from tavern_engine.api.executions import RunFilter
from tavern_engine.api.runs import RunEnd, RunStore
from tavern_host import clock
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import Conflict, ErrorInfo, InvalidInput, NotFound, TavernError
from tavern_host.contracts.executions import RunStatus

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
async def store(open_runs: OpenRuns) -> AsyncIterator[RunStore]:
    async with open_runs() as made:
        yield made


async def ids(store: RunStore, **filter: object) -> list[str]:
    return [run.id for run in await store.list_runs(RunFilter.model_validate(filter))]


async def test_a_run_is_kept_as_it_was_accepted(store: RunStore, open_runs: OpenRuns) -> None:
    document = await store.put(DOCUMENT)
    group = await store.put(b'{"name":"group"}')
    call = CallContext(principal=Principal(kind="agent", id="á"), deadline=datetime(2030, 1, 1, tzinfo=UTC), depth=3)
    new = entry(
        "run_1",
        document,
        inputs={"text": "ž\ud800\U0001f600", "deep": {"a": [1, 2**63 - 1, -(2**63), 0.1, None, True]}},
        priority=7,
        groups={"g": group},
        workflow_id="w",
        workflow_name="The w\ud800",
        submitted_at=datetime(2025, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    ).model_copy(update={"call": call})

    await store.accept(new, worker="w", lease=30)

    async with open_runs() as another:
        kept = await another.get("run_1")
    assert kept.lease_until is not None
    assert kept.model_copy(update={"lease_until": None}) == new.model_copy(update={"owner": "w"})


async def test_documents_are_kept_with_their_run(store: RunStore) -> None:
    small, large = DOCUMENT, b"[" + b"1," * 50_000 + b"1]"
    hashes = [hashlib.sha256(document).hexdigest() for document in (small, large)]
    new = entry("run_1", hashes[0], groups={"g": hashes[1]})
    with pytest.raises(NotFound, match="which is not kept"):
        await store.accept(new, worker="w", lease=30, documents=(large,))
    await store.accept(new, worker="w", lease=30, documents=(small, large))
    assert [await store.content(hash) for hash in hashes] == [small, large]
    await store.accept(new.model_copy(update={"id": "run_2"}), worker="w", lease=30)


async def test_a_run_that_cannot_be_kept_is_refused(store: RunStore) -> None:
    await accepted(store, "run_1")
    lease = "a lease is some seconds"
    length = "the id of a run must be a text of 1 to 500 characters"
    refused: list[tuple[type[TavernError], str, str, dict[str, Any]]] = [
        (Conflict, "there is a run 'run_1' already", "run_1", {"worker": "other"}),
        *((InvalidInput, length, run_id, {}) for run_id in ("", "x" * 501, "lone \ud800")),
        *((InvalidInput, lease, "run_2", {"lease": seconds}) for seconds in (0, -1, float("nan"))),
        (InvalidInput, "the run run_2 cannot be kept: Out of range float", "run_2", {"inputs": {"x": float("nan")}}),
    ]
    for kind, message, run_id, more in refused:
        with pytest.raises(kind, match=message):
            await accepted(store, run_id, **more)
    with pytest.raises(NotFound, match="the run run_3 refers to 'abc', which is not kept; put it first"):
        await store.accept(entry("run_3", "abc"), worker="w", lease=30)
    with pytest.raises(NotFound, match="a batch of the run run_1 refers to '00"):
        await store.append("w", "run_1", b"batch", contents=("0" * 64,))
    assert (await ids(store), await store.batches("run_1")) == (["run_1"], [])


async def test_what_is_not_there_is_not_found(store: RunStore) -> None:
    for _ in ("there is no database yet", "there is one"):
        for run_id in ("nope", "lone \ud800", ""):
            for asked in (store.get, store.batches, store.contents, store.interrupt):
                with pytest.raises(NotFound, match="there is no run"):
                    await asked(run_id)
            assert await store.delete(run_id) is False
            assert await store.claim("w", 30, run_id=run_id) is None
        assert await ids(store) == []
        for name in ("", "ab", "../../runs.sqlite3", "\x00" * 64, "g" * 64, "A" * 64, "0" * 64, "\ud800"):
            with pytest.raises(NotFound, match="is not kept, or its file is damaged"):
                await store.content(name)
        await store.put(b"x")


async def test_a_run_that_somebody_works_on_is_not_claimed(store: RunStore, open_runs: OpenRuns) -> None:
    await accepted(store, "run_1")
    async with open_runs() as another:
        assert await another.claim("other", 30) is None
        assert await another.claim("other", 30, run_id="run_1") is None
        with pytest.raises(Conflict, match="another process works under the name 'w'"):
            await accepted(another, "run_2")
    assert await ids(store) == ["run_1"]


async def test_a_run_whose_lease_expired_changes_hands(store: RunStore, open_runs: OpenRuns) -> None:
    async def has_expired() -> bool:
        lease_until = (await store.get("run_1")).lease_until
        return lease_until is not None and lease_until < clock.now()

    await accepted(store, "run_1", lease=0.01)
    await until(has_expired)
    assert await store.claim("w", 30) is None  # its own
    assert await store.renew("w", ["run_1"], 0.01) == ["run_1"]
    await until(has_expired)
    async with open_runs() as another:
        claimed = await another.claim("other", 30)
        assert (claimed.id, claimed.owner) == ("run_1", "other")

        for refused in (
            store.append("w", "run_1", b"late"),
            store.update("w", "run_1", RunEnd(status=RunStatus.COMPLETE)),
        ):
            with pytest.raises(Conflict, match="the run 'run_1' is other's by now, so w cannot write to it"):
                await refused
        assert await store.renew("w", ["run_1"], 30) == []
        assert await another.renew("other", ["run_1", "nope", "\ud800"], 30) == ["run_1"]
    assert await store.batches("run_1") == []


async def test_runs_of_a_closed_worker_are_claimed_in_order(store: RunStore, open_runs: OpenRuns) -> None:
    async with open_runs() as first:
        for run_id, priority, day in (("late", 0, 3), ("early", 0, 1), ("urgent", 5, 4), ("idle", -5, 0)):
            moment = LONG_AGO + timedelta(days=day)
            await accepted(first, run_id, worker="first", lease=1000, priority=priority, submitted_at=moment)
        await first.interrupt("early")

    order = []
    while (claimed := await store.claim("w", 30)) is not None:
        order.append((claimed.id, claimed.cancel_requested))

    assert order == [("urgent", False), ("early", True), ("late", False), ("idle", False)]


async def test_a_run_that_is_to_end_is_shown_its_worker(store: RunStore, open_runs: OpenRuns) -> None:
    await accepted(store, "run_1", "run_2")
    await finished(store, "over")
    async with open_runs() as another:
        assert [await another.interrupt(run_id) for run_id in ("run_1", "run_1", "over")] == [True, True, False]
    assert (await store.cancel_requested("w"), await store.cancel_requested("other")) == (["run_1"], [])
    await store.update("w", "run_1", RunEnd(status=RunStatus.INTERRUPTED))
    assert await store.cancel_requested("w") == []
    again = await store.claim("w", 30, run_id="run_1")
    assert (again.cancel_requested, await store.cancel_requested("w")) == (False, [])


async def test_a_finished_run_is_claimed_by_id_only(store: RunStore) -> None:
    await finished(store, "run_1", status=RunStatus.ERROR)
    with pytest.raises(Conflict, match="is nobody's by now"):
        await store.append("w", "run_1", b"late")
    assert await store.claim("w", 30) is None

    claimed = await store.claim("w", 30, run_id="run_1")

    assert (claimed.status, claimed.owner) == (RunStatus.ERROR, "w")
    await store.append("w", "run_1", b"more")
    await store.update("w", "run_1", RunEnd(status=RunStatus.RUNNING, attempt=2))
    again = await store.get("run_1")
    assert (again.status, again.attempt, again.finished_at) == (RunStatus.RUNNING, 2, None)


async def test_a_last_batch_is_written_with_the_end(store: RunStore) -> None:
    await accepted(store, "run_1")
    await store.append("w", "run_1", b"first")
    done = RunEnd(status=RunStatus.COMPLETE)
    with pytest.raises(NotFound, match="a batch of the run run_1 refers to '00"):
        await store.update("w", "run_1", done, batch=b"last", contents=("0" * 64,))
    assert ((await store.get("run_1")).status, await store.batches("run_1")) == (RunStatus.QUEUED, [b"first"])
    value = await store.put(b"value")
    await store.update("w", "run_1", done, batch=b"last", contents=(value,))
    assert await store.contents("run_1") == sorted([value, hashlib.sha256(DOCUMENT).hexdigest()])
    assert (await store.get("run_1")).status is RunStatus.COMPLETE
    assert await store.batches("run_1") == [b"first", b"last"]


async def test_batches_come_back_in_order_beside_refused_ones(store: RunStore) -> None:
    names = ["run_1", "run_2", "run_3"]
    await accepted(store, *names)
    batches = {name: [name[-1:].encode() + bytes([i]) * i for i in range(10)] for name in [*names, "nope"]}
    batches["run_1"][3] = b""

    outcomes = await asyncio.gather(
        *(store.append("w", name, batches[name][i]) for i in range(10) for name in batches),
        return_exceptions=True,
    )

    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 10
    assert {name: await store.batches(name) for name in names} == {name: batches[name] for name in names}


async def test_an_end_replaces_what_was_there(store: RunStore) -> None:
    await accepted(store, "run_1")
    began, ended = LONG_AGO, LONG_AGO + timedelta(seconds=1)
    error = ErrorInfo(code="x", message="broken \ud800", details={"node": "n"}, plugin="p")
    await store.update("w", "run_1", RunEnd(status=RunStatus.RUNNING, started_at=began, not_resumable="why"))
    await store.update(
        "w", "run_1", RunEnd(status=RunStatus.ERROR, finished_at=ended, outputs={"o": [1]}, error=error, attempt=2)
    )

    kept = await store.get("run_1")

    assert (kept.started_at, kept.finished_at, kept.attempt) == (began, ended, 2)
    assert (kept.outputs, kept.error, kept.not_resumable) == ({"o": [1]}, error, None)
    assert (kept.owner, kept.lease_until) == (None, None)


async def test_runs_are_listed_newest_first_by_all_filters(store: RunStore) -> None:
    day = timedelta(days=1)
    await finished(store, "a", workflow_id="one", workflow_name="Grüße 100%", submitted_at=LONG_AGO)
    await accepted(store, "b", workflow_id="one", submitted_at=LONG_AGO + day)
    await accepted(store, "c", workflow_id="two", submitted_at=LONG_AGO + 2 * day)
    failed = RunEnd(status=RunStatus.ERROR, error=ErrorInfo(code="x", message="Straße gesperrt"), not_resumable="why")
    await store.update("w", "c", failed)

    assert await ids(store) == ["c", "b", "a"]
    assert await ids(store, statuses=["complete", "error"]) == ["c", "a"]
    assert await ids(store, workflow_id="one") == ["b", "a"]
    assert await ids(store, since=LONG_AGO + day) == ["c", "b"]
    assert await ids(store, until=LONG_AGO + day) == ["b", "a"]
    assert await ids(store, until=datetime(2020, 1, 2)) == ["b", "a"]
    assert await ids(store, text="GRÜSSE") == ["a"]
    assert await ids(store, text="strasse") == ["c"]
    assert await ids(store, text="0%") == ["a"]
    assert await ids(store, text="B") == ["b"]
    assert await ids(store, text="\ud800") == []
    assert await ids(store, limit=1, offset=1) == ["b"]
    assert await ids(store, offset=2**70) == []
    shown = (await store.list_runs(RunFilter(text="c")))[0]
    assert (shown.error, shown.resumable, shown.status) == ("Straße gesperrt", False, RunStatus.ERROR)


async def test_only_finished_runs_are_deleted(store: RunStore) -> None:
    await accepted(store, "done", "going")
    await store.append("w", "done", b"batch")
    await store.update("w", "done", RunEnd(status=RunStatus.COMPLETE))

    assert await store.delete("done") is True

    assert await store.delete("done") is False
    with pytest.raises(Conflict, match="the run 'going' is not finished"):
        await store.delete("going")
    assert await ids(store) == ["going"]
    await store.update("w", "going", RunEnd(status=RunStatus.ERROR))
    assert await store.claim("w", 30, run_id="going") is not None
    with pytest.raises(Conflict, match="is being resumed"):
        await store.delete("going")
