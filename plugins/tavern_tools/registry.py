"""All tools of a host: from plugins' and the project's tool files, from hooks, and from workflows.

Recomputed when plugins, grants, tool files or workflows have changed, and only then. Calls nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import InvalidInput, NotFound, Vetoed
from tavern_host.contracts.executions import EXECUTION_ENGINE
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.nodes import NODE_MANAGER, NodeDefinition
from tavern_host.contracts.plugins import PLUGINS
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_host.contracts.workflows import WORKFLOW_MANAGER, StoredWorkflow, WorkflowSummary
from tavern_tools.contributions import in_load_order, mend_hint
from tavern_tools.definitions import RESERVED_PREFIX, content_findings, definition_problems
from tavern_tools.files import FileStamp, ReadFiles, ToolFolder, ToolProblem, read_folders, stamps
from tavern_tools.parameters import Parameters
from tavern_tools.rights import Lack, service_lack
from tavern_tools.schemas import Schema
from tavern_tools.slots import interface_parameters, is_placeholder, node_parameters

_STATE = "tools.registry"


@dataclass(frozen=True)
class Tool:
    """A tool with what is prepared for calling it.

    `lack` is why it cannot be called; `outputs` are the keys of what its workflow or node gives.
    """

    definition: ToolDefinition
    lack: Lack | None = None
    outputs: tuple[str, ...] | None = None

    @cached_property
    def parameters(self) -> Parameters:
        """Binds arguments to the tool's parameters."""
        return Parameters(self.definition.parameters)

    @cached_property
    def output(self) -> Schema | None:
        """Checks the tool's result, where the tool says what it is."""
        return Schema(self.definition.output) if self.definition.output is not None else None


@dataclass(frozen=True)
class Catalogue:
    """All tools by id, and what is wrong with those that were left out."""

    tools: Mapping[str, Tool]
    problems: tuple[ToolProblem, ...] = ()

    def get(self, tool_id: str) -> Tool:
        """Return a tool. Raises `NotFound` with near names."""
        try:
            return self.tools[tool_id]
        except KeyError:
            raise NotFound(f'no tool has the id "{tool_id}"{did_you_mean(tool_id, self.tools)}') from None

    @cached_property
    def parameter_names(self) -> dict[str, list[str]]:
        """The names of every tool's parameters, for parsers of action protocols."""
        return {tool_id: list(tool.parameters.properties) for tool_id, tool in self.tools.items()}


@dataclass(frozen=True)
class _Stamp:
    """What a catalogue was made from. `listed` is None where the workflows are the files among `files`."""

    plugins: int
    files: tuple[FileStamp, ...]
    listed: tuple[tuple[str, str], ...] | None


@dataclass(frozen=True)
class _Sources:
    """Where tools come from while the plugins stay what they are."""

    plugins: int
    tools: tuple[ToolFolder, ...] = ()
    workflows: tuple[str, ...] = ()
    workflows_are_files: bool = True


def registry_of(context: PluginContext) -> Registry:
    """Return the registry that the parts of this plugin share in one host."""
    registry = context.state.get(_STATE)
    if not isinstance(registry, Registry):
        registry = context.state[_STATE] = Registry(context)
    return registry


