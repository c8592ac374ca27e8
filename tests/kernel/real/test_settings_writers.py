"""Processes that save settings at once, or are killed while they do."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from settings_maker import file_in, store_with
from test_settings_store import ACME, SIZE

from tavern_host.storage.files import TEMPORARY

WRITER = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from settings_maker import store_with
async def main(name, count, size):
    store = store_with(Path(sys.argv[1]))
    for number in range(count):
        key = f"extensions.acme.k{name}" if size else f"extensions.acme.k{name}-{number}"
        await store.save({key: "x" * size + str(number)}, encrypted=[key] if number == 7 and not size else [])
        print(number, flush=True)
asyncio.run(main(sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
"""


def writing(state: Path, name: str, count: int, size: int) -> subprocess.Popen[bytes]:
    arguments = [state, Path(__file__).parents[1], name, str(count), str(size)]
    return subprocess.Popen([sys.executable, "-c", WRITER, *arguments], stdout=subprocess.PIPE)


def test_saving_at_once_in_several_processes_loses_nothing(tmp_path: Path) -> None:
    writers = [writing(tmp_path, str(number), 20, 0) for number in range(3)]
    for writer in writers:
        writer.communicate(timeout=100)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    saved = file_in(tmp_path).read()
    assert (len(saved.values), len(saved.secrets)) == (57, 3)
    assert not list(tmp_path.rglob(f"{TEMPORARY}*"))


def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    for saves in (1, 5):
        with writing(tmp_path, "", 100_000, 50_000) as writer:
            for _ in range(saves):
                writer.stdout.readline()
            writer.kill()
        saved = file_in(tmp_path).read().values["extensions.acme.k"]
        assert int(str(saved).lstrip("x")) >= saves - 1
        asyncio.run(store_with(tmp_path).save({SIZE: saves}))
        assert store_with(tmp_path).of(ACME).get("size") == saves
