"""Files that a killed process was writing are gone after the next start, whatever wrote them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

from helpers.forking import PYTHON
from helpers.repetition import repetitions

from tavern_host import Host
from tavern_host.storage.content_files import ContentFiles, hash_of
from tavern_host.storage.files import remove_unfinished, unfinished

WRITER = """
import asyncio, os, signal, sys
from pathlib import Path
from tavern_host import EXECUTION_ENGINE, Host, TOOL_MANAGER, WORKFLOW_MANAGER
from tavern_host.contracts.tools import ToolCallRequest
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.settings import SettingsChange
from tavern_host.storage import files
from tavern_host.storage.blobs import BlobStore

def die(handle):
    if os.readlink(f"/proc/self/fd/{handle}").rpartition("/")[2].startswith(files.TEMPORARY):
        os.kill(os.getpid(), signal.SIGKILL)

async def half():
    yield b"x"
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with Host(Path(sys.argv[1]), sample=True) as host:
        os.fsync = die
        manager = host.services.get(WORKFLOW_MANAGER)
        WHAT

asyncio.run(main())
"""
WRITERS = {
    "a workflow": "await manager.save('w', await manager.parse({'nodes': [], 'edges': []}))",
    "a workflow again": "await manager.save('greeting', await manager.parse({'nodes': [], 'edges': []}))",
    "a file of a tool": "await host.services.get(TOOL_MANAGER).call(ToolCallRequest(tool_id='FileOperator.WriteFile',"
    " arguments={'filePath': 'a/b.txt', 'content': 'x'}), call=host.call())",
    "a setting": "await host.settings.save(SettingsChange(plugin='tavern-engine', values={'maxConcurrentRuns': 3}))",
    "a switch": "await host.disable('tavern-demo')",
    "a Blob": "await BlobStore(Path(sys.argv[1]) / '.tavern' / 'blobs').put(half())",
    "the key of runs": "await host.services.get(EXECUTION_ENGINE).run("
    "RunRequest(workflow_id='greeting', inputs={'name': 'x'}))",
}


def left(*folders: Path) -> list[Path]:
    """Return the unfinished files below folders, by whatever name."""
    hidden = [path for folder in folders for path in folder.rglob(".*")]
    return [path for path in hidden if path.suffix == ".tmp" or "-writing-" in path.name]


ALIKE = ("a workflow again", "a switch")
"""Writers of files beside those of others, with `--extended` only."""


async def test_files_of_killed_writers_are_removed(tmp_path: Path, operator_folders: Path) -> None:
    writers = {name: what for name, what in WRITERS.items() if name not in repetitions(ALIKE, ())}
    for name, what in writers.items():
        project = tmp_path / name.replace(" ", "-")
        code = WRITER.replace("WHAT", what)
        ran = await asyncio.to_thread(subprocess.run, [*PYTHON, "-c", code, project], stderr=subprocess.PIPE)
        assert ran.returncode == -9, f"{name}: {ran.stderr.decode()}"
        assert len(left(project, operator_folders)) == 1, name
        async with Host(project), asyncio.timeout(60):
            while left(project, operator_folders):
                await asyncio.sleep(0.01)


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
