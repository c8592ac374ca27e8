"""A project may come from anybody, with runs and outputs in its folder: none of it is resumed unasked."""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from engine_bench import PLUGINS, Bench, output, workflow
from helpers.held_time import HeldClock
from helpers.run_entries import accepted, finished
from helpers.waiting import until
from loops_bench import flow, notes
from runs_bench import opened

from tavern_engine.api.executions import RunFilter
from tavern_engine.api.runs import RUN_STORE
from tavern_engine.journal.keys import ProjectKey
from tavern_host import Host
from tavern_host.contracts.calls import Principal
from tavern_host.contracts.errors import PermissionDenied
from tavern_host.contracts.executions import Run, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_host.projects import Folders

NAMES = ("acme_nodes", "acme_flow")


class Place:
    """A folder for projects, with what their nodes write and wait for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.notes = root / "notes"
        self.go = root / "go"

    @asynccontextmanager
    async def host(self, name: str, *, serving: bool = False, **settings: object) -> AsyncIterator[Bench]:
        """Open a host on a project."""
        host = Host(
            self.root / name,
            plugins=[PLUGINS / plugin for plugin in NAMES],
            trust=[plugin.replace("_", "-") for plugin in NAMES],
            settings={f"extensions.tavern-engine.{key}": value for key, value in settings.items()},
            serving=serving,
        )
        async with host:
            yield Bench(host)

    @property
    def document(self) -> Workflow:
        """A node that says that it ran, and one that waits for a file."""
        return workflow(
            {"note": flow("NoteAlways", file=self.notes, value="ran"), "wait": flow("WaitUntil", file=self.go)},
            "note > wait",
        )

    async def cut_off(self, name: str, count: int = 1) -> list[str]:
        """Begin runs on a project, and leave its store as it is when the host is killed; return their ids."""
        database, then = self.store(name) / "runs.sqlite3", self.root / "then"
        async with self.host(name, serving=True) as bench:
            runs = [await bench.start(self.document) for _ in range(count)]
            store = bench.host.services.get(RUN_STORE)

            async def are_noted() -> bool:
                return all([await store.batches(run) for run in runs])

            await until(are_noted)
            with closing(sqlite3.connect(database)) as now, closing(sqlite3.connect(then)) as copy:
                now.backup(copy)
        for path in database.parent.glob("runs.sqlite3*"):
            path.unlink()
        then.rename(database)
        return runs

    def store(self, name: str) -> Path:
        return self.root / name / ".tavern" / "runs"

    def key(self, name: str) -> Path:
        """Return where the operator's key for a project is."""
        about = Host(self.root / name).project
        return Folders.of_user().project_state(about) / "plugins" / "tavern-engine" / "key"

    async def after_serving(self, name: str, run_id: str) -> Run:
        """Return a run after a host that serves has looked at it."""
        async with self.host(name, serving=True) as bench:
            return await bench.engine.wait(run_id)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def said(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= level and "tavern-engine" in r.name]


def change(store: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(store / "runs.sqlite3", isolation_level=None)) as connection:
        connection.execute(statement, values)


def entry_of(store: Path) -> Any:
    with closing(sqlite3.connect(store / "runs.sqlite3")) as connection:
        return json.loads(connection.execute("SELECT entry FROM runs ORDER BY seq DESC LIMIT 1").fetchone()[0])


# --- projects that come from elsewhere ------------------------------------------------------------


