"""A catalog in the making: definitions are completed, filtered by plugins, and marked where a dependency is missing.

Where they come from is the registry's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from tavern_engine.api.executions import EXECUTION_ENGINE
from tavern_host.context import PluginContext, ServiceMethod
from tavern_host.contracts.errors import Vetoed
from tavern_host.contracts.nodes import NodeDefinition, SlotDefinition
from tavern_host.contracts.plugins import PLUGINS
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_tools.api.toolcalls import ToolErrorType
from tavern_tools.catalog.catalog import NODE_PREFIX, WORKFLOW_PREFIX, Catalog, NodeTools, Tool, find_tool
from tavern_tools.catalog.definitions import content_findings, definition_problems, dependency
from tavern_tools.catalog.files import SUFFIX, ReadFiles, ToolProblem
from tavern_tools.catalog.permissions import Unmet, service_method, service_name, unmet_permission, unmet_service
from tavern_tools.catalog.slots import (
    file_parameters,
    interface_parameters,
    is_placeholder,
    node_parameters,
    streaming,
    taken,
)
from tavern_tools.catalog.versions import newest_first
from tavern_workflows.api.workflows import StoredWorkflow, workflow_id_of

_SCRIPTS = "scriptExecution"
_REGISTER = "tavern_before_register_tool"


class Building:
    """A catalog in the making.

    One owner, a plugin or the project, may define several versions of a tool. Of two owners of one id the first keeps
    it, whatever the versions: nobody takes over what another is trusted for.
    """

    def __init__(
        self, context: PluginContext, workflows: Mapping[str, StoredWorkflow], nodes: Mapping[str, NodeDefinition]
    ) -> None:
        self._context = context
        self._workflows = workflows
        self._nodes = nodes
        self._tools: dict[str, dict[str, Tool]] = {}
        self._problems: list[ToolProblem] = []

    async def made(self, definition: ToolDefinition) -> Tool | None:
        """Return the tool that a definition would be on its own; None where a plugin leaves it out."""
        await self._add(definition)
        return self._tools.get(definition.id, {}).get(definition.version)

    async def add_plugins(self, files: ReadFiles) -> None:
        """Add what plugins offer in tool files and by `tavern_discover_tools`, in the order of loading."""
        self._problems += files.problems
        place = {one.name: index for index, one in enumerate(await self._context.services.get(PLUGINS).list_plugins())}
        offered = [*files.definitions, *await self._contributed()]
        for definition in sorted(offered, key=lambda one: place.get(one.plugin or "", len(place))):
            await asyncio.sleep(0)  # others get their turn: the first time, the types of all methods are built
            await self._add(definition)

    async def add_files(self, files: ReadFiles) -> None:
        """Add what tool files define, and what is wrong with them."""
        self._problems += files.problems
        for definition in files.definitions:
            await self._add(definition)

    async def _contributed(self) -> list[ToolDefinition]:
        found = []
        for contribution in await self._context.hooks.collect("tavern_discover_tools"):
            plugin = contribution.plugin
            for offered in contribution.value:
                source = offered.source or f"plugin {plugin}"
                definition = offered.model_copy(update={"plugin": plugin, "source": source})
                findings = definition_problems(definition)
                for finding in findings:
                    message = f"{source}, tool {definition.id!r}: {finding}"
                    self._problems.append(ToolProblem(message=message, plugins=[plugin]))
                if not findings:
                    found.append(definition)
        return found

    async def add_workflows(self) -> None:
        """Add each workflow that has an interface."""
        for workflow_id, stored in self._workflows.items():
            workflow = stored.workflow
            used = {**workflow.interface_inputs, **workflow.interface_outputs}
            if all(is_placeholder(slot) for slot in used.values()):
                continue
            await self._add(
                ToolDefinition(
                    id=f"{WORKFLOW_PREFIX}{workflow_id}",
                    display_name=workflow.name,
                    description=workflow.description or "",
                    version=workflow.version or "0",
                    implementation=ToolImplementation(kind="workflow", workflow_id=workflow_id),
                    parameters=interface_parameters(workflow.interface_inputs),
                    plugin=stored.source.removeprefix("plugin:") if stored.source.startswith("plugin:") else None,
                    source=f"{WORKFLOW_PREFIX}{workflow_id}",
                )
            )

    async def finish(self, listed_nodes: tuple[str, ...]) -> Catalog:
        """Return the catalog of the nodes and the added tools, without tools that depend on something missing."""
        has_engine = self._context.services.has(EXECUTION_ENGINE)
        unmet = None if has_engine else Unmet(f"needs service {EXECUTION_ENGINE.name}")
        nodes = NodeTools(self._nodes, unmet, listed_nodes)
        if self._context.hooks.implemented(_REGISTER):
            await self._filter_nodes(nodes)
        versions = {
            tool_id: tuple(tool for _, tool in newest_first(self._tools[tool_id].items()))
            for tool_id in sorted(self._tools)
        }
        self._mark_unmet_dependencies(versions, nodes)
        return Catalog(versions, tuple(self._problems), nodes, frozenset(self._workflows))

    async def _filter_nodes(self, nodes: NodeTools) -> None:
        """Show the tools of all nodes to those who may change and hide tools."""
        for full_type in self._nodes:
            tool = nodes.get(f"{NODE_PREFIX}{full_type}")
            if tool is None:
                continue
            definition = await self._filtered(tool.definition)
            if definition is None:
                nodes.hide(full_type)
            elif definition is not tool.definition:
                nodes.put(full_type, replace(tool, definition=definition))

    def _mark_unmet_dependencies(self, versions: dict[str, tuple[Tool, ...]], nodes: NodeTools) -> None:
        waiting = [tool for tools in versions.values() for tool in tools if tool.definition.dependencies]
        is_complete = False
        while not is_complete:
            is_complete = True
            for tool in [tool for tool in waiting if tool.unmet is None]:
                missing = self._missing(tool.definition, versions, nodes)
                if missing is None:
                    continue
                is_complete = False
                definition = tool.definition.model_copy(update={"unavailable": missing})
                without = replace(tool, definition=definition, unmet=Unmet(missing, ToolErrorType.DEPENDENCY))
                versions[definition.id] = tuple(without if t is tool else t for t in versions[definition.id])
                waiting.remove(tool)

    def _missing(
        self, definition: ToolDefinition, versions: Mapping[str, tuple[Tool, ...]], nodes: NodeTools
    ) -> str | None:
        for text in definition.dependencies:
            kind, name = dependency(text)
            if kind == "tool":
                tool = find_tool(versions, nodes, name)
                if tool is None:
                    return f"needs tool {name}"
                if tool.unmet is not None:
                    return f"needs tool {name}, which cannot be called: {tool.unmet.reason}"
            elif not self._is_there(kind, name):
                return f"needs {kind} {name}"
        return None

    def _is_there(self, kind: str, name: str) -> bool:
        if kind == "service":
            return self._context.services.has(service_name(name))
        return name in (self._nodes if kind == "node" else self._workflows)

    async def _add(self, original: ToolDefinition) -> None:
        same_id = self._tools.setdefault(original.id, {})
        earlier = next(iter(same_id.values()), None)
        if earlier is not None:
            if earlier.definition.plugin != original.plugin:
                self._conflict(earlier.definition, original, "give this one another id")
                return
            if original.version in same_id:
                self._conflict(same_id[original.version].definition, original, "give this one another id or version")
                return
        definition = await self._filtered(await self._completed(original))
        if definition is None:
            if not same_id:
                del self._tools[original.id]
            return
        method: ServiceMethod | None = None
        unmet = Unmet(definition.unavailable) if definition.unavailable else None
        if unmet is None and definition.kind == "service":
            found = service_method(self._context.services, definition)
            method, unmet = (None, found) if isinstance(found, Unmet) else (found, None)
        unmet = unmet or await self._unmet(definition, method)
        definition = definition.model_copy(update={"unavailable": unmet.reason if unmet else None})
        implementation = definition.implementation
        inputs, outputs = self._slots(implementation)
        same_id[definition.version] = Tool(
            definition=definition,
            unmet=unmet,
            outputs=None if outputs is None else tuple(outputs),
            files=file_parameters(inputs),
            streams=streaming(outputs or {}),
            inputs=taken(inputs),
            method=method if unmet is None else None,
        )

    def _conflict(self, first: ToolDefinition, second: ToolDefinition, hint: str) -> None:
        """Report the second of two tools with one id to its owner."""
        said = f'the tool "{first.id}" is defined in {first.source} already, which is used'
        self._problems.append(_problem_of(second, said, hint))

    async def _completed(self, definition: ToolDefinition) -> ToolDefinition:
        """Return the definition with parameters inferred from its node or workflow where it gives none."""
        implementation = definition.implementation
        if "parameters" in definition.model_fields_set:
            return definition
        if implementation.kind == "node" and (node := self._node(implementation)) is not None:
            return definition.model_copy(update={"parameters": node_parameters(node.slots()[0])})
        if implementation.kind == "workflow" and (stored := self._workflow(implementation)) is not None:
            inputs = stored.workflow.interface_inputs
            return definition.model_copy(update={"parameters": interface_parameters(inputs)})
        return definition

    async def _filtered(self, definition: ToolDefinition) -> ToolDefinition | None:
        if not self._context.hooks.implemented(_REGISTER):
            return definition
        try:
            changed = await self._context.hooks.filter(_REGISTER, definition)
        except Vetoed as veto:
            self._context.log.info('the tool "%s" is left out: %s', definition.id, veto)
            return None
        kept = {name: getattr(definition, name) for name in ("id", "version", "plugin", "source")}
        changed = changed.model_copy(update=kept)
        if changed == definition:
            return definition
        findings = content_findings(changed)
        if findings:
            plugins = await self._implementing(_REGISTER)
            what = f'the tool "{definition.id}", as {_REGISTER} of {" or ".join(plugins)} changed it, is left out'
            hint = "return a tool that can be called, Veto to leave it out, or None"
            self._problems += [ToolProblem(message=f"{what}: {f}", hint=hint, plugins=plugins) for f in findings]
        return None if findings else changed

    async def _implementing(self, hook: str) -> list[str]:
        plugins = await self._context.services.get(PLUGINS).list_plugins()
        return [plugin.name for plugin in plugins if hook in plugin.contributions.get("hook", ())]

    async def _unmet(self, definition: ToolDefinition, method: ServiceMethod | None) -> Unmet | None:
        implementation = definition.implementation
        plugins = self._context.services.get(PLUGINS)
        unmet = await unmet_permission(plugins, definition)
        if unmet is not None:
            return unmet
        if implementation.kind == "script":
            return None if self._context.services.has(_SCRIPTS) else Unmet(f"needs service {_SCRIPTS}")
        if method is not None:
            return await unmet_service(plugins, definition, method.info)
        if not self._context.services.has(EXECUTION_ENGINE):
            return Unmet(f"needs service {EXECUTION_ENGINE.name}")
        if implementation.kind == "workflow" and self._workflow(implementation) is None:
            return Unmet(f"needs workflow {implementation.workflow_id}")
        if implementation.kind == "node" and self._node(implementation) is None:
            return Unmet(f"needs node {implementation.node_type}")
        return None

    def _slots(
        self, implementation: ToolImplementation
    ) -> tuple[Mapping[str, SlotDefinition], Mapping[str, SlotDefinition] | None]:
        """Return the inputs and the outputs of a tool's workflow or node."""
        if implementation.kind == "workflow" and (stored := self._workflow(implementation)) is not None:
            inputs, outputs = stored.workflow.interface_inputs, stored.workflow.interface_outputs
            return inputs, {key: slot for key, slot in outputs.items() if not is_placeholder(slot)}
        if implementation.kind == "node" and (node := self._node(implementation)) is not None:
            return node.slots()
        return {}, None

    def _workflow(self, implementation: ToolImplementation) -> StoredWorkflow | None:
        reference = implementation.workflow_id or ""
        return self._workflows.get(reference) or self._workflows.get(workflow_id_of(reference))

    def _node(self, implementation: ToolImplementation) -> NodeDefinition | None:
        return self._nodes.get(implementation.node_type or "")


def _problem_of(definition: ToolDefinition, message: str, hint: str) -> ToolProblem:
    owners = [] if definition.plugin is None else [definition.plugin]
    if definition.source.endswith(SUFFIX):
        return ToolProblem(message=message, hint=hint, file=definition.source, plugins=owners)
    return ToolProblem(message=f"{definition.source}: {message}", hint=hint, plugins=owners)
