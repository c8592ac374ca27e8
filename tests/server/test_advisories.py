"""`tavern advisories`: which versions an advisory is about, and what is looked at."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from helpers.command_line import tavern
from helpers.repetition import Failures

from tavern_host import Folders, Host
from tavern_host.context import Project
from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.events import Event
from tavern_operations.advisories.database import compare
from tavern_operations.advisories.installed import Installed

EVERYTHING = [[{"introduced": "0"}]]


def advisory(name: str, *, ecosystem: str = "PyPI", id: str = "OSV-1", **more: Any) -> dict[str, Any]:
    """Return a record about a package; `versions` and `ranges` (lists of events) say which versions."""
    kind = "SEMVER" if ecosystem == "npm" else "ECOSYSTEM"
    ranges = [{"type": more.pop("type", kind), "events": events} for events in more.pop("ranges", [])]
    affected = {"package": {"ecosystem": ecosystem, "name": name}, "ranges": ranges}
    return {"id": id, "affected": [{**affected, "versions": more.pop("versions", [])}], **more}


def found(folder: Path, record: Any, *installed: tuple[str, str, str]) -> list[str]:
    file = folder / "database.json"
    file.write_text(json.dumps(record))
    return [f"{one.package} {one.version}" for one in compare(file, [Installed(*i, "host") for i in installed]).found]


def test_versions_that_an_advisory_is_about(tmp_path: Path) -> None:
    fixed = [{"introduced": "1.0"}, {"fixed": "1.10"}]
    two = [{"fixed": "2.3"}, {"introduced": "2.0"}, {"introduced": "0"}, {"fixed": "1.2"}]  # in any order
    npm = [{"introduced": "1.0.0"}, {"fixed": "1.10.0"}]
    rows = [
        ("PyPI", {"ranges": [fixed]}, "1.0 1.9 1.9.post1 1.10rc1 1.0+local", "0.9 1.0rc1 1.10 1.10.0 2!1.5 nonsense"),
        ("PyPI", {"ranges": [two]}, "0.1 1.1 2.0 2.2.9", "1.2 1.9 2.3"),
        ("PyPI", {"ranges": [[{"introduced": "1"}, {"last_affected": "1.5"}]]}, "1.0 1.5 1.5.0", "1.5.1 1.6 0.9"),
        ("PyPI", {"ranges": [[{"introduced": "0"}, {"limit": "2"}]]}, "1.9", "2.0"),
        ("PyPI", {"ranges": [[{"introduced": "0"}]]}, "0 99", ""),
        ("PyPI", {"versions": ["1.0", "odd-one"]}, "1.0 1.0.0 odd-one", "1.0.1 odd"),
        ("PyPI", {"ranges": [fixed], "withdrawn": "2026-01-01T00:00:00Z"}, "", "1.5"),
        ("PyPI", {"ranges": [fixed], "type": "GIT"}, "", "1.5"),
        ("npm", {"ranges": [npm]}, "1.0.0 1.9.9 1.10.0-rc.1 1.2.3+build", "1.0.0-alpha 1.10.0 1.10.0+b 0.9.9 1.2"),
        ("npm", {"ranges": [[{"introduced": "1.0.0-rc.2"}, {"fixed": "1.0.0"}]]}, "1.0.0-rc.10", "1.0.0-rc.1 1.0.0"),
    ]
    with Failures() as failures:
        for ecosystem, about, affected, others in rows:
            for version in [*affected.split(), *others.split()]:
                with failures.row(f"{ecosystem} {about} {version}"):
                    record = advisory("acme", ecosystem=ecosystem, **about)
                    named = found(tmp_path, record, (ecosystem, "acme", version))
                    assert bool(named) == (version in affected.split())


def test_names_are_those_of_the_ecosystem(tmp_path: Path) -> None:
    python = advisory("Acme_Lib", ranges=EVERYTHING)
    assert found(tmp_path, python, ("PyPI", "acme.lib", "1"), ("npm", "acme-lib", "1.0.0")) == ["acme.lib 1"]
    scoped = advisory("@acme/Lib", ecosystem="npm", ranges=EVERYTHING)
    node = (("npm", "@acme/Lib", "1.0.0"), ("npm", "@acme/lib", "1.0.0"), ("PyPI", "acme-lib", "1"))
    assert found(tmp_path, scoped, *node) == ["@acme/Lib 1.0.0"]


def test_one_advisory_under_two_names_is_one(tmp_path: Path) -> None:
    first = advisory("acme", id="PYSEC-1", aliases=["CVE-1"], ranges=[[{"introduced": "0"}, {"fixed": "2"}]])
    second = advisory("acme", id="GHSA-1", aliases=["CVE-1"], versions=["1"], database_specific={"severity": "HIGH"})
    file = tmp_path / "all.json"
    file.write_text(json.dumps({"vulns": [first, second]}))
    (one,) = compare(file, [Installed("PyPI", "acme", "1", "host")]).found
    assert (one.id, one.aliases, one.severity, one.fixed) == ("GHSA-1", ["CVE-1", "PYSEC-1"], "high", ["2"])


def test_records_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    installed = [Installed("PyPI", "acme", "1", "host")]
    (tmp_path / "inner").mkdir()
    good = advisory("acme", versions=["1"])
    odd: tuple[Any, ...] = (7, [], {"affected": []}, {**good, "affected": 3}, {**good, "affected": [{"package": 1}]})
    texts = ["{", "\x00", "[" * 100_000, *(json.dumps(one) for one in odd if one != [])]
    for number, text in enumerate(texts):
        (tmp_path / f"odd{number}.json").write_text(text)
    with pytest.raises(Misconfigured, match="no advisories in the format OSV"):
        compare(tmp_path / "inner", installed)
    with pytest.raises(Misconfigured, match="there is no database"):
        compare(tmp_path / "nowhere", installed)
    (tmp_path / "inner" / "lines.jsonl").write_text(f"{json.dumps(good)}\n\n{json.dumps({**good, 'id': 'OSV-2'})}\n")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("OSV-3.json", json.dumps({**good, "id": "OSV-3"}))
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 nothing")

    done = compare(tmp_path, installed)

    assert [one.id for one in done.found] == ["OSV-1", "OSV-2", "OSV-3"]
    named = {skipped.partition(":")[0] for skipped in done.skipped}
    assert named == {f"odd{number}.json" for number in range(len(texts))} | {"broken.zip"}


def test_host_and_scripts_are_compared(tmp_path: Path) -> None:
    project, database = tmp_path / "inn", tmp_path / "database"
    assert tavern("init", "--empty", project).code == 0
    content = project / ".tavern" / "plugins" / "tavern-scripts" / "environments" / "0a" / "content"
    for name in ("@acme/beer", "ale/node_modules/beer"):
        (content / "node_modules" / name).mkdir(parents=True)
        about = {"name": name.replace("ale/node_modules/", ""), "version": "1.0.0"}
        (content / "node_modules" / name / "package.json").write_text(json.dumps(about))
    (content / "site" / "acme-1.0.dist-info").mkdir(parents=True)
    (content / "site" / "acme-1.0.dist-info" / "METADATA").write_text("Name: acme\nVersion: 1.0\n")
    (content.parent / "record.json").write_text(json.dumps({"source": "requirements.txt"}))
    other = (
        Folders.of_user().project_state(Project.of(project)) / "isolation" / "environments" / "0b" / "content" / "site"
    )
    (other / "mead-1.0.dist-info").mkdir(parents=True)
    (other / "mead-1.0.dist-info" / "METADATA").write_text("Name: mead\nVersion: 1.0\n")
    database.mkdir()
    records = [
        advisory("pluggy", id="OSV-1", ranges=EVERYTHING),
        advisory("acme", id="OSV-2", ranges=[[{"introduced": "0"}, {"fixed": "2"}]]),
        advisory("beer", id="OSV-3", ecosystem="npm", ranges=EVERYTHING),
        advisory("@acme/beer", id="OSV-4", ecosystem="npm", ranges=EVERYTHING),
        advisory("wine", id="OSV-5", ranges=EVERYTHING),
        advisory("mead", id="OSV-6", ranges=EVERYTHING),
    ]
    for number, record in enumerate(records):
        (database / f"{number}.json").write_text(json.dumps(record))

    ran = tavern("--project", project, "advisories", "--database", database, "--json")
    fields = ("package", "version", "fixed", "place")
    shown = {one["id"]: tuple(one[field] for field in fields) for one in ran.json()["advisories"]}
    place = "script environment 0a (requirements.txt)"
    assert ran.code == 1 and shown.pop("OSV-1")[0] == "pluggy"
    assert shown == {
        "OSV-2": ("acme", "1.0", ["2"], place),
        "OSV-3": ("beer", "1.0.0", [], place),
        "OSV-4": ("@acme/beer", "1.0.0", [], place),
        "OSV-6": ("mead", "1.0", [], "plugin environment 0b"),
    }
    none = tavern("--project", project, "advisories", "--database", database / "4.json")
    assert (none.code, none.out.strip()) == (0, "None of 1 advisories is about what is installed.")
    unset = tavern("--project", project, "advisories")
    assert unset.code == 2 and "extensions.tavern-operations.advisoryDatabase" in unset.err


async def test_a_database_is_downloaded(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response([advisory("pluggy", ranges=EVERYTHING)])

    app = web.Application()
    app.router.add_get("/osv.json", answer)
    async with TestServer(app) as server, Host(tmp_path / "inn", third_party=False) as host:
        command = host.registrations.commands["advisories"].call
        *_, last = [said async for said in command({"database": str(server.make_url("/osv.json"))})]
    assert last.text == "1 advisory about what is installed."


async def test_a_server_publishes_an_advisory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "database.json"
    database.write_text(json.dumps([advisory(name, ranges=EVERYTHING) for name in ("pluggy", "wine")]))
    options = {
        "extensions.tavern-operations.advisoryDatabase": str(database),
        "extensions.tavern-operations.advisoryHours": 1,
    }
    monkeypatch.setenv("TAVERN_SETTINGS", json.dumps(options))
    async with Host(tmp_path / "inn", serving=True, third_party=False) as host:
        events = host.events.subscribe("ADVISORY", since=0)
        event = await anext(events)
        await events.close()
    assert isinstance(event, Event)
    about = {key: event.payload[key] for key in ("id", "package", "ecosystem", "place")}
    assert about == {"id": "OSV-1", "package": "pluggy", "ecosystem": "PyPI", "place": "host"}
