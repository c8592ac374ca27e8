"""Files beneath one folder: what is read, written and listed, and that nothing leads out of it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from helpers.systems import on_linux

from tavern_host import InvalidInput, NotFound
from tavern_nodes import files
from tavern_nodes.files import append_inside, list_inside, open_inside, read_inside, stamp_inside, write_inside

SECRET = "the secret"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder beside which lies a file that nobody may reach from it."""
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text(SECRET)
    root = tmp_path / "files"
    root.mkdir()
    return root


def names(root: Path, path: str = "", **options: Any) -> list[str]:
    return [name for name, _ in list_inside(root, path, **options)]


def everything(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


OPERATIONS: dict[str, Callable[[Path, str], object]] = {
    "open": open_inside,
    "read": read_inside,
    "stamp": stamp_inside,
    "write": lambda root, path: write_inside(root, path, b"x"),
    "append": lambda root, path: append_inside(root, path, b"x"),
    "list": list_inside,
}
OUT = ["../secret.txt", "a/../../secret.txt", "..", "a/..", "/etc/passwd", "//etc/passwd", "a/../b"]
NO_NAMES = ["a\0b", "\ud800", "x" * 300, "/".join("x" * 40)]
LINKED = ["link.txt", "folder/secret.txt", "inner/folder/secret.txt", "dangling", "folder"]


def test_no_path_or_link_leads_out(root: Path) -> None:
    (root / "link.txt").symlink_to(root.parent / "secret.txt")
    (root / "inner").mkdir()
    for folder in (root / "folder", root / "inner" / "folder"):
        folder.symlink_to(root.parent / "outside")
    (root / "dangling").symlink_to(root.parent / "new.txt")
    rows: list[tuple[str, str | None]] = [(path, r"leads out of the project's files/ folder") for path in OUT]
    rows += [(path, None) for path in [*NO_NAMES, *LINKED]]
    with Failures() as failures:
        for (name, operation), (path, message) in itertools.product(OPERATIONS.items(), rows):
            with failures.row((name, path)), pytest.raises(InvalidInput, match=message):
                operation(root, path)
    assert [path.read_text() for path in sorted(root.parent.rglob("secret.txt"))] == [SECRET] * 2
    assert not (root.parent / "new.txt").exists()


def test_folders_and_missing_files_are_told_by_their_path(root: Path) -> None:
    (root / "folder").mkdir()
    with Failures() as failures:
        for name in ("read", "write", "append", "open"):
            with failures.row(name), pytest.raises(InvalidInput, match=r"^'folder' "):
                OPERATIONS[name](root, "folder")
        for name in ("read", "stamp", "open", "list"):
            with failures.row(name), pytest.raises(NotFound, match="^'a/b.txt' is not in the project's files/ folder$"):
                OPERATIONS[name](root, "a/b.txt")


def test_files_over_the_limit_are_neither_read_nor_written(root: Path) -> None:
    with (root / "large").open("wb") as file:
        file.truncate(files.MAX_BYTES)
    for write in (lambda: append_inside(root, "large", b"x"), lambda: write_inside(root, "o", b"x" * (16 * 2**20 + 1))):
        with pytest.raises(InvalidInput, match="at most 16,777,216 are possible"):
            write()
    assert (names(root), (root / "large").stat().st_size) == (["large"], files.MAX_BYTES)
    with (root / "large").open("ab") as file:
        file.write(b"x")
    with pytest.raises(InvalidInput, match=r"^'large' is larger than 16,777,216 bytes$"):
        read_inside(root, "large")


@on_linux
def test_a_replaced_file_keeps_its_permissions(root: Path) -> None:
    assert write_inside(root, "x", b"1", replace=False) == 1
    with pytest.raises(InvalidInput, match=r"^'x' is there already$"):
        write_inside(root, "x", b"2", replace=False)
    assert read_inside(root, "x") == b"1"
    (root / "x").chmod(0o750)
    write_inside(root, "x", b"22")
    assert ((root / "x").stat().st_mode & 0o777, everything(root)) == (0o750, ["x"])


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_inside(root, "x", b"old")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InvalidInput, match=r"^'x' cannot be used: No space left on device$"):
        write_inside(root, "x", b"new")
    monkeypatch.undo()
    assert (everything(root), read_inside(root, "x")) == (["x"], b"old")


def test_a_stamp_differs_once_the_file_was_written_again(root: Path) -> None:
    write_inside(root, "x", b"1")
    stamps = [stamp_inside(root, "x"), stamp_inside(root, "x")]
    write_inside(root, "x", b"2")
    os.utime(root / "x", ns=(stamps[0][0], stamps[0][0]))  # as a program that copies files does
    assert stamps[0] == stamps[1] != stamp_inside(root, "x")


def test_a_listing_has_the_files_by_path_and_no_links(root: Path) -> None:
    for name in ("b.txt", "a/z.txt", "a/b/c.txt"):
        write_inside(root, name, b"1")
    (root / "link.txt").symlink_to(root / "b.txt")
    (root / "linked").symlink_to(root.parent / "outside")
    os.mkfifo(root / "pipe")
    assert names(root) == ["b.txt"]
    assert names(root, recursive=True) == ["a/b/c.txt", "a/z.txt", "b.txt"]
    assert names(root, "a/", recursive=True) == ["a/b/c.txt", "a/z.txt"]
    assert names(root, ".") == ["b.txt"]
    assert list_inside(root / "never made") == []


def test_a_listing_that_is_too_long_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_ENTRIES", 5)
    for number in range(6):
        (root / f"{number}").mkdir()
    with pytest.raises(InvalidInput, match=r"^the files/ folder holds more than 5 files and folders$"):
        list_inside(root)


def test_no_descriptor_stays_open(root: Path) -> None:
    write_inside(root, "a/b/x", b"1")
    (root / "a" / "link").symlink_to("b")
    for _ in range(20):
        list_inside(root, recursive=True)
        read_inside(root, "a/b/x")
        append_inside(root, "a/b/x", b"1")
        for path in ("a/b/missing", "a/link/x", "a/b"):
            with pytest.raises((InvalidInput, NotFound)):
                read_inside(root, path)
    with os.scandir("/proc/self/fd") as descriptors:
        opened = [os.readlink(each.path) for each in descriptors if os.path.lexists(each.path)]  # noqa: PTH115
    assert [path for path in opened if path.startswith(str(root))] == []
