"""Outputs of nodes outlive the host where `cacheOnDisk` is set: a later host on the project need not run them again."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, output, workflow

from tavern_host import Host
from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.workflows import Workflow

MANIFEST = """
name: acme-counted
displayName: Nodes that say when they run
version: {version}
description: Nodes that say when they run.
apiVersion: ">=0.1"
nodes: {{entry: ./nodes}}
"""

NODES = '''
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

from tavern_host import Config, NodeContext, Slot, node


def say(context: NodeContext) -> None:
    with (context.plugin.project.root / "executions.log").open("a") as log:
        log.write(f"{context.node_id}\\n")


@node()
def same(context: NodeContext, value: Any = None) -> Annotated[Any, Slot(key="value")]:
    say(context)
    return value


@node()
def add(context: NodeContext, a: int = 0, b: int = 0) -> Annotated[int, Slot(key="value")]:
    say(context)
    return a + b + SUMMAND


@node(cached=False)
def fresh(context: NodeContext, value: Any = None) -> Annotated[Any, Slot(key="value")]:
    say(context)
    return value


@node()
def special(context: NodeContext, kind: Annotated[str, Config()] = "") -> Annotated[Any, Slot(key="value")]:
    say(context)
    return {
        "bytes": bytes(range(256)),
        "surrogate": "a\\ud800b",
        "long": "ü\\n" * 100_000,
        "large": b"x" * 1_000_000,
        "moment": [datetime(2026, 1, 2, tzinfo=UTC)],
        "odd keys": {"$bytes": "no", "": None},
        "nested": {"a": [1, 2.5, None, True, {"b": [b"inside"]}]},
        "nothing": None,
        "nan": float("nan"),
        "huge": 2**80,
        "set": {1, 2},
        "object": object(),
    }[kind]


@node()
def told(context: NodeContext, value: Any = None) -> Annotated[str, Slot(key="value")]:
    say(context)
    return repr(value)


@node()
def length(context: NodeContext, value: Any = None) -> Annotated[int, Slot(key="value")]:
    say(context)
    return len(value)


@node()
async def count(context: NodeContext, to: int = 3) -> AsyncIterator[Annotated[int, Slot(key="items")]]:
    say(context)
    for number in range(to):
        yield number
'''

ON = {"extensions.tavern-engine.cacheOnDisk": True}


class Place:
    """A folder with a plugin and a project on which hosts are opened, one after another or at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "project"
        self.database = self.project / ".tavern" / "cache" / "outputs.sqlite3"
        self.write()

    def write(self, *, version: str = "1.0.0", summand: int = 0) -> None:
        """Write the plugin."""
        nodes = self.root / "acme-counted" / "nodes"
        nodes.mkdir(parents=True, exist_ok=True)
        (nodes.parent / "plugin.yaml").write_text(MANIFEST.format(version=version).lstrip())
        (nodes / "__init__.py").write_text(f"SUMMAND = {summand}\n{textwrap.dedent(NODES)}")

    @asynccontextmanager
    async def host(self, **settings: Any) -> AsyncIterator[Bench]:
        more = {f"extensions.tavern-engine.{key}": value for key, value in settings.items()}
        host = Host(
            self.project, plugins=[self.root / "acme-counted"], trust=["acme-counted"], settings={**ON, **more}
        )
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
        with sqlite3.connect(self.database) as connection:
            return connection.execute("SELECT id, used, size, content FROM outputs ORDER BY id").fetchall()

    def change(self, statement: str, *values: Any) -> None:
        with sqlite3.connect(self.database) as connection:
            connection.execute(statement, values)
        connection.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def counted(nodes: dict[str, Any], *edges: str) -> Workflow:
    """Return a workflow of the nodes of the plugin; a node is a type, or a type and its written values."""
    listed = {}
    for name, node in nodes.items():
        kind, values = node if isinstance(node, tuple) else (node, {})
        listed[name] = {"type": f"acme-counted:{kind}", "inputValues": values}
    return workflow(listed, *edges)


def special(kind: str) -> dict[str, Any]:
    return {"type": "acme-counted:Special", "configValues": {"kind": kind}}


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


CHAIN = counted(
    {"a": ("Add", {"a": 1}), "b": ("Add", {"b": 1}), "c": ("Add", {"b": 1})}, "a.value > b.a", "b.value > c.a"
)


async def test_a_later_host_runs_nothing_that_an_earlier_one_has_run(place: Place) -> None:
    first = await place.run(CHAIN)
    assert place.executed == ["a", "b", "c"]

    second = await place.run(CHAIN)

    assert place.executed == []
    assert {node_id: state.output for node_id, state in second.nodes.items()} == {
        node_id: state.output for node_id, state in first.nodes.items()
    }
    assert [state.cached for state in second.nodes.values()] == [True] * 3
    assert second.outputs == first.outputs


async def test_nothing_is_written_where_the_setting_is_off(place: Place) -> None:
    for _ in range(2):
        await place.run(CHAIN, cacheOnDisk=False)
        assert place.executed == ["a", "b", "c"]
    assert not place.database.parent.exists()


async def test_outputs_of_a_host_that_has_it_off_are_not_looked_for(place: Place) -> None:
    await place.run(CHAIN)
    assert place.executed == ["a", "b", "c"]
    await place.run(CHAIN, cacheOnDisk=False)
    assert place.executed == ["a", "b", "c"]


async def test_a_changed_value_runs_what_comes_after_it_and_nothing_else(place: Place) -> None:
    await place.run(CHAIN)
    assert place.executed == ["a", "b", "c"]
    changed = counted(
        {"a": ("Add", {"a": 1}), "b": ("Add", {"b": 5}), "c": ("Add", {"b": 1})}, "a.value > b.a", "b.value > c.a"
    )

    run = await place.run(changed)

    assert place.executed == ["b", "c"]
    assert output(run, "c") == 7


