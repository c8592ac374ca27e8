"""Which kind a file is of, who may import it, and what neither a file nor a kind can do."""

from __future__ import annotations

import base64
import io
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

from helpers.command_line import tavern
from helpers.plugin_files import write_whole
from helpers.repetition import Failures, refused

from tavern_characters.api.characters import CHARACTERS, Persona
from tavern_host import Host, InvalidInput, NotFound, Principal
from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.contracts.errors import Conflict, Forbidden
from tavern_host.testing.http import served
from tavern_importers.api.importers import ForeignFile
from tests.importers.imports_bench import FILES, Imports
from tests.importers.vcp_plugins import CALCULATOR, write_calculator

CARD = {"spec": "chara_card_v2", "data": {"name": "Ada", "first_mes": "Hi"}}


def picture(**texts: Any) -> bytes:
    """Return a PNG picture, as far as its texts go."""
    parts = [b"\x89PNG\r\n\x1a\n"]
    for keyword, text in texts.items():
        body = text if isinstance(text, bytes) else json.dumps(text).encode()
        content = keyword.encode() + b"\0" + body
        parts.append(len(content).to_bytes(4, "big") + b"tEXt" + content + bytes(4))
    return b"".join([*parts, bytes(4), b"IEND", bytes(4)])


def packed(**files: bytes | str) -> bytes:
    """Return a ZIP archive."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


async def test_a_file_is_known_by_its_marks_whatever_it_is_called(imports: Imports) -> None:
    of = {path.name: path.name for path in FILES.iterdir()}
    known = {
        of["comfy_ui.json"]: "comfyui",
        of["comfy_api.json"]: "comfyui",
        of["n8n.json"]: "n8n",
        of["langflow.json"]: "langflow",
        of["petstore.yaml"]: "openapi",
        of["claude_desktop_config.json"]: "mcp-servers",
        of["functions.json"]: "functions",
        of["dify.yml"]: "dify",
    }
    assert known.keys() == of.keys()
    rows: list[tuple[str, Any, str | None]] = [
        *((kind, (FILES / name).read_bytes(), kind) for name, kind in known.items()),
        ("VS Code", {"servers": {"a": {"url": "https://a.example"}}, "inputs": []}, "mcp-servers"),
        ("prompt of ComfyUI", {"prompt": json.loads((FILES / "comfy_api.json").read_text())}, "comfyui"),
        ("workflow", {"nodes": [], "edges": []}, "workflow"),
        ("agent", {"core_deliberation_workflow_id": "x"}, "agent"),
        ("conversation", {"format": "tavern-chat-history"}, "conversation"),
        ("card", CARD, "character"),
        ("card of the first version", {"name": "Ada", "first_mes": "Hi"}, "character"),
        ("lorebook", {"entries": {}}, "lorebook"),
        ("manifest of VCP", CALCULATOR, "vcp"),
        ("Swagger", {"swagger": "2.0", "paths": {}}, "openapi"),
        ("tools of Anthropic", [{"name": "a", "input_schema": {}}], "functions"),
        ("tools in a request", {"tools": [{"type": "function", "function": {"name": "a"}}]}, "functions"),
        ("UTF-16", json.dumps({"nodes": [], "connections": {}}).encode("utf-16"), "n8n"),
        ("mark of byte order", b"\xef\xbb\xbf" + json.dumps({"entries": []}).encode(), "lorebook"),
        ("picture of a card", picture(chara=base64.b64encode(json.dumps(CARD).encode())), "character-picture"),
        ("picture of a workflow", picture(**{"tavern-workflow": {"nodes": []}}), "workflow-picture"),
        ("picture of ComfyUI", picture(workflow={"nodes": [], "links": []}), "comfyui-picture"),
        ("picture alone", picture(Software=b"paint"), None),
        ("list", [], None),
        ("other object", {"a": 1}, None),
        ("text", b"hello", None),
        ("bytes", b"\0\1\2", None),
        ("nothing", b"", None),
        ("half a JSON", b'{"nodes": [', None),
        ("NaN", b'{"nodes": [NaN], "connections": {}}', None),
        ("depth", b"[" * 100_000, None),
        ("half a surrogate", b'{"entries": {"a": "\\ud800"}}', "lorebook"),
    ]
    with Failures() as failures:
        for name, content, kind in rows:
            ends = "yml" if kind in ("openapi", "dify") and isinstance(content, bytes) else "json"
            with failures.row(name):
                assert await imports.kind_of(f"没有.{ends}", content) == kind


async def test_text_in_a_file_that_is_called_otherwise_is_no_text(imports: Imports) -> None:
    kinds = {name: await imports.kind_of(name, b"hello") for name in ("a.md", "a", "a.rst", "a.png", "a.pdf", "a.json")}
    assert kinds == {"a.md": "text", "a": "text", "a.rst": "text", "a.png": None, "a.pdf": None, "a.json": None}


async def test_files_that_swell_are_refused(imports: Imports, tmp_path: Path) -> None:
    laughs = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
    circle = b"app: &a {mode: workflow, self: *a}\nkind: app\n"
    bomb = zlib.compress(b"[" + b" " * (64 << 20))
    texts = b"".join(_chunk(b"zTXt", b"workflow\0\0" + bomb) for _ in range(20))
    rows = [
        (imports.take("a.yaml", laughs.encode()), InvalidInput, "its aliases repeat or contain themselves"),
        (imports.take("a.yaml", circle), InvalidInput, "its aliases repeat or contain themselves"),
        (imports.take("a.yaml", b"a: " + b"[" * 10_000), InvalidInput, "a.yaml"),
        (imports.take("a.yaml", b"a: !!python/object:os.system x\n"), InvalidInput, "no file that can be imported"),
        (imports.take("a.yaml", b"x: '" + b"y" * (5 << 20) + b"'"), InvalidInput, "more than 4 MiB of YAML"),
        (imports.take("a.json", b" " * ((16 << 20) + 1)), InvalidInput, "more than 16 MiB"),
        (imports.take("a.png", b"\x89PNG\r\n\x1a\n" + texts), InvalidInput, "a picture"),
        (imports.take("a.zip", packed(**{"plugin-manifest.json": b" " * (17 << 20)})), InvalidInput, "16 MiB"),
        (imports.take("a.zip", packed(**{f"f{n}": "" for n in range(600)})), InvalidInput, "more than 500 files"),
        (imports.take("a.zip", packed(**{"../plugin-manifest.json": "{}"})), InvalidInput, "leads out of it"),
        (imports.take("a.zip", packed(readme="x")), InvalidInput, "holds no plugin-manifest.json"),
        (imports.take("a.zip", b"PK\x03\x04nonsense"), InvalidInput, "no ZIP archive"),
        (imports.take("a.json", {"nodes": []}, kind="workflo"), NotFound, "did you mean workflow"),
    ]
    await refused(rows)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")


def test_a_folder_is_taken_with_what_lies_in_it_and_no_links(tmp_path: Path) -> None:
    folder = write_calculator(tmp_path / "calc")
    (tmp_path / "outside.txt").write_text("outside")
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    project = tmp_path / "inn"
    assert tavern("init", project, "--empty").code == 0
    for path, name in ((folder, "calc"), (folder / "plugin-manifest.json", "calc-2")):
        ran = tavern("import", path, "--name", name, "--json", "--project", project)
        assert ran.json()["things"][0]["id"] == name
        there = {one.name for one in (project / "plugins" / name / "program").iterdir()}
        assert there == {"calculator.py", "plugin-manifest.json", "vcp_call.py"}


KIND = """
from tavern_host import hookimpl
from tavern_importers.api.importers import ImporterInfo, ImportReport, ImportedThing

