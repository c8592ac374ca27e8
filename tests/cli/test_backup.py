"""`tavern backup`, `restore` and `migrate`: a project with what the operator decided, in a file and back again."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import shutil
import sqlite3
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from documentation.pages import ROOT
from helpers.command_line import tavern
from helpers.repetition import Failures

from tavern_engine.journal.run_store.schema import RUNS
from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.errors import Misconfigured, TavernError
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow
from tavern_host.projects import Folders, find_project
from tavern_host.server.holder import Server, held
from tavern_operations.archive import _seal
from tavern_operations.backup import make_backup
from tavern_operations.restore import _swap, restore_backup
from tavern_operations.stores import SCHEMAS, refuse_newer, schemas


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def state_of(project: Path) -> Path:
    folders = Folders.of_user()
    return folders.project_state(find_project(project, folders, create=True).project)


def tree(*folders: Path) -> dict[str, bytes]:
    """Return the files below folders with what is in them, but for locks."""
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {str(path): path.read_bytes() for path in files}


def test_a_project_is_restored_elsewhere_with_its_grants(project: Path, saved: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    with zipfile.ZipFile(saved) as archive:
        assert [name for name in archive.namelist() if name.endswith((".key", "/link", ".log"))] == []
    assert tavern("restore", "--check", saved).code == 0

    ran = tavern("restore", saved, tmp_path / "moved")

    moved = tmp_path / "moved"
    assert (ran.code, ran.err) == (0, "")
    assert sorted(path.name for path in (moved / "files").iterdir()) == ["run.sh", "uv.lock"]
    about = (moved / "files" / "run.sh").stat()
    assert (about.st_mtime_ns, stat.S_IMODE(about.st_mode)) == (10**18, 0o755)
    assert not (moved / ".tavern" / "cache").exists() and not (state_of(moved) / "isolation").exists()
    assert (moved / "workflows").is_dir()
    shown = tavern("--project", moved, "plugins", "show", "acme", "--json").json()
    assert shown["state"] == "discovered"
    assert all(permission["granted"] for permission in shown["permissions"])
    actions = [entry["action"] for entry in tavern("--project", moved, "audit", "tail", "--json").json()]
    assert actions == ["plugin.granted", "host.restored"]
    assert tavern("--project", moved, "audit", "verify").code == 0
    assert [e["action"] for e in tavern("--project", project, "audit", "tail", "--json").json()][-1] == "host.backed_up"
    assert list(state_of(moved).parent.glob("*.before-restore-*")) == []


def test_what_was_there_before_is_kept(project: Path, saved: Path) -> None:
    write(project / "files" / "new.txt", "new")
    assert tavern("--project", project, "plugins", "revoke", "acme").code == 0

    (project / "tavern.yaml").write_text("{{{ damaged")
    result = tavern("restore", saved, "--json", cwd=project).json()

    assert result["restored"] == str(project)
    old, old_state = map(Path, result["replaced"])
    assert (old / "files" / "new.txt").read_text() == "new"
    assert not (project / "files" / "new.txt").exists()
    assert tavern("--project", project, "plugins", "list").code == 0
    assert json.loads((old_state / "grants.json").read_text())["grants"] == {}
    assert "acme" in json.loads((state_of(project) / "grants.json").read_text())["grants"]


async def test_a_run_in_flight_resumes_where_it_is_restored(project: Path, tmp_path: Path) -> None:
    folders, file = Folders.of_user(), tmp_path / "inn.backup"
    node = {"id": "w", "type": "core:Wait", "inputValues": {"value": "x", "seconds": 600}}
    request = RunRequest(workflow=Workflow.model_validate({"nodes": [node], "edges": []}))
    async with Host(project, serving=True) as host:
        engine = host.services.get(EXECUTION_ENGINE)
        events = host.events.subscribe("NODE_EXECUTING")
        run_id = await engine.submit(request)
        await anext(aiter(events))
        assert await asyncio.to_thread(lambda: [*make_backup(find_project(project, folders).project, folders, file)])
    for folder in (project, tmp_path / "moved"):
        assert await asyncio.to_thread(lambda folder=folder: [*restore_backup(file, folder, folders, trust=False)])
        async with Host(folder, serving=True) as host:
            engine = host.services.get(EXECUTION_ENGINE)
            statuses = [(await engine.get(run_id)).status.value, (await engine.wait(run_id)).status.value]
        assert statuses[0] != "complete"
        assert statuses[1] == "complete"


def copied(project: Path, folder: Path) -> Path:
    """Make a backup and return a folder with what is in it."""
    folders, file = Folders.of_user(), folder.with_suffix(".backup")
    assert [*make_backup(find_project(project, folders).project, folders, file)]
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder)
    return folder


def test_no_backup_over_or_within_what_is_there(project: Path, saved: Path) -> None:
    before = saved.read_bytes()
    for file, why in (
        (saved, "is there already"),
        (project / "x", "is within the project"),
        (project.parent / "none" / "x", "there is no folder"),
    ):
        ran = tavern("--project", project, "backup", file)
        assert ran.code != 0 and why in ran.error, ran.err
    inner = tavern("--project", project, "backup", saved.with_name("x"), TAVERN_STATE_DIR=str(project / "state"))
    assert "with your keys is within the project" in inner.error
    assert saved.read_bytes() == before
    assert not any(path.name.startswith(".tavern-") for path in saved.parent.iterdir())


def members(project: Path) -> tuple[bool, list[str]]:
    """Return whether a project is open to all users, and the names of its members."""
    found = tavern("--project", project, "members", "list", "--json").json()
    return found["open"], [member["user"] for member in found["members"]]


def test_decisions_follow_a_project_that_its_operator_moved(project: Path, saved: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    assert tavern("users", "add", "ann", stdin="a good password\n").code == 0
    assert tavern("--project", project, "members", "add", "ann").code == 0
    shutil.copytree(project, moved, symlinks=True)
    with nothing_changes(project, moved):
        assert "is still there" in tavern("--project", moved, "adopt", project).error
        assert "nothing is known of a project in" in tavern("--project", moved, "adopt", tmp_path / "none").error
    assert tavern("restore", saved, tmp_path / "again").code == 0
    (project / "tavern.yaml").write_text("{{{ damaged")
    assert "The project is closed to all users" in tavern("restore", saved, tmp_path / "third").err
    assert members(tmp_path / "third") == (False, [])
    shutil.rmtree(project)
    assert tavern("--project", moved, "plugins", "show", "acme", "--json").json()["state"] == "needs-review"
    for state in (state_of(moved), state_of(project)):
        with held(state, Server(os.getpid(), "http://127.0.0.1:1", "token")):
            assert "stop that first" in tavern("--project", moved, "adopt", project).error

    assert tavern("--project", moved, "adopt", project).code == 0
    assert members(moved) == members(tmp_path / "again") == (False, ["ann"])

    assert tavern("--project", moved, "plugins", "show", "acme", "--json").json()["state"] == "discovered"
    assert tavern("--project", moved, "audit", "verify").code == 0
    (moved / "plugins" / "acme" / "__init__.py").write_text("changed = True")
    assert tavern("--project", moved, "plugins", "show", "acme", "--json").json()["state"] == "needs-review"


# --- what is refused ----------------------------------------------------------------------------------


def changed(saved: Path, change: Callable[[dict[str, bytes]], object], *, seal: bool = True) -> Path:
    """Return a backup like another one, but for what `change` does to its entries; sealed again, unless said."""
    with zipfile.ZipFile(saved) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    change(entries)
    if seal:
        entries["backup.seal"] = _seal(Folders.of_user().state, entries["backup.json"]).encode()
    file = saved.with_name("changed.backup")
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in entries.items():
            entry = zipfile.ZipInfo(name.removesuffix("@"))
            entry.external_attr = (stat.S_IFLNK if name.endswith("@") else stat.S_IFREG) << 16
            archive.writestr(entry, data)
    return file


def add(name: str, data: bytes = b"x", listed: str | None = None) -> Callable[[dict[str, bytes]], None]:
    """Return a change that adds an entry, and its place in the list."""

    def change(entries: dict[str, bytes]) -> None:
        contents = json.loads(entries["backup.json"])
        about = {"size": 1, "sha256": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}
        contents["files"][listed or name] = about
        entries["backup.json"], entries[name] = json.dumps(contents).encode(), data

    return change


def relist(**fields: object) -> Callable[[dict[str, bytes]], None]:
    """Return a change of fields of the list."""

    def change(entries: dict[str, bytes]) -> None:
        entries["backup.json"] = json.dumps({**json.loads(entries["backup.json"]), **fields}).encode()

    return change


def newer_database(entries: dict[str, bytes]) -> None:
    """Let the audit log be one of a newer version."""
    name = "project/.tavern/audit/audit.sqlite3"
    data = entries[name][:60] + (99).to_bytes(4, "big") + entries[name][64:]
    contents = json.loads(entries["backup.json"])
    contents["files"][name]["sha256"] = hashlib.sha256(data).hexdigest()
    entries["backup.json"], entries[name] = json.dumps(contents).encode(), data


HOSTILE: dict[str, tuple[Callable[[dict[str, bytes]], object], str]] = {
    **{
        path: (add(path), "leads out of it")
        for path in ("project/../../x", "/etc/x", "other/x", "project\\..\\x", "project//x")
    },
    "a folder outside": (relist(folders={"project/../../x": 448}), "leads out of it"),
    "a link": (add("project/x@", listed="project/x"), "it holds links"),
    "a file that is not listed": (lambda entries: entries.update({"project/x": b"x"}), "not what its list says"),
    "a file that is lacking": (lambda entries: entries.pop("project/files/run.sh"), "not what its list says"),
    "a file below a file": (add("project/files/run.sh/x"), "twice in it"),
    "changed content": (add("project/x", b"y"), "project/x is not as it was saved"),
    "longer content": (add("project/x", b"x" * 99), "project/x is not as it was saved"),
    "no project": (relist(files={}), "not what its list says"),
    "no list": (lambda entries: entries.update({"backup.json": b"{}"}), "its list of files is damaged"),
    "a newer format": (relist(format=2, more=1, version="9.0"), "by the newer version 9.0"),
    "a newer database": (newer_database, "audit.sqlite3 was written by a newer version"),
}


def refusal(file: Path, folder: Path | None = None, *, trust: bool = False) -> str:
    """Restore a backup, and return why that is refused."""
    with pytest.raises(TavernError) as refused:
        for _ in restore_backup(file, folder, Folders.of_user(), trust=trust):
            pass
    return refused.value.message


@contextlib.contextmanager
def nothing_changes(*folders: Path) -> Iterator[None]:
    """Fail where a file below these folders, or among the operator's, has changed within the block."""
    folders = (*folders, Folders.of_user().state)
    before = tree(*folders)
    yield
    assert tree(*folders) == before


