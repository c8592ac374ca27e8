"""What commands beside a running host read of the processes of its plugins: a file for each plugin."""

from __future__ import annotations

import contextlib
from pathlib import Path

from pydantic import ValidationError

from tavern_host.context import Project
from tavern_host.contracts.plugins import PluginProcess
from tavern_host.storage.files import write_atomic
from tavern_scripts.api.sandbox import memory_of


def folder_of(project: Project) -> Path:
    """The folder of what the host keeps of plugins in processes of their own."""
    return project.private / "isolation"


def _file(project: Project, plugin: str) -> Path:
    return folder_of(project) / f"{plugin}.process.json"


def write(project: Project, plugin: str, process: PluginProcess) -> None:
    """Keep how a plugin's process is. Blocking."""
    folder_of(project).mkdir(parents=True, exist_ok=True)
    write_atomic(_file(project, plugin), process.model_dump_json(by_alias=True).encode(), mode=0o600)


def read(project: Project, plugin: str) -> PluginProcess | None:
    """What was kept last, with the memory that it uses now; without a pid where it has ended since. Blocking."""
    with contextlib.suppress(OSError, ValidationError):
        process = PluginProcess.model_validate_json(_file(project, plugin).read_bytes())
        memory = memory_of(process.pid) if process.pid is not None else 0
        return process.model_copy(update={"memory": memory} if memory else {"pid": None, "memory": None})
    return None
