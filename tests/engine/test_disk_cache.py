"""Outputs of nodes outlive the host where `cacheOnDisk` is set: a later host on the project need not run them again."""

from __future__ import annotations

import asyncio
import json
import random
import zlib
from typing import Any

import pytest
from cache_bench import Place, as_later, change, counted, errors, numbered, same, special, written
from engine_bench import output
from helpers.repetition import Failures, repetitions
from helpers.waiting import until
from hypothesis import given
from hypothesis import strategies as st
from runs_bench import CODED

from tavern_engine.cache.disk.entries import decode_entry, encode_entry
from tavern_host.cli.terminal import run as tavern
from tavern_host.contracts.executions import RunRequest

CHAIN = counted({"a": same(1), "b": "Same", "c": "Same"}, "a > b > c")


async def test_a_later_host_runs_nothing_again(place: Place) -> None:
    nodes = {"a": same(1), "b": "Same", "count": "Count", "told": "Told", "large": special("large"), "as large": "Same"}
    document = counted(nodes, "a > b, count.items > told, large > as large")
    first = await place.run(document)
    assert place.executed == sorted(nodes)
    for settings in ({}, {"cacheMegabytes": 1}):  # what memory has no room for comes from the disk
        second = await place.run(document, **settings)
        assert place.executed == []
        assert {name: state.cached for name, state in second.nodes.items()} == dict.fromkeys(nodes, True)
        shown = {name: state.output for name, state in second.nodes.items()}
        assert shown == {name: state.output for name, state in first.nodes.items()} | {"large": None}
    more = await place.run(counted({"count": "Count", "new": "Same"}, "count.items > new"))
    assert (place.executed, output(more, "new")) == (["new"], [0, 1, 2])


async def test_nothing_is_written_or_read_where_it_is_off(place: Place) -> None:
    has_kept = False
    for on, use_cache, executed in [
        *((False, True, 3), (True, False, 3), (True, True, 3), (False, True, 3), (True, False, 3), (True, True, 0))
    ]:
        async with place.host(cacheOnDisk=on) as bench:
            await bench.engine.run(RunRequest(workflow=CHAIN, use_cache=use_cache))
        assert len(place.executed) == executed
        has_kept = has_kept or (on and use_cache)
        assert place.database.exists() == has_kept


async def test_changed_code_or_version_runs_again(place: Place) -> None:
    document = counted({"e": "Ended", "s": "Same"}, "e > s")
    for about in ({}, {"version": "1.1.0"}, {"version": "1.1.0", "suffix": " you"}):
        place.write(**about)
        run = await place.run(document)
        assert place.executed == ["e", "s"]
    assert output(run, "s") == "hello you!"


async def test_another_setting_of_the_plugin_runs_its_nodes_again(place: Place) -> None:
    document = counted({"e": "Ended", "s": "Same"}, "e > s")
    first = [("!", ["e", "s"]), ("?", ["e", "s"]), ("?", []), ("!", [])]
    for steps in (first, [("!", []), (".", ["e", "s"]), ("?", []), (".", [])]):
        async with place.host() as bench:
            for ending, executed in steps:
                await change(bench, ending=ending)
                run = await (as_later(bench, document) if steps is first else bench.run(document))
                assert (output(run, "s"), place.executed) == (f"hello{ending}", executed)


async def test_a_setting_that_changes_during_a_run_is_not_cached(place: Place) -> None:
    document = counted({"e": "Ended"})
    async with place.host() as bench:
        for before, after in (("!", "?"), ("!", "!")):
            await change(bench, ending=before, wait=True)
            run_id = await bench.start(document)
            await until(lambda: place.executed)
            await change(bench, ending=after, wait=False)
            assert output(await bench.engine.wait(run_id), "e") == f"hello{after}"


async def test_is_changed_is_asked_before_the_disk(place: Place) -> None:
    document = counted({"m": "Mood", "s": "Same"}, "m > s")
    async with place.host() as bench:
        for mood, executed in (("good", ["m", "s"]), ("good", []), ("better", ["m", "s"])):
            (place.project / "mood").write_text(mood)
            run = await as_later(bench, document)
            assert (output(run, "s"), place.executed) == (mood, executed)


