"""The tools of one moment: found by id and version, listed by filters. Knows nothing of where they come from."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pydantic import JsonValue

from tavern_host.context import ServiceMethod
from tavern_host.contracts.documents import json_path
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.services import MethodInfo
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_host.contracts.wire import WireError, wire_value
from tavern_tools.api.patterns import fits
from tavern_tools.api.protocols import ParserOptions
from tavern_tools.api.toolcalls import ToolErrorType
from tavern_tools.api.tools import ToolFilter
from tavern_tools.catalog.failures import value_failure
from tavern_tools.catalog.files import ToolProblem
from tavern_tools.catalog.parameters import Bound, Parameters, Taken
from tavern_tools.catalog.permissions import Unmet
from tavern_tools.catalog.schemas import Schema, ValueProblem
from tavern_tools.catalog.slots import file_parameters, node_parameters, streaming, taken
from tavern_tools.catalog.versions import read_range, read_version
from tavern_tools.protocols.native import with_aliases
from tavern_workflows.api.workflows import workflow_id_of

WORKFLOW_PREFIX = "workflow:"
NODE_PREFIX = "node:"
"""What the ids of tools begin with that are made from workflows and from nodes."""


@dataclass(frozen=True)
class Tool:
    """A tool with what is prepared for calling it.

    `unmet` is why it cannot be called; `outputs` are the keys of what its workflow or node gives; `files` are the
    parameters that are files of the project by their path, whose content its workflow or node takes; `streams` are
    those of the outputs that come as streams; `inputs` has the JSON Schema of what its workflow or node takes; `method`
    is what calls a service's method. No other tool, prepared before or later, has its `number`. A `draft` is tried out
    and not one of the catalog; its script is the `code`, where that is not in its file.
    """

    definition: ToolDefinition
    unmet: Unmet | None = None
    outputs: tuple[str, ...] | None = None
    files: frozenset[str] = frozenset()
    streams: frozenset[str] = frozenset()
    inputs: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    method: ServiceMethod | None = None
    draft: bool = False
    code: str | None = None
    number: int = field(init=False, compare=False, default_factory=itertools.count(1).__next__)

    @cached_property
    def parameters(self) -> Parameters:
        """Binds arguments to the tool's parameters."""
        behind = Taken(self.inputs, {name: name for name in self.inputs})
        if self.method is not None:
            behind = Taken(self.method.parameters, self.method.names)
        return Parameters(self.definition.parameters, behind)

    def bind(self, arguments: dict[str, JsonValue], *, text: bool = False) -> Bound:
        """Return the arguments of a call as the tool gets them; see `Parameters.bind`. Raises `ToolFailure`."""
        try:
            bound = self.parameters.bind(wire_value(arguments), text=text)
        except WireError as error:
            bound = Bound({}, [], [ValueProblem(path=json_path(*error.path), message=error.reason)])
        if bound.problems:
            what = f"the arguments of {self.definition.id} are not right"
            raise value_failure(ToolErrorType.PARAMETER_VALIDATION, what, bound.problems)
        return bound

    @cached_property
    def asks_a_person(self) -> bool:
        """Whether each call is a question to a person, and waits for the answer."""
        implementation = self.definition.implementation
        return (implementation.service, implementation.method) == ("systemTools", "request_user_interaction")

    @cached_property
    def output(self) -> Schema | None:
        """Checks the tool's result, where the tool says what it is."""
        return Schema(self.definition.output) if self.definition.output is not None else None

    @property
    def method_info(self) -> MethodInfo | None:
        """What the host knows of the service's method that the tool calls."""
        return self.method.info if self.method is not None else None

    @cached_property
    def lent_permission(self) -> str | None:
        """The permission that a tool of the project would lend its caller: what its method needs, where it acts."""
        definition, info = self.definition, self.method_info
        if definition.plugin is not None or definition.kind != "service":
            return None
        if info is None:
            return "of a method that the host does not know"
        return None if info.permission is None or info.level == "add" else f"services.use:{info.permission}"

    @cached_property
    def is_read_only(self) -> bool:
        """Whether a call changes nothing; what a project says of a method that acts is not believed."""
        return self.definition.read_only and self.lent_permission is None


