"""Outputs of nodes outlive the host where `cacheOnDisk` is set: a later host on the project need not run them again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import random
import sqlite3
import textwrap
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, output, workflow
from helpers.repetition import repetitions
from hypothesis import given
from hypothesis import strategies as st
from runs_bench import begin

from tavern_engine.cache.disk.entries import decode_entry, encode_entry
from tavern_host import Host
from tavern_host.cli.terminal import run as tavern
from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.settings import SETTINGS, SettingsChange
from tavern_host.contracts.workflows import Workflow

MANIFEST = """
name: acme-counted
displayName: Nodes that say when they run
version: {version}
description: Nodes that say when they run.
apiVersion: ">=0.1"
nodes: {{entry: ./nodes}}
configOptions:
  - {{key: extensions.acme-counted.ending, type: string, label: Ending, defaultValue: "!"}}
  - {{key: extensions.acme-counted.wait, type: boolean, label: Wait, defaultValue: false}}
"""

NODES = """
import asyncio
import enum
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

from tavern_host import Config, NodeContext, PluginContext, Slot, node
from tavern_host.contracts.wire import Model


class Kept(Model):
    name: str


class Mood(enum.Enum):
    GOOD = "good"


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
    return repr(value)


def mood_of(context: NodeContext) -> str:
    return (context.plugin.project.root / "mood").read_text()


async def has_changed(inputs: dict[str, Any], config: dict[str, Any], context: PluginContext) -> str:
    return (context.project.root / "mood").read_text()


@node(is_changed=has_changed)
def mood(context: NodeContext) -> Annotated[str, Slot(key="value")]:
    say(context)
    return mood_of(context)


@node()
def length(context: NodeContext, value: Any = None) -> Annotated[int, Slot(key="value")]:
    say(context)
    return len(value)


@node()
async def count(context: NodeContext, to: int = 3) -> AsyncIterator[Annotated[int, Slot(key="items")]]:
    say(context)
    for number in range(to):
        yield number
"""

ENDINGS = """

@node()
async def ended(context: NodeContext, text: str = "hello") -> Annotated[str, Slot(key="value")]:
    say(context)
    while context.plugin.settings.get("wait"):
        await asyncio.sleep(0.005)
    return text + context.plugin.settings.get("ending")
