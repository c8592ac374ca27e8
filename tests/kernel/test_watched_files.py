"""Files that are watched: every change counts at once, and nothing is looked at where there was none."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.held_time import HeldClock
from helpers.systems import on_linux

from tavern_host.storage.file_watch import LOOK_EVERY, WatchedFiles

LOOKED_AT: list[str] = []


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "os.scandir":
        LOOKED_AT.append(str(arguments[0]))


@pytest.fixture(scope="module", autouse=True)
def _heard() -> None:
    sys.addaudithook(_look)  # there is no way to take it away


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project" / "agents"
    (folder / "old").mkdir(parents=True)
    (folder / "a.json").write_text("1")
    (folder / "old" / "b.json").write_text("1")
    return folder


def _same_stamp(folder: Path) -> None:
    """Change a file so that neither its time nor its size nor its inode says so."""
    about = (folder / "a.json").stat()
    (folder / "a.json").write_text("2")
    os.utime(folder / "a.json", ns=(about.st_atime_ns, about.st_mtime_ns))


def _replace(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name("new"))
    folder.rename(folder.with_name("before"))
    folder.with_name("new").rename(folder)


CHANGES: dict[str, Callable[[Path], object]] = {
    "written": _same_stamp,
    "new": lambda folder: (folder / "c.json").write_text("1"),
    "replaced": lambda folder: (folder.parent / "c").rename(folder / "a.json"),
    "deleted": lambda folder: (folder / "old" / "b.json").unlink(),
    "moved within": lambda folder: (folder / "a.json").rename(folder / "old" / "a.json"),
    "not to be read": lambda folder: (folder / "a.json").chmod(0),
    "new folder": lambda folder: shutil.copytree(folder / "old", folder / "new" / "deep"),
    "folder deleted": lambda folder: shutil.rmtree(folder / "old"),
    "folder of all replaced": _replace,
    "all deleted": shutil.rmtree,
}


@on_linux
@pytest.mark.parametrize("change", CHANGES)
async def test_each_change_counts_at_once_and_nothing_else_is_looked_at(folder: Path, change: str) -> None:
    (folder.parent / "c").write_text("2")
    files = WatchedFiles(".json")
    before = await files.revision(str(folder))
    CHANGES[change](folder)
    after = await files.revision(str(folder))
    assert after > before
    LOOKED_AT.clear()
    (folder.parent / "log").write_text("not one of the files")
    assert [await files.revision(str(folder)) for _ in range(10)] == [after] * 10
    assert LOOKED_AT == []


async def test_a_folder_that_is_made_later_counts_with_what_is_in_it(tmp_path: Path) -> None:
    files, deep = WatchedFiles(".json"), tmp_path / "a" / "b" / "c"
    seen = [await files.revision(str(deep))]
    for step in (deep.parent.mkdir, deep.mkdir, (deep / "x.json").touch, (deep / "x.json").unlink):
        step(parents=True) if step.__name__ == "mkdir" else step()
        seen.append(await files.revision(str(deep)))
    assert (seen[2], seen[3] > seen[2], seen[4] > seen[3]) == (seen[0], True, True)


@on_linux
async def test_what_the_kernel_does_not_note_is_looked_at(folder: Path, held_clock: HeldClock) -> None:
    outside = folder.parent / "outside"
    outside.write_text("1")
    files = WatchedFiles(".json")
    before = await files.revision(str(folder))
    held_clock.advance(LOOK_EVERY)
    for _ in range(2):  # the timer of the look runs
        await asyncio.sleep(0)
    LOOKED_AT.clear()
    assert await files.revision(str(folder)) == before
    assert LOOKED_AT  # as on a disk that is shared with another machine
    (folder / "linked.json").symlink_to(outside)
    linked = await files.revision(str(folder))
    outside.write_text("22")
    assert await files.revision(str(folder)) > linked > before


@on_linux
async def test_those_who_ask_at_once_share_a_look(folder: Path) -> None:
    files = WatchedFiles(".json")
    LOOKED_AT.clear()
    asked = [files.revision(str(folder)) for _ in range(20)]
    assert len(set(await asyncio.gather(*asked))) == 1
    assert len(LOOKED_AT) <= 4  # the folder and the one in it, once or twice


@on_linux
async def test_watchers_of_one_folder_do_not_disturb_each_other(folder: Path) -> None:
    every = [WatchedFiles(suffix) for suffix in (".json", "a.json", ".txt")]
    before = [await files.revision(str(folder)) for files in every]
    (folder / "a.json").write_text("22")
    del every[1], before[1]  # of which the kernel has noted something
    for changed, file in ([True, False], "b.json"), ([False, True], "x.txt"), ([True, False], "a.json"):
        before = [await files.revision(str(folder)) for files in every]
        (folder / file).write_text("22")
        now = [await files.revision(str(folder)) for files in every]
        assert [one > other for one, other in zip(now, before, strict=True)] == changed
