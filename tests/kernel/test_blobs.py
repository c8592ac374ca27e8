"""The store of Blobs: what is held stays, what nobody holds is swept, whatever happens in between."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound
from tavern_host.storage import blobs
from tavern_host.storage.blobs import BlobStore
from tavern_host.storage.files import TEMPORARY


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[BlobStore]:
    """Open a store in a folder that is not there yet."""
    opened = BlobStore(tmp_path / "project" / "blobs")
    yield opened
    await opened.close()


async def items(*parts: bytes) -> AsyncIterator[bytes]:
    """Yield parts of a content."""
    for part in parts:
        yield part


async def test_one_content_is_kept_once_by_its_hash(store: BlobStore, tmp_path: Path) -> None:
    whole = await store.put(b"one two", "text/plain")
    streamed = await store.put(items(b"one", b"", b" two"), "text/plain; charset=utf-8")

    assert whole.hash == streamed.hash == hashlib.sha256(b"one two").hexdigest()
    assert (whole.media_type, streamed.media_type, whole.length) == ("text/plain", "text/plain; charset=utf-8", 7)
    assert [path.name for path in (tmp_path / "project" / "blobs").glob("??/*")] == [whole.hash]
    assert {path.stat().st_mode & 0o77 for path in (tmp_path / "project").rglob("*")} == {0}
    assert await store.read(whole) == b"one two"
    assert [part async for part in store.open(whole, 2, 5)] == [b"e t"]
    assert (await store.path(whole)).read_bytes() == b"one two"


async def test_unheld_blobs_are_swept_and_held_ones_stay(store: BlobStore) -> None:
    held, free = await store.put(b"held", holder="a"), await store.put(b"free")
    await store.hold("b", [held])

    assert await store.sweep() == 0  # an hour has not passed
    assert await store.sweep(0) == 1
    assert store.has(held) and not store.has(free)
    with pytest.raises(NotFound):
        await store.hold("c", [held, free])
    assert sorted(await store.holders()) == ["a", "b"]  # so none was held

    await store.release("a")
    assert await store.sweep(0) == 0
    await store.release("b")
    assert await store.sweep() == 0  # an hour from here
    assert await store.sweep(0) == 1
    with pytest.raises(NotFound):
        await store.read(held)


async def test_a_damaged_blob_counts_as_absent(store: BlobStore) -> None:
    blob = await store.put(b"as it was")
    file = await store.path(blob)
    file.write_bytes(b"as it now")
    with pytest.raises(NotFound):
        await store.read(blob)
    file.write_bytes(b"shorter")
    with pytest.raises(NotFound):
        await store.path(blob)
    await store.put(b"as it was")
    assert await store.read(blob) == b"as it was"  # putting it again mends it


async def test_limits_hold_for_one_and_for_all(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "MAX_BLOB", 10)
    monkeypatch.setattr(blobs, "MAX_ALL", 15)
    with pytest.raises(InvalidInput, match="at most 10 bytes"):
        await store.put(items(b"12345", b"123456"))
    for _ in range(2):  # the same takes no more room
        kept = await store.put(b"1234567890")
    with pytest.raises(Conflict, match="take 10 bytes, and with this one more than 15"):
        await store.put(b"abcdef")
    assert not [*(await store.path(kept)).parents[1].rglob(f"{TEMPORARY}*")]


async def test_two_processes_put_and_sweep_at_once(tmp_path: Path) -> None:
    first, second = BlobStore(tmp_path / "blobs"), BlobStore(tmp_path / "blobs")

    async def write(store: BlobStore, name: str) -> list[Blob]:
        return [await store.put(b"%d" % (number % 7), holder=name) for number in range(30)]

    async def sweep() -> None:
        for _ in range(30):
            await first.sweep(0)

    made, others, _ = await asyncio.gather(write(first, "a"), write(second, "b"), sweep())
    for blob in (*made, *others):
        assert await second.read(blob)
    await first.close()
    await second.close()
