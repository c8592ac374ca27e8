"""How environments are kept: put in place whole, made by one at a time, checked, and taken away when unused; and how
what comes out of a sandbox is written down."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.repetition import Failures
from helpers.systems import on_linux
from helpers.waiting import until_idle
from hypothesis import given
from hypothesis import strategies as st

from tavern_scripts.environments.install import send
from tavern_scripts.environments.store import Store, content_of, remove
from tavern_scripts.environments.unpack import BadPackage, Unpacker

KEY = "ab" * 20


async def build(store: Store, files: dict[str, str], key: str = KEY, wait: Callable[[], None] = lambda: None) -> bool:
    """Build an environment; return whether it was built now."""
    async with store.building(key, wait) as folder:
        if folder is None:
            return False
        for name, text in files.items():
            path = content_of(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        store.keep(key, folder, {"source": "x"})
    return True


def rewritten_in_place(file: Path) -> None:
    """Change a file's content, not its size, times and rights."""
    before = file.stat()
    file.chmod(0o644)
    file.write_text("2")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    file.chmod(before.st_mode)


def opened(path: Path) -> Path:
    """Return a file or folder that may be written to from now on."""
    path.chmod(0o755)
    return path


CHANGES: dict[str, Callable[[Path], object]] = {
    "a new file": lambda content: (opened(content / "site") / "new.py").write_text("x"),
    "one less": lambda content: (opened(content / "site") / "a.py").unlink(),
    "other rights": lambda content: (content / "site" / "a.py").chmod(0o666),
    "a second name": lambda content: os.link(content / "site" / "a.py", content.parent / "other"),
    "another content": lambda content: opened(content / "site" / "a.py").write_text("2"),
    "another content in place": lambda content: rewritten_in_place(content / "site" / "a.py"),
    "another record": lambda content: opened(content.parent / "record.json").write_text("{}"),
    "no record": lambda content: (content.parent / "record.json").unlink(),
    "another name": lambda content: (opened(content / "site") / "a.py").rename(content / "site" / "b.py"),
}


async def test_one_that_was_changed_is_built_again(tmp_path: Path) -> None:
    with Failures() as failures:
        for number, (name, change) in enumerate(CHANGES.items()):
            with failures.row(name):
                place = tmp_path / str(number)
                assert await build(Store(place), {"site/a.py": "1"})
                change(place / KEY / "content")

                later = Store(place)
                assert later.find(KEY) is None
                assert await build(later, {"site/a.py": "1"})
                content = later.find(KEY)
                assert content is not None and [path.name for path in content.rglob("*.py")] == ["a.py"]


@on_linux
async def test_who_waits_can_be_cancelled(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with store.building(KEY, lambda: None):
        waiting = asyncio.create_task(build(store, {"a": "1"}))
        await until_idle()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert await build(store, {"a": "1"})


async def test_what_nobody_uses_is_pruned_and_what_is_used_stays(tmp_path: Path) -> None:
    store, other = Store(tmp_path), "cd" * 20
    await build(store, {"a": "1"})
    await build(store, {"a": "1"}, other)
    leftover = tmp_path / f".building-{'ef' * 20}-00"
    (leftover / "deep").mkdir(parents=True)
    (leftover / "deep").chmod(0o500)
    for key in (KEY, other):
        os.utime(tmp_path / f"{key}.lock", (1, 1))
    assert Store(tmp_path).find(other) is not None  # used now, which is noted

    assert Store(tmp_path).prune(3600) == [KEY]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [other, f"{other}.lock", f"{'ef' * 20}.lock"]
    assert store.find(KEY) is None and store.find(other) is not None
    assert Store(tmp_path / "nowhere").prune(1) == []


def test_removing_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "link").symlink_to(outside)
    outside.chmod(0o555)
    remove(inner)

    assert not inner.exists() and (outside / "kept").exists() and outside.stat().st_mode & 0o777 == 0o555
    outside.chmod(0o755)


def sent(folder: Path) -> bytes:
    reading, writing = os.pipe()
    send(str(folder.parent), folder.name, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        return file.read()


def test_files_arrive_as_they_were_sent_and_links_do_not(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "é" / "b").mkdir(parents=True)
    target.mkdir()
    (source / "é" / "b" / "program").write_bytes(b"\0" * 3000)
    (source / "é" / "b" / "program").chmod(0o755)
    (source / "empty").write_bytes(b"")
    (source / "link").symlink_to("/etc/passwd")
    (source / "folder").symlink_to("/etc")
    data = sent(source)
    for size in (1, 7, len(data)):
        place = target / str(size)
        place.mkdir()
        unpacker = Unpacker(place, 3000)
        for at in range(0, len(data), size):
            unpacker.take(data[at : at + size])
        assert unpacker.finish() == 2
        assert sorted(str(path.relative_to(place)) for path in place.rglob("*")) == [
            "source",
            *(f"source/{path}" for path in ("empty", "é", "é/b", "é/b/program")),
        ]
        assert (place / "source/é/b/program").stat().st_mode & 0o111
        assert not (place / "source/empty").stat().st_mode & 0o111


def entry(path: object, size: object = 0, executable: object = False, data: bytes = b"") -> bytes:
    head = json.dumps([path, size, executable]).encode()
    return len(head).to_bytes(4, "big") + head + data


WRONG = [
    entry("../x"),
    entry("/etc/x"),
    entry("a/../../x"),
    entry("a//b"),
    entry(""),
    entry("."),
    entry("a/."),
    entry("a\0b"),
    entry("\ud800"),
    entry("x" * 300),
    entry("/".join("a" * 70)),
    entry("a", -1),
    entry("a", True),
    entry("a", 1.5),
    entry("a", 10**30),
    entry("a", 101),
    entry(["a"]),
    entry("a") + entry("a"),
    entry("a") + entry("a/b"),
    entry("a/b") + entry("a"),
    (9000).to_bytes(4, "big"),
    (3).to_bytes(4, "big") + b"[[[",
    (2000).to_bytes(4, "big") + b"[" * 2000,
    bytes(4) + b"more",
    entry("a", 5, False, b"abc"),
    b"",
    b"\0\0",
]


def test_what_is_not_as_it_should_be_is_not_written_down(tmp_path: Path) -> None:
    with Failures() as failures:
        for number, data in enumerate(WRONG):
            with failures.row(data[:60]):
                place = tmp_path / str(number) / "place"
                place.mkdir(parents=True)
                with pytest.raises(BadPackage):
                    unpacked(place, data)

                assert [path.name for path in place.parent.iterdir()] == ["place"]
                assert all(path.is_relative_to(place) for path in place.rglob("*"))


def unpacked(place: Path, data: bytes) -> None:
    unpacker = Unpacker(place, 100)
    try:
        unpacker.take(data)
        unpacker.finish()
    finally:
        unpacker.close()


@given(data=st.binary(max_size=200))
def test_any_bytes_are_files_in_the_folder_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    place = tmp_path_factory.mktemp("unpack") / "place"
    place.mkdir()
    with contextlib.suppress(BadPackage):
        unpacked(place, data)
    assert [path.name for path in place.parent.iterdir()] == ["place"]