async def test_values_with_a_codec_come_back_as_they_were(place: Place) -> None:
    kinds = ["bytes", "surrogate", "long", "large", "moment", "odd keys", "nested", "nothing"]
    lacking = ["enum", "model", "models"]
    givers = {kind: special(kind) for kind in [*kinds, *lacking]}
    told = {f"told {kind}": "Told" for kind in kinds}
    between = {f"same {kind}": "Same" for kind in kinds}
    direct = counted({**givers, **told}, *(f"{kind} > told {kind}" for kind in kinds))
    longer = (edge for kind in kinds for edge in (f"{kind} > same {kind}", f"same {kind} > told {kind}"))
    async with place.host() as bench:
        first = await as_later(bench, direct)
        assert place.executed == sorted([*givers, *told])
        second = await as_later(bench, counted({**givers, **between, **told}, *longer))
    assert place.executed == sorted([*between, *told, *lacking])
    assert {name: output(second, name) for name in told} == {name: output(first, name) for name in told}


async def test_what_is_not_needed_is_not_read(place: Place) -> None:
    document = counted({"s": special("large"), "t": "Told"}, "s > t")
    async with place.host() as bench:
        await as_later(bench, document)
        assert place.executed == ["s", "t"]
        place.change("UPDATE outputs SET content = zeroblob(size) WHERE size > 100000")  # what reads it would notice
        run = await as_later(bench, document)
    assert (place.executed, run.nodes["s"].cached) == ([], True)
    assert [content == bytes(size) for _, _, size, content in place.rows()].count(True) == 1


# --- bounds ---------------------------------------------------------------------------------------


async def test_the_least_recently_used_entries_are_evicted(place: Place) -> None:
    old, used, new = numbered(0, 80, 10_000), numbered(80, 15, 10_000), numbered(95, 30, 10_000)
    async with place.host(cacheDiskMegabytes=1) as bench:
        for document in (used, old):
            await as_later(bench, document)
        place.change("UPDATE outputs SET used = used - 3600000000")
        await as_later(bench, used)
        assert len(place.executed) == 95
        await as_later(bench, new)
        assert len(place.executed) == 30
        assert place.database.stat().st_size <= 2**20
        for document in (used, new):
            await as_later(bench, document)
            assert place.executed == []
        await as_later(bench, old)
    assert 0 < len(place.executed) < 80


async def test_an_entry_of_half_the_room_is_not_kept(place: Place) -> None:
    document = counted({"s": special("large"), "a": same(1)})
    async with place.host(cacheDiskMegabytes=1) as bench:
        await as_later(bench, document)
        assert ([size for _, _, size, _ in place.rows() if size > 1000], place.executed) == ([], ["a", "s"])
        await as_later(bench, document)
    assert place.executed == ["s"]


async def test_a_smaller_limit_frees_disk_space(place: Place) -> None:
    await place.run(numbered(0, 25, 100_000))
    assert place.database.stat().st_size > 2 * 2**20
    await place.run(numbered(25, 1, 10), cacheDiskMegabytes=1)
    assert place.database.stat().st_size <= 2**20


# --- several processes ----------------------------------------------------------------------------


async def test_hosts_write_at_once_without_conflict(place: Place) -> None:
    documents = [numbered(first, 20, 100) for first in range(0, 100, 10)]
    async with place.host() as one, place.host() as other:
        await asyncio.gather(*(bench.run(document) for document in documents for bench in (one, other)))
        for bench in (one, other):
            await written(bench)
        assert len(place.executed) >= 110
        assert place.count() == 110
        for document in documents:
            await as_later(one, document)
        assert place.executed == []


# --- damage ---------------------------------------------------------------------------------------