class NodeTools:
    """A tool for each node type, made when it is asked for. `unmet` is why none of them can be called; they are
    `listed` where their type fits one of the patterns."""

    def __init__(
        self, nodes: Mapping[str, NodeDefinition], unmet: Unmet | None = None, listed: Iterable[str] = ()
    ) -> None:
        self._nodes = nodes
        self._unmet = unmet
        self._listed = tuple(listed)
        self._made: dict[str, Tool] = {}
        self._hidden: set[str] = set()

    @property
    def types(self) -> Collection[str]:
        """All node types."""
        return self._nodes.keys()

    @property
    def ids(self) -> list[str]:
        """The ids of the tools."""
        return [f"{NODE_PREFIX}{full_type}" for full_type in self._nodes if full_type not in self._hidden]

    def get(self, tool_id: str) -> Tool | None:
        """Return the tool with this id, or None."""
        full_type = tool_id.removeprefix(NODE_PREFIX)
        if full_type == tool_id or full_type in self._hidden or full_type not in self._nodes:
            return None
        tool = self._made.get(full_type)
        if tool is None:
            tool = self._made[full_type] = self._make(self._nodes[full_type])
        return tool

    def put(self, full_type: str, tool: Tool) -> None:
        """Let this be the tool of a type."""
        self._made[full_type] = tool

    def hide(self, full_type: str) -> None:
        """Let there be no tool of a type."""
        self._hidden.add(full_type)

    def listed(self) -> list[Tool]:
        """Return the tools that are listed."""
        found = [full_type for full_type in self._nodes if self._is_listed(full_type)]
        tools = [self.get(f"{NODE_PREFIX}{full_type}") for full_type in found]
        return [tool for tool in tools if tool is not None]

    def parameter_names(self) -> dict[str, list[str]]:
        """Return the names of every tool's parameters, without making the tools."""
        return {tool_id: list(self._nodes[tool_id.removeprefix(NODE_PREFIX)].slots()[0]) for tool_id in self.ids}

    def _is_listed(self, full_type: str) -> bool:
        return any(fits(pattern, full_type) for pattern in self._listed)

    def _make(self, node: NodeDefinition) -> Tool:
        inputs, outputs = node.slots()
        definition = ToolDefinition(
            id=f"{NODE_PREFIX}{node.full_type}",
            display_name=node.display_name,
            description=node.description,
            version=node.version or "0",
            implementation=ToolImplementation(kind="node", node_type=node.full_type),
            parameters=node_parameters(inputs),
            source=f"{NODE_PREFIX}{node.full_type}",
            unavailable=self._unmet.reason if self._unmet is not None else None,
            listed=self._is_listed(node.full_type),
        )
        return Tool(definition, self._unmet, tuple(outputs), file_parameters(inputs), streaming(outputs), taken(inputs))


