"""Files that a killed process was writing are gone after the next start, whatever wrote them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from helpers.repetition import repetitions
from helpers.waiting import until

from tavern_host import Host

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
        ran = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code, project], stderr=subprocess.PIPE)
        assert ran.returncode == -9, f"{name}: {ran.stderr.decode()}"
        assert len(left(project, operator_folders)) == 1, name
        async with Host(project):
            await until(lambda project=project: not left(project, operator_folders))