async def test_a_run_without_the_cache_neither_reads_nor_writes_it(place: Place) -> None:
    async with place.host() as bench:
        await bench.engine.run(RunRequest(workflow=CHAIN, use_cache=False))
    assert not place.database.exists()
    await place.run(CHAIN)
    assert place.executed == ["a", "a", "b", "b", "c", "c"]
    async with place.host() as bench:
        await bench.engine.run(RunRequest(workflow=CHAIN, use_cache=False))
    assert place.executed == ["a", "b", "c"]


async def test_code_of_another_version_runs_anew(place: Place) -> None:
    await place.run(CHAIN)
    assert place.executed == ["a", "b", "c"]
    place.write(version="1.1.0", summand=0)
    await place.run(CHAIN)
    assert place.executed == ["a", "b", "c"]


async def test_code_that_changed_without_a_new_version_runs_anew(place: Place) -> None:
    await place.run(CHAIN)
    assert place.executed == ["a", "b", "c"]
    place.write(summand=100)
    run = await place.run(CHAIN)
    assert place.executed == ["a", "b", "c"]
    assert output(run, "c") == 303


async def test_what_follows_a_node_that_is_never_cached_runs_again(place: Place) -> None:
    document = counted({"a": "Same", "f": "Fresh", "c": "Same"}, "a.value > f.value", "f.value > c.value")
    await place.run(document)
    assert place.executed == ["a", "c", "f"]
    await place.run(document)
    assert place.executed == ["c", "f"]


async def test_values_come_back_as_they_were(place: Place) -> None:
    kinds = ["bytes", "surrogate", "long", "large", "moment", "odd keys", "nested", "nothing"]
    givers = {kind: special(kind) for kind in kinds}
    told = {f"told {kind}": "acme-counted:Told" for kind in kinds}
    between = {f"same {kind}": "acme-counted:Same" for kind in kinds}
    first = await place.run(workflow({**givers, **told}, *(f"{kind}.value > told {kind}.value" for kind in kinds)))
    assert place.executed == sorted([*givers, *told])

    second = await place.run(
        workflow(
            {**givers, **between, **told},
            *(f"{kind}.value > same {kind}.value" for kind in kinds),
            *(f"same {kind}.value > told {kind}.value" for kind in kinds),
        )
    )

    assert place.executed == sorted([*between, *told])
    assert {name: output(second, name) for name in told} == {name: output(first, name) for name in told}


async def test_a_value_without_a_codec_is_not_kept_and_all_others_are(place: Place) -> None:
    kinds = ["nan", "huge", "set", "object"]
    document = workflow({**{kind: special(kind) for kind in kinds}, "a": "acme-counted:Add"})
    await place.run(document)
    assert place.executed == sorted(["a", *kinds])

    run = await place.run(document)

    assert place.executed == sorted(kinds)
    assert run.status == "complete"


async def test_a_stream_is_kept_as_the_list_of_its_items(place: Place) -> None:
    document = counted({"c": ("Count", {"to": 4}), "t": "Told"}, "c.items > t.value")
    first = await place.run(document)
    assert place.executed == ["c", "t"]
    second = await place.run(document)
    assert place.executed == []
    assert second.nodes["c"].output == first.nodes["c"].output == {"items": [0, 1, 2, 3]}

    more = await place.run(counted({"c": ("Count", {"to": 4}), "t": ("Same", {})}, "c.items > t.value"))

    assert place.executed == ["t"]
    assert output(more, "t") == [0, 1, 2, 3]


async def test_outputs_that_memory_has_no_room_for_are_used_from_disk(place: Place) -> None:
    document = workflow({"s": special("large"), "u": "acme-counted:Same"}, "s.value > u.value")
    await place.run(document)
    assert place.executed == ["s", "u"]
    run = await place.run(document, cacheMegabytes=1)
    assert place.executed == []
    assert run.nodes["u"].cached


async def test_what_is_not_needed_is_not_read(place: Place) -> None:
    document = workflow({"s": special("large"), "t": "acme-counted:Length"}, "s.value > t.value")
    await place.run(document)
    assert place.executed == ["s", "t"]
    place.change("UPDATE outputs SET content = zeroblob(size) WHERE size > 100000")  # what reads it would notice

    run = await place.run(document)

    assert place.executed == []
    assert run.nodes["s"].cached
    assert [content == bytes(size) for _, _, size, content in place.rows()].count(True) == 1


# --- bounds ---------------------------------------------------------------------------------------


def numbered(first: int, count: int, size: int) -> Workflow:
    """Return a workflow of nodes that give texts of some size, which no other workflow's nodes give."""
    return counted({f"n{i}": ("Same", {"value": f"{i} {'x' * size}"}) for i in range(first, first + count)})


async def test_what_was_used_longest_ago_is_forgotten_when_there_is_no_room(place: Place) -> None:
    old, kept, new = numbered(0, 300, 1000), numbered(300, 300, 1000), numbered(600, 600, 1000)
    await place.run(old)
    await place.run(kept)
    place.change("UPDATE outputs SET used = used - 3600000000")
    await place.run(kept)  # which uses them
    place.executed  # noqa: B018
    await place.run(new, cacheDiskMegabytes=1)
    assert len(place.executed) == 600

    assert place.database.stat().st_size <= 1.1 * 2**20
    await place.run(new)
    assert place.executed == []
    await place.run(old)
    assert len(place.executed) == 300
