"""The layers and the file of saved settings: precedence, what belongs to nothing, changes, several writers, damage."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import repetitions
from helpers.systems import on_linux
from hypothesis import given, settings
from hypothesis import strategies as st
from settings_maker import file_in, full, manifest_with, store_with

from tavern_host.common import system
from tavern_host.contracts.errors import DeadlineExceeded, Misconfigured
from tavern_host.settings.file import SavedSettings
from tavern_host.settings.store import LAYERS, SettingsChanges
from tavern_host.storage.yaml_file import InvalidFile

SIZE, COLOUR = "extensions.acme.size", "extensions.acme.colour"
ACME = manifest_with(
    {"key": "size", "type": "number", "min": 1, "max": 9},
    {"key": "colour", "type": "string", "defaultValue": "red"},
    {"key": "table", "type": "json", "defaultValue": {"a": [1]}},
)
ANYTHING = st.integers(0, 10) | st.just("wrong") | st.just(True) | st.none()


def saved_in(state: Path) -> Path:
    return state / "projects" / "p" / "settings.json"


async def next_of(changes: Any) -> list[str]:
    keys: list[str] = await asyncio.wait_for(anext(changes), 60)
    return keys


# --- layers ---------------------------------------------------------------------------------------------


@settings(max_examples=repetitions(30, 150), deadline=None)
@given(
    written=st.dictionaries(st.sampled_from(["project", "operator", "environment"]), ANYTHING),
    saved=st.lists(ANYTHING, max_size=1),
    default=st.lists(st.integers(1, 9), max_size=1),
)
def test_the_highest_layer_with_a_right_value_wins(
    written: dict[str, Any], saved: list[Any], default: list[int]
) -> None:
    option: dict[str, Any] = {"key": "size", "type": "number", "min": 1, "max": 9}
    manifest = manifest_with({**option, **({"defaultValue": default[0]} if default else {})})
    with tempfile.TemporaryDirectory() as folder:
        if saved:
            file = file_in(Path(folder))
            file.path.parent.mkdir(parents=True)
            file.write(SavedSettings(values={SIZE: saved[0]}))
        layers = {layer: {SIZE: value} for layer, value in written.items()}
        store = store_with(Path(folder), **layers)

        in_order = [("default", value) for value in default]
        in_order += [(layer, written[layer]) for layer in ("project", "operator") if layer in written]
        in_order += [("operator", value) for value in saved]
        in_order += [("environment", written["environment"])] if "environment" in written else []
        right = [(layer, value) for layer, value in in_order if type(value) is int and 1 <= value <= 9]

        found = store.of(manifest)
        assert found.get("size", "nothing") == (right[-1][1] if right else "nothing")
        assert found.origin("size") == (right[-1][0] if right else "default")
        assert found.layers("size") == dict(right)
        assert list(found.layers("size")) == [layer for layer in LAYERS if layer in dict(right)]
        assert len(store.problems(manifest)) == len(in_order) - len(right)


def test_values_are_copies_in_every_layer() -> None:
    table = {"rows": [1]}
    found = store_with(environment=full({"table": table})).of(ACME)
    found.get("table")["rows"].append(2)
    found.layers("table")["default"]["a"].clear()
    assert found.layers("table") == {"default": {"a": [1]}, "environment": {"rows": [1]}}
    assert table == {"rows": [1]}


def test_readers_are_told_of_project_settings() -> None:
    async def run() -> tuple[Any, list[str]]:
        store = store_with(project=full({"size": 2, "colour": "blue"}))
        found = store.of(ACME)
        changes = found.changes()
        store.set_files(full({"size": 3, "colour": "blue"}), {})
        return found.get("size"), await next_of(changes)

    assert asyncio.run(run()) == (3, ["size"])


# --- what belongs to nothing --------------------------------------------------------------------------------


async def test_settings_of_unknown_plugins_are_told(tmp_path: Path) -> None:
    await store_with(tmp_path).save({"extensions.gone.x": 1, "extensions.lost.y": "z"}, encrypted=["extensions.lost.y"])
    store = store_with(
        tmp_path,
        project={"extensions.acmee.size": 1, "extensions.acme.size": 1},
        operator={"acme.size": 1},
        environment={7: 1, "extensions..x": 1},  # type: ignore[dict-item]
    )
    assert [str(problem) for problem in store.unknown(["acme"])] == [
        "the project's settings have 'extensions.acmee.size', but there is no plugin 'acmee' (did you mean acme?)",
        "the operator's settings have 'acme.size', which is no setting (keys are extensions.{plugin}.{option})",
        "the saved settings have 'extensions.gone.x', but there is no plugin 'gone' "
        "(`tavern settings reset extensions.gone.x` takes it back)",
        "the environment's settings have 7, which is no setting (keys are extensions.{plugin}.{option})",
        "the environment's settings have 'extensions..x', which is no setting (keys are extensions.{plugin}.{option})",
        "the saved settings have 'extensions.lost.y', but there is no plugin 'lost' "
        "(`tavern settings reset extensions.lost.y` takes it back)",
    ]


def test_some_of_many_stray_settings_are_named() -> None:
    many = {f"extensions.acme.{'x' * 200}{number}": number for number in range(5000)}
    others = {f"extensions.{'y' * 80}{number}.z": number for number in range(5000)}
    store = store_with(project={**many, **others})
    for problems in (store.problems(ACME), store.unknown(["acme"])):
        assert len(problems) == 21
        assert "4980 more like this" in problems[-1].message
        assert max(len(str(problem)) for problem in problems) < 400


async def test_odd_keys_and_undeclared_values_are_not_shown(tmp_path: Path) -> None:
    store = store_with(tmp_path, operator={"extensions.acme.tokn": "hunter2", "extensions.acmee.token": "hunter2"})
    await store.save({"extensions.gone.x`; rm -rf ~`": 1, "extensions.acme.a b\n": 1})
    told = [*store.problems(ACME), *store.unknown(["acme"])]
    assert sorted(str(problem.hint) for problem in told) == ["None", "None", "None", "did you mean acme?"]
    assert "hunter2" not in str(told)


# --- changes ----------------------------------------------------------------------------------------------


async def test_a_plugins_unread_changes_are_merged(tmp_path: Path) -> None:
    store = store_with(tmp_path)
    changes = store.of(ACME).changes()
    for size in (1, 2, 3):
        await store.save({SIZE: size})
    await store.save({COLOUR: "blue", "extensions.other.x": 1})
    assert await next_of(changes) == ["size", "colour"]
    await store.save({COLOUR: "green"})
    assert await next_of(changes) == ["colour"]


async def test_closing_settings_ends_changes(tmp_path: Path) -> None:
    store = store_with(tmp_path)
    found, open_ = store.of(ACME), store.of(ACME)
    late, waiting = found.changes(), asyncio.create_task(_all(found.changes()))
    await store.save({SIZE: 3})
    found.close()
    found.close()
    await store.save({SIZE: 4})
    assert (found.get("size"), open_.get("size")) == (3, 4), "closed ones stay as they were"
    assert await asyncio.wait_for(_all(late), 60) == [["size"]]
    assert await asyncio.wait_for(waiting, 60) == [["size"]]
    assert await asyncio.wait_for(_all(found.changes()), 60) == []


async def _all(changes: Any) -> list[list[str]]:
    return [keys async for keys in changes]


async def test_a_reader_that_is_let_go_is_forgotten(tmp_path: Path) -> None:
    found = store_with(tmp_path).of(ACME)
    for _ in range(100):
        found.changes()
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is SettingsChanges]


async def test_changes_can_be_requested_on_any_thread(tmp_path: Path) -> None:
    store = store_with(tmp_path)
    found = store.of(ACME)
    stop = threading.Event()

    def ask() -> int:
        readers: list[Any] = []
        while not stop.is_set() or not readers:
            if len(readers) < 1000:
                readers.append(found.changes())
            found.get("size")
        return len(readers)

    asking = [asyncio.create_task(asyncio.to_thread(ask)) for _ in range(2)]
    for number in range(50):
        store.set_files(full({"size": number % 9 + 1}), {})
        await asyncio.sleep(0)
    stop.set()
    assert all(await asyncio.gather(*asking))
    assert found.get("size") == 49 % 9 + 1


async def test_a_cancelled_save_changes_nothing(tmp_path: Path) -> None:
    store = store_with(tmp_path)
    async with file_in(tmp_path).locked():
        saving = asyncio.create_task(store.save({SIZE: 5}))
        assert await asyncio.wait([saving], timeout=1) == (set(), {saving})
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
    assert store.of(ACME).get("size") is None
    assert not saved_in(tmp_path).exists()
    await store.save({SIZE: 6})
    assert store.of(ACME).get("size") == 6


@on_linux
async def test_a_held_lock_ends_in_a_deadline(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    file.path.parent.mkdir(parents=True)
    with file.path.with_name(".settings.json.lock").open("ab") as lock:
        system.lock(lock, wait=True)
        other = asyncio.create_task(asyncio.sleep(0, "done"))
        with pytest.raises(DeadlineExceeded, match=r"process \d+ \(.+\) has held .*\.settings\.json\.lock for 0\.2 s"):
            async with file.locked(deadline=0.2):
                raise AssertionError("the lock was given twice")
        assert other.done(), "the loop was free meanwhile"


# --- others write it ----------------------------------------------------------------------------------------


async def test_changes_of_other_processes_are_noticed(tmp_path: Path) -> None:
    here, there = store_with(tmp_path), store_with(tmp_path)
    await there.save({SIZE: 5})
    assert await here.save({COLOUR: "blue"}) == ([COLOUR], {"acme": [COLOUR, SIZE]})
    assert here.of(ACME).get("size") == 5
    saved_in(tmp_path).write_text("{")
    assert here.follow() == here.follow() == {}
    assert (here.of(ACME).get("size"), len(here.unknown(["acme"]))) == (5, 1), "a damaged file keeps former values"
    saved_in(tmp_path).unlink()
    assert {key: sorted(keys) for key, keys in here.follow().items()} == {"acme": [COLOUR, SIZE]}
    assert here.of(ACME).get("size") is None


DAMAGE = [b"", b"{", b"[]", b"\xff\xfe", b'{"version": 2}', b'{"values": 5}', b'{"values": {}, "more": 1}']
DAMAGE += [b'{"secrets": {"extensions.acme.x": 5}}', b'{"values": {"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"]


@pytest.mark.parametrize("content", DAMAGE, ids=range(len(DAMAGE)))
async def test_a_damaged_file_is_not_overwritten(tmp_path: Path, content: bytes) -> None:
    saved_in(tmp_path).parent.mkdir(parents=True)
    saved_in(tmp_path).write_bytes(content)
    store = store_with(tmp_path, operator=full({"size": 2}))
    assert store.of(ACME).get("size") == 2
    (problem,) = store.unknown(["acme"])
    assert problem.file == str(saved_in(tmp_path))
    assert problem.hint == "mend it, use the version that wrote it, or remove it: what was saved is lost then"
    with pytest.raises(InvalidFile, match="it cannot be read"):
        await store.save({SIZE: 5})
    assert saved_in(tmp_path).read_bytes() == content

    saved_in(tmp_path).write_text(json.dumps({"values": {SIZE: 4}}))
    assert store.follow() == {"acme": [SIZE]}
    assert store.of(ACME).get("size") == 4
    assert store.unknown(["acme"]) == []


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "too large"])
async def test_what_is_no_file_is_told(tmp_path: Path, kind: str) -> None:
    path = saved_in(tmp_path)
    path.parent.mkdir(parents=True)
    make = {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "device": lambda: path.symlink_to("/dev/zero")}
    make.get(kind, path.touch)()
    if kind == "too large":
        os.truncate(path, 17 << 20)
    (problem,) = store_with(tmp_path).unknown([])
    assert "it is no file of at most 16 MiB" in problem.message


async def test_wrong_saved_values_are_left_out(tmp_path: Path) -> None:
    saved_in(tmp_path).parent.mkdir(parents=True)
    saved_in(tmp_path).write_text(json.dumps({"values": {SIZE: 50, COLOUR: None}}))
    store = store_with(tmp_path, operator=full({"size": 2}))
    assert store.of(ACME).layers("size") == {"operator": 2}
    assert store.of(ACME).get("colour") == "red"
    assert [str(problem) for problem in store.problems(ACME)] == [
        f"the saved setting '{SIZE}' must be at most 9, found 50 (it is left out until it is right)",
        f"the saved setting '{COLOUR}' must be a text, found None (it is left out until it is right)",
    ]


async def test_what_cannot_be_saved_is_told(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="this host has no file to save settings in"):
        await store_with().save({SIZE: 5})
    (tmp_path / "projects").write_text("in the way")
    with pytest.raises(Misconfigured, match=r"settings cannot be saved: .*: Not a directory"):
        await store_with(tmp_path).save({SIZE: 5})


async def test_oversized_saves_are_refused(tmp_path: Path) -> None:
    store = store_with(tmp_path)
    await store.save({SIZE: 5})
    with pytest.raises(Misconfigured, match="all together, they are larger than 16 MiB"):
        await store.save({f"extensions.acme.{n}": "x" * (1 << 20) for n in range(17)})
    assert store_with(tmp_path).of(ACME).get("size") == 5