async def test_only_a_person_resumes_runs_from_elsewhere(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    first, second = await place.cut_off("theirs", count=2)
    shutil.copytree(place.root / "theirs", place.root / "mine")
    place.go.touch()

    run = await place.after_serving("mine", first)
    async with place.host("mine", serving=True) as bench:
        listed = await bench.engine.history()
        await bench.engine.resume(second)
        resumed = await bench.engine.wait(second)

    assert run.status == "interrupted"
    assert run.error.message == (
        "it was started elsewhere, or before the project was moved, and was not resumed here;"
        f" `tavern runs resume {first}` resumes it"
    )
    assert run.nodes["note"].output == {"value": "ran"}
    assert {each.id: each.status for each in listed} == {first: "interrupted", second: "interrupted"}
    assert (resumed.status, resumed.attempt, output(resumed, "wait")) == ("complete", 2, "ran")
    assert notes(place.notes) == ["ran", "ran"]
    (line,) = said(caplog)
    assert line.startswith(f"{place.store('mine')}: 2 not resumed: started elsewhere, or before the project was moved;")


async def test_own_runs_in_a_project_from_elsewhere_resume(place: Place) -> None:
    await place.cut_off("theirs")
    shutil.move(place.root / "theirs", place.root / "mine")
    (mine,) = await place.cut_off("mine")
    place.go.touch()

    run = await place.after_serving("mine", mine)

    assert (run.status, run.attempt) == ("complete", 2)


async def test_runs_stay_interrupted_where_the_operator_says_so(place: Place) -> None:
    (run_id,) = await place.cut_off("mine")
    place.go.touch()
    async with place.host("mine", serving=True, onRestart="interrupt") as bench:
        run = await bench.engine.wait(run_id)
    assert (run.status, run.attempt) == ("interrupted", 1)


async def test_a_store_put_in_place_is_noticed(place: Place) -> None:
    (theirs,) = await place.cut_off("theirs")
    await place.cut_off("mine")
    shutil.rmtree(place.store("mine"))
    shutil.copytree(place.store("theirs"), place.store("mine"))
    place.go.touch()

    run = await place.after_serving("mine", theirs)

    assert (run.status, notes(place.notes)) == ("interrupted", ["ran", "ran"])


async def test_changed_runs_of_a_returned_store_stay_interrupted(place: Place) -> None:
    """Somebody got the project and sent it back: with one run as it was, and another with other values."""
    same, changed = await place.cut_off("mine", count=2)
    altered = entry_of(place.store("mine")) | {"request": {"inputs": {"amount": 1000}}}
    change(place.store("mine"), "UPDATE runs SET entry = ? WHERE id = ?", json.dumps(altered).encode(), changed)
    place.go.touch()

    assert (await place.after_serving("mine", same)).status == "complete"
    assert (await place.after_serving("mine", changed)).status == "interrupted"


async def test_an_ended_run_set_back_is_not_rerun(place: Place) -> None:
    """By its status, or by a trigger in the store, which is removed."""
    place.go.touch()
    async with place.host("mine") as bench:
        run = await bench.run(place.document)
    change(place.store("mine"), "UPDATE runs SET status = 'queued', is_final = 0, finished = NULL")
    change(
        place.store("mine"),
        'CREATE TRIGGER "set ""back" AFTER UPDATE ON runs WHEN NEW.is_final = 1 BEGIN'
        " UPDATE runs SET status = 'queued', is_final = 0, seal = OLD.seal WHERE seq = NEW.seq; END",
    )

    again = await place.after_serving("mine", run.id)
    async with place.host("mine") as bench:
        new = await bench.run(place.document)
    later = await place.after_serving("mine", new.id)

    assert (run.status, again.status) == ("complete", "interrupted")
    assert (later.status, later.attempt, notes(place.notes)) == ("complete", 1, ["ran", "ran"])


async def test_a_run_with_actions_needs_a_fitting_principal(place: Place) -> None:
    async with place.host("mine") as bench:
        run_id = await bench.start(place.document)
        await bench.until("NODE_EXECUTING", nodeId="wait")
        await bench.interrupted(run_id)
    altered = entry_of(place.store("mine"))
    altered["request"]["actions"] = {"principal": {"kind": "user", "id": "operator"}}
    change(place.store("mine"), "UPDATE runs SET entry = ?", json.dumps(altered).encode())

    async with place.host("mine") as bench:
        agent = bench.host.call().child(principal=Principal(kind="agent", id="ada"))
        with pytest.raises(PermissionDenied, match="may not have calls made on behalf of user:operator"):
            await bench.engine.resume(run_id, call=agent)
        assert (await bench.engine.get(run_id)).status == "interrupted"


async def test_outputs_that_came_with_a_project_are_not_believed(place: Place) -> None:
    document = workflow({"note": flow("Note", file=place.notes, value="ran")})
    for name, times in (("theirs", 1), ("theirs", 1), ("mine", 2), ("mine", 2)):
        async with place.host(name, cacheOnDisk=True) as bench:
            assert output(await bench.run(document), "note") == "ran"
        assert notes(place.notes) == ["ran"] * times
        if not (place.root / "mine").exists():
            shutil.copytree(place.root / "theirs", place.root / "mine")


# --- the operator's folder ------------------------------------------------------------------------


async def test_without_operator_folder_nothing_is_resumed_or_cached(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = place.key("mine").parent
    blocked.parent.mkdir(parents=True)
    blocked.write_text("in the way")
    (run_id,) = await place.cut_off("mine")
    place.go.touch()
    caplog.clear()

    async with place.host("mine", serving=True, cacheOnDisk=True) as bench:
        await until(lambda: said(caplog, logging.ERROR))
        left = await bench.engine.get(run_id)
        await bench.engine.resume(run_id)
        resumed = await bench.engine.wait(run_id)

    assert (left.status, left.attempt, resumed.status) == ("running", 1, "complete")
    assert [line for line in said(caplog, logging.ERROR) if "none that was interrupted is resumed" in line] == [
        f"{blocked / 'key'}: Not a directory; so it is unknown which runs were started here,"
        " and none that was interrupted is resumed"
    ]
    for _ in range(2):
        async with place.host("mine", cacheOnDisk=True) as bench:
            await bench.run(workflow({"note": flow("Note", file=place.root / "cached", value="ran")}))
    assert notes(place.root / "cached") == ["ran", "ran"]
    lines = [line for line in said(caplog) if "the cache on disk fails; runs continue without it" in line]
    assert lines and all(str(blocked) in line for line in lines)


def test_a_damaged_key_is_said_and_nothing_is_sealed_with_it(tmp_path: Path) -> None:
    key = ProjectKey(tmp_path)
    for content in (b"", b"short", b"x" * 33):
        (tmp_path / "key").write_bytes(content)
        for use in (key.prepare, lambda: key.seal("run_1", b""), lambda: key.has_sealed("run_1", b"", b"")):
            with pytest.raises(OSError, match="it is damaged; remove it, and a new one is made"):
                use()
    (tmp_path / "key").unlink()
    assert key.has_sealed("run_1", b"content", key.seal("run_1", b"content"))


def test_processes_that_race_make_one_key(tmp_path: Path) -> None:
    keys = [ProjectKey(tmp_path / "operator") for _ in range(16)]
    with ThreadPoolExecutor(len(keys)) as threads:
        seals = list(threads.map(lambda key: key.seal("run_1", b"content"), keys))
    assert len(set(seals)) == 1
    assert [path.name for path in (tmp_path / "operator").iterdir()] == ["key"]
    assert (tmp_path / "operator" / "key").stat().st_mode & 0o777 == 0o600


def test_a_seal_fits_one_name_content_and_key(tmp_path: Path) -> None:
    key, other = ProjectKey(tmp_path / "a"), ProjectKey(tmp_path / "b")
    name, content = "run_1", b"1content"
    seal = key.seal(name, content)
    assert key.has_sealed(name, content, seal)
    for asked in [
        *(("run_11", b"content", seal), (name, b"content", seal), (name, content, other.seal(name, content))),
        *((name, "1content", seal), (1, content, seal), ("run_\udc80", content, seal)),
        *((name, content, None), (name, content, "")),
    ]:
        assert not key.has_sealed(*asked)


# --- the store ------------------------------------------------------------------------------------


async def test_many_runs_from_elsewhere_hold_up_no_other(
    tmp_path: Path, held_clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path / "theirs") as store:
        await accepted(store, *(f"run_{i}" for i in range(120)), priority=5, worker="theirs")
    shutil.copytree(tmp_path / "theirs", tmp_path / "mine")
    async with opened(tmp_path / "mine") as store:
        await accepted(store, "own", worker="gone", lease=30)
        held_clock.advance(31)
        odd = '{"outputs": {"a": NaN}, "error": null}'
        change(tmp_path / "mine", "UPDATE runs SET state = ? WHERE id = 'run_7'", odd)
        change(tmp_path / "mine", "UPDATE runs SET entry = CAST(entry AS TEXT) WHERE id = 'run_8'")
        change(tmp_path / "mine", "UPDATE runs SET not_resumable = 'so' WHERE id = 'run_8'")
        assert (await store.claim("w", 30)).id == "own"
        assert len(await store.list_runs(RunFilter(statuses=[RunStatus.INTERRUPTED], limit=200))) == 119
        error = (await store.get("run_8")).error
        assert error.message.endswith("not resumed here; it cannot be resumed: so")
        assert await store.claim("w", 30) is None
    assert len([r for r in caplog.records if "119 not resumed" in r.getMessage()]) == 1


async def test_a_store_of_an_earlier_version_is_migrated(tmp_path: Path, held_clock: HeldClock) -> None:
    async with opened(tmp_path / "runs") as store:
        await finished(store, "done")
        await accepted(store, "open", worker="gone", lease=30)
    held_clock.advance(31)
    for column in ("seal", "is_unwanted", "waits"):
        change(tmp_path / "runs", f"ALTER TABLE runs DROP COLUMN {column}")
    change(tmp_path / "runs", "DROP TABLE bodies")
    change(tmp_path / "runs", "PRAGMA user_version = 1")

    async with opened(tmp_path / "runs") as store:
        assert await store.claim("w", 30) is None
        shown = {run.id: run.status for run in await store.list_runs(RunFilter())}
        assert shown == {"done": "complete", "open": "interrupted"}
        assert await store.claim("w", 30, run_id="open") is not None


async def test_a_damaged_store_begun_anew_resumes_own_runs(tmp_path: Path, held_clock: HeldClock) -> None:
    async with opened(tmp_path / "runs") as store:
        await accepted(store, "lost")
    (tmp_path / "runs" / "runs.sqlite3").write_bytes(b"not a database" * 1000)
    async with opened(tmp_path / "runs") as store:
        await accepted(store, "own", worker="gone", lease=30)
        held_clock.advance(31)
        assert (await store.claim("w", 30)).id == "own"
