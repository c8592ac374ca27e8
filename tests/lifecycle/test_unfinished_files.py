"""Files that somebody is writing now stay, and so do links and what is no file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tavern_host.storage.content_files import ContentFiles, hash_of
from tavern_host.storage.files import remove_unfinished, unfinished


def test_a_file_that_is_being_written_stays(tmp_path: Path) -> None:
    with unfinished(tmp_path, b"x", 0o600) as temporary:
        remove_unfinished(tmp_path)
        assert temporary.read_bytes() == b"x"
        temporary.replace(tmp_path / "done")
    contents = ContentFiles(tmp_path / "contents")
    new = contents.write(b"x")
    remove_unfinished(tmp_path)
    contents.keep(new.path, hash_of(b"x"))
    new.discard()
    assert contents.read(hash_of(b"x")) == b"x"
    shutil.rmtree(tmp_path / "contents")
    remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["done"]


def _flatten(folder: Path) -> None:
    """Leave of folders that lie in each other the outermost, without entering them."""
    while (inner := folder / "a").exists():
        if (below := inner / "a").exists():
            below.rename(folder / "next")
            inner.rmdir()
            (folder / "next").rename(inner)
        else:
            inner.rmdir()


def test_folders_may_lie_in_each_other_as_deep_as_they_want(tmp_path: Path) -> None:
    (tmp_path / ".tavern-writing-0").write_text("x")
    opened = os.open(tmp_path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("a", dir_fd=opened)
        inner = os.open("a", os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = inner
    os.close(opened)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / ".tavern-writing-1").write_text("x")
    for left in (tmp_path, tmp_path / "b"):
        for one in left.glob(".tavern-writing-*"):
            os.utime(one, (0, 0))
    try:
        remove_unfinished(tmp_path)
        assert not [*tmp_path.glob(".tavern-writing-*"), *tmp_path.glob("b/.tavern-writing-*")]
    finally:  # else what removes the tests' folders enters one in the other
        _flatten(tmp_path / "a")


def test_links_are_not_followed_and_not_removed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    for folder in (outside, inside):
        folder.mkdir()
    (outside / ".tavern-writing-0").write_text("x")
    (inside / "way").symlink_to(outside)
    (inside / ".tavern-writing-1").symlink_to(outside / ".tavern-writing-0")
    os.mkfifo(inside / ".tavern-writing-2")
    remove_unfinished(inside)
    assert (outside / ".tavern-writing-0").exists()
    assert (inside / ".tavern-writing-1").is_symlink()