"""

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
        (nodes / "__init__.py").write_text(f"SUMMAND = {summand}\n{textwrap.dedent(NODES)}{ENDINGS}")

    @asynccontextmanager
    async def host(self, **settings: Any) -> AsyncIterator[Bench]:
        more = {f"extensions.tavern-engine.{key}": value for key, value in settings.items()}
        host = Host(self.project, plugins=[self.root / "acme-counted"], trust=["acme-counted"], settings={**ON, **more})
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
            return connection.execute("SELECT id, used, size, content FROM outputs ORDER BY id").fetchall()

    def count(self) -> int:
        try:
            return len(self.rows())
        except sqlite3.OperationalError:  # the table is being made
            return 0

    def change(self, statement: str, *values: Any) -> None:
        with contextlib.closing(sqlite3.connect(self.database, isolation_level=None)) as connection:
            connection.execute(statement, values)


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


async def test_a_later_host_runs_nothing_again(place: Place) -> None:
    first = await place.run(CHAIN)
    assert place.executed == ["a", "b", "c"]

    second = await place.run(CHAIN)

    assert place.executed == []
    assert {node_id: state.output for node_id, state in second.nodes.items()} == {
        node_id: state.output for node_id, state in first.nodes.items()
    }
    assert [state.cached for state in second.nodes.values()] == [True] * 3
    assert second.outputs == first.outputs


async def test_nothing_is_written_or_read_where_it_is_off(place: Place) -> None:
    await place.run(CHAIN, cacheOnDisk=False)
    assert len(place.executed) == 3
    assert not place.database.parent.exists()
    for on, executed in ((True, 3), (False, 3), (True, 0)):
        await place.run(CHAIN, cacheOnDisk=on)
        assert len(place.executed) == executed


async def test_an_uncached_run_neither_reads_nor_writes(place: Place) -> None:
    async with place.host() as bench:
        await bench.engine.run(RunRequest(workflow=CHAIN, use_cache=False))
    assert not place.database.exists()
    await place.run(CHAIN)
    assert place.executed == ["a", "a", "b", "b", "c", "c"]
    async with place.host() as bench:
        await bench.engine.run(RunRequest(workflow=CHAIN, use_cache=False))
    assert place.executed == ["a", "b", "c"]


async def test_changed_code_or_version_runs_again(place: Place) -> None:
    changes: list[dict[str, Any]] = [{}, {"version": "1.1.0"}, {"version": "1.1.0", "summand": 100}]
    for change in changes:
        place.write(**change)
        run = await place.run(CHAIN)
        assert place.executed == ["a", "b", "c"]
    assert output(run, "c") == 303


async def change(bench: Bench, **values: Any) -> None:
    """Save settings of the plugin."""
    named = {f"extensions.acme-counted.{key}": value for key, value in values.items()}
    await bench.host.services.get(SETTINGS).save(SettingsChange(plugin="acme-counted", values=named))


async def test_another_setting_of_the_plugin_runs_its_nodes_again(place: Place) -> None:
    document = counted({"e": "Ended", "s": "Same"}, "e.value > s.value")
    for ending, executed in (("!", ["e", "s"]), ("?", ["e", "s"]), ("?", []), ("!", [])):
        async with place.host() as bench:
            await change(bench, ending=ending)
            assert output(await bench.run(document), "s") == f"hello{ending}"
        assert place.executed == executed
    async with place.host() as bench:
        for ending, executed in (("!", []), (".", ["e", "s"]), ("?", []), (".", [])):
            await change(bench, ending=ending)
            assert output(await bench.run(document), "s") == f"hello{ending}"
            assert place.executed == executed


async def test_a_setting_that_changes_during_a_run_is_not_cached(place: Place) -> None:
    document = counted({"e": "Ended"})
    async with place.host() as bench:
        await change(bench, wait=True)
        run_id = await bench.start(document)
        while not place.executed:
            await asyncio.sleep(0.005)
        await change(bench, ending="?", wait=False)
        assert output(await bench.engine.wait(run_id), "e") == "hello?"
        await change(bench, ending="!", wait=True)
        run_id = await bench.start(document)
        while not place.executed:
            await asyncio.sleep(0.005)
        await change(bench, wait=False)
        assert output(await bench.engine.wait(run_id), "e") == "hello!"


async def test_is_changed_is_asked_before_the_disk(place: Place) -> None:
    document = counted({"m": "Mood", "s": "Same"}, "m.value > s.value")
    place.project.mkdir()
    (place.project / "mood").write_text("good")
    await place.run(document)
    await place.run(document)
    assert place.executed == ["m", "s"]
    (place.project / "mood").write_text("better")
    run = await place.run(document)
    assert place.executed == ["m", "s"]
    assert output(run, "s") == "better"


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


async def test_only_values_with_a_codec_are_kept(place: Place) -> None:
    kinds = ["enum", "model", "models"]
    document = workflow({**{kind: special(kind) for kind in kinds}, "a": "acme-counted:Add"})
    await place.run(document)
    assert place.executed == sorted(["a", *kinds])

    run = await place.run(document)

    assert place.executed == sorted(kinds)
    assert run.status == "complete"


async def test_a_stream_is_kept_as_its_items(place: Place) -> None:
    document = counted({"c": ("Count", {"to": 4}), "t": "Told"}, "c.items > t.value")
    first = await place.run(document)
    assert place.executed == ["c", "t"]
    second = await place.run(document)
    assert place.executed == []
    assert second.nodes["c"].output == first.nodes["c"].output == {"items": [0, 1, 2, 3]}

    more = await place.run(counted({"c": ("Count", {"to": 4}), "t": ("Same", {})}, "c.items > t.value"))

    assert place.executed == ["t"]
    assert output(more, "t") == [0, 1, 2, 3]


async def test_outputs_too_large_for_memory_come_from_disk(place: Place) -> None:
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


async def test_the_least_recently_used_entries_are_evicted(place: Place) -> None:
    old, used, new = numbered(0, 80, 10_000), numbered(80, 15, 10_000), numbered(95, 30, 10_000)
    await place.run(used)
    await place.run(old)
    place.change("UPDATE outputs SET used = used - 3600000000")
    await place.run(used)
    assert len(place.executed) == 95

    await place.run(new, cacheDiskMegabytes=1)

    assert len(place.executed) == 30
    assert place.database.stat().st_size <= 2**20
    await place.run(used)
    await place.run(new)
    assert place.executed == []
    await place.run(old)
    assert 0 < len(place.executed) < 80


async def test_an_entry_of_half_the_room_is_not_kept(place: Place) -> None:
    document = workflow({"s": special("large"), "a": "acme-counted:Add"})
    await place.run(document, cacheDiskMegabytes=1)
    assert [size for _, _, size, _ in place.rows() if size > 1000] == []
    assert place.executed == ["a", "s"]
    await place.run(document)
    assert place.executed == ["s"]


async def test_a_smaller_limit_frees_disk_space(place: Place) -> None:
    await place.run(numbered(0, 50, 100_000))
    assert place.database.stat().st_size > 4 * 2**20
    await place.run(numbered(50, 1, 10), cacheDiskMegabytes=1)
    assert place.database.stat().st_size <= 2**20


# --- several processes ----------------------------------------------------------------------------


async def test_hosts_write_at_once_without_conflict(place: Place) -> None:
    documents = [numbered(first, 20, 100) for first in range(0, 100, 10)]
    async with place.host() as one, place.host() as other, asyncio.TaskGroup() as group:
        for document in documents:
            group.create_task(one.run(document))
            group.create_task(other.run(document))
    assert len(place.executed) >= 110
    assert len(place.rows()) == 110
    async with place.host() as later:
        for document in documents:
            await later.run(document)
    assert place.executed == []


CHILD = """
import asyncio
from pathlib import Path
from test_disk_cache import Place, numbered

