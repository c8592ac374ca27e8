"""The node types that loaded plugins offer, and the service `nodeManager` that shows them.

Originals are kept as plugins registered them; the shown ones went through `tavern_before_register_node`.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from dataclasses import dataclass
from functools import partial

from pydantic import JsonValue

from tavern_engine import EngineState
from tavern_engine.api.nodes import NodeManager
from tavern_host import PLUGINS, CallContext, PluginContext
from tavern_host.context import HookResult
from tavern_host.contracts.errors import DeadlineExceeded, NotFound, PluginFailure, TavernError, Vetoed, describe
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.nodes import NodeDefinition, NodeRunner
from tavern_host.contracts.plugins import PluginInfo, Problem, withheld

CORE = "core"
"""The namespace that only first-party plugins may put node types into."""


@dataclass(frozen=True)
class NodeType:
    """A node type: its definition as shown, the plugin that owns it, and how to run it.

    `original` is the definition as the plugin gave it; the runner is made from that one.
    """

    definition: NodeDefinition
    original: NodeDefinition
    contribution: HookResult[list[NodeDefinition]]

    @property
    def plugin(self) -> str:
        """Who owns the node type."""
        return self.contribution.plugin

    @property
    def version(self) -> str:
        """What names the code that runs the node type; other code has another name."""
        return self.contribution.code

    @property
    def settings(self) -> str:
        """What names the settings of its plugin as they are now; with others its outputs may be others."""
        return self.contribution.settings

    def runner(self) -> NodeRunner:
        """Return the runner that opens instances. Raises `NotFound` where the code is gone."""
        runner: NodeRunner = self.contribution.open(self.original)
        return runner


class NodeRegistry:
    """All node types by full type; collected again when the set of plugins has changed.

    Once they have been read, `NODES_RELOADED` is published when they change.
    """

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._lock = asyncio.Lock()
        self.revision: int | None = None
        """Differs whenever the node types do; of those that `types` returned last."""
        self._types: dict[str, NodeType] = {}
        self.problems: list[tuple[str, Problem]] = []
        """Why types are not offered, each with its plugin; of those that were collected last."""

    async def types(self) -> dict[str, NodeType]:
        """Return all node types; the dict is not changed afterwards."""
        if self.revision != self._context.hooks.revision:
            async with self._lock:
                while self.revision != self._context.hooks.revision:
                    revision = self._context.hooks.revision
                    before, self._types = self._types, await self._collect()
                    if self.revision is not None:
                        self._publish_changes(before)
                    self.revision = revision
        return self._types

    async def plugins(self) -> list[PluginInfo]:
        """Return all plugins, those that are not loaded too."""
        return await self._context.services.get(PLUGINS).list_plugins()

    async def follow(self) -> None:
        """Collect again whenever plugins are loaded, unloaded or changed; until cancelled."""
        async for _ in self._context.events.subscribe("PLUGINS_CHANGED"):
            if self.revision is None:
                continue
            try:
                await self.types()
            except TavernError as error:
                self._context.log.warning("the node types could not be collected again: %s", error.message)

    def _publish_changes(self, before: dict[str, NodeType]) -> None:
        now = self._types
        both = before.keys() & now.keys()
        counts = {
            "new": len(now.keys() - before.keys()),
            "gone": len(before.keys() - now.keys()),
            "changed": sum(before[name].definition != now[name].definition for name in both),
        }
        if any(counts.values()):
            message = "Node types: " + ", ".join(f"{count} {what}" for what, count in counts.items() if count)
            payload = {"success": True, "message": message, "count": len(now)}
            self._context.events.publish("NODES_RELOADED", payload)

    async def _collect(self) -> dict[str, NodeType]:
        hooks, owners = self._context.hooks, dict[str, str]()
        found: dict[str, NodeType] = {}
        self.problems = []
        may_be_core = {info.name for info in await self.plugins() if info.first_party}
        for contribution in await hooks.collect("tavern_register_nodes"):
            plugin = contribution.plugin
            for item in contribution.value:
                original = item if item.namespace else item.model_copy(update={"namespace": plugin})
                if original.namespace == CORE and plugin not in may_be_core:
                    self._report_reserved(original, plugin)
                elif owners.get(original.full_type) == plugin:
                    self._report_twice(found[original.full_type].original, original, plugin)
                elif hooks.claim(owners, "node type", original.full_type, plugin):
                    found[original.full_type] = NodeType(original, original, contribution)
        if hooks.implemented("tavern_before_register_node"):
            found = {name: shown for name, node in found.items() if (shown := await self._filtered(node))}
        return dict(sorted(found.items()))

    def _report_reserved(self, node: NodeDefinition, plugin: str) -> None:
        message = f"the node type {node.full_type} is not offered: the namespace {CORE!r} is reserved for the host"
        self._report(plugin, message, f"choose another namespace, such as {plugin!r}", place_of(node.handler))

    def _report_twice(self, first: NodeDefinition, second: NodeDefinition, plugin: str) -> None:
        name, at = first.full_type, place_of(first.handler)
        message = f"the node type {name!r} is registered twice; the first is used"
        if at is not None:
            message = f"the node type {name!r} is registered twice; the first is used, which is in {at[0]}:{at[1]}"
        self._report(plugin, message, "give one of them another name, or remove it", place_of(second.handler))

    def _report(self, plugin: str, message: str, hint: str, place: tuple[str, int] | None) -> None:
        file, line = place or (None, None)
        self.problems.append((plugin, Problem(message=message, hint=hint, file=file, line=line)))
        self._context.hooks.report(plugin, message, hint=hint, file=file, line=line)

    async def _filtered(self, node: NodeType) -> NodeType | None:
        original = node.original
        try:
            definition = await self._context.hooks.filter("tavern_before_register_node", original)
        except Vetoed as veto:
            self._context.log.warning("%s is left out: %s", original.full_type, veto.message)
            return None
        kept = {name: getattr(original, name) for name in ("type", "namespace", "handler", "traits")}
        return NodeType(definition.model_copy(update=kept), original, node.contribution)


def place_of(handler: str) -> tuple[str, int] | None:
    """Return the file and line of what `module:name` names, where it is imported here."""
    module, _, name = handler.partition(":")
    target: object = sys.modules.get(module)
    for part in name.split("."):
        target = getattr(target, part, None)
    code = getattr(inspect.unwrap(target), "__code__", None) if callable(target) else None
    if code is not None:
        return code.co_filename, code.co_firstlineno
    try:
        return (inspect.getfile(target), inspect.getsourcelines(target)[1]) if isinstance(target, type) else None
    except (OSError, TypeError):
        return None


class Nodes(NodeManager):
    """The service `nodeManager`."""

    def __init__(self, context: PluginContext) -> None:
        self._registry = context.own(EngineState).types
        context.tasks.spawn(self._registry.follow(), name="follow node types")
        self._log = context.log

    async def list_nodes(self) -> list[NodeDefinition]:
        """Return all node types, by full type."""
        return [node.definition for node in (await self._registry.types()).values()]

    async def get(self, full_type: str) -> NodeDefinition:
        """Return one node type. Raises `NotFound` with near names."""
        return (await self._type(full_type)).definition

    async def act(
        self,
        full_type: str,
        action: str,
        *,
        inputs: dict[str, JsonValue],
        config: dict[str, JsonValue],
        call: CallContext | None = None,
    ) -> dict[str, JsonValue]:
        """Carry out an action of a node; inputs that have no written value have their default."""
        node = await self._type(full_type)
        config = (node.original.config_values or {}) | config
        slots = node.original.slots(config)[0]
        inputs = {key: slot.default for key, slot in slots.items() if slot.has_default} | inputs
        place = f"the action {action!r} of {full_type}"
        try:
            async with asyncio.timeout(None) as timer:
                with node.contribution.in_use(partial(timer.reschedule, 0)):
                    return await node.runner().act(action, inputs, config)
        except Exception as error:
            if isinstance(error, TavernError) and error.info.code != PluginFailure.code:
                raise
            if timer.expired():
                raise DeadlineExceeded(f"{node.plugin} was unloaded before {place} ended") from None
            reason = error.message if isinstance(error, TavernError) else describe(error)
            self._log.warning("%s failed: %s", place, reason, exc_info=error)
            raise PluginFailure(f"{place} failed: {reason}", plugin=node.plugin) from error

    async def _type(self, full_type: str) -> NodeType:
        types = await self._registry.types()
        if full_type not in types:
            why = withheld(full_type, await self._registry.plugins())
            raise NotFound(f"there is no node type {full_type!r}{did_you_mean(full_type, types)}{why}")
        return types[full_type]
