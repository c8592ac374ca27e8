"""A project into which files of other programs are imported."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tavern_host import Host
from tavern_importers.api.importers import IMPORT_MANAGER, ForeignFile, ImportManager, ImportOptions, ImportResult

FILES = Path(__file__).with_name("files")


@dataclass(frozen=True)
class Imports:
    """Imports into the project of a host, as the operator does."""

    host: Host

    @property
    def manager(self) -> ImportManager:
        """The service."""
        return self.host.services.get(IMPORT_MANAGER)

    async def take(self, file: str, content: Any = None, *, kind: str | None = None, **options: Any) -> ImportResult:
        """Import a file: one of the samples, or one with this content."""
        taken = ForeignFile(name=file, content=_bytes(file, content))
        return await self.manager.import_file(taken, kind=kind, options=ImportOptions(**options), call=self.host.call())

    async def kind_of(self, name: str, content: Any = None) -> str | None:
        """Return the name of the kind that a file is recognised as."""
        found = await self.manager.recognise(ForeignFile(name=name, content=_bytes(name, content)))
        return None if found is None else found.name

    def workflow(self, workflow_id: str) -> dict[str, Any]:
        """Return the file of a workflow."""
        path = self.host.project.folder("workflows") / f"{workflow_id}.json"
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return found


def _bytes(name: str, content: Any) -> bytes:
    if content is None:
        return (FILES / name).read_bytes()
    return content if isinstance(content, bytes) else json.dumps(content, ensure_ascii=False).encode()
