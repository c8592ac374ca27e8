"""A project leaves as one file, and comes into another one: shown before, kept apart from what is there."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

from helpers.command_line import tavern
from helpers.repetition import refused

from tavern_host import Host, InvalidInput
from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.contracts.settings import MASK
from tavern_host.testing.http import served
from tests.importers.imports_bench import Imports

KEYED = {
    "nodes": [
        {"id": "n1", "type": "core:APISettings", "position": {"x": 0, "y": 0}, "inputValues": {"api_key": "k-1"}}
    ],
    "edges": [],
}


def archive(**files: Any) -> dict[str, Any]:
    return {"format": "tavern-project", "files": {path.replace("__", "/"): text for path, text in files.items()}}


async def test_a_project_goes_through_one_file_into_another(tmp_path: Path) -> None:
    async with Host(tmp_path / "one", sample=True) as host, served(host) as site:
        host.project.folder("workflows").joinpath("keyed.json").write_text(json.dumps(KEYED))
        host.project.folder("files").joinpath("dot.bin").write_bytes(b"\xff\x00")
        parts = {one["name"]: one for one in await (await site.get("/api/project-parts")).json()}
        assert parts["workflows"]["files"] == 7 and parts["files"] == {"name": "files", "files": 1, "bytes": 2}
        whole = await (await site.get("/api/project-archive")).json()
        assert whole["files"]["files/dot.bin"] == {"base64": "/wA="}
        assert "k-1" not in json.dumps(whole) and MASK in whole["files"]["workflows/keyed.json"]
        assert not [path for path in whole["files"] if path.startswith(".")]
        some = await (await site.get("/api/project-archive?parts=agents")).json()
        assert {path.partition("/")[0] for path in some["files"]} == {"agents", "tavern.yaml"}
        said = [entry["action"] for entry in await (await site.get("/api/audit")).json()]
        assert said.count("project.exported") == 2
    async with Host(tmp_path / "two") as host:
        into = Imports(host)
        host.project.folder("workflows").joinpath("greeting.json").write_text("{}")
        shown = await into.take("one.json", whole, dry_run=True)
        assert {one.id: one.state for one in shown.things}["workflows/greeting.json"] == "kept"
        assert not host.project.folder("agents").joinpath("mira.json").exists(), "nothing came yet"
        came = await into.take("one.json", whole)
        states = {one.id: one.state for one in came.things}
        assert states["agents/mira.json"] == "new" and states["workflows/greeting.json"] == "kept"
        assert host.project.folder("files").joinpath("dot.bin").read_bytes() == b"\xff\x00"
        assert any("settings of the project stay" in one for one in came.without_effect)
        assert any("workflows/keyed.json" in one for one in came.next_steps), "its secret is to be written again"
        again = await into.take("one.json", whole, replace=True, only=["workflows/*"])
        assert {one.id: one.state for one in again.things}["workflows/greeting.json"] == "replaced"
        assert into.workflow("greeting")["nodes"]
        (aside,) = (host.project.private / "replaced").rglob("greeting.json")
        assert aside.read_text() == "{}", "what was there is kept aside"


def test_the_folder_of_a_project_comes_by_the_command(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    (one / "tools").mkdir(parents=True)
    (one / "tavern.yaml").write_text("description: An inn.\n")
    (one / "tools" / "a.tool.json").write_text('{"id": "a"}')
    (one / ".tavern").mkdir()
    (one / ".tavern" / "runs.sqlite3").write_text("x")
    tavern("init", "--empty", two)
    assert "new" in tavern("--project", two, "import", "--dry-run", one).out
    assert not (two / "tools" / "a.tool.json").exists()
    came = tavern("--project", two, "import", "--json", one).json()
    assert [(thing["id"], thing["state"]) for thing in came["things"]] == [("tools/a.tool.json", "new")]
    (two / "tools" / "a.tool.json").write_text("{}")
    assert "kept" in tavern("--project", two, "import", one).out
    tavern("--project", two, "import", "--replace", one)
    assert (two / "tools" / "a.tool.json").read_text() == '{"id": "a"}'


def test_a_project_goes_and_comes_by_the_commands(tmp_path: Path) -> None:
    one, two, file = tmp_path / "one", tmp_path / "two", tmp_path / "one.json"
    for project in (one, two):
        tavern("init", "--empty", project)
    (one / "workflows" / "keyed.json").write_text(json.dumps(KEYED))
    (one / "tools" / "a.tool.json").write_text("{}")
    assert "did you mean workflows" in tavern("--project", one, "export", file, "--part", "workflow").error
    tavern("--project", one, "export", file, "--part", "workflows")
    came = tavern("--project", two, "import", "--json", file).json()
    assert [thing["id"] for thing in came["things"]] == ["workflows/keyed.json"]
    assert "k-1" not in file.read_text()
    assert "is there already" in tavern("--project", one, "export", file).error
    assert "cannot be written" in tavern("--project", one, "export", tmp_path / ("a" * 300)).error
    for name in ("first.json", "second.json"):
        written = tavern("--project", one, "export", one / name, "--json").json()
        assert sorted(written["files"]) == ["tavern.yaml", "tools/a.tool.json", "workflows/keyed.json"]


async def test_an_archive_of_a_project_comes_as_its_folder_does(imports: Imports) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        target.writestr("one/tavern.yaml", "")
        target.writestr("one/tools/b.tool.json", "{}")
    came = await imports.take("one.zip", packed.getvalue())
    assert [(thing.id, thing.state) for thing in came.things] == [("tools/b.tool.json", "new")]


async def test_what_leaves_has_no_secret_however_its_file_is_written(tmp_path: Path) -> None:
    keyed, settings = json.dumps(KEYED), "settings:\n  extensions.acme.place: of-the-operator\n"
    async with Host(tmp_path / "one", sample=True) as host, served(host) as site:
        workflows = host.project.folder("workflows")
        workflows.joinpath("comments.json").write_text(f"// mine\n{keyed}")
        workflows.joinpath("mark.json").write_bytes(b"\xef\xbb\xbf" + keyed.encode())
        workflows.joinpath("half.json").write_bytes(keyed.replace('"edges"', '"note": "\\ud800", "edges"').encode())
        host.project.root.joinpath("tavern.yaml").write_text(f"description: Zum Bären.\n{settings}# key: k-1\n")
        whole = await (await site.get("/api/project-archive")).json()
        for name in ("comments", "mark", "half"):
            assert "k-1" not in (text := whole["files"][f"workflows/{name}.json"]) and MASK in text
        own = whole["files"]["tavern.yaml"]
        assert "Zum Bären." in own and "extensions.acme.place" in own
        assert "of-the-operator" not in own and "k-1" not in own, "settings do not come, so their values stay"
        for content in (keyed[:-1].encode(), keyed.encode("utf-16"), b'{"a":' + b"[" * 5000):
            workflows.joinpath("broken.json").write_bytes(content)
            refusal = await site.get("/api/project-archive")
            assert (refusal.status, "leave out workflows/" in (await refusal.json())["detail"]) == (400, True)
            assert (await site.get("/api/project-archive?parts=agents")).status == 200


async def test_what_stands_beside_a_document_and_in_the_folders_of_plugins_has_no_secret_either(tmp_path: Path) -> None:
    keyed, agent = json.dumps(KEYED), {"core_deliberation_workflow_id": "x", "custom_metadata": {"token": "k-1"}}
    clean, tool = '{"nodes": [],\n "edges": []}', '{"parameters": {"properties": {"token": {"type": "string"}}}}'
    files = {
        "workflows/aside.json": "// apiKey: k-1\n" + clean,
        "workflows/twice.json": keyed[:-1] + ', "nodes": []}',
        "workflows/clean.json": clean,
        "agents/aside.json": '{"core_deliberation_workflow_id": "x" /* password: k-1 */}',
        "plugins/acme/workflows/keyed.json": keyed,
        "plugins/acme/flows/deep/keyed.json": "// mine\n" + keyed,
        "plugins/acme/people/scout.json": json.dumps(agent),
        "plugins/acme/sample/agents/scout.json": json.dumps(agent),
        "plugins/acme/when/night.json": json.dumps({"kind": "webhook", "config": {"secret": "k-1"}}),
        "plugins/acme/tools/a.tool.json": tool,
        "plugins/acme/tools/half.json": "{",
    }
    async with Host(tmp_path / "one") as host, served(host) as site:
        for path, text in files.items():
            host.project.root.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
            host.project.root.joinpath(path).write_text(text)
        sent = (await (await site.get("/api/project-archive")).json())["files"]
        same = {path for path, text in files.items() if sent[path] == text}
        assert same == {"workflows/clean.json", "plugins/acme/tools/a.tool.json", "plugins/acme/tools/half.json"}
        assert [path for path in files if "k-1" in sent[path]] == []
        assert json.loads(sent["workflows/aside.json"]) == json.loads(clean)
        assert json.loads(sent["plugins/acme/flows/deep/keyed.json"])["nodes"][0]["inputValues"] == {"api_key": MASK}
        host.project.root.joinpath("plugins/acme/workflows/half.json").write_text(keyed[:-1])
        refusal = await site.get("/api/project-archive")
        assert (refusal.status, "leave out plugins/" in (await refusal.json())["detail"]) == (400, True)


async def test_a_name_that_no_import_takes_is_refused_at_the_export(tmp_path: Path) -> None:
    async with Host(tmp_path / "one") as host, served(host) as site:
        for name in (b"a\xff", b"a\nb", b"a\\b"):
            made = Path(os.fsdecode(os.fsencode(host.project.folder("files")) + b"/" + name))
            made.parent.mkdir(exist_ok=True)
            made.write_text("")
            refusal = await site.get("/api/project-archive")
            assert (refusal.status, "rename it" in (await refusal.json())["detail"]) == (400, True)
            made.unlink()
        assert (await site.get("/api/project-archive")).status == 200


async def test_the_audit_log_has_an_import_before_its_first_file(tmp_path: Path) -> None:
    async with Host(tmp_path / "one") as host, served(host) as site:
        host.project.folder("files").mkdir(exist_ok=True)
        host.project.folder("files").joinpath("b").write_text("before")
        host.project.private.joinpath("replaced").write_text("in the way of copies")
        sent = archive(files__a="x", files__b="y")
        assert (await site.post("/api/imports?name=p.json&replace=true", json=sent)).status == 400
        assert host.project.folder("files").joinpath("a").exists(), "it ended half-way"
        assert "project.imported" in [one["action"] for one in await (await site.get("/api/audit")).json()]


async def test_what_is_no_project_writes_nothing(imports: Imports, tmp_path: Path) -> None:
    root = imports.host.project.root
    (tmp_path / "elsewhere").mkdir()
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    (root / "files" / "folder").mkdir(parents=True)
    rows = {
        "out": (archive(**{"../x": ""}), "leads out of it or is none"),
        "absolute": (archive(**{"/x": ""}), "leads out of it or is none"),
        "hidden": (archive(**{".tavern/grants.json": ""}), "leads out of it or is none"),
        "another case": (archive(**{"Tavern.yaml": "settings: {}"}), "none of a project"),
        "deep": (archive(**{"a/" * 60 + "x": ""}), "none of a project"),
        "long": (archive(**{"zz/" + "é" * 200: "", "files/a": ""}), "none of a project"),
        "through a link": (archive(linked__x=""), "cannot be written here"),
        "a folder is there": (archive(files__folder=""), "a folder or link here"),
        "both": (archive(files__new="", files__new__a=""), "a file and a folder in it"),
        "no text": (archive(files__a=5), "to be a text"),
        "no bytes": (archive(files__a={"base64": "%"}), "to be a text"),
        "nothing": (archive(**{"tavern.yaml": ""}), "alone"),
    }
    await refused([(imports.take("p.json", document), InvalidInput, why) for document, why in rows.values()])
    assert not (tmp_path / "elsewhere" / "x").exists() and not (root / "files" / "a").exists()


async def test_only_who_operates_hands_over_or_takes_a_whole_project(tmp_path: Path) -> None:
    async with Host(tmp_path / "inn") as host, served(host) as site:
        accounts = host.services.get(ACCOUNTS)
        await accounts.add_user("cara", "good evening", role="creator")
        headers = {"Authorization": f"Bearer {(await accounts.make_token('cara', 'test')).token}"}
        assert (await site.get("/api/project-archive", headers=headers)).status == 403
        answer = await site.post("/api/imports?name=a.json", json=archive(files__a=""), headers=headers)
        assert answer.status == 403
