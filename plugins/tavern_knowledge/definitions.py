"""The host's own node types and tools as entries, kept in step with what is loaded: in memory, for each host its own.

Names and descriptions in Chinese, and other words for the same in both languages, come from `glossary.json`.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tavern_engine.api.nodes import NODE_MANAGER
from tavern_host import clock
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.nodes import NodeDefinition, SlotDefinition
from tavern_host.contracts.tools import ToolDefinition
from tavern_knowledge import index
from tavern_knowledge.api.knowledge import NODES, TOOLS, BaseHeader, KnowledgeEntry
from tavern_knowledge.index import Entries, Frequencies, Row
from tavern_knowledge.store import Store, StoredBase
from tavern_knowledge.words import indexed, is_cjk
from tavern_tools.api.tools import TOOL_MANAGER, ToolStatistics

T = TypeVar("T")

HEADERS = {
    NODES: BaseHeader(kb_id=NODES, display_name="Node types", description="The node types that this host has."),
    TOOLS: BaseHeader(kb_id=TOOLS, display_name="Tools", description="The tools that this host has."),
}
_FRESH = 1.0
"""Seconds for which a look at the tools holds: their files and workflows may change at any time."""
_GLOSSARY = Path(__file__).with_name("glossary.json")


class Definitions(Entries):
    """Nodes are looked at when plugins or grants have changed, tools at most once a second; only definitions that
    differ are indexed. The index belongs to the thread of the `store`."""

    def __init__(self, context: PluginContext, store: Store) -> None:
        self._context = context
        self._store = store
        self._connection: sqlite3.Connection | None = None
        self.frequencies = Frequencies()
        self._revision: int | None = None
        self._looked_at = -_FRESH
        self._nodes: list[NodeDefinition] = []
        self._tools: list[ToolDefinition] = []
        self._lock = asyncio.Lock()
        self._names: dict[str, str] = {}
        self._synonyms: list[list[str]] = []

    async def read(self, work: Callable[[sqlite3.Connection], T], absent: T) -> T:
        """Return `work(connection)` once the index has the definitions as they are."""
        async with self._lock:
            await self._look()
        return await self._store.run(lambda: work(self._opened()))

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return `work(connection)`, done in one transaction."""

        def within() -> T:
            with self._opened() as connection:
                return work(connection)

        return await self._store.run(within)

    async def with_experience(self, base: str, rows: list[Row], call: CallContext | None) -> list[Row]:
        """Return entries, those of tools with how calls ended: it changes all the time, and is not indexed. Another
        plugin that asks for itself is not told, since reading statistics needs a permission."""
        asks = None if call is None else call.principal
        if base != TOOLS or (asks is not None and asks.kind == "plugin" and asks.id != self._context.plugin):
            return rows
        known = await self._context.services.get(TOOL_MANAGER).statistics([row.id for row in rows])
        return [_experienced(row, known[row.id]) if row.id in known else row for row in rows]

    def known(self, connection: sqlite3.Connection) -> list[tuple[str, BaseHeader]]:
        """Return the two bases."""
        return list(HEADERS.items())

    async def base(self, base: str) -> StoredBase:
        """Return one of the two bases."""
        return StoredBase(HEADERS[base], base, await self.read(lambda found: index.count_of(found, base), 0))

    async def _look(self) -> None:
        revision = self._context.hooks.revision
        if revision == self._revision and clock.monotonic() - self._looked_at < _FRESH:
            return
        began = clock.monotonic()
        if revision != self._revision:
            nodes = await self._context.services.get(NODE_MANAGER).list_nodes()
            if nodes != self._nodes:
                await self.write(lambda found: index.replace_all(found, NODES, list(map(self._node_row, nodes))))
                self._nodes = nodes
        tools = [tool for tool in await self._context.services.get(TOOL_MANAGER).list_tools() if tool.listed]
        if tools != self._tools:
            await self.write(lambda found: index.replace_all(found, TOOLS, list(map(self._tool_row, tools))))
            self._tools = tools
        self._revision, self._looked_at = revision, began

    # --- on the thread ----------------------------------------------------------------------------

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            glossary = json.loads(_GLOSSARY.read_text(encoding="utf-8"))
            self._names, self._synonyms = glossary["names"], [line.split() for line in glossary["synonyms"]]
            self._connection = sqlite3.connect(":memory:")
            for statement in index.TABLES:
                self._connection.execute(statement)
        return self._connection

    def _node_row(self, node: NodeDefinition) -> Row:
        lines = [node.description, *_slot_lines("Inputs", node.inputs), *_slot_lines("Outputs", node.outputs)]
        tags = [tag for tag in (node.category, node.namespace) if tag]
        about = {"fullType": node.full_type, "inputs": _slots(node.inputs), "outputs": _slots(node.outputs)}
        return self._row(node.full_type, "node_definition", node.display_name or node.type, lines, tags, about)

    def _tool_row(self, tool: ToolDefinition) -> Row:
        properties = tool.parameters.get("properties")
        fields = properties if isinstance(properties, dict) else {}
        lines = [tool.description, *(["Parameters:"] if fields else [])]
        lines += [f"- {key}: {_said(value)}" for key, value in fields.items()]
        about: dict[str, Any] = {"toolId": tool.id, "kind": tool.kind, "parametersSchema": tool.parameters}
        if tool.output is not None:
            about["outputSchema"] = tool.output
        return self._row(tool.id, "tool_definition", tool.display_name or tool.id, lines, list(tool.tags), about)

    def _row(self, id: str, kind: str, name: str, lines: list[str], tags: list[str], about: dict[str, Any]) -> Row:
        chinese, _, more = self._names.get(id, "").partition("：")
        entry = {
            "id": id[:200],
            "entry_type": kind,
            "displayName": f"{name} · {chinese}"[:1000] if chinese and chinese not in name else name[:1000],
            "content": {"value": "\n".join([line for line in (*lines, more) if line])},
            "activation_criteria": {"keywords": self._other_words(f"{id} {name} {chinese} {lines[0]} {more}")},
            "management_metadata": {"tags": tags, "source": "host"},
            "extensions": about,
        }
        return Row.of(KnowledgeEntry.model_validate(entry))

    def _other_words(self, text: str) -> list[str]:
        """Return the words that mean the same as words of a text."""
        known = set(indexed([text]).split())
        groups = [
            words for words in self._synonyms if any(w in text if is_cjk(w) else w.lower() in known for w in words)
        ]
        return list(dict.fromkeys(word for words in groups for word in words if word not in text))


def _experienced(row: Row, statistics: ToolStatistics) -> Row:
    entry = json.loads(row.body)
    entry["content"]["value"] += f"\nExperience: {statistics.text}"
    entry["extensions"]["statistics"] = statistics.to_json()
    return replace(row, body=json.dumps(entry, ensure_ascii=False))


def _slots(slots: dict[str, SlotDefinition]) -> dict[str, str]:
    return {key: slot.data_flow_type.value for key, slot in slots.items()}


def _slot_lines(title: str, slots: dict[str, SlotDefinition]) -> list[str]:
    lines = [f"- {key} ({slot.data_flow_type.value}): {slot.description or ''}" for key, slot in slots.items()]
    return [f"{title}:", *lines] if lines else []


def _said(schema: Any) -> str:
    description = schema.get("description") if isinstance(schema, dict) else None
    return description if isinstance(description, str) else ""
