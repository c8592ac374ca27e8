"""The `knowledgeBase` service: looks after rights, and hands over to the store and to the host's own definitions."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterable
from dataclasses import replace as replaced
from functools import partial
from typing import Any

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.documents import MAX_DOCUMENT
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.services import gives_new
from tavern_host.storage.databases import shared_database
from tavern_knowledge.access import Rights, rights_of
from tavern_knowledge.activation import activate
from tavern_knowledge.api.knowledge import (
    TOOLS,
    Activation,
    ActivationRequest,
    BaseHeader,
    BaseSummary,
    EntryPage,
    ExportFormat,
    ImportReport,
    KnowledgeBase,
    KnowledgeEntry,
    KnowledgeFile,
    KnowledgeHit,
    StoredEntry,
    WrittenEntry,
)
from tavern_knowledge.brought import LayeredFolder
from tavern_knowledge.definitions import HEADERS, Definitions
from tavern_knowledge.embeddings import nearest
from tavern_knowledge.exchange.documents import read, write
from tavern_knowledge.files import BaseFolder
from tavern_knowledge.index import Entries, Match, Query, Row, candidates, entry_of, fused
from tavern_knowledge.shared_files import FILES, SharedFolder
from tavern_knowledge.store import Store, StoredBase

MAX_LIMIT = 1_000
MAX_WRITTEN = 1_000
"""How many entries one call writes at most."""
MAX_NAMED = 100
"""Of how many entries a report names the fields without effect."""
MAX_QUERY = 10_000
MAX_TEXT = 4_000
"""How many characters of an entry a search shows."""


class Knowledge(KnowledgeBase):
    """The knowledge of the project."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        folder, private = context.project.folder("knowledge"), context.operator_dir / "knowledge"
        shared = shared_database(context.services, "knowledge", folder, FILES)
        own = BaseFolder(folder) if shared is None else SharedFolder(shared)
        self._files = LayeredFolder(own, context)
        self._store = Store(self._files, private, context.log, self._tell)
        self._definitions = Definitions(context, self._store)

    async def close(self) -> None:
        """Finish the writes in flight, and close the store."""
        await self._store.close()

    def _tell(self, base: str, changed: list[str], removed: bool) -> None:
        payload = {"base": base, "entries": changed[:MAX_LIMIT], "removed": removed}
        self._loop.call_soon_threadsafe(self._context.events.publish, f"{self._context.plugin}.changed", payload)

    # --- reading ----------------------------------------------------------------------------------

    @gives_new
    async def bases(self, *, call: CallContext | None = None) -> list[BaseSummary]:
        """Return the bases that the caller may read."""
        rights = await rights_of(self._context, call)
        found = [base for base in await self._store.bases() if rights.may_read(base.id, base.header)]
        return [self._summary(base, rights) for base in (*found, *[await self._definitions.base(id) for id in HEADERS])]

    async def header(self, base: str, *, call: CallContext | None = None) -> BaseHeader:
        """Return a base without its entries."""
        return (await self._readable(base, call)).header

    @gives_new
    async def list_entries(
        self, base: str, *, limit: int = 100, offset: int = 0, call: CallContext | None = None
    ) -> EntryPage:
        """Return entries of a base, in its order."""
        found = await self._readable(base, call)
        rows, total = await self._of(found.id).rows(found.id, max(0, min(limit, MAX_LIMIT)), max(0, offset))
        rows = await self._definitions.with_experience(found.id, rows, call)
        return EntryPage(entries=[_stored(found.id, row) for row in rows], total=total)

    @gives_new
    async def get(self, base: str, entry_id: str, *, call: CallContext | None = None) -> StoredEntry:
        """Return one entry."""
        found = await self._readable(base, call)
        rows = [await self._of(found.id).row(found.id, entry_id)]
        return _stored(found.id, (await self._definitions.with_experience(found.id, rows, call))[0])

    @gives_new
    async def search(
        self,
        query: str,
        *,
        bases: list[str] | None = None,
        tags: list[str] | None = None,
        entry_types: list[str] | None = None,
        limit: int = 5,
        call: CallContext | None = None,
    ) -> list[KnowledgeHit]:
        """Return the entries that fit best; see the interface."""
        rights = await rights_of(self._context, call)
        asked = Query(query[:MAX_QUERY], tags or (), entry_types or (), max(1, min(limit, MAX_LIMIT)))
        choose = partial(rights.chosen, bases)
        rankings = []
        for entries in (self._store, self._definitions)[: 2 if choose(list(HEADERS.items())) else 1]:
            rankings += [await entries.search(asked, choose), await nearest(self._context, entries, asked, choose)]
        best = fused([one for one in rankings if one])[: asked.limit]
        tools = [match.row for match in best if match.base == TOOLS]
        rows = iter(await self._definitions.with_experience(TOOLS, tools, call))
        return [_hit(replaced(match, row=next(rows)) if match.base == TOOLS else match) for match in best]

    async def select_tools(
        self, query: str, tool_ids: list[str], *, limit: int = 20, call: CallContext | None = None
    ) -> list[str]:
        """Return the tools that fit a task best; see the interface."""
        asked = Query(query[:MAX_QUERY], limit=MAX_LIMIT)
        found = await self._definitions.search(asked, lambda known: [base for base, _ in known])
        ranked = [match.row.id if match.base == TOOLS else f"node:{match.row.id}" for match in found]
        return list(dict.fromkeys([*(id for id in ranked if id in tool_ids), *tool_ids]))[: max(0, limit)]

    @gives_new
    async def activate(self, request: ActivationRequest, *, call: CallContext | None = None) -> Activation:
        """Return the entries that a conversation brings into a prompt; see the interface."""
        rights = await rights_of(self._context, call)

        def work(connection: sqlite3.Connection) -> Activation:
            known = dict(self._store.known(connection))
            chosen = {id: known[id].activation for id in rights.chosen(request.bases, known.items())}

            def find(text: str, is_recursive: bool) -> Iterable[tuple[str, KnowledgeEntry]]:
                among = [id for id, base in chosen.items() if base.recursive or not is_recursive]
                return ((one.base, entry_of(one.row)) for one in candidates(connection, among, text))

            return activate(find, chosen, request)

        return await self._store.read(work, Activation(used=request.used))

    # --- writing ----------------------------------------------------------------------------------

    async def put(
        self, base: str, entries: list[KnowledgeEntry], *, revision: str | None = None, call: CallContext | None = None
    ) -> list[StoredEntry]:
        """Write entries; see the interface."""
        if len(entries) > MAX_WRITTEN or not entries or (revision is not None and len(entries) > 1):
            raise InvalidInput(f"give 1 to {MAX_WRITTEN:,} entries, with a revision one")
        found, rights = await self._named(base, call)
        writable = rights.writable(found.id, found.header)
        if writable == "no":
            raise rights.denied(base, "write")
        if writable == "suggest":
            entries, revision = [_suggestion(entry) for entry in entries], None
        return [_stored(found.id, row) for row in await self._store.put(found.id, entries, revision)]

    async def write(
        self,
        text: str,
        *,
        base: str | None = None,
        entry_id: str | None = None,
        name: str | None = None,
        entry_type: str | None = None,
        keywords: list[str] | None = None,
        tags: list[str] | None = None,
        call: CallContext | None = None,
    ) -> WrittenEntry:
        """Write one entry, or change some of its fields; see the interface."""
        base = await self._writable_base(call) if base is None else base
        found, _ = await self._named(base, call)
        entry, revision = KnowledgeEntry(id=entry_id or ""), None
        if entry_id is not None:
            with contextlib.suppress(NotFound):
                row = await self._of(found.id).row(found.id, entry_id)
                entry, revision = entry_of(row), row.hash
        source = "agent_generated" if call is not None and call.principal.kind == "agent" else None
        changed = _present(
            display_name=name,
            entry_type=entry_type,
            content=entry.content.model_copy(update={"value": text}),
            activation_criteria=entry.activation_criteria.model_copy(update=_present(keywords=keywords)),
            management_metadata=entry.management_metadata.model_copy(update=_present(tags=tags, source=source)),
        )
        (stored,) = await self.put(base, [entry.model_copy(update=changed)], revision=revision, call=call)
        is_enabled = stored.entry.management_metadata.is_enabled
        return WrittenEntry(base=found.id, id=stored.entry.id, revision=stored.revision, is_enabled=is_enabled)

    async def _writable_base(self, call: CallContext | None) -> str:
        writable = [base.id for base in await self.bases(call=call) if base.writable != "no"]
        if len(writable) != 1:
            raise InvalidInput(f"say which base is to be written: {', '.join(writable) or 'there is none'}")
        return writable[0]

    async def delete(self, base: str, entry_ids: list[str], *, call: CallContext | None = None) -> int:
        """Remove entries; return how many there were."""
        found, rights = await self._named(base, call)
        if rights.writable(found.id, found.header) != "yes":
            raise rights.denied(base, "remove entries of")
        return await self._store.delete(found.id, entry_ids)

    async def save_base(self, header: BaseHeader, *, call: CallContext | None = None) -> BaseSummary:
        """Make a base, or change what is said of it."""
        rights = await self._person(header.kb_id, call)
        return self._summary(await self._store.save(header.kb_id, header), rights)

    @gives_new
    async def export_base(
        self, base: str, *, format: ExportFormat = "world_info", call: CallContext | None = None
    ) -> KnowledgeFile:
        """Return a base in another program's format; see the interface."""
        found = await self._readable(base, call)
        rows, _ = await self._of(found.id).rows(found.id, -1, 0)
        picture = await self._store.picture(found.id) if format == "png" and found.id not in HEADERS else None
        return await asyncio.to_thread(write, found.id, found.header, rows, format, picture)

    async def import_base(
        self, base: str, content: bytes, *, replace: bool = False, call: CallContext | None = None
    ) -> ImportReport:
        """Make a base of another program's document; see the interface."""
        await self._person(base, call)
        if len(content) > MAX_DOCUMENT:
            raise InvalidInput(f"the document has more than {MAX_DOCUMENT >> 20} MiB")
        found = await asyncio.to_thread(read, content, base)
        await self._store.save(base, found.header, found.entries, new=not replace, picture=found.picture)
        named = sorted(found.unsupported)
        shown = dict(list(found.by_entry.items())[:MAX_NAMED])
        return ImportReport(
            base=base, format=found.format, entries=len(found.entries), unsupported=named, by_entry=shown
        )

    async def delete_base(self, base: str, *, call: CallContext | None = None) -> bool:
        """Remove a base with its file."""
        await self._person(base, call)
        return await self._store.delete_base(base)

    def _summary(self, base: StoredBase, rights: Rights) -> BaseSummary:
        return BaseSummary(
            id=base.id,
            name=base.header.display_name or base.id,
            description=base.header.description,
            entries=base.entries,
            tags=base.header.tags,
            file=None if base.id in HEADERS else self._files.place(base.id),
            writable="no" if base.problem is not None else rights.writable(base.id, base.header),
            problem=base.problem,
        )

    # --- rights -----------------------------------------------------------------------------------

    async def _named(self, name: str, call: CallContext | None) -> tuple[StoredBase, Rights]:
        rights = await rights_of(self._context, call)
        base = rights.base_id(name)
        return await (self._definitions.base(base) if base in HEADERS else self._store.base(base)), rights

    def _of(self, base: str) -> Entries:
        return self._definitions if base in HEADERS else self._store

    async def _readable(self, name: str, call: CallContext | None) -> StoredBase:
        base, rights = await self._named(name, call)
        if not rights.may_read(base.id, base.header):
            raise rights.denied(name, "read")
        return base

    async def _person(self, base: str, call: CallContext | None) -> Rights:
        """Return the rights of a caller who may make, change and remove a base. Raises `PermissionDenied`."""
        rights = await rights_of(self._context, call)
        if not rights.is_person:
            with contextlib.suppress(NotFound):
                found = await self._store.base(base)
                if rights.writable(base, found.header) != "yes":
                    raise rights.denied(base, "change")
            if rights.references is not None:
                raise rights.denied(base, "make, change or remove")
        return rights


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _stored(base: str, row: Row) -> StoredEntry:
    return StoredEntry(base=base, revision=row.hash, entry=entry_of(row))


def _hit(match: Match) -> KnowledgeHit:
    entry = entry_of(match.row)
    text = entry.content.value
    return KnowledgeHit(
        base=match.base,
        id=entry.id,
        name=entry.name,
        entry_type=entry.entry_type,
        text=text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…",
        tags=entry.management_metadata.tags,
        score=round(match.score, 6),
    )


def _suggestion(entry: KnowledgeEntry) -> KnowledgeEntry:
    """Return an agent's suggestion for a changed entry as a new entry, which is disabled until a person enables it."""
    about = entry.management_metadata
    related = [*about.related_ids, entry.id] if entry.id else about.related_ids
    update: dict[str, Any] = {"is_enabled": False, "related_ids": related, "source": "agent_generated"}
    update["tags"] = [*about.tags, "suggestion"]
    return entry.model_copy(update={"id": "", "management_metadata": about.model_copy(update=update)})
