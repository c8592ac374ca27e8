"""Reads the panels of a project, `panels/*.json`, as they are now. A broken file hides no other."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from tavern_host import PluginContext
from tavern_host.contracts.documents import json_path, mistakes, read_document, read_document_bytes, revision_of
from tavern_host.contracts.errors import Misconfigured, NotFound, TavernError, describe
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.wire import WireError, wire_value, without_surrogates
from tavern_host.storage.file_watch import WatchedFiles
from tavern_panels.api.panels import MAX_PANEL, MAX_PANELS, PANELS_CHANGED, Panel

FOLDER = "panels"

Document = dict[str, JsonValue]


@dataclass(frozen=True)
class StoredPanel:
    """A panel with the document of its file."""

    panel: Panel
    document: Document
    revision: str


@dataclass(frozen=True)
class PanelFiles:
    """What the folder holds: panels by id, and what is wrong with the other files."""

    panels: dict[str, StoredPanel] = field(default_factory=dict)
    broken: dict[str, list[str]] = field(default_factory=dict)

    def get(self, panel_id: str) -> StoredPanel:
        """Return a panel. Raises `Misconfigured` with the mistakes of a broken file, else `NotFound`."""
        if panel_id in self.panels:
            return self.panels[panel_id]
        if panel_id in self.broken:
            problems = self.broken[panel_id]
            raise Misconfigured(f"the panel {panel_id!r} cannot be used: {'; '.join(problems)}", problems=problems)
        hint = did_you_mean(panel_id, self.panels)
        raise NotFound(f"there is no panel {panel_id!r:.200}{hint}", panel=panel_id[:200])

    def state_of(self, panel_id: str) -> object:
        """Return a stamp that differs once a panel is another."""
        stored = self.panels.get(panel_id)
        return stored.revision if stored is not None else self.broken.get(panel_id)


class PanelFolder:
    """The panels of a project as they are now; `PANELS_CHANGED` is published when a look finds others."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._watched = WatchedFiles(".json")
        self._files = PanelFiles()
        self._read_at: int | None = None
        self._lock = asyncio.Lock()

    async def now(self) -> PanelFiles:
        """Return the panels of the folder. Files are read again when one of them has changed."""
        folder = str(self._context.project.root / FOLDER)
        if await self._watched.revision(folder) != self._read_at:
            async with self._lock:
                revision = await self._watched.revision(folder)
                if revision != self._read_at:
                    files = await asyncio.to_thread(read_panels, self._context.project.root)
                    before, self._files, is_first = self._files, files, self._read_at is None
                    self._read_at = revision
                    if not is_first:
                        self._publish(before, files)
        return self._files

    async def follow(self, every: float) -> None:
        """Look every so many seconds, until cancelled."""
        while True:
            await self.now()
            await asyncio.sleep(every)

    def _publish(self, before: PanelFiles, now: PanelFiles) -> None:
        known = {**before.panels, **before.broken, **now.panels, **now.broken}
        if changed := sorted(one for one in known if before.state_of(one) != now.state_of(one)):
            self._context.events.publish(PANELS_CHANGED, {"changed": changed})


def read_panels(project: Path) -> PanelFiles:
    """Return the panels under a project's folder. Never raises for what a file says."""
    files = PanelFiles()
    for path in sorted((project / FOLDER).glob("*.json"))[:MAX_PANELS]:
        panel_id = without_surrogates(path.stem)
        try:
            files.panels[panel_id] = _read(project, path)
        except TavernError as error:
            problems = error.info.details.get("problems")
            files.broken[panel_id] = [str(one) for one in problems] if isinstance(problems, list) else [error.message]
        except (OSError, RuntimeError) as error:
            files.broken[panel_id] = [f"cannot be read: {describe(error)}"]
    return files


def _read(project: Path, path: Path) -> StoredPanel:
    real = path.resolve(strict=True)
    if not real.is_relative_to(project.resolve()):
        raise Misconfigured("leads out of the project; only files of the project are read")
    data = read_document_bytes(real)
    if len(data) > MAX_PANEL:
        raise Misconfigured(f"is larger than {MAX_PANEL // 1024} KiB")
    document = read_document(data, name=f"{FOLDER}/{without_surrogates(path.name)}")
    panel, problems = parsed(document)
    if panel is None:
        raise Misconfigured("; ".join(problems), problems=problems)
    return StoredPanel(panel, document, revision_of(document))


def parsed(document: dict[str, Any]) -> tuple[Panel | None, list[str]]:
    """Return a document as a panel, or everything that is wrong with it, each with its place."""
    try:
        panel = Panel.model_validate(wire_value(document))
    except WireError as error:
        return None, [f"{json_path(*error.path)[:200]}: {error.reason}"]
    except ValidationError as error:
        return None, [f"{json_path(*place)[:200]}: {text}" for place, text in mistakes(error)][:50]
    if len(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")) > MAX_PANEL:
        return None, [f"$: is larger than {MAX_PANEL // 1024} KiB"]
    seen: dict[str, int] = {}
    problems = []
    for place, element in enumerate(panel.elements):
        if element.id in seen:
            other = f"$.elements[{seen[element.id]}]"
            problems.append(f"$.elements[{place}].id: {element.id!r} is the id of {other} already; give it another")
        seen.setdefault(element.id, place)
        if element.kind != "text" and not element.target:
            problems.append(f"$.elements[{place}].target: names no {element.kind}; give its id")
    return (None, problems) if problems else (panel, [])