@hookimpl
def tavern_register_importers():
    marks = {"required": ["acme"]}
    far = {"$ref": "http://127.0.0.1:9/marks.json"}
    own = dict(handler=f"{__name__}:take", marks=marks)
    return [
        ImporterInfo(name="acme", title="Acme board", **own),
        ImporterInfo(name="n8n", title="mine", **own),
        ImporterInfo(name="far", title="far", handler=f"{__name__}:take", marks=far),
        ImporterInfo(name="all", title="all", handler=f"{__name__}:take", marks={}),
    ]

async def take(request, context):
    board = request.object()["acme"]
    return ImportReport(things=[ImportedThing(kind="board", id=board)], next_steps=[str(request.call.principal)])
"""


async def test_a_plugin_adds_a_kind_and_takes_none_away(tmp_path: Path) -> None:
    plugin = write_whole(tmp_path / "acme", "acme", KIND, ["tavern_register_importers"])
    async with Host(tmp_path / "project", plugins=[plugin], trust=["acme"]) as host:
        imports = Imports(host)
        result = await imports.take("board.json", {"acme": "b1"})
        assert (result.kind, result.things[0].id, result.next_steps) == ("acme", "b1", ["user:operator"])
        kinds = {one.name: one.plugin for one in await imports.manager.kinds()}
        assert (kinds["n8n"], kinds["all"], "far" in kinds) == ("tavern-workflows", "acme", False)
        problems = str(host.plugin("acme").problems)
        assert "the marks of the kind of files far are none" in problems
        assert "n8n" in problems
        assert (await imports.take("n8n.json")).kind == "n8n"  # marks that fit all come after those of the host


async def test_only_who_operates_imports_what_sets_up_programs(tmp_path: Path) -> None:
    async with Host(tmp_path / "project", serving=True) as host, served(host) as client:
        accounts = host.services.get(ACCOUNTS)
        tokens = {}
        for role in ("admin", "creator", "viewer"):
            await accounts.add_user(f"a-{role}", "good evening", role=role)
            tokens[role] = (await accounts.make_token(f"a-{role}", "test")).token
        rows = [
            ("creator", "comfy_ui.json", 200, "comfyui"),
            ("creator", "claude_desktop_config.json", 403, "by who operates the host"),
            ("creator", "petstore.yaml", 403, "by who operates the host"),
            ("viewer", "comfy_ui.json", 403, "that needs"),
            ("admin", "claude_desktop_config.json", 200, "mcp-servers"),
            ("admin", "petstore.yaml", 200, "openapi"),
        ]
        with Failures() as failures:
            for role, name, status, said in rows:
                with failures.row(f"{role}: {name}"):
                    headers = {"Authorization": f"Bearer {tokens[role]}"}
                    data = (FILES / name).read_bytes()
                    answer = await client.post(f"/api/imports?name={name}", data=data, headers=headers)
                    body = await answer.json()
                    assert (answer.status, said in str(body)) == (status, True), body
        empty = await client.post("/api/imports?name=a.json", data=b"")
        assert (empty.status, "the body is empty" in str(await empty.json())) == (400, True)
        dry = await client.post("/api/imports?name=a.json&dryRun=true", data=b'{"nodes": []}')
        assert ((await dry.json())["dryRun"], (await dry.json())["kind"]) == (True, "workflow")
        assert not list(host.project.folder("workflows").glob("a*.json"))
    async with Host(tmp_path / "other") as host:
        agent = host.call().model_copy(update={"principal": Principal(kind="agent", id="keeper")})
        file = ForeignFile(name="c.json", content=(FILES / "claude_desktop_config.json").read_bytes())
        taken = Imports(host).manager.import_file(file, call=agent)
        await refused([(taken, Forbidden, "by who operates the host")])


def test_each_command_names_a_file_of_another_kind_for_what_it_is(tmp_path: Path) -> None:
    files = {"comfy_ui.json": "ComfyUI workflow", "petstore.yaml": "OpenAPI description"}
    (tmp_path / "book.json").write_text('{"entries": {}}')
    commands = (
        ["workflow", "check"],
        ["workflow", "save"],
        ["workflow", "show"],
        ["workflow", "run"],
        ["kb", "import"],
    )
    with Failures() as failures:
        for command in (*commands, ["history", "import"], ["tools", "check", "--path"]):
            for name, title in files.items():
                with failures.row(f"{' '.join(command)} {name}"):
                    ran = tavern(*command, FILES / name, cwd=tmp_path)
                    assert ran.code == 2
                    assert f"but of the kind “{title}”: `tavern import {name}` takes it" in ran.error
        with failures.row("one of its own"):
            assert tavern("kb", "import", tmp_path / "book.json", cwd=tmp_path).code == 0
        with failures.row("a lorebook is no workflow"):
            assert "“lorebook”" in tavern("workflow", "save", tmp_path / "book.json", cwd=tmp_path).error


def test_the_command_says_what_came_and_keeps_nothing_when_told(tmp_path: Path) -> None:
    ran = tavern("import", FILES / "langflow.json", "--dry-run", cwd=tmp_path)
    assert (ran.code, ran.out.splitlines()[:2]) == (
        0,
        ["langflow.json is of the kind “Langflow flow”", "Nothing of it is kept"],
    )
    assert "has no effect: secrets are left out: api_key" in ran.out
    assert "Basic-Prompting" not in tavern("workflow", "list", cwd=tmp_path).out
    assert "say which file" in tavern("import", cwd=tmp_path).error
    assert "there is no file" in tavern("import", tmp_path / "gone.json", cwd=tmp_path).error
    kinds = tavern("import", "--kinds", "--json", cwd=tmp_path).json()
    assert {"comfyui", "vcp", "lorebook"} <= {one["name"] for one in kinds}


async def test_the_personas_of_a_file_are_one_that_a_person_is(imports: Imports) -> None:
    names = {"a.png": "Ada", "b.png": "Bo"}
    described = {"a.png": {"description": "A traveller."}}
    file = {"personas": names, "persona_descriptions": described}
    characters = imports.host.services.get(CHARACTERS)
    rows = [
        (imports.take("p.json", file), InvalidInput, "holds 2 personas: say with --name which you are: Ada, Bo"),
        (imports.take("p.json", file, name="Cy"), InvalidInput, "say with --name which you are"),
        (imports.take("p.json", {**file, "personas": {"a": 5}}), InvalidInput, "p.json: $.name"),
        (imports.take("p.json", {**file, "personas": {}}), InvalidInput, "holds 0 personas"),
    ]
    await refused(rows)
    assert (await imports.take("p.json", file, name="Bo", dry_run=True)).things[0].id == "Bo"
    assert await characters.persona() == Persona()
    taken = await imports.take("p.json", {**file, "default_persona": "a.png"})
    assert (taken.kind, taken.things[0].id) == ("personas", "Ada")
    assert taken.without_effect == ["a person has one persona here: Bo is left out"]
    assert await characters.persona() == Persona(name="Ada", description="A traveller.")
    await refused([(imports.take("p.json", file, name="Bo"), Conflict, "you are Ada already; with --replace")])
    await imports.take("p.json", file, name="Bo", replace=True)
    assert await characters.persona() == Persona(name="Bo")
