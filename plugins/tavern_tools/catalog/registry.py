"""All tools of a host: from plugins' and the project's tool files, from hooks, from workflows and from nodes.

Recomputed when plugins, grants, tool files or workflows have changed, and only then. Calls nothing.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass

from tavern_engine.api.nodes import NODE_MANAGER
from tavern_host import clock
from tavern_host.context import PluginContext
from tavern_host.contracts.errors import InvalidInput, NotFound, PermissionDenied
from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.plugins import PLUGINS, withheld
from tavern_host.contracts.tools import ToolDefinition
from tavern_tools.api.toolcalls import ToolErrorType
from tavern_tools.catalog.building import Building
from tavern_tools.catalog.catalog import Catalog, Tool
from tavern_tools.catalog.contributions import mend_hint
from tavern_tools.catalog.failures import ToolFailure
from tavern_tools.catalog.files import FileStamp, ToolFolder, ToolProblem, read_folders, stamps
from tavern_workflows.api.workflows import WORKFLOW_MANAGER, StoredWorkflow, WorkflowSummary

__all__ = ["NODE_TOOLS", "Catalog", "Registry", "Tool"]

_OFFERED = "TOOLS_CHANGED"
"""The event by which a plugin says that it offers other tools than it did."""

_FRESH = 1.0
"""Seconds for which a look at the files holds."""

_RECENT = 5.0
"""Seconds for which reading text does with the last look, while the next one is made."""

NODE_TOOLS = "nodeTools"
"""The setting that says which node types are listed as tools: a list of patterns."""


@dataclass(frozen=True)
class _Stamp:
    """What a catalog was made from. `workflows` is None where the workflows are the files among `files`; `offers`
    counts how often plugins said that they offer other tools."""

    plugins: int
    offers: int
    node_tools: tuple[str, ...]
    files: tuple[FileStamp, ...]
    workflows: tuple[tuple[str, str], ...] | None


@dataclass(frozen=True)
class _Sources:
    """Where tools come from while the plugins stay what they are."""

    plugins: int
    tools: tuple[ToolFolder, ...] = ()
    workflows: tuple[str, ...] = ()
    workflows_are_files: bool = True


class Registry:
    """Keeps the catalog current."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._lock = asyncio.Lock()
        self._sources = _Sources(plugins=-1)
        self._one_looks = asyncio.Lock()
        self._looks = 0
        self._look: tuple[int, _Sources, tuple[FileStamp, ...]] = (0, self._sources, ())
        self._stamp: _Stamp | None = None
        self._workflows: dict[str, tuple[str, StoredWorkflow]] = {}
        self._catalog = Catalog({})
        self.offers = 0
        """How often plugins have said that they offer other tools."""
        self._reported_at = -1
        self._looked_at = -_RECENT
        self._looking: asyncio.Task[Catalog] | None = None
        context.tasks.spawn(self._follow(), name="follow tools that plugins offer")

    async def _follow(self) -> None:
        """Ask plugins again what they offer whenever one says that it has changed; until cancelled."""
        async for _ in self._context.events.subscribe(_OFFERED):
            self.offers += 1

    async def find(self, name: str) -> Tool:
        """Return the tool that a call names, as it was within the last second: files are not looked at for every call.

        Raises `ToolFailure` where there is none, or it cannot be called now.
        """
        tool = self._catalog.find(name) if self._age() < _FRESH else None
        if tool is not None and tool.unmet is None:
            return tool
        try:
            tool = await self.get(name)
        except NotFound as error:
            raise ToolFailure(ToolErrorType.TOOL_NOT_FOUND, error.message) from None
        return _callable(tool, name)

    async def get(self, name: str) -> Tool:
        """Return the tool that `id` or `id@RANGE` names, as it is now. Raises `NotFound` with near names, the versions,
        or why its plugin does not offer it."""
        try:
            return (await self.catalog()).get(name)
        except NotFound as error:
            why = withheld(name, await self._context.services.get(PLUGINS).list_plugins())
            raise NotFound(f"{error.message}{why}") from None

    async def draft(self, definition: ToolDefinition) -> Tool:
        """Return a tool of this definition that is not one of the catalog. Raises `ToolFailure` where it cannot be
        called, or a plugin would leave it out."""
        tool = await Building(self._context, await self._load_workflows(), await self._nodes()).made(definition)
        if tool is None:
            raise ToolFailure(ToolErrorType.PERMISSION_DENIED, f"a plugin does not allow the tool {definition.id}")
        return _callable(tool, definition.id)

    def _age(self) -> float:
        """Return how many seconds ago the catalog was looked at; infinite where plugins have changed since."""
        stamp = self._stamp
        if stamp is None or (stamp.plugins, stamp.offers) != (self._context.hooks.revision, self.offers):
            return math.inf
        return clock.monotonic() - self._looked_at

    async def recent(self) -> Catalog:
        """Return all tools, as they were within the last seconds. After the first of them the files are looked at in
        the background."""
        if (age := self._age()) >= _RECENT:
            return await self.catalog()
        if age >= _FRESH and (self._looking is None or self._looking.done()):
            with suppress(PermissionDenied):  # the plugin is being unloaded, which a text in flight need not notice
                self._looking = self._context.tasks.spawn(self.catalog(), name="look at tool files")
        return self._catalog

    async def catalog(self) -> Catalog:
        """Return all tools as they are now. Looks at each file, which is for lists and not for every call or text."""
        began = clock.monotonic()
        stamp = await self._now()
        if stamp != self._stamp:
            async with self._lock:
                began = clock.monotonic()
                stamp = await self._now()
                if stamp != self._stamp:
                    catalog = await self._collect(stamp)
                    said_before = self._catalog.problems if self._reported_at == stamp.plugins else ()
                    self._tell([problem for problem in catalog.problems if problem not in said_before])
                    self._catalog, self._stamp, self._reported_at = catalog, stamp, stamp.plugins
        self._looked_at = max(self._looked_at, began)
        return self._catalog

    async def _now(self) -> _Stamp:
        revision = self._context.hooks.revision
        if self._sources.plugins != revision:
            self._sources = await self._find_sources(revision)
        sources = self._sources
        node_tools, offers = self._node_tools(), self.offers
        files = await self._files(sources)
        if sources.workflows_are_files:
            return _Stamp(revision, offers, node_tools, files, None)
        summaries = await self._summaries()
        return _Stamp(revision, offers, node_tools, files, tuple((s.id, s.revision) for s in summaries))

    async def _files(self, sources: _Sources) -> tuple[FileStamp, ...]:
        """Return the stamps of all files, of which there may be thousands. Those who ask while somebody looks at them
        share one look that begins after they asked."""
        asked = self._looks
        async with self._one_looks:
            number, known, files = self._look
            if number > asked and known is sources:
                return files
            self._looks += 1
            number, files = self._looks, await asyncio.to_thread(_stamps, sources)
            self._look = number, sources, files
            return files

    def _node_tools(self) -> tuple[str, ...]:
        """Return the operator's patterns; a project does not list node types by itself."""
        layers = self._context.settings.layers(NODE_TOOLS)
        patterns = layers.get("environment", layers.get("operator", []))
        return tuple(text for text in patterns if isinstance(text, str)) if isinstance(patterns, list) else ()

    async def _find_sources(self, revision: int) -> _Sources:
        plugins = self._context.services.get(PLUGINS)
        project = self._context.project
        try:
            stack = await plugins.service_stack(WORKFLOW_MANAGER.name)
        except NotFound:
            stack = []
        tools = [ToolFolder(asset.path, asset.plugin) for asset in await plugins.assets("tools")]
        workflows = [asset.path for asset in await plugins.assets("workflows")]
        return _Sources(
            plugins=revision,
            tools=(*tools, ToolFolder(str(project.folder("tools")), None)),
            workflows=(*workflows, str(project.folder("workflows"))),
            workflows_are_files=not any(layer.override for layer in stack),
        )

    async def _summaries(self) -> list[WorkflowSummary]:
        if not self._context.services.has(WORKFLOW_MANAGER):
            return []
        return await self._context.services.get(WORKFLOW_MANAGER).list_workflows()

    async def _load_workflows(self) -> dict[str, StoredWorkflow]:
        """Return the workflows by id; those whose revision is known are not fetched again."""
        loaded: dict[str, tuple[str, StoredWorkflow]] = {}
        for summary in await self._summaries():
            known = self._workflows.get(summary.id)
            if known is None or known[0] != summary.revision:
                try:
                    stored = await self._context.services.get(WORKFLOW_MANAGER).get(summary.id)
                except (InvalidInput, NotFound):
                    continue  # gone or invalid since it was listed; the workflow manager reports it
                known = (summary.revision, stored)
            loaded[summary.id] = known
        self._workflows = loaded
        return {workflow_id: stored for workflow_id, (_, stored) in loaded.items()}

    async def _nodes(self) -> dict[str, NodeDefinition]:
        if not self._context.services.has(NODE_MANAGER):
            return {}
        return {node.full_type: node for node in await self._context.services.get(NODE_MANAGER).list_nodes()}

    async def _collect(self, stamp: _Stamp) -> Catalog:
        folders = self._sources.tools
        plugins = await asyncio.to_thread(read_folders, [f for f in folders if f.plugin is not None])
        project = await asyncio.to_thread(read_folders, [f for f in folders if f.plugin is None])
        building = Building(self._context, await self._load_workflows(), await self._nodes())
        await building.add_plugins(plugins)
        await building.add_files(project)
        await building.add_workflows()
        return await building.finish(stamp.node_tools)

    def _tell(self, problems: list[ToolProblem]) -> None:
        """Say what is wrong with plugins where plugins are shown, and what is wrong with the project in the log."""
        for problem in problems:
            for plugin in problem.plugins:
                hint = problem.hint or mend_hint(plugin)
                self._context.hooks.report(
                    plugin, problem.message, hint=hint, file=problem.file, line=problem.line, column=problem.column
                )
        own = [problem for problem in problems if not problem.plugins]
        if own:
            lines = "\n".join(f"  {problem}" for problem in own)
            self._context.log.warning("some tools are not right (problems: %d):\n%s", len(own), lines)


def _callable(tool: Tool, name: str) -> Tool:
    if tool.unmet is not None:
        message = f"{name} cannot be called now: {tool.unmet.reason}"
        raise ToolFailure(tool.unmet.type, message, unavailable=tool.unmet.reason)
    return tool


def _stamps(sources: _Sources) -> tuple[FileStamp, ...]:
    workflows = sources.workflows if sources.workflows_are_files else ()
    tools = (stamp for folder in sources.tools for stamp in stamps(folder.path))
    return (*tools, *(stamp for folder in workflows for stamp in stamps(folder, ".json")))
