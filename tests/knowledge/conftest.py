"""A host with knowledge for the tests of a module."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tavern_host import CallContext, Host, Principal
from tavern_host.contracts.knowledge import KNOWLEDGE_BASE, KnowledgeBase


@dataclass
class Bench:
    """The host, its project's folder, and its knowledge."""

    host: Host
    root: Path

    @property
    def kb(self) -> KnowledgeBase:
        return self.host.services.get(KNOWLEDGE_BASE)

    def write(self, name: str, content: Any) -> Path:
        """Write a file of the project: text as it is, anything else as JSON."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
        return path

    def read(self, base: str) -> Any:
        return json.loads((self.root / "knowledge" / f"{base}.json").read_text())

    def agent(self, name: str, *references: tuple[str, list[str]]) -> CallContext:
        """Write an agent that refers to bases (`ID` or `ID=ALIAS`) and return a call of it."""
        found = []
        for source, permissions in references:
            id, _, alias = source.partition("=")
            found.append({"source_id": id, "access_permissions": permissions, **({"alias": alias} if alias else {})})
        about = {"id": name, "name": name, "version": "1", "schema_version": "1.0", "knowledge_base_references": found}
        may = {"core_deliberation_workflow_id": "w", "tool_ids_inventory": ["kb:*", "*KnowledgeBaseTool"]}
        self.write(f"agents/{name}.json", {**about, **may})
        return CallContext(principal=Principal(kind="agent", id=name))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    """Give one host for all tests of a file."""
    root = tmp_path_factory.mktemp("inn") / "project"
    async with Host(root) as host:
        yield Bench(host, root)