async def main():
    place = Place(Path({root!r}))
    async with place.host(cacheMegabytes=64) as bench:
        for first in range({first}, 10**9, 40):
            await bench.run(numbered(first, 40, 3000))
            print(first, flush=True)

asyncio.run(main())
"""


@pytest.mark.timeout(180)
async def test_what_a_killed_host_has_kept_is_whole(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random()
    first = 0
    for _ in range(repetitions(2, 12)):
        child = await begin(CHILD.format(root=str(place.root), first=first))
        await child.stdout.readline()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3 + chance.random()):
                while line := await child.stdout.readline():
                    first = int(line) + 40
        child.kill()
        await child.wait()

    place.executed  # noqa: B018
    ids = {signature: content for _, signature, content in whole(place)}
    assert len(ids) > 100
    run = await place.run(numbered(0, first, 3000))
    assert len(place.executed) < first
    assert all(output(run, f"n{i}").startswith(f"{i} x") for i in range(first))
    assert errors(caplog) == []


def whole(place: Place) -> list[tuple[int, bytes, bytes]]:
    """Return what is kept, after a look at whether the database and each entry in it are sound."""
    with contextlib.closing(sqlite3.connect(place.database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = connection.execute("SELECT id, signature, content FROM outputs").fetchall()
    for _, signature, content in rows:
        assert decode_entry(signature, content) is not None
    return rows


# --- damage ---------------------------------------------------------------------------------------


async def test_a_damaged_entry_is_not_used_and_replaced(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    await place.run(CHAIN)
    for change in ("x''", "zeroblob(size)", "substr(content, 1, size - 1)", "'text'", "content || x'00'"):
        place.executed  # noqa: B018
        place.change(f"UPDATE outputs SET content = {change}")
        caplog.clear()

        assert output(await place.run(CHAIN), "c") == 3

        assert place.executed == ["a", "b", "c"], change
        (line,) = errors(caplog)
        assert "outputs.sqlite3: there are damaged entries; they are removed, their nodes run again" in line
    await place.run(CHAIN)
    assert place.executed == []


async def test_a_damaged_database_never_fails_a_run(place: Place) -> None:
    document = numbered(0, 50, 1200)
    await place.run(document)
    whole = place.database.read_bytes()
    for seed in range(repetitions(3, 20)):
        chance, spoiled = random.Random(seed), bytearray(whole)
        at = chance.randrange(len(spoiled))
        if seed % 2:
            del spoiled[at:]
        else:
            spoiled[at : at + 6000] = chance.randbytes(len(spoiled[at : at + 6000]))
        place.database.write_bytes(spoiled)
        run = await place.run(document)
        assert all(output(run, f"n{i}") == f"{i} {'x' * 1200}" for i in range(50))


async def test_a_folder_that_cannot_be_used_costs_one_line(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.database.parent.parent.mkdir(parents=True)
    place.database.parent.write_text("in the way")

    async with place.host() as bench:
        for value in range(3):
            run = await bench.run(counted({"a": ("Add", {"a": value})}))
            assert output(run, "a") == value
            await asyncio.sleep(0.3)

    (line,) = errors(caplog)
    assert "writing the cache on disk fails; runs continue without it:" in line
    assert "File exists" in line or "Not a directory" in line


async def test_a_cache_behind_a_link_is_not_used(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = place.project / "elsewhere"
    elsewhere.mkdir(parents=True)
    place.database.parent.parent.mkdir(parents=True)
    place.database.parent.symlink_to(elsewhere)
    await place.run(CHAIN)
    await place.run(CHAIN)
    assert place.executed == ["a", "a", "b", "b", "c", "c"]
    assert list(elsewhere.iterdir()) == []
    assert all("it is a symbolic link, and nothing is kept behind one" in line for line in errors(caplog))


async def test_a_full_disk_costs_one_line(place: Place) -> None:
    child = await begin(FULL.format(root=str(place.root)), stderr=asyncio.subprocess.PIPE)
    out, err = await child.communicate()
    assert out.decode().split() == ["complete"] * 3, err.decode()
    lines = [line for line in err.decode().splitlines() if "cache" in line]
    assert len(lines) == 1, lines
    assert "writing the cache on disk fails; runs continue without it:" in lines[0]
    assert "outputs.sqlite3" in lines[0]
    place.executed  # noqa: B018
    await place.run(numbered(0, 10, 10))
    assert place.executed == []


FULL = """
import asyncio, logging, resource, signal
from pathlib import Path
from test_disk_cache import Place, numbered

