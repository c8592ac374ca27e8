"""A plugin whose nodes say when they run, a project, and hosts on it with the cache on disk."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, workflow

from tavern_host import Host
from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.settings import SETTINGS, SettingsChange
from tavern_host.contracts.workflows import Workflow

MANIFEST = """
name: acme-counted
displayName: Nodes that say when they run
version: {version}
apiVersion: ">=0.1"
nodes: {{entry: ./nodes}}
configOptions:
  - {{key: extensions.acme-counted.ending, type: string, label: Ending, defaultValue: "!"}}
  - {{key: extensions.acme-counted.wait, type: boolean, label: Wait, defaultValue: false}}
"""
NODES = """
import asyncio
import enum
import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

from tavern_host import Config, NodeContext, PluginContext, Slot, node
from tavern_host.contracts.wire import Model

Given = Annotated[Any, Slot(key="value")]


class Kept(Model):
    name: str


class Mood(enum.Enum):
    GOOD = "good"


def say(context: NodeContext) -> None:
    with (context.plugin.project.root / "executions.log").open("a") as log:
        log.write(f"{context.node_id}\\n")


@node()
def same(context: NodeContext, value: Any = None) -> Given:
    say(context)
    return value


@node()
def special(context: NodeContext, kind: Annotated[str, Config()] = "") -> Given:
    say(context)
    return {
        "bytes": bytes(range(256)),
        "surrogate": "a\\ud800b",
        "long": "ü\\n" * 100_000,
        "large": b"x" * 1_000_000,  # the bounds of the caches are whole megabytes
        "moment": [datetime(2026, 1, 2, tzinfo=UTC)],
        "odd keys": {"$bytes": "no", "": None},
        "nested": {"a": [1, 2.5, None, True, {"b": [b"inside"]}]},
        "nothing": None,
        "enum": Mood.GOOD,
        "model": Kept(name="a"),
        "models": [{"a": Kept(name="b")}],
    }[kind]


@node()
def told(context: NodeContext, value: Any = None) -> Annotated[str, Slot(key="value")]:
    say(context)
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()


async def has_changed(inputs: dict[str, Any], config: dict[str, Any], context: PluginContext) -> str:
    return (context.project.root / "mood").read_text()


@node(is_changed=has_changed)
def mood(context: NodeContext) -> Annotated[str, Slot(key="value")]:
    say(context)
    return (context.plugin.project.root / "mood").read_text()


@node()
async def count(context: NodeContext, to: int = 3) -> AsyncIterator[Annotated[int, Slot(key="items")]]:
    say(context)
    for number in range(to):
        yield number


@node()
async def ended(context: NodeContext, text: str = "hello") -> Annotated[str, Slot(key="value")]:
    say(context)
    while context.plugin.settings.get("wait"):
        await asyncio.sleep(0.005)
    return text + SUFFIX + context.plugin.settings.get("ending")
"""


class Place:
    """A folder with a plugin and a project on which hosts are opened, one after another or at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "project"
        self.database = self.project / ".tavern" / "cache" / "outputs.sqlite3"
        self.write()

    def write(self, *, version: str = "1.0.0", suffix: str = "") -> None:
        """Write the plugin."""
        nodes = self.root / "acme-counted" / "nodes"
        nodes.mkdir(parents=True, exist_ok=True)
        (nodes.parent / "plugin.yaml").write_text(MANIFEST.format(version=version).lstrip())
        (nodes / "__init__.py").write_text(f"SUFFIX = {suffix!r}\n{NODES}")

    @asynccontextmanager
    async def host(self, **settings: Any) -> AsyncIterator[Bench]:
        values = {f"extensions.tavern-engine.{key}": value for key, value in ({"cacheOnDisk": True} | settings).items()}
        host = Host(self.project, plugins=[self.root / "acme-counted"], trust=["acme-counted"], settings=values)
        async with host:
            yield Bench(host)

    async def run(self, document: Workflow, **settings: Any) -> Run:
        """Run a workflow on a host of its own."""
        async with self.host(**settings) as bench:
            return await bench.run(document)

    @property
    def executed(self) -> list[str]:
        """Which nodes have been run since it was asked last."""
        log = self.project / "executions.log"
        if not log.exists():
            return []
        found = log.read_text().splitlines()
        log.unlink()
        return sorted(found)

    def rows(self) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            return connection.execute("SELECT id, signature, size, content FROM outputs ORDER BY id").fetchall()

    def count(self) -> int:
        try:
            return len(self.rows())
        except sqlite3.OperationalError:  # the table is being made
            return 0

    def change(self, statement: str) -> None:
        with contextlib.closing(sqlite3.connect(self.database, isolation_level=None)) as connection:
            connection.execute(statement)


def counted(nodes: dict[str, Any], *edges: str) -> Workflow:
    """Return a workflow of nodes of the plugin, each a type or a node."""
    listed = {name: node if isinstance(node, dict) else {"type": node} for name, node in nodes.items()}
    return workflow({name: {**node, "type": f"acme-counted:{node['type']}"} for name, node in listed.items()}, *edges)


def special(kind: str) -> dict[str, Any]:
    return {"type": "Special", "configValues": {"kind": kind}}


def same(value: Any) -> dict[str, Any]:
    return {"type": "Same", "inputValues": {"value": value}}


def numbered(first: int, count: int, size: int) -> Workflow:
    """Return a workflow of nodes that give texts of some size, which no other workflow's nodes give."""
    return counted({f"n{i}": same(f"{i} {'x' * size}") for i in range(first, first + count)})


async def written(bench: Bench) -> None:
    """Return when all is on disk that is to be kept."""
    await bench.state.engine.disk_cache.drain()


async def as_later(bench: Bench, document: Workflow, **request: Any) -> Run:
    """Run a workflow as a later host would, which remembers nothing; then wait for the disk."""
    bench.forget()
    run = await bench.engine.run(RunRequest(workflow=document, **request))
    await written(bench)
    return run


async def change(bench: Bench, **values: Any) -> None:
    """Save settings of the plugin."""
    named = {f"extensions.acme-counted.{key}": value for key, value in values.items()}
    await bench.host.services.get(SETTINGS).save(SettingsChange(plugin="acme-counted", values=named))


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
