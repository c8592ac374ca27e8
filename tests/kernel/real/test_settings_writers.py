"""Processes that save settings at once, or are killed while they do."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from helpers.survival import Child, killed, say
from settings_maker import file_in, store_with
from test_settings_store import ACME, SIZE

from tavern_host.storage.files import TEMPORARY


async def save(state: Path, name: str, count: int, size: int) -> None:
    """Save values of this size, or where it is 0 a key for each, and say the number of each that is saved."""
    store = store_with(state)
    for number in range(count):
        key = f"extensions.acme.k{name}" if size else f"extensions.acme.k{name}-{number}"
        await store.save({key: "x" * size + str(number)}, encrypted=[key] if number == 7 and not size else [])
        say(number)


async def test_saving_at_once_in_several_processes_loses_nothing(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        writers = [await stack.enter_async_context(Child(save, tmp_path, str(n), 20, 0)) for n in range(3)]
        for writer in writers:
            await writer.ended()
    saved = file_in(tmp_path).read()
    assert (len(saved.values), len(saved.secrets)) == (57, 3)
    assert not list(tmp_path.rglob(f"{TEMPORARY}*"))


async def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    for saves in (1, 5):
        said = await killed(save, tmp_path, "", 100_000, 50_000, lines=saves)
        saved = file_in(tmp_path).read().values["extensions.acme.k"]
        assert int(str(saved).lstrip("x")) >= said[-1]
        await store_with(tmp_path).save({SIZE: saves})
        assert store_with(tmp_path).of(ACME).get("size") == saves