class Catalog:
    """All tools, and what is wrong with those that were left out.

    `versions` has the versions of each tool by id, the newest first, sorted by id; `tools` the newest of each, and
    the nodes that are listed.
    """

    def __init__(
        self,
        versions: Mapping[str, tuple[Tool, ...]],
        problems: tuple[ToolProblem, ...] = (),
        nodes: NodeTools | None = None,
        workflows: frozenset[str] = frozenset(),
    ) -> None:
        self._nodes = nodes or NodeTools({})
        self.versions = versions
        self.problems = problems
        self.workflows = workflows
        newest = {tool_id: tools[0] for tool_id, tools in versions.items()}
        newest |= {tool.definition.id: tool for tool in self._nodes.listed()}
        self.tools: Mapping[str, Tool] = dict(sorted(newest.items()))

    @property
    def nodes(self) -> Collection[str]:
        """All node types."""
        return self._nodes.types

    def find(self, name: str) -> Tool | None:
        """Return the tool that `id` or `id@RANGE` names, or None: the newest, or the newest that fits the range."""
        return self.tools.get(name) or find_tool(self.versions, self._nodes, name)

    def get(self, name: str) -> Tool:
        """Return the tool that `id` or `id@RANGE` names. Raises `NotFound` with near names, or with the versions."""
        tool = self.find(name)
        if tool is None:
            raise NotFound(self._why_not(name))
        return tool

    def listed(self, filter: ToolFilter | None = None) -> list[ToolDefinition]:
        """Return the tools that are asked for, by id, of each the newest version that was asked for."""
        if filter is None:
            return [tool.definition for tool in self.tools.values()]
        found = self.tools if filter.ids is None else self._named(filter.ids)
        return [tool.definition for tool in found.values() if _is_asked_for(tool.definition, filter)]

    def _named(self, patterns: list[str]) -> dict[str, Tool]:
        named: dict[str, Tool] = {}
        everything: list[str] | None = None
        for pattern in patterns:
            tool = self.find(pattern)
            if tool is not None:
                named.setdefault(tool.definition.id, tool)
            elif "*" in pattern or "?" in pattern:
                everything = [*self.tools, *self._nodes.ids] if everything is None else everything
                for tool_id in everything:
                    if fits(pattern, tool_id) and (tool := self.find(tool_id)) is not None:
                        named.setdefault(tool_id, tool)
        return dict(sorted(named.items()))

    def _why_not(self, name: str) -> str:
        tool_id, at, wanted = name.rpartition("@")
        if at and tool_id in self.versions:
            if read_range(wanted) is None:
                return f'"{wanted}" is no range of versions of the tool "{tool_id}" (such are ^1.2, ~1.2.3, >=1,<2, *)'
            known = ", ".join(tool.definition.version for tool in self.versions[tool_id])
            return f'the tool "{tool_id}" has no version that fits {wanted} (it has {known})'
        if f"{NODE_PREFIX}{name}" in self._nodes.ids:
            return f'no tool has the id "{name}"; the node of this name is the tool "{NODE_PREFIX}{name}"'
        known_ids = self._nodes.ids if name.startswith(NODE_PREFIX) else self.tools
        return f'no tool has the id "{name}"{did_you_mean(name, known_ids)}'

    @cached_property
    def parser_options(self) -> ParserOptions:
        """What parsers of action protocols may know of every tool; made once, as there may be thousands."""
        own = {tool_id: list(tools[0].parameters.properties) for tool_id, tools in self.versions.items()}
        known = {**self._nodes.parameter_names(), **own}
        closed = {id: own[id] for id, (tool, *more) in self.versions.items() if tool.parameters.is_closed and not more}
        return with_aliases(ParserOptions(parameters=known, closed=closed), known)


def find_tool(versions: Mapping[str, tuple[Tool, ...]], nodes: NodeTools, name: str) -> Tool | None:
    """Return the tool that `id` or `id@RANGE` names, or None; an id that holds an `@` comes first. A tool `a/*` that
    cannot be called stands for all of which nothing but the beginning of their ids is known."""
    tools = versions.get(name)
    if tools is not None:
        return tools[0]
    if name.startswith(NODE_PREFIX) and (node := nodes.get(name)) is not None:
        return node
    tool_id, at, wanted = name.rpartition("@")
    if at and (tool := _in_range(versions.get(tool_id, ()), wanted)) is not None:
        return tool
    stand_in = versions.get(f"{name.rpartition('/')[0]}/*", ())
    if stand_in and stand_in[0].unmet is not None:
        return stand_in[0]
    named = f"{WORKFLOW_PREFIX}{workflow_id_of(name.removeprefix(WORKFLOW_PREFIX))}"
    return find_tool(versions, nodes, named) if name.startswith(WORKFLOW_PREFIX) and named != name else None


def _in_range(tools: tuple[Tool, ...], wanted: str) -> Tool | None:
    asked = read_range(wanted)
    if asked is None:
        return next((tool for tool in tools if tool.definition.version == wanted), None)
    if wanted.strip() == "*":
        return next(iter(tools), None)
    for tool in tools:
        version = read_version(tool.definition.version)
        if version is not None and asked.fits(version):
            return tool
    return None


def _is_asked_for(tool: ToolDefinition, filter: ToolFilter) -> bool:
    if filter.text is not None:
        text = filter.text.casefold()
        if not any(text in said.casefold() for said in (tool.id, tool.display_name, tool.description)):
            return False
    return (
        (filter.tag is None or filter.tag in tool.tags)
        and (filter.namespace is None or filter.namespace == namespace(tool.id))
        and (filter.kind is None or filter.kind == tool.kind)
        and (filter.plugin is None or filter.plugin == tool.plugin)
    )


def namespace(tool_id: str) -> str:
    """Return the part of an id before the first `:` or `.`; empty where there is none."""
    ends = [place for place in (tool_id.find(":"), tool_id.find(".")) if place >= 0]
    return tool_id[: min(ends)] if ends else ""