class Registry:
    """Keeps the catalogue current."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._lock = asyncio.Lock()
        self._sources = _Sources(plugins=-1)
        self._stamp: _Stamp | None = None
        self._workflows: dict[str, tuple[str, StoredWorkflow]] = {}
        self._catalogue = Catalogue({})
        self._reported_at = -1

    async def catalogue(self) -> Catalogue:
        """Return all tools as they are now."""
        stamp = await self._now()
        if stamp != self._stamp:
            async with self._lock:
                stamp = await self._now()
                if stamp != self._stamp:
                    catalogue = await self._collect()
                    said_before = self._catalogue.problems if self._reported_at == stamp.plugins else ()
                    self._tell([problem for problem in catalogue.problems if problem not in said_before])
                    self._catalogue, self._stamp, self._reported_at = catalogue, stamp, stamp.plugins
        return self._catalogue

    async def _now(self) -> _Stamp:
        revision = self._context.hooks.revision
        if self._sources.plugins != revision:
            self._sources = await self._find_sources(revision)
        sources = self._sources
        files = [stamp for folder in sources.tools for stamp in stamps(folder.path)]
        if sources.workflows_are_files:
            files += [stamp for folder in sources.workflows for stamp in stamps(folder, ".json")]
            return _Stamp(revision, tuple(files), None)
        return _Stamp(revision, tuple(files), tuple((s.id, s.revision) for s in await self._summaries()))

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
            tools=(*tools, ToolFolder(str(project.tools), None)),
            workflows=(*workflows, str(project.workflows)),
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
                    continue  # gone or spoilt since it was listed; the workflow manager tells
                known = (summary.revision, stored)
            loaded[summary.id] = known
        self._workflows = loaded
        return {workflow_id: stored for workflow_id, (_, stored) in loaded.items()}

    async def _collect(self) -> Catalogue:
        folders = self._sources.tools
        plugins = await asyncio.to_thread(read_folders, [f for f in folders if f.plugin is not None])
        project = await asyncio.to_thread(read_folders, [f for f in folders if f.plugin is None])
        building = _Building(self._context, await self._load_workflows())
        await building.add_files(plugins)
        await building.add_contributed()
        await building.add_files(project)
        await building.add_workflows()
        return Catalogue(dict(sorted(building.tools.items())), tuple(building.problems))

    def _tell(self, problems: list[ToolProblem]) -> None:
        """Say what is wrong with plugins where plugins are shown, and what is wrong with the project in the log."""
        for problem in problems:
            for plugin in problem.plugins:
                hint = problem.hint or mend_hint(plugin)
                self._context.hooks.report(plugin, problem.message, hint=hint, file=problem.file)
        own = [problem for problem in problems if not problem.plugins]
        if own:
            lines = "\n".join(f"  {problem}" for problem in own)
            self._context.log.warning("some tools are not right (problems: %d):\n%s", len(own), lines)


class _Building:
    """A catalogue in the making. The first of two tools with one id stays."""

    def __init__(self, context: PluginContext, workflows: Mapping[str, StoredWorkflow]) -> None:
        self._context = context
        self._workflows = workflows
        self.tools: dict[str, Tool] = {}
        self.problems: list[ToolProblem] = []

    async def add_files(self, files: ReadFiles) -> None:
        self.problems += files.problems
        for definition in files.definitions:
            await self._add(definition, file=definition.source)

    async def add_contributed(self) -> None:
        contributions = await self._context.hooks.collect("tavern_discover_tools")
        for contribution in await in_load_order(self._context, contributions):
            plugin = contribution.plugin
            for offered in contribution.value:
                source = offered.source or f"plugin {plugin}"
                definition = offered.model_copy(update={"plugin": plugin, "source": source})
                findings = definition_problems(definition)
                for finding in findings:
                    message = f"{source}, tool {definition.id!r}: {finding}"
                    self.problems.append(ToolProblem(message=message, plugins=[plugin]))
                if not findings:
                    await self._add(definition)

    async def add_workflows(self) -> None:
        for workflow_id, stored in self._workflows.items():
            workflow = stored.workflow
            used = {**workflow.interface_inputs, **workflow.interface_outputs}
            if all(is_placeholder(slot) for slot in used.values()):
                continue
            await self._add(
                ToolDefinition(
                    id=f"{RESERVED_PREFIX}{workflow_id}",
                    display_name=workflow.name,
                    description=workflow.description or "",
                    version=workflow.version or "0",
                    implementation=ToolImplementation(kind="workflow", workflow_id=workflow_id),
                    parameters=interface_parameters(workflow.interface_inputs),
                    plugin=stored.source.removeprefix("plugin:") if stored.source.startswith("plugin:") else None,
                    source=f"workflow:{workflow_id}",
                )
            )

    async def _add(self, original: ToolDefinition, *, file: str | None = None) -> None:
        earlier = self.tools.get(original.id)
        if earlier is not None:
            message = f'the tool "{original.id}" is defined in {earlier.definition.source} already, which is used'
            message = message if file else f"{original.source}: {message}"
            owners = [] if original.plugin is None else [original.plugin]
            self.problems.append(
                ToolProblem(message=message, hint="give this one another id", file=file, plugins=owners)
            )
            return
        definition = await self._filtered(await self._completed(original))
        if definition is None:
            return
        lack = await self._lack(definition)
        definition = definition.model_copy(update={"unavailable": lack.reason if lack else None})
        self.tools[definition.id] = Tool(definition, lack, await self._outputs(definition.implementation))

    async def _completed(self, definition: ToolDefinition) -> ToolDefinition:
        """Return the definition with parameters inferred from its node or workflow where it gives none."""
        implementation = definition.implementation
        if "parameters" in definition.model_fields_set:
            return definition
        if implementation.kind == "node" and (node := await self._node(implementation)) is not None:
            return definition.model_copy(update={"parameters": node_parameters(node.slots()[0])})
        if implementation.kind == "workflow" and (stored := self._workflow(implementation)) is not None:
            inputs = stored.workflow.interface_inputs
            return definition.model_copy(update={"parameters": interface_parameters(inputs)})
        return definition

    async def _filtered(self, definition: ToolDefinition) -> ToolDefinition | None:
        hook = "tavern_before_register_tool"
        if not self._context.hooks.implemented(hook):
            return definition
        try:
            changed = await self._context.hooks.filter(hook, definition)
        except Vetoed as veto:
            self._context.log.info('the tool "%s" is left out: %s', definition.id, veto)
            return None
        kept = {"id": definition.id, "plugin": definition.plugin, "source": definition.source}
        changed = changed.model_copy(update=kept)
        findings = content_findings(changed) if changed != definition else []
        if findings:
            plugins = await self._implementing(hook)
            what = f'the tool "{definition.id}", as {hook} of {" or ".join(plugins)} changed it, is left out'
            hint = "return a tool that can be called, Veto to leave it out, or None"
            self.problems += [ToolProblem(message=f"{what}: {f}", hint=hint, plugins=plugins) for f in findings]
        return None if findings else changed

    async def _implementing(self, hook: str) -> list[str]:
        plugins = await self._context.services.get(PLUGINS).list_plugins()
        return [plugin.name for plugin in plugins if hook in plugin.contributions.get("hook", ())]

    async def _lack(self, definition: ToolDefinition) -> Lack | None:
        implementation = definition.implementation
        if implementation.kind == "script":
            return Lack("needs service scriptExecution")
        if implementation.kind == "service":
            return await service_lack(self._context.services.get(PLUGINS), definition)
        if not self._context.services.has(EXECUTION_ENGINE):
            return Lack(f"needs service {EXECUTION_ENGINE.name}")
        if implementation.kind == "workflow" and self._workflow(implementation) is None:
            return Lack(f"needs workflow {implementation.workflow_id}")
        if implementation.kind == "node" and await self._node(implementation) is None:
            return Lack(f"needs node {implementation.node_type}")
        return None

    async def _outputs(self, implementation: ToolImplementation) -> tuple[str, ...] | None:
        if implementation.kind == "workflow" and (stored := self._workflow(implementation)) is not None:
            outputs = stored.workflow.interface_outputs
            return tuple(key for key, slot in outputs.items() if not is_placeholder(slot))
        if implementation.kind == "node" and (node := await self._node(implementation)) is not None:
            return tuple(node.slots()[1])
        return None

    def _workflow(self, implementation: ToolImplementation) -> StoredWorkflow | None:
        return self._workflows.get(implementation.workflow_id or "")

    async def _node(self, implementation: ToolImplementation) -> NodeDefinition | None:
        if not self._context.services.has(NODE_MANAGER):
            return None
        try:
            return await self._context.services.get(NODE_MANAGER).get(implementation.node_type or "")
        except NotFound:
            return None
