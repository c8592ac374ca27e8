"""What every store of histories of workflows does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from implementations import OpenHistory

from tavern_host.contracts.errors import Conflict, NotFound
from tavern_workflows.api.workflow_history import NewDraft, WorkflowHistoryStore


@pytest.fixture
async def store(open_history: OpenHistory) -> AsyncIterator[WorkflowHistoryStore]:
    made = open_history()
    yield made
    await made.close()


async def publish(store: WorkflowHistoryStore, revision: str, workflow: str = "w", **more: Any) -> None:
    await store.record(workflow, more.pop("kind", "published"), {"name": revision}, revision, by="user:á", **more)


async def draft(store: WorkflowHistoryStore, revision: str, published: str = "p1", **more: Any) -> None:
    fields: dict[str, Any] = {"expected": None, "rebase": False, "by": "user:b", "reason": "moved", **more}
    await store.save_draft(NewDraft("w", {"name": revision}, revision), published=published, **fields)


async def numbers(store: WorkflowHistoryStore, workflow: str | None = "w") -> list[tuple[int, str, str]]:
    found = await store.revisions(workflow, None, 100)
    return [(one.number, one.kind, one.revision) for one in found]


async def test_revisions_come_back_newest_first(store: WorkflowHistoryStore, open_history: OpenHistory) -> None:
    assert (await store.revisions(None, None, 9), await store.draft("w")) == ([], None)
    await publish(store, "p1", reason="ž\U0001f600")
    await publish(store, "p2")
    await publish(store, "other", "v")
    another = open_history()
    first, document = await another.read("w", 1)
    await another.close()
    assert (first.by, first.reason, first.name, document) == ("user:á", "ž\U0001f600", None, {"name": "p1"})
    assert await numbers(store) == [(2, "published", "p2"), (1, "published", "p1")]
    assert [one.number for one in await store.revisions("w", 2, 9)] == [1]
    assert [one.number for one in await store.revisions("w", 2**70, 1)] == [2]
    assert {(one.workflow, one.number) for one in await store.revisions(None, None, 9)} == {("v", 1), ("w", 2)}
    for workflow, number in (("w", 3), ("nope", 1)):
        with pytest.raises(NotFound, match=f"there is no revision {number} of the workflow '{workflow}'"):
            await store.read(workflow, number)


async def test_changes_from_outside_are_added_once(store: WorkflowHistoryStore) -> None:
    assert await store.follow("w", {"name": "p1"}, "p1") is False  # it is the first, and no change
    assert await store.follow("w", {"name": "p1"}, "p1") is False
    assert await store.follow("w", {"name": "p2"}, "p2") is True
    assert await numbers(store) == [(2, "outside", "p2"), (1, "outside", "p1")]
    both = await asyncio.gather(*(store.follow("w", {"name": "p3"}, "p3") for _ in range(2)))
    assert sorted(both) == [False, True]


async def test_a_draft_keeps_the_base_it_was_made_of(store: WorkflowHistoryStore) -> None:
    await publish(store, "p1")
    await draft(store, "d1")
    await publish(store, "p2")
    await draft(store, "d2", "p2")
    kept = await store.draft("w")
    assert kept is not None
    assert (kept.kept.number, kept.kept.revision, kept.kept.by) == (4, "d2", "user:b")
    assert (kept.document, kept.base) == ({"name": "d2"}, "p1")
    await draft(store, "d2", "p2", rebase=True)
    kept = await store.draft("w")
    assert kept is not None and (kept.kept.number, kept.base) == (4, "p2")
    await draft(store, "p2", "p2")
    assert await store.draft("w") is None  # it says what the file says
    await draft(store, "d3", "p2")
    await publish(store, "d3")
    assert await store.draft("w") is None
    await draft(store, "d4", "d3")
    await publish(store, "d3", kind="deleted")
    assert await store.draft("w") is None


async def test_a_draft_that_somebody_changed_is_kept(store: WorkflowHistoryStore) -> None:
    await publish(store, "p1")
    with pytest.raises(Conflict, match="the draft of 'w' was changed: it is at revision p1"):
        await draft(store, "d1", expected="p0")
    await draft(store, "d1", expected="p1")
    with pytest.raises(Conflict, match="the draft of 'w' was changed by user:b: it is at revision d1"):
        await draft(store, "mine", expected="p1")
    with pytest.raises(Conflict, match="it is at revision d1"):
        await store.discard_draft("w", published="p1", expected="p1")
    assert await numbers(store) == [(2, "draft", "d1"), (1, "published", "p1")]
    await store.discard_draft("w", published="p1", expected="d1")
    assert await store.draft("w") is None
    assert (await store.read("w", 2))[1] == {"name": "d1"}


async def test_a_moved_history_follows_what_was_there(store: WorkflowHistoryStore) -> None:
    await publish(store, "old", "v")
    await publish(store, "p1")
    await draft(store, "d1")
    await store.move("w", "v")
    assert await numbers(store, "v") == [(3, "draft", "d1"), (2, "published", "p1"), (1, "published", "old")]
    moved = await store.draft("v")
    assert moved is not None and (moved.kept.number, await numbers(store)) == (3, [])


async def test_a_revision_can_be_named(store: WorkflowHistoryStore) -> None:
    await publish(store, "p1")
    named = await store.name("w", 1, "before the fair")
    assert (named.name, named.revision) == ("before the fair", "p1")
    assert (await store.read("w", 1))[0] == named
    assert (await store.name("w", 1, None)).name is None
    with pytest.raises(NotFound, match="there is no revision 7 of"):
        await store.name("w", 7, "x")