async def test_a_damaged_entry_is_not_used_and_replaced(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    async with place.host() as bench:
        await as_later(bench, CHAIN)
        for content in ("x''", "zeroblob(size)", "substr(content, 1, size - 1)", "'text'", "content || x'00'"):
            place.executed  # noqa: B018
            place.change(f"UPDATE outputs SET content = {content}")
            assert output(await as_later(bench, CHAIN), "c") == 1
            assert place.executed == ["a", "b", "c"], content
        await as_later(bench, CHAIN)
    assert place.executed == []
    (line,) = errors(caplog)
    assert "outputs.sqlite3: there are damaged entries; they are removed, their nodes run again" in line


async def test_a_damaged_database_never_fails_a_run(place: Place) -> None:
    document = numbered(0, 50, 1200)
    await place.run(document)
    whole = place.database.read_bytes()
    for seed in range(repetitions(2, 20)):
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
            assert output(await as_later(bench, counted({"a": same(value)})), "a") == value
    (line,) = errors(caplog)
    assert "writing the cache on disk fails; runs continue without it:" in line
    assert "File exists" in line or "Not a directory" in line


async def test_a_cache_behind_a_link_is_not_used(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = place.project / "elsewhere"
    elsewhere.mkdir(parents=True)
    place.database.parent.parent.mkdir(parents=True)
    place.database.parent.symlink_to(elsewhere)
    async with place.host() as bench:
        for _ in range(2):
            await as_later(bench, CHAIN)
    assert place.executed == ["a", "a", "b", "b", "c", "c"]
    assert list(elsewhere.iterdir()) == []
    assert errors(caplog)
    assert all("it is a symbolic link, and nothing is kept behind one" in line for line in errors(caplog))


async def test_a_run_interrupted_during_lookup_runs_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tavern_engine.cache.disk.tables.AT_ONCE", 50)
    monkeypatch.setattr("tavern_engine.cache.disk.lookup.SLICE", 20)
    document = numbered(0, 200, 100)
    await place.run(document)
    place.executed  # noqa: B018
    async with place.host() as bench:
        run_id = await bench.start(document)
        await asyncio.sleep(0)
        assert (await bench.interrupted(run_id)).status == "interrupted"
        run = await bench.run(document)
    assert place.executed == []
    assert [output(run, f"n{i}") for i in range(200)] == [f"{i} {'x' * 100}" for i in range(200)]


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
    assert 0 < shown["disk"]["bytes"] <= place.database.stat().st_size
    assert [shown["disk"][key] for key in ("entries", "path", "isOn")] == [3, str(place.database), False]

    assert await asyncio.to_thread(tavern, ["cache", "clear"]) == 0
    assert capsys.readouterr().out == "Forgotten: 3 on disk, 0 in memory.\n"
    assert place.rows() == []
    await place.run(CHAIN)
    assert place.executed == ["a", "b", "c"]


# --- entries --------------------------------------------------------------------------------------


@given(st.dictionaries(st.text(), CODED, max_size=4))
def test_kept_outputs_come_back_as_they_were(outputs: dict[str, Any]) -> None:
    content = encode_entry(b"signature", outputs)
    assert repr(decode_entry(b"signature", content).outputs) == repr(outputs)
    assert decode_entry(b"another", content) is None


@given(
    st.binary(max_size=200),
    st.sampled_from([b"{}", b"[]", b'[{},[["a","json",3]]]\n[1]', b'{"a":[1]}', b"[1,2]", b"null"]),
)
def test_arbitrary_bytes_are_no_entry(noise: bytes, body: bytes) -> None:
    assert decode_entry(b"s", noise) is None
    entry = decode_entry(b"s", zlib.crc32(body, zlib.crc32(b"s")).to_bytes(4, "little") + body)
    assert entry is None or type(entry.outputs) is dict


def test_outputs_that_cannot_be_kept_are_not() -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: Any = None
    for _ in range(5_000):
        deep = [deep]

    class Text(str):
        __slots__ = ()

    odd = {"endless": endless, "deep": deep, "text": Text("a"), "keys": {1: "one"}, "object": ("a", object())}
    odd |= {"inf": float("inf"), "in a list": [float("nan")], "large": 2**63, "small": [{"a": -(2**63) - 1}]}
    with Failures() as failures:
        for name, value in odd.items():
            with failures.row(name):
                assert encode_entry(b"s", {"value": value}) is None
        with failures.row("slot"):
            assert encode_entry(b"s", {1: "one"}) is None  # type: ignore[dict-item]
