"""All tools of a host: from plugins' and the project's tool files, from hooks, from workflows and from nodes.

Recomputed when plugins, grants, tool files or workflows have changed, and only then. Calls nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tavern_engine.api.nodes import NODE_MANAGER
from tavern_host import clock
from tavern_host.context import PluginContext
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.plugins import PLUGINS, withheld
from tavern_host.contracts.tools import ToolDefinition
from tavern_host.storage.file_watch import WatchedFiles
from tavern_tools.api.toolcalls import ToolErrorType
from tavern_tools.catalog.building import Building
from tavern_tools.catalog.catalog import Catalog, Tool
from tavern_tools.catalog.contributions import mend_hint
from tavern_tools.catalog.failures import ToolFailure
from tavern_tools.catalog.files import SUFFIX, ToolFolder, ToolProblem, read_folders
from tavern_workflows.api.workflows import WORKFLOW_MANAGER, StoredWorkflow, WorkflowSummary

__all__ = ["NODE_TOOLS", "Catalog", "Registry", "Tool"]

_OFFERED = "TOOLS_CHANGED"
"""The event by which a plugin says that it offers other tools than it did."""

_FRESH = 1.0
"""Seconds for which calls and texts do with a list of workflows."""

_Workflows = tuple[tuple[str, str], ...]
"""The workflows of a plugin that keeps them in no files, by id and revision."""

NODE_TOOLS = "nodeTools"
"""The setting that says which node types are listed as tools: a list of patterns."""


class _Stamp(NamedTuple):
    """What a catalog was made from. `files` and `workflows` are revisions of the files; where the workflows are none,
    `workflows` are theirs. `offers` counts how often plugins said that they offer other tools."""

    plugins: int
    offers: int
    node_tools: tuple[str, ...]
    files: int
    workflows: int | _Workflows


@dataclass(frozen=True)
class _Sources:
    """Where tools come from while the plugins stay what they are."""

    plugins: int
    tools: tuple[ToolFolder, ...] = ()
    tool_folders: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    workflows_are_files: bool = True


class Registry:
    """Keeps the catalog current."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._lock = asyncio.Lock()
        self._sources = _Sources(plugins=-1)
        self._tool_files, self._workflow_files = WatchedFiles(SUFFIX), WatchedFiles(".json")
        self._stamp: _Stamp | None = None
        self._workflows: dict[str, tuple[str, StoredWorkflow]] = {}
        self._patterns: tuple[int, tuple[str, ...]] = -1, ()
        self._listed: tuple[_Workflows, float] = (), -_FRESH
        self._catalog = Catalog({})
        self.offers = 0
        """How often plugins have said that they offer other tools."""
        self._reported_at = -1
        context.tasks.spawn(self._follow(), name="follow tools that plugins offer")

    async def _follow(self) -> None:
        """Ask plugins again what they offer whenever one says that it has changed; until cancelled."""
        async for _ in self._context.events.subscribe(_OFFERED):
            self.offers += 1

    async def find(self, name: str) -> Tool:
        """Return the tool that a call names. Raises `ToolFailure` where there is none, or it cannot be called now."""
        tool = (await self.catalog(_FRESH)).find(name)
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

    async def recent(self) -> Catalog:
        """Return all tools, for calls and texts: those made from workflows of a plugin that keeps them in no files as
        they were within the last second."""
        return await self.catalog(_FRESH)

    async def catalog(self, within: float = 0.0) -> Catalog:
        """Return all tools as they are now, or where workflows have to be asked for, within so many seconds."""
        stamp = await self._now(within)
        if stamp != self._stamp:
            async with self._lock:
                stamp = await self._now(within)
                if stamp != self._stamp:
                    catalog = await self._collect(stamp)
                    said_before = self._catalog.problems if self._reported_at == stamp.plugins else ()
                    self._tell([problem for problem in catalog.problems if problem not in said_before])
                    self._catalog, self._stamp, self._reported_at = catalog, stamp, stamp.plugins
        return self._catalog

    async def _now(self, within: float) -> _Stamp:
        revision = self._context.hooks.revision
        if self._sources.plugins != revision:
            self._sources = await self._find_sources(revision)
        sources = self._sources
        settings, offers = self._context.settings, self.offers
        if self._patterns[0] != settings.revision:
            self._patterns = settings.revision, _patterns(settings.layers(NODE_TOOLS))
        node_tools = self._patterns[1]
        files = await self._tool_files.revision(*sources.tool_folders)
        if sources.workflows_are_files:
            workflows = await self._workflow_files.revision(*sources.workflows)
            return _Stamp(revision, offers, node_tools, files, workflows)
        if clock.monotonic() - self._listed[1] >= within:
            asked_at = clock.monotonic()
            self._listed = tuple((s.id, s.revision) for s in await self._summaries()), asked_at
        return _Stamp(revision, offers, node_tools, files, self._listed[0])

    async def _find_sources(self, revision: int) -> _Sources:
        plugins = self._context.services.get(PLUGINS)
        project = self._context.project
        try:
            stack = await plugins.service_stack(WORKFLOW_MANAGER.name)
        except NotFound:
            stack = []
        tools = [ToolFolder(asset.path, asset.plugin) for asset in await plugins.assets("tools")]
        tools.append(ToolFolder(str(project.folder("tools")), None))
        workflows = [asset.path for asset in await plugins.assets("workflows")]
        return _Sources(
            plugins=revision,
            tools=tuple(tools),
            tool_folders=tuple(folder.path for folder in tools),
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


def _patterns(layers: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the operator's patterns; a project does not list node types by itself."""
    patterns = layers.get("environment", layers.get("operator", []))
    return tuple(text for text in patterns if isinstance(text, str)) if isinstance(patterns, list) else ()
