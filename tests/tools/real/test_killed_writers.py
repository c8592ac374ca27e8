"""A process that is killed while it writes files of a project leaves whole ones, and no lock."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL
from contextlib import suppress
from pathlib import Path

import pytest
from helpers.repetition import repetitions

from tavern_tools.builtin.project_folder import write

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRITER = """
import sys
from pathlib import Path
from tavern_tools.builtin.edits import Edit, apply
from tavern_tools.builtin.project_folder import append, change, write

root = Path(sys.argv[1])
for n in range(40):
    append(root, ("list",), f"a-{n}\\n".encode(), most=10**6)
    edit = Edit(f"<a{n}>", f"[a{n}]")
    change(root, ("list",), lambda data: apply(data.decode(), edit, "it").text.encode(), most=10**6)
    write(root, ("other",), b"a" * 100_000, overwrite=True)
"""


async def test_a_writer_that_is_killed_leaves_whole_files(tmp_path: Path) -> None:
    other = tmp_path / "other"
    for delay in range(repetitions(2, 10)):
        other.write_bytes(b"a" * 100_000)
        (tmp_path / "list").write_text("".join(f"<a{n}>\n" for n in range(40)))
        writer = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, str(tmp_path), stderr=DEVNULL)
        before = other.stat().st_ino
        while other.stat().st_ino == before and writer.returncode is None:
            await asyncio.sleep(0.001)
        await asyncio.sleep(delay / 1000)
        with suppress(ProcessLookupError):
            writer.kill()
        await writer.wait()
        assert other.read_bytes() == b"a" * 100_000
        assert write(tmp_path, ("other",), b"a" * 100_000, overwrite=True) is False  # no lock is left