def test_what_is_no_sound_backup_changes_nothing(project: Path, saved: Path) -> None:
    with nothing_changes(project), Failures() as failures:
        for name, (change, why) in HOSTILE.items():
            with failures.row(name):
                assert why in refusal(changed(saved, change))
        cut = saved.with_name("cut.backup")
        for size in (0, 1, 1000, saved.stat().st_size - 1):
            cut.write_bytes(saved.read_bytes()[:size])
            with failures.row(f"the first {size} bytes"):
                assert "is no backup, or damaged" in refusal(cut)
        with failures.row("no file"):
            assert "there is no file" in refusal(saved.with_name("none"))
    assert [path.name for path in project.parent.iterdir() if path.name.endswith(".restoring")] == []


def test_a_backup_of_another_operator_is_refused(saved: Path, project: Path, tmp_path: Path) -> None:
    with nothing_changes(project):
        other = changed(saved, relist(madeAt="2026-01-01T00:00:00Z"), seal=False)
        assert "nothing shows that it was made with the key" in refusal(other)
        (Folders.of_user().state / "backup.key").rename(tmp_path / "key")
        ran = tavern("restore", saved, tmp_path / "moved")
        assert ran.code == 2
        assert "backup.key, and it may grant rights" in ran.error
        assert "say in which folder" in refusal(saved, trust=True)
        (tmp_path / "key").replace(Folders.of_user().state / "backup.key")
    assert tavern("restore", saved, tmp_path / "moved", "--trust").code == 0