async def main():
    logging.basicConfig(level=logging.WARNING)
    place = Place(Path({root!r}))
    async with place.host() as bench:
        print((await bench.run(numbered(0, 10, 10))).status.value)
        await asyncio.sleep(0.5)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = 400_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        for first in (1000, 2000):
            print((await bench.run(numbered(first, 100, 10_000))).status.value)
            await asyncio.sleep(0.5)

asyncio.run(main())
"""


# --- interrupts -----------------------------------------------------------------------------------


async def test_a_run_interrupted_during_lookup_runs_nothing(place: Place) -> None:
    document = numbered(0, 600, 100)
    await place.run(document)
    place.executed  # noqa: B018
    async with place.host() as bench:
        run_id = await bench.start(document)
        await asyncio.sleep(0)
        await bench.engine.interrupt(run_id)
        run = await bench.engine.wait(run_id)
        assert run.status == "interrupted"
    assert place.executed == []


# --- commands -------------------------------------------------------------------------------------


async def test_the_cache_is_shown_and_cleared_by_command(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.run(CHAIN)
    assert place.executed == ["a", "b", "c"]
    monkeypatch.chdir(place.project)
    (place.project / "tavern.yaml").write_text("name: test\n")

    assert await asyncio.to_thread(tavern, ["cache", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["memory"] == {"entries": 0, "bytes": 0, "limit": 256 * 2**20}
    assert shown["disk"]["entries"] == 3
    assert 0 < shown["disk"]["bytes"] <= place.database.stat().st_size
    assert (shown["disk"]["path"], shown["disk"]["isOn"]) == (str(place.database), False)

    assert await asyncio.to_thread(tavern, ["cache", "clear"]) == 0
    assert capsys.readouterr().out == "Forgotten: 3 on disk, 0 in memory.\n"
    assert place.rows() == []
    await place.run(CHAIN)
    assert place.executed == ["a", "b", "c"]


# --- entries --------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(fold=0)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.just("$bytes"), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_kept_outputs_come_back_as_they_were(outputs: dict[str, Any]) -> None:
    content = encode_entry(b"signature", outputs)
    if content is None:
        assert any(hopeless(value) for value in outputs.values())
        return
    entry = decode_entry(b"signature", content)
    assert repr(entry.outputs) == repr(outputs)
    assert decode_entry(b"another", content) is None


def hopeless(value: Any) -> bool:
    if isinstance(value, list | dict):
        return any(hopeless(item) for item in (value.values() if isinstance(value, dict) else value))
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, int) and not -(2**63) <= value < 2**63


@given(
    st.binary(max_size=200),
    st.sampled_from([b"{}", b"[]", b'[{},[["a","json",3]]]\n[1]', b'{"a":[1]}', b"[1,2]", b"null"]),
)
def test_arbitrary_bytes_are_no_entry(noise: bytes, body: bytes) -> None:
    assert decode_entry(b"s", noise) is None
    entry = decode_entry(b"s", zlib.crc32(body, zlib.crc32(b"s")).to_bytes(4, "little") + body)
    assert entry is None or type(entry.outputs) is dict


def test_outputs_that_cannot_be_looked_at_are_not_kept() -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: Any = None
    for _ in range(5_000):
        deep = [deep]

    class Text(str):
        __slots__ = ()

    for value in (endless, deep, Text("a"), {1: "one"}, ("a", object()), float("inf")):
        assert encode_entry(b"s", {"value": value}) is None
    assert encode_entry(b"s", {1: "one"}) is None  # type: ignore[dict-item]
