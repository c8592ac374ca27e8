"""Patches of what is no workflow: tool files, agents' profiles, panels, and a plugin's settings. Each is read, checked
and saved by the service that keeps it; the documents before the last patches are kept here, to go back to."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from cachetools import LRUCache
from pydantic import JsonValue

from tavern_agents.api.profilefiles import AGENT_PROFILES
from tavern_assistant.api.assistant import (
    PatchChange,
    PatchConflict,
    PatchKind,
    PatchProblem,
    PatchProposal,
    PatchResult,
)
from tavern_assistant.patches.differences import changes
from tavern_assistant.patches.operations import apply_plain, pointer, same
from tavern_assistant.patches.panels import apply_to_panel, panel_changes
from tavern_assistant.patches.working_copy import Item
from tavern_host import CallContext, PluginContext
from tavern_host.contracts.documents import read_json_object, revision_of, without_comments
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound
from tavern_host.contracts.settings import SETTINGS, SettingItem, SettingsChange, SettingValue
from tavern_panels.api.panels import PANEL_MANAGER
from tavern_tools.api.toolfiles import MAX_SOURCE, TOOL_FILES, ToolSource

_FORMER_BYTES = 8 * 1024 * 1024
"""How much is kept of documents as they were before patches, for one host."""


class _Kept:
    """Where documents of one kind are kept. Its classes `read` the text of a document and its revision (`NotFound`),
    `check` one for what is wrong (places, as JSON pointers, and messages), and `save` the text of one that is at a
    revision, for the new revision (`Conflict`)."""

    def __init__(self, context: PluginContext) -> None:
        self._services = context.services

    async def before(self, id: str, text: str, call: CallContext | None) -> str:
        """Return the text that is saved to restore the present document; `text` is that of it."""
        return text

    def patched(self, document: Item, operations: list[JsonValue]) -> tuple[Any, list[PatchProblem], list[PatchChange]]:
        """Return a document with a patch applied, what is wrong with the patch, and what it changes. Pure."""
        patched, problems = apply_plain(document, operations)
        return patched, problems, [] if problems or not isinstance(patched, dict) else changes(document, patched)


class _Tools(_Kept):
    async def read(self, id: str, call: CallContext | None) -> tuple[str, str]:
        file = await self._services.get(TOOL_FILES).get(id)
        text = file.source.text if file.source is not None else ""
        if without_comments(text) != text:
            raise InvalidInput(f"the file of the tool {id!r} has comments, which a patch would lose; edit its text")
        return text, file.revision

    async def check(self, id: str, document: Item, call: CallContext | None) -> list[tuple[str, str]]:
        source = ToolSource.construct(text=await asyncio.to_thread(_text, document))
        found = await self._services.get(TOOL_FILES).check(id, source)
        return [(pointer(one.location), one.message) for one in found.problems if not one.warning]

    async def save(self, id: str, text: str, revision: str, call: CallContext | None) -> str:
        source = ToolSource(text=text)
        return (await self._services.get(TOOL_FILES).save(id, source, expected_revision=revision, call=call)).revision


class _Agents(_Kept):
    async def read(self, id: str, call: CallContext | None) -> tuple[str, str]:
        file = await self._services.get(AGENT_PROFILES).get(id)
        return await asyncio.to_thread(_text, file.document), file.revision

    async def check(self, id: str, document: Item, call: CallContext | None) -> list[tuple[str, str]]:
        return [("", message) for message in await self._services.get(AGENT_PROFILES).check(id, document)]

    async def save(self, id: str, text: str, revision: str, call: CallContext | None) -> str:
        profiles = self._services.get(AGENT_PROFILES)
        return (await profiles.save(id, json.loads(text), expected_revision=revision, call=call)).revision


class _Panels(_Kept):
    async def read(self, id: str, call: CallContext | None) -> tuple[str, str]:
        file = await self._services.get(PANEL_MANAGER).get(id)
        return await asyncio.to_thread(_text, file.document), file.revision

    async def check(self, id: str, document: Item, call: CallContext | None) -> list[tuple[str, str]]:
        manager = self._services.get(PANEL_MANAGER)
        if problems := await manager.validate(document):
            return [("", message) for message in problems]
        try:
            before = await manager.check(id) if id else []
        except NotFound:
            before = []
        known = {(one.element, one.message) for one in before}  # what was wrong already does not keep one from working
        found = [one for one in await manager.check(id, document=document) if (one.element, one.message) not in known]
        return [(f"/elements/{one.element}", f"{one.message}; {one.hint}") for one in found]

    async def save(self, id: str, text: str, revision: str, call: CallContext | None) -> str:
        panels = self._services.get(PANEL_MANAGER)
        return (await panels.save(id, json.loads(text), expected_revision=revision, call=call)).revision

    def patched(self, document: Item, operations: list[JsonValue]) -> tuple[Any, list[PatchProblem], list[PatchChange]]:
        patched, problems, local_ids = apply_to_panel(document, operations)
        return patched, problems, [] if problems else panel_changes(document, patched, local_ids)


class _Settings(_Kept):
    """The settings of a plugin by their keys, without `extensions.{plugin}.` and without those that are secret."""

    async def read(self, id: str, call: CallContext | None) -> tuple[str, str]:
        document = {key: one.value for key, one in (await self._values(id, call)).items()}
        return _text(document), revision_of(document)

    async def before(self, id: str, text: str, call: CallContext | None) -> str:
        """Return the values that were saved; what comes from elsewhere is not saved by going back either."""
        values = await self._values(id, call)
        return _text({key: one.value if one.origin == "operator" else None for key, one in values.items()})

    async def check(self, id: str, document: Item, call: CallContext | None) -> list[tuple[str, str]]:
        options, now = await self._options(id), await self._values(id, call)
        unknown = [(pointer((key,)), "there is no such setting") for key in document if key not in options]
        new = {key: value for key, value in document.items() if key not in now or not same(now[key].value, value)}
        wrong = ((key, options[key].problem(value)) for key, value in new.items() if key in options)
        return [*unknown, *((pointer((key,)), text) for key, text in wrong if text and document[key] is not None)]

    async def save(self, id: str, text: str, revision: str, call: CallContext | None) -> str:
        former, now = await self.read(id, call)
        before, document = json.loads(former), json.loads(text)
        if now != revision:
            raise Conflict(f"the settings of {id} are at revision {now}", revision=now, expected=revision)
        new: dict[str, JsonValue] = {key: document.get(key) for key in {*before, *document}}
        changed = {key: value for key, value in new.items() if not same(before.get(key), value)}
        await self._services.get(SETTINGS).save(SettingsChange(plugin=id, values=changed), call=call)
        return (await self.read(id, call))[1]

    async def _values(self, id: str, call: CallContext | None) -> dict[str, SettingValue]:
        options = await self._options(id)
        values = await self._services.get(SETTINGS).values(id, call=call)
        return {key: one for one in values if (key := _short(one.key, id)) in options}

    async def _options(self, id: str) -> dict[str, SettingItem]:
        options = await self._services.get(SETTINGS).options(id)
        return {_short(one.key, id): one for one in options if one.holds_value and not one.is_encrypted}


_OfKind = _Tools | _Agents | _Panels | _Settings


def _patched(
    kept: _OfKind, document: Item, operations: list[JsonValue]
) -> tuple[Any, list[PatchProblem], list[PatchChange]]:
    """Return a document with a patch applied that may be checked, or what is wrong with it; and what is other."""
    patched, problems, made = kept.patched(document, operations)
    if not problems and not isinstance(patched, dict):
        problems = [PatchProblem(code="invalid", message="the document must be an object")]
    elif not problems and len(_text(patched)) > MAX_SOURCE:
        problems = [PatchProblem(code="too_large", message=f"the document has more than {MAX_SOURCE:,} characters")]
    return patched, problems, made


def _short(key: str, plugin: str) -> str:
    return key.removeprefix(f"extensions.{plugin}.")


def _text(document: Item) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


class DocumentPatches:
    """Patches of documents that are no workflows."""

    def __init__(self, context: PluginContext) -> None:
        kinds: dict[PatchKind, _OfKind] = {"tool": _Tools(context), "agent": _Agents(context)}
        kinds["panel"] = _Panels(context)
        self._kinds = kinds | {"settings": _Settings(context)}
        self._former: LRUCache[tuple[str, str, str], bytes] = LRUCache(_FORMER_BYTES, getsizeof=len)
        self._lock = asyncio.Lock()

    async def propose(self, asked: PatchProposal, call: CallContext | None) -> PatchResult:
        """Return the result of a patch to a document that is stored under an id, or to `asked.document`."""
        kept, id, document, now = self._kinds[asked.kind], asked.id or "", asked.document, ""
        if document is None:
            text, now = await kept.read(id, call)
            document = read_json_object(text, f"the {asked.kind} {id!r}")
        if asked.revision not in (None, now):
            conflict = PatchConflict(expected=str(asked.revision), revision=now)
            return PatchResult(applied=False, conflict=conflict, revision=now, former=now)
        patched, problems, made = await asyncio.to_thread(_patched, kept, document, asked.operations)
        if not problems:
            found = await kept.check(id or str(document.get("id")).replace(":", "."), patched, call)
            problems = [PatchProblem(path=path, code="invalid", message=message) for path, message in found]
        if problems:
            return PatchResult(applied=False, problems=problems, revision=now, former=now)
        return PatchResult.construct(applied=True, document=patched, changes=made, revision=now, former=now)

    async def apply(self, asked: PatchProposal, call: CallContext | None) -> PatchResult:
        """Apply a patch to a document and save it."""
        kind, id = asked.kind, str(asked.id)
        async with self._lock:
            result = await self.propose(asked, call)
            if not result.applied or not result.changes or result.document is None:
                return result
            text, _ = await self._kinds[kind].read(id, call)
            before = await self._kinds[kind].before(id, text, call)
            new = await asyncio.to_thread(_text, result.document)
            saved = await self._kinds[kind].save(id, new, result.revision, call)
            self._keep(kind, id, result.former, before)
            return result.model_copy(update={"revision": saved})

    async def undo(self, kind: PatchKind, id: str, revision: str, to: str, call: CallContext | None) -> PatchResult:
        """Make a document what it was before one of the last patches."""
        async with self._lock:
            text, now = await self._kinds[kind].read(id, call)
            before = await self._kinds[kind].before(id, text, call)
            if now != revision:
                raise Conflict(f"{id!r} was changed: it is at revision {now}", revision=now, expected=revision)
            kept = self._former.get((kind, id, to))
            if kept is None:
                raise NotFound(f"what {id!r} was at revision {to} is not kept any more")
            await self._kinds[kind].save(id, kept.decode(), revision, call)
            self._keep(kind, id, revision, before)
            now_text, saved = await self._kinds[kind].read(id, call)
        old, document = json.loads(text), json.loads(now_text)
        made = await asyncio.to_thread(changes, old, document)
        return PatchResult.construct(applied=True, revision=saved, former=revision, document=document, changes=made)

    def _keep(self, kind: str, id: str, revision: str, text: str) -> None:
        if len(kept := text.encode()) <= _FORMER_BYTES:
            self._former[kind, id, revision] = kept
