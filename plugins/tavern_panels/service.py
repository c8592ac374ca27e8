"""The provider of `panelManager`: panels as the files that they are. Revisions are hashes of the content."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from tavern_host import CallContext, PluginContext
from tavern_host.common.redaction import has_mask
from tavern_host.contracts.documents import read_document_file, revision_of
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound, ServiceUnavailable, TavernError
from tavern_host.contracts.settings import SETTINGS
from tavern_host.storage.files import write_atomic
from tavern_panels import State
from tavern_panels.api.panels import (
    ID,
    MAX_PANELS,
    PanelFile,
    PanelManager,
    PanelProblem,
    PanelSummary,
    ShownPanel,
)
from tavern_panels.checks import check_panels
from tavern_panels.files import FOLDER, Document, PanelFiles, StoredPanel, parsed
from tavern_panels.shown import shown_panel


class Panels(PanelManager):
    """The panels in the project's folder `panels`."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context

    async def list_panels(self) -> list[PanelSummary]:
        """Return all panels by id."""
        files = await self._now()
        found = [
            PanelSummary(
                id=name,
                name=one.panel.name,
                description=one.panel.description,
                published=one.panel.published,
                elements=len(one.panel.elements),
                revision=one.revision,
            )
            for name, one in files.panels.items()
        ]
        found += [PanelSummary(id=name, problem="; ".join(problems)) for name, problems in files.broken.items()]
        return sorted(found, key=lambda one: one.id)

    async def get(self, panel_id: str) -> PanelFile:
        """Return a panel; see the interface."""
        stored = (await self._now()).get(panel_id)
        return PanelFile(id=panel_id, revision=stored.revision, document=stored.document)

    async def validate(self, document: Document) -> list[str]:
        """Return the mistakes of a document; see the interface."""
        return (await asyncio.to_thread(parsed, document))[1]

    async def check(self, panel_id: str | None = None, *, document: Document | None = None) -> list[PanelProblem]:
        """Return the problems of the panels; see the interface."""
        if document is None:
            return await check_panels(await self._now(), panel_id, self._context)
        panel, problems = await asyncio.to_thread(parsed, document)
        name, files = panel_id or "", PanelFiles()
        if panel is None:
            files.broken[name] = problems
        else:
            files.panels[name] = StoredPanel(panel, document, "")
        return await check_panels(files, name, self._context)

    async def show(self, panel_id: str) -> ShownPanel:
        """Return a panel as people are shown it; see the interface."""
        return await shown_panel(panel_id, (await self._now()).get(panel_id), self._context)

    async def preview(self, document: Document) -> ShownPanel:
        """Return a document as people would be shown it; see the interface."""
        panel, problems = await asyncio.to_thread(parsed, document)
        if panel is None:
            raise InvalidInput(f"the panel cannot be used: {'; '.join(problems)}", problems=problems)
        return await shown_panel("", StoredPanel(panel, document, ""), self._context)

    async def save(
        self,
        panel_id: str,
        document: Document,
        *,
        expected_revision: str | None = None,
        call: CallContext | None = None,
    ) -> PanelFile:
        """Write a panel; see the interface."""
        path = path_of(panel_id, self._context.project.root)
        if problems := await self.validate(document):
            raise InvalidInput(f"the panel cannot be used: {'; '.join(problems)}", problems=problems)
        async with self._context.own(State).writing:
            files = await self._now()
            _refuse_other(panel_id, await asyncio.to_thread(stored_revision, path), expected_revision)
            if panel_id not in files.panels and len(files.panels) + len(files.broken) >= MAX_PANELS:
                raise InvalidInput(f"a project has at most {MAX_PANELS} panels; delete one first")
            if has_mask(document):
                stored = [files.panels[panel_id].document] if panel_id in files.panels else []
                document = await self._context.services.get(SETTINGS).restored(document, stored)
            await asyncio.to_thread(_write, path, document, self._context.project.root)
            await self._now()
        self._context.audit.record("panel.saved", subject=panel_id, call=call)
        return PanelFile(id=panel_id, revision=revision_of(document), document=document)

    async def delete(
        self, panel_id: str, *, expected_revision: str | None = None, call: CallContext | None = None
    ) -> None:
        """Delete a panel; see the interface."""
        path = path_of(panel_id, self._context.project.root)
        async with self._context.own(State).writing:
            files = await self._now()
            if panel_id not in files.broken:
                files.get(panel_id)
            _refuse_other(panel_id, await asyncio.to_thread(stored_revision, path), expected_revision)
            await asyncio.to_thread(path.unlink, missing_ok=True)
            await self._now()
        self._context.audit.record("panel.deleted", subject=panel_id, call=call)

    async def _now(self) -> PanelFiles:
        return await self._context.own(State).folder.now()


def path_of(panel_id: str, root: Path) -> Path:
    """Return the file of a panel. Raises `InvalidInput` for what can be no name of a file, `Conflict` where that leads
    out of the project."""
    if not re.fullmatch(ID, panel_id) or not panel_id.isprintable() or panel_id != panel_id.strip():
        message = f"{panel_id[:100]!r} cannot be the id of a panel: it has up to 80 characters, none of / \\ : * ? @"
        raise InvalidInput(f'{message} " < > |, and does not begin with a dot')
    path = root / FOLDER / f"{panel_id}.json"
    if len(path.name.encode()) > 200:
        raise InvalidInput(f"{panel_id[:100]!r} is too long for the name of a file; give the panel a shorter id")
    if path.parent.resolve() != root.resolve() / FOLDER:
        raise Conflict(f"{path.parent} leads out of the project; nothing is written there")
    return path


def stored_revision(path: Path) -> str:
    """Return the revision of the file of a panel; empty where there is none, `broken` where it cannot be read."""
    try:
        return revision_of(read_document_file(path))
    except NotFound:
        return ""
    except TavernError:
        return "broken"


def _refuse_other(panel_id: str, before: str, expected: str | None) -> None:
    if before and expected == "":
        message = f"there is a panel {panel_id!r} already; give this one another id"
        raise Conflict(message, revision=before, expected=expected)
    if expected not in (None, before):
        message = f"the panel {panel_id!r} is at revision {before or 'none'}, not {expected or 'none'}"
        raise Conflict(message, revision=before, expected=expected)


def _write(path: Path, document: Document, root: Path) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        real = path.resolve()
        if not real.is_relative_to(root.resolve()):
            raise Conflict(f"{path} leads out of the project; nothing is written there")
        write_atomic(real, (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode())
    except OSError as error:
        raise ServiceUnavailable(f"{path} cannot be written: {error.strerror or error}") from error
