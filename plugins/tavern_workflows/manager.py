"""The service `workflowManager`: finds, reads, checks and saves workflows."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from tavern_engine.api.nodes import NODE_MANAGER
from tavern_host import PLUGINS, CallContext, PluginContext
from tavern_host.contracts.documents import to_thread_if_large
from tavern_host.contracts.errors import NotFound, TavernError
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.settings import SETTINGS
from tavern_host.contracts.workflows import Workflow
from tavern_host.storage.file_watch import WatchedFiles
from tavern_workflows.api.workflow_history import NewDraft, WorkflowHistoryStore
from tavern_workflows.api.workflows import (
    LayoutSize,
    RevisionKind,
    StoredWorkflow,
    WorkflowDraft,
    WorkflowLayout,
    WorkflowManager,
    WorkflowMatch,
    WorkflowProblem,
    WorkflowRevision,
    WorkflowSummary,
    WorkflowUse,
    workflow_id_of,
)
from tavern_workflows.changes import check_change, move, write
from tavern_workflows.check import check
from tavern_workflows.edges import NeedsThread
from tavern_workflows.groups import closure, references
from tavern_workflows.history import SqliteWorkflowHistory
from tavern_workflows.layout import lay_out
from tavern_workflows.search import search
from tavern_workflows.shape import Reading, parse, problems_error, read
from tavern_workflows.sizes import is_large
from tavern_workflows.store import (
    PROJECT,
    SUFFIX,
    Entry,
    FileProblem,
    Folder,
    Scan,
    WorkflowFiles,
    check_id,
    content_of,
    document_of,
    find,
    masked_in,
)
from tavern_workflows.uses import uses

CHANGED = "WORKFLOW_CHANGED"
_LOOK_EVERY = 2.0
"""Seconds between two looks at the files, in a host that serves."""

_KEPT = re.compile(r"(?P<id>.+)@(?:(?P<draft>draft)|r(?P<number>[0-9]{1,15}))", re.DOTALL)
"""How a draft, or a revision of the history, is named."""

MAX_REASON = 500
"""How many characters are kept of the reason for a change."""


class Workflows(WorkflowManager):
    """The workflows of one project and those that plugins bring along; the latter cannot be changed."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._files = WorkflowFiles()
        self._watched = WatchedFiles(SUFFIX)
        self._folders = [self._project_folder()]
        self._scanned: tuple[tuple[int, int], Scan] = (-1, -1), Scan({}, ())
        self._lock = asyncio.Lock()
        self._reported: frozenset[tuple[int, FileProblem]] = frozenset()
        self._definitions: tuple[int, dict[str, NodeDefinition]] | None = None
        folder = context.project.private / "workflows"
        self._history: WorkflowHistoryStore = SqliteWorkflowHistory(folder, context.log)
        self._followed: dict[str, str] = {}
        if context.serving:
            context.tasks.spawn(self._look(), name="look at files of workflows")

    async def close(self) -> None:
        """Let the history go."""
        await self._history.close()

    async def list_workflows(self) -> list[WorkflowSummary]:
        """Return all workflows that can be read, by id."""
        scan = await self.scan()
        return [_summary(e) for _, e in sorted(scan.entries.items()) if not e.problems and _is_listed(e)]

    async def get(self, workflow_id: str) -> StoredWorkflow:
        """Return a workflow. Raises `NotFound` with near names, `InvalidInput` with all problems."""
        entries = (await self.scan()).entries
        entry = find(entries, workflow_id)
        if entry is None:
            kept = await self._kept(workflow_id)
            if kept is not None:
                return kept
            named = workflow_id_of(workflow_id)
            raise NotFound(f"there is no workflow {named!r}{did_you_mean(named, entries)}")
        if entry.problems:
            raise problems_error(f"{entry.path.name} is not a workflow", list(entry.problems))
        return _stored(entry)

    async def _kept(self, reference: str) -> StoredWorkflow | None:
        """Return the draft or the revision that a reference names; None where it names neither."""
        named = _KEPT.fullmatch(reference)
        if named is None:
            return None
        workflow_id = workflow_id_of(named["id"])
        if named["number"]:
            revision, document = await self._history.read(workflow_id, int(named["number"]))
        else:
            draft = await self._history.draft(workflow_id)
            if draft is None:
                raise NotFound(f"the workflow {workflow_id!r} has no draft")
            revision, document = draft.kept, draft.document
        return StoredWorkflow(
            workflow=await self.parse(document), id=reference, revision=revision.revision, source="history"
        )

    async def parse(self, document: dict[str, JsonValue]) -> Workflow:
        """Return a document as a workflow. Raises `InvalidInput` with all problems of its shape."""
        return await to_thread_if_large(is_large(document), parse, document)

    async def check(self, document: dict[str, JsonValue]) -> list[WorkflowProblem]:
        """Return the problems of a document, those of its shape first; of too many the last says how many more."""
        types = await self._node_types()
        try:
            reading, problems = await to_thread_if_large(is_large(document), _read_and_check, document, types)
        except NeedsThread:
            reading, problems = await asyncio.to_thread(_read_and_check, document, types)
        if problems is None:  # other workflows are read, or plugins looked for that have what is unknown
            entries = (await self.scan()).entries if references(reading.workflow) else {}
            plugins = await self._context.services.get(PLUGINS).list_plugins()
            problems = await asyncio.to_thread(check, reading, types, entries, plugins)
        if not self._context.services.has(NODE_MANAGER):
            message = "node types cannot be checked: no plugin provides nodeManager"
            problems.append(WorkflowProblem(path="$.nodes", message=message, severity="warning"))
        return problems

    async def closure(self, workflow: Workflow) -> dict[str, StoredWorkflow]:
        """Return, by reference, the readable workflows that the groups of a workflow stand for, at any depth."""
        if not references(workflow):
            return {}
        found = closure(workflow, (await self.scan()).entries)
        return {identifier: _stored(entry) for identifier, entry in found.items() if not entry.problems}

    async def save(
        self,
        workflow_id: str,
        workflow: Workflow,
        *,
        expected_revision: str | None = None,
        call: CallContext | None = None,
    ) -> StoredWorkflow:
        """Write a workflow into the project; its `id`, if it has one, stays as it is."""
        folder = self._project_folder()
        async with self._lock:
            entry = find((await self.scan()).entries, workflow_id)
            workflow_id = entry.id if entry is not None else workflow_id_of(workflow_id)
            check_id(workflow_id)
            check_change(workflow_id, entry, expected_revision)
            path = entry.path if entry is not None else folder.path / f"{workflow_id}{SUFFIX}"
            await self._follow(entry)
            workflow = await self._restored(workflow, entry)
            await asyncio.to_thread(write, self._files, folder, path, workflow, is_new=entry is None)
            saved = (await self.scan()).entries[workflow_id]
            await self._record(saved, "published", call)
        return _stored(saved)

    async def move(
        self,
        workflow_id: str,
        new_id: str,
        *,
        expected_revision: str | None = None,
        call: CallContext | None = None,
    ) -> StoredWorkflow:
        """Give a workflow another id; a file behind a link stays where it is, and the link is moved."""
        folder, new_id = self._project_folder(), workflow_id_of(new_id)
        async with self._lock:
            entry = await self._changed(workflow_id, expected_revision)
            check_id(new_id)
            await asyncio.to_thread(move, self._files, folder, entry.path, folder.path / f"{new_id}{SUFFIX}")
            moved = (await self.scan()).entries[new_id]
            with self._best_effort(entry.id):
                await self._history.move(entry.id, new_id)
            self._publish(entry.id, "moved", by=_principal(call), to=new_id)
        return _stored(moved)

    async def delete(
        self, workflow_id: str, *, expected_revision: str | None = None, call: CallContext | None = None
    ) -> None:
        """Delete a workflow's file."""
        async with self._lock:
            entry = await self._changed(workflow_id, expected_revision)
            await self._follow(entry)
            await asyncio.to_thread(self._files.delete, entry.path)
            await self._record(entry, "deleted", call)

    # --- drafts and history ---------------------------------------------------------------------------

    async def draft(self, workflow_id: str) -> WorkflowDraft:
        """Return the draft of a workflow, or what one would be made of."""
        entry = await self._own(workflow_id)
        await self._follow(entry)
        found = await self._history.draft(entry.id)
        if found is None:
            return WorkflowDraft(id=entry.id, revision=entry.revision, published=entry.revision, base=entry.revision)
        kept = found.kept
        return WorkflowDraft(
            id=entry.id,
            revision=kept.revision,
            published=entry.revision,
            base=found.base,
            workflow=await self.parse(found.document),
            number=kept.number,
            at=kept.at,
            by=kept.by,
        )

    async def save_draft(
        self,
        workflow_id: str,
        workflow: Workflow,
        *,
        expected_revision: str | None = None,
        reason: str = "",
        rebase: bool = False,
        call: CallContext | None = None,
    ) -> WorkflowDraft:
        """Keep a draft; see the interface."""
        entry = await self._own(workflow_id)
        await self._follow(entry)
        document, revision = await asyncio.to_thread(content_of, await self._restored(workflow, entry))
        by = _principal(call)
        await self._history.save_draft(
            NewDraft(entry.id, document, revision),
            published=entry.revision,
            expected=expected_revision,
            rebase=rebase,
            by=by,
            reason=reason[:MAX_REASON],
        )
        self._publish(entry.id, "draft", revision=revision, by=by)
        return await self.draft(entry.id)

    async def discard_draft(
        self, workflow_id: str, *, expected_revision: str | None = None, call: CallContext | None = None
    ) -> WorkflowDraft:
        """Give a draft up; see the interface."""
        entry = await self._own(workflow_id)
        await self._history.discard_draft(entry.id, published=entry.revision, expected=expected_revision)
        self._publish(entry.id, "draft", revision=entry.revision, by=_principal(call))
        return await self.draft(entry.id)

    async def history(
        self, workflow_id: str | None = None, *, before: int | None = None, limit: int = 50
    ) -> list[WorkflowRevision]:
        """Return revisions; see the interface."""
        if workflow_id is not None:
            entry = find((await self.scan()).entries, workflow_id)
            workflow_id = workflow_id_of(workflow_id) if entry is None else entry.id
            if entry is not None and entry.source == PROJECT:
                await self._follow(entry)
        return await self._history.revisions(workflow_id, before, max(1, min(limit, 500)))

    async def name_revision(
        self, workflow_id: str, number: int, name: str | None, *, call: CallContext | None = None
    ) -> WorkflowRevision:
        """Name a revision; see the interface."""
        return await self._history.name(workflow_id_of(workflow_id), number, name or None)

    async def uses(self, workflow_id: str) -> list[WorkflowUse]:
        """Return the places that name a workflow."""
        return await uses(workflow_id_of(workflow_id), (await self.scan()).entries, self._context.services)

    async def search(self, text: str, *, limit: int = 100) -> list[WorkflowMatch]:
        """Return where all words of a text stand together."""
        entries = (await self.scan()).entries
        return await asyncio.to_thread(search, entries, text, max(1, min(limit, 1000)))

    async def layout(
        self, workflow: Workflow, *, sizes: dict[str, LayoutSize] | None = None, keep: list[str] | None = None
    ) -> WorkflowLayout:
        """Return places for nodes; see the interface."""
        return await asyncio.to_thread(lay_out, workflow, sizes or {}, frozenset(keep or ()))

    async def _look(self) -> None:
        """Tell everybody of the files that something else has changed, and keep them in the history."""
        while True:
            with contextlib.suppress(TavernError):
                for id, entry in list((await self.scan()).entries.items()):
                    if entry.source == PROJECT and not entry.problems and self._followed.get(id) != entry.revision:
                        await self._follow(entry)
            await asyncio.sleep(_LOOK_EVERY)

    async def _restored(self, workflow: Workflow, entry: Entry | None) -> Workflow:
        """Return a workflow with the secrets of its file and its draft where it has what readers are shown of them."""
        edited = await asyncio.to_thread(masked_in, workflow)
        if edited is None:
            return workflow
        stored = list[dict[str, JsonValue]]()
        if entry is not None:
            stored.append(await asyncio.to_thread(document_of, entry.workflow))
            if (draft := await self._history.draft(entry.id)) is not None:
                stored.append(draft.document)
        return await self.parse(await self._context.services.get(SETTINGS).restored(edited, stored))

    async def _own(self, workflow_id: str) -> Entry:
        """Return a workflow of the project. Raises `NotFound`, `Conflict` and `InvalidInput`."""
        entry = await self._changed(workflow_id, None)
        if entry.problems:
            raise problems_error(f"{entry.path.name} is not a workflow", list(entry.problems))
        return entry

    async def _follow(self, entry: Entry | None) -> None:
        """Add to the history what somebody else made of a file."""
        if entry is None or entry.problems or self._followed.get(entry.id) == entry.revision:
            return
        with self._best_effort(entry.id):
            if await self._history.follow(
                entry.id, await asyncio.to_thread(document_of, entry.workflow), entry.revision
            ):
                self._publish(entry.id, "outside", revision=entry.revision, by=None)
            self._followed[entry.id] = entry.revision

    async def _record(self, entry: Entry, kind: RevisionKind, call: CallContext | None) -> None:
        """Add to the history what was just done; the file is written by now, whether or not this can be kept."""
        by = _principal(call)
        with self._best_effort(entry.id):
            document = await asyncio.to_thread(document_of, entry.workflow)
            await self._history.record(entry.id, kind, document, entry.revision, by=by)
        if kind == "deleted":
            self._followed.pop(entry.id, None)
        else:
            self._followed[entry.id] = entry.revision
        self._publish(entry.id, kind, revision=entry.revision, by=by)

    @contextlib.contextmanager
    def _best_effort(self, workflow_id: str) -> Iterator[None]:
        try:
            yield
        except TavernError as error:
            self._context.log.warning("the history of %s is not kept: %s", workflow_id, error.message)

    def _publish(self, workflow_id: str, change: str, **what: JsonValue) -> None:
        self._context.events.publish(CHANGED, {"workflowId": workflow_id, "change": change, **what})

    # --- files ----------------------------------------------------------------------------------------

    async def _changed(self, workflow_id: str, expected_revision: str | None) -> Entry:
        """Return the workflow of the project that is to be moved or deleted."""
        entries = (await self.scan()).entries
        entry = find(entries, workflow_id)
        if entry is None:
            named = workflow_id_of(workflow_id)
            raise NotFound(f"there is no workflow {named!r}{did_you_mean(named, entries)}")
        check_change(entry.id, entry, expected_revision)
        return entry

    async def scan(self) -> Scan:
        """Return all workflow files; the problems of each are reported once, those of a plugin's against the plugin."""
        revision, scan = self._scanned
        if await self._revision() == revision:
            return scan
        services = self._context.services
        brought = await services.get(PLUGINS).assets("workflows") if services.has(PLUGINS) else []
        self._folders = [self._project_folder(), *map(Folder.of_plugin, brought)]
        revision = await self._revision()
        scan = await asyncio.to_thread(self._files.scan, self._folders)
        if revision > self._scanned[0]:  # a scan that took long knows less than a later one
            self._scanned = revision, scan
        self._tell([*scan.problems, *scan.unlisted()])
        return scan

    async def _revision(self) -> tuple[int, int]:
        """Return a number that grows once plugins or files change."""
        files = await self._watched.revision(*(str(folder.path) for folder in self._folders))
        return self._context.hooks.revision, files

    def _tell(self, problems: list[FileProblem]) -> None:
        """Report the new ones of these problems; those of plugins again once the plugins have changed."""
        revision = self._context.hooks.revision
        reported = frozenset((-1 if problem.source == PROJECT else revision, problem) for problem in problems)
        for _, problem in sorted(reported - self._reported, key=lambda item: str(item[1])):
            if problem.source == PROJECT:
                self._context.log.warning("%s", problem)
            else:
                plugin = problem.source.partition(":")[2]
                hint = f"mend it there, or keep it out with `tavern plugins disable {plugin}`"
                self._context.hooks.report(plugin, problem.message, hint=hint, file=str(problem.path))
        self._reported = reported

    def _project_folder(self) -> Folder:
        project = self._context.project
        return Folder(project.folder("workflows"), PROJECT, home=project.root)

    async def _node_types(self) -> dict[str, NodeDefinition] | None:
        """Return the node types by full type, or None where nobody can say."""
        services, revision = self._context.services, self._context.hooks.revision
        if not services.has(NODE_MANAGER):
            return None
        if self._definitions is None or self._definitions[0] != revision:
            found = await services.get(NODE_MANAGER).list_nodes()
            self._definitions = (revision, {d.full_type: d for d in found})
        return self._definitions[1]


def _principal(call: CallContext | None) -> str | None:
    return str(call.principal) if call is not None else None


def _stored(entry: Entry) -> StoredWorkflow:
    return StoredWorkflow(workflow=entry.workflow, id=entry.id, revision=entry.revision, source=entry.source)


def _is_listed(entry: Entry) -> bool:
    """Whether lists have it: a plugin may bring workflows that are of use to its own agents alone."""
    return entry.source == PROJECT or (entry.workflow.model_extra or {}).get("listed") is not False


def _read_and_check(
    document: dict[str, JsonValue], types: Mapping[str, NodeDefinition] | None
) -> tuple[Reading, list[WorkflowProblem] | None]:
    """Return the reading of a document, and its problems; None where more than node types is to be known."""
    reading = read(document)
    unknown = types is not None and any(node.type not in types for node in reading.workflow.nodes)
    return reading, None if unknown or references(reading.workflow) else check(reading, types)


def _summary(entry: Entry) -> WorkflowSummary:
    return WorkflowSummary(
        id=entry.id,
        name=entry.workflow.name or entry.id,
        description=entry.workflow.description,
        revision=entry.revision,
        source=entry.source,
        updated_at=entry.updated_at,
    )
