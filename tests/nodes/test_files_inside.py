"""Files beneath one folder: what is read, written and listed, and that nothing leads out of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
each_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


@each_operation
@pytest.mark.parametrize(
    "path", ["../secret.txt", "a/../../secret.txt", "..", "a/..", "/etc/passwd", "//etc/passwd", "a/../b"]
)
def test_no_path_leads_out(root: Path, operation: Callable[[Path, str], object], path: str) -> None:
    with pytest.raises(InvalidInput, match=r"leads out of the project's files/ folder"):
        operation(root, path)
    assert (root.parent / "secret.txt").read_text() == SECRET


@each_operation
@pytest.mark.parametrize("path", ["a\0b", "\ud800", "x" * 300, "/".join("x" * 40)])
def test_what_cannot_be_a_name_is_refused(root: Path, operation: Callable[[Path, str], object], path: str) -> None:
    with pytest.raises(InvalidInput):
        operation(root, path)


@each_operation
def test_a_link_is_not_followed_wherever_it_is(root: Path, operation: Callable[[Path, str], object]) -> None:
    (root / "link.txt").symlink_to(root.parent / "secret.txt")
    (root / "folder").symlink_to(root.parent / "outside")
    (root / "inner").mkdir()
    (root / "inner" / "folder").symlink_to(root.parent / "outside")
    (root / "dangling").symlink_to(root.parent / "new.txt")
    for path in ("link.txt", "folder/secret.txt", "inner/folder/secret.txt", "dangling", "folder"):
        with pytest.raises(InvalidInput):
            operation(root, path)
    assert (root.parent / "secret.txt").read_text() == SECRET
    assert (root.parent / "outside" / "secret.txt").read_text() == SECRET
    assert not (root.parent / "new.txt").exists()


@pytest.mark.parametrize("name", ["read", "write", "append", "open"])
def test_a_folder_is_not_a_file(root: Path, name: str) -> None:
    (root / "folder").mkdir()
    with pytest.raises(InvalidInput, match=r"^'folder' "):
        OPERATIONS[name](root, "folder")


@pytest.mark.parametrize("name", ["read", "stamp", "open", "list"])
def test_what_is_not_there_is_told_by_its_path(root: Path, name: str) -> None:
    with pytest.raises(NotFound) as missing:
        OPERATIONS[name](root, "a/b.txt")
    assert missing.value.message == "'a/b.txt' is not in the project's files/ folder"


def test_a_file_that_is_too_large_is_not_read(root: Path) -> None:
    with (root / "large").open("wb") as file:
        file.truncate(files.MAX_BYTES + 1)
    with pytest.raises(InvalidInput, match=r"^'large' is larger than 16,777,216 bytes$"):
        read_inside(root, "large")


def test_a_file_does_not_grow_over_the_limit(root: Path) -> None:
    with (root / "large").open("wb") as file:
        file.truncate(files.MAX_BYTES)
    with pytest.raises(InvalidInput, match="at most 16,777,216 are possible"):
        append_inside(root, "large", b"x")
    with pytest.raises(InvalidInput, match="at most 16,777,216 are possible"):
        write_inside(root, "other", b"x" * (files.MAX_BYTES + 1))
    assert (root / "large").stat().st_size == files.MAX_BYTES
    assert names(root) == ["large"]


def test_a_replaced_file_keeps_its_permissions_and_leaves_nothing_beside_it(root: Path) -> None:
    write_inside(root, "run.sh", b"1")
    (root / "run.sh").chmod(0o750)
    write_inside(root, "run.sh", b"22")
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o750
    assert everything(root) == ["run.sh"]


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


def test_a_file_that_another_program_keeps_locked_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.setattr(files, "LOCK_SECONDS", 0.05)
    append_inside(root, "log", b"1")
    with (root / "log").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InvalidInput, match=r"^'log' is kept locked by another program$"):
            append_inside(root, "log", b"2")
    assert append_inside(root, "log", b"3") == 2


def test_a_file_that_is_there_already_is_left_alone_on_request(root: Path) -> None:
    assert write_inside(root, "x", b"1", replace=False) == 1
    with pytest.raises(InvalidInput, match=r"^'x' is there already$"):
        write_inside(root, "x", b"2", replace=False)
    assert (everything(root), read_inside(root, "x")) == (["x"], b"1")


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


def test_a_listing_of_a_folder_that_was_never_made_is_empty(tmp_path: Path) -> None:
    assert list_inside(tmp_path / "files") == []


def test_a_listing_that_is_too_long_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_ENTRIES", 5)
    for number in range(6):
        (root / f"{number}").mkdir()
    with pytest.raises(InvalidInput, match=r"^the files/ folder holds more than 5 files and folders$"):
        list_inside(root)


def test_no_descriptor_stays_open(root: Path) -> None:
    write_inside(root, "a/b/x", b"1")
    (root / "a" / "link").symlink_to("b")
    before = len(everything(Path("/proc/self/fd")))
    for _ in range(20):
        list_inside(root, recursive=True)
        read_inside(root, "a/b/x")
        append_inside(root, "a/b/x", b"1")
        for path in ("a/b/missing", "a/link/x", "a/b"):
            with pytest.raises((InvalidInput, NotFound)):
                read_inside(root, path)
    assert len(everything(Path("/proc/self/fd"))) == before
