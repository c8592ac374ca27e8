"""Files that a killed process was writing are gone after the next start, whatever wrote them."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from helpers.repetition import repetitions
from helpers.survival import Child
from helpers.waiting import until

from tavern_host import EXECUTION_ENGINE, TOOL_MANAGER, WORKFLOW_MANAGER, Host
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.settings import SettingsChange
from tavern_host.contracts.workflows import Workflow
from tavern_host.storage import files
from tavern_host.storage.blobs import BlobStore
from tavern_tools.api.toolcalls import ToolCallRequest


def die(handle: int) -> None:
    """End the process if an unfinished file is flushed."""
    if os.readlink(f"/proc/self/fd/{handle}").rpartition("/")[2].startswith(files.TEMPORARY):  # noqa: PTH115
        os.kill(os.getpid(), signal.SIGKILL)


async def half() -> AsyncIterator[bytes]:
    """Yield the beginning of a Blob, and end the process."""
    yield b"x"
    os.kill(os.getpid(), signal.SIGKILL)


EMPTY = Workflow.model_validate({"nodes": [], "edges": []})
WRITE_FILE = ToolCallRequest(tool_id="FileOperator.WriteFile", arguments={"filePath": "a/b.txt", "content": "x"})
SETTING = SettingsChange(plugin="tavern-engine", values={"maxConcurrentRuns": 3})
WRITERS: dict[str, Callable[[Host], Awaitable[Any]]] = {
    "a workflow": lambda host: host.services.get(WORKFLOW_MANAGER).save("w", EMPTY),
    "a workflow again": lambda host: host.services.get(WORKFLOW_MANAGER).save("greeting", EMPTY),
    "a file of a tool": lambda host: host.services.get(TOOL_MANAGER).call(WRITE_FILE, call=host.call()),
    "a setting": lambda host: host.settings.save(SETTING),
    "a switch": lambda host: host.disable("tavern-demo"),
    "a Blob": lambda host: BlobStore(host.project.root / ".tavern" / "blobs").put(half()),
    "the key of runs": lambda host: host.services.get(EXECUTION_ENGINE).run(
        RunRequest(workflow_id="greeting", inputs={"name": "x"})
    ),
}


async def write(project: Path, name: str) -> None:
    """Write with one of the writers; the process ends before the file has its name."""
    async with Host(project, sample=True) as host:
        os.fsync = die
        await WRITERS[name](host)


def left(*folders: Path) -> list[Path]:
    """Return the unfinished files below folders, by whatever name."""
    hidden = [path for folder in folders for path in folder.rglob(".*")]
    return [path for path in hidden if path.suffix == ".tmp" or "-writing-" in path.name]


ALIKE = ("a workflow again", "a switch")
"""Writers of files beside those of others, with `--extended` only."""


async def test_files_of_killed_writers_are_removed(tmp_path: Path, operator_folders: Path) -> None:
    for name in [name for name in WRITERS if name not in repetitions(ALIKE, ())]:
        project = tmp_path / name.replace(" ", "-")
        async with Child(write, project, name) as child:
            await child.ended(-signal.SIGKILL)
        assert len(left(project, operator_folders)) == 1, name
        async with Host(project):
            await until(lambda project=project: not left(project, operator_folders))
