"""A host with knowledge for the tests of a module."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio
from helpers.postgres import shared_server

from tavern_host import CallContext, Host, Principal
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE, KnowledgeBase


@dataclass
class Bench:
    """The host, its project's folder, and its knowledge."""

    host: Host
    root: Path
    has_files: ClassVar[bool] = True

    @classmethod
    def settings(cls, root: Path) -> dict[str, str]:
        """Return the settings of its host."""
        return {}

    def remove(self, base: str) -> None:
        """Remove a base's file."""
        (self.root / "knowledge" / f"{base}.json").unlink()

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
        return json.loads(self.content(base))

    def content(self, base: str) -> bytes:
        """Return the content of a base's file."""
        return (self.root / "knowledge" / f"{base}.json").read_bytes()

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


class SharedBench(Bench):
    """A host whose base files are in a PostgreSQL database."""

    has_files = False

    @classmethod
    def settings(cls, root: Path) -> dict[str, str]:
        return {
            "extensions.tavern-postgres.url": shared_server(),
            "extensions.tavern-postgres.schema": root.parent.name,
        }

    def write(self, name: str, content: Any) -> Path:
        """Write a file of the project; those of bases are rows."""
        path = super().write(name, content)
        if path.parent.name == "knowledge":
            data = path.read_bytes()
            path.unlink()
            self._run("DELETE FROM files WHERE name = %s", path.name)
            self._run("INSERT INTO files VALUES (%s, %s, %s)", path.name, str(time.time_ns()), data)
        return path

    def content(self, base: str) -> bytes:
        return bytes(self._run("SELECT content FROM files WHERE name = %s", f"{base}.json")[0][0])

    def remove(self, base: str) -> None:
        self._run("DELETE FROM files WHERE name = %s", f"{base}.json")

    def _run(self, statement: str, *values: Any) -> Any:
        import psycopg

        with psycopg.connect(shared_server(), autocommit=True) as connection:
            schema = f"{self.root.parent.name}: knowledge"
            connection.execute(f'SET search_path TO "{schema}"'.encode())
            done = connection.execute(statement.encode(), values)
            return done.fetchall() if done.description else []


BENCHES = {"files": Bench, "postgres": SharedBench}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    """Give one host for all tests of a file."""
    kind = BENCHES["postgres" if request.module.__name__.endswith("_on_postgres") else "files"]
    root = tmp_path_factory.mktemp("inn") / "project"
    async with Host(root, settings=kind.settings(root)) as host:
        made = kind(host, root)
        await made.kb.bases()
        yield made
