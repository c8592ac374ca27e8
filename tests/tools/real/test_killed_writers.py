"""A process that is killed while it writes files of a project leaves whole ones, and no lock."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from helpers.repetition import repetitions
from helpers.survival import Child

from tavern_tools.builtin.edits import Edit, apply
from tavern_tools.builtin.project_folder import append, change, write

pytestmark = pytest.mark.asyncio(loop_scope="module")


def write_all(root: Path) -> None:
    """Write files of a project in every way; each edit finds what is there only once."""
    for n in itertools.count():
        append(root, ("list",), f"a-{n}\n<a{n + 40}>\n".encode(), most=10**6)
        edit = Edit(f"<a{n}>", f"[a{n}]")
        change(root, ("list",), lambda data, edit=edit: apply(data.decode(), edit, "it").text.encode(), most=10**6)
        write(root, ("other",), b"a" * 100_000, overwrite=True)


async def test_a_writer_that_is_killed_leaves_whole_files(tmp_path: Path) -> None:
    other = tmp_path / "other"
    for delay in range(repetitions(2, 10)):
        other.write_bytes(b"a" * 100_000)
        (tmp_path / "list").write_text("".join(f"<a{n}>\n" for n in range(40)))
        before = other.stat().st_ino
        async with Child(write_all, tmp_path) as writer:
            while writer.check() and other.stat().st_ino == before:
                await asyncio.sleep(0.001)
            await asyncio.sleep(delay / 1000)
            await writer.killed()
        assert other.read_bytes() == b"a" * 100_000
        assert write(tmp_path, ("other",), b"a" * 100_000, overwrite=True) is False  # no lock is left