def test_no_restore_where_something_else_is(project: Path, saved: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other" / "mine.txt", "mine").parent
    with nothing_changes(project, other):
        with pytest.raises(FileNotFoundError):  # a swap that fails is undone
            _swap([(other, project), (tmp_path / "none", tmp_path / "state")])
        assert f"{other} is there and is no project" in refusal(saved, other)
        assert "is there and is no project" in refusal(saved, other / "mine.txt")
        assert "are within each other" in refusal(saved, Folders.of_user().state / "projects" / "new")
        with held(state_of(project), Server(os.getpid(), "http://127.0.0.1:1", "token")):
            ran = tavern("restore", saved)
            assert ran.code == 2
            assert f"process {os.getpid()} at http://127.0.0.1:1 has the project" in ran.error
            assert tavern("--project", project, "migrate").code == 2


# --- migrations ---------------------------------------------------------------------------------------


def test_databases_are_migrated_after_a_dry_run(project: Path) -> None:
    path, version = project / ".tavern" / "runs" / "runs.sqlite3", len(RUNS.migrations)
    path.parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(";".join([*RUNS.migrations[0], "PRAGMA user_version = 1"]))
    before = path.read_bytes()

    dry = tavern("--project", project, "migrate", "--dry-run")
    assert (dry.code, path.read_bytes()) == (0, before)
    assert f"1 → {version}" in dry.out and f"{version - 1} migrations, tried on a copy" in dry.out
    assert tavern("--project", project, "migrate").code == 0
    assert f"{version} → {version}" in tavern("--project", project, "migrate", "--dry-run").out


def test_a_migration_that_would_fail_changes_nothing(project: Path) -> None:
    """The first database could be migrated, the second cannot, or is of a newer version."""
    paths = [project / ".tavern" / "audit" / "audit.sqlite3", project / ".tavern" / "runs" / "runs.sqlite3"]
    for path, version in zip(paths, (0, 1), strict=True):
        path.parent.mkdir(parents=True)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(f"CREATE TABLE other (x); PRAGMA user_version = {version}")
    with nothing_changes(project):
        dry = tavern("--project", project, "migrate", "--dry-run")
        assert (dry.code, "runs.sqlite3 cannot be migrated: no such table: runs" in dry.error) == (1, True), dry.err
    with contextlib.closing(sqlite3.connect(paths[1])) as connection:
        connection.execute("PRAGMA user_version = 99")
    with nothing_changes(project):
        ran = tavern("--project", project, "migrate")
        assert (ran.code, "runs.sqlite3 was written by a newer version" in ran.error) == (2, True), ran.err


def test_files_of_a_newer_version_are_left_alone(project: Path) -> None:
    state = state_of(project)
    with Failures() as failures:
        for name, arguments in (
            ("grants.json", ("plugins", "list")),
            ("plugins.json", ("plugins", "disable", "tavern-demo")),
            ("settings.json", ("settings", "set", "extensions.tavern-agents.recordRuns", "true")),
        ):
            file = write(state / name, json.dumps({"version": 2, "grants": {}, "values": {}, "disabled": []}))
            before = file.read_bytes()
            with failures.row(name):
                ran = tavern("--project", project, *arguments)
                assert ran.code == 2
                assert "use the version that wrote it" in ran.err
                assert file.read_bytes() == before
                with pytest.raises(Misconfigured, match=f"{name} was written by a newer version"):
                    refuse_newer(state)
            file.unlink()


def test_every_store_is_known_to_migrations() -> None:
    files = [path for part in ("tavern_host", "plugins") for path in (ROOT / part).rglob("*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    stores = {path.stem for path, text in texts.items() if re.search(r"sqlite import .*\bSchema\b", text)}
    assert stores - {"stores", "moving_stores"} == {place.partition(":")[0].rpartition(".")[2] for place in SCHEMAS}
    assert len(schemas()) == len(SCHEMAS)
