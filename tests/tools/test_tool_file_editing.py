"""Editing the project's tool files over HTTP: drafts, checks, trials, saving; nothing outside of the two folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.tools import TOOL_MANAGER
from tavern_host.projects import Folders, make_project
from tavern_host.testing.http import HttpClient, served

pytestmark = pytest.mark.asyncio(loop_scope="module")

CODE = 'def greet(name: str, times: int = 1) -> str:\n    """Greet."""\n    return "Hello, " * times + name\n'
UPPER = {"id": "text:loud", "implementation": {"type": "node", "nodeType": "core:UpperCase"}}
GREET = {
    "id": "text:greet",
    "parameters": {"type": "object", "properties": {"name": {"type": "string"}, "times": {"type": "integer"}}},
    "implementation": {"type": "script", "scriptPath": "greet.py", "entryPoint": "greet"},
}


class Editor:
    """The routes of a served project, and its folders."""

    def __init__(self, site: HttpClient) -> None:
        self.site = site
        self.root = site.host.project.root
        self.tag = ""

    async def ask(self, method: str, path: str, match: str = "", **options: Any) -> tuple[int, Any]:
        """Return status and answer; what the server says the revision is, is remembered."""
        headers = {"If-Match": match} if match else {}
        answer = await self.site.request(method, path, headers=headers, **options)
        self.tag = answer.headers.get("ETag", self.tag)
        return answer.status, await answer.json()

    async def save(self, name: str, document: Any, code: str | None = None, match: str = "") -> tuple[int, Any]:
        return await self.ask("PUT", f"/api/tool-files/{name}", match, json=source(document, code))

    async def check(self, document: Any, code: str | None = None) -> Any:
        status, answer = await self.ask("POST", "/api/tool-check", json={"name": "x", "source": source(document, code)})
        assert status == 200
        return answer


def source(document: Any, code: str | None = None) -> dict[str, Any]:
    text = document if isinstance(document, str) else json.dumps(document)
    return {"text": text, **({} if code is None else {"code": code})}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    place = tmp_path_factory.mktemp("tools")
    make_project(place / "inn")
    folders = Folders(place / "c", place / "s", place / "d")
    async with Host(place / "inn", folders=folders, serving=True) as host, served(host) as opened:
        yield opened


@pytest.fixture
def editor(site: HttpClient) -> Editor:
    for name in ("tools", "scripts"):
        shutil.rmtree(site.host.project.root / name, ignore_errors=True)
    return Editor(site)


async def test_a_script_becomes_a_tool(editor: Editor) -> None:
    status, draft = await editor.ask("POST", "/api/tool-draft", json={"code": CODE})
    assert (status, draft["entryPoint"], draft["description"]) == (200, "greet", "Greet.")
    assert draft["parameters"]["required"] == ["name"]
    checked = await editor.check(GREET, CODE)
    assert (checked["ok"], checked["problems"]) == (True, [])
    assert checked["enforced"]["limits"]["memory"] > 0
    trial = {"name": "greet", "source": source(GREET, CODE), "arguments": {"name": "Ada", "times": 2}}
    _, result = await editor.ask("POST", "/api/tool-try", json=trial)
    if result.get("error", {}).get("type") == "SecurityError":
        pytest.skip(result["error"]["message"])
    assert result["structured"] == "Hello, Hello, Ada"
    assert not (editor.root / "tools").exists()

    status, saved = await editor.save("text%2Fgreet", GREET, CODE)
    assert (status, saved["script"], saved["toolId"]) == (201, "scripts/greet.py", "text:greet")
    assert (editor.root / "scripts" / "greet.py").read_text() == CODE
    _, called = await editor.ask(
        "POST", "/api/tools/execute", json={"toolId": "text:greet", "arguments": {"name": "Bo"}}
    )
    assert called["results"][0]["structured"] == "Hello, Bo"
    _, listed = await editor.ask("GET", "/api/tool-files")
    assert [(one["name"], one["kind"], "source" in one) for one in listed] == [("text/greet", "script", False)]
    entries = await editor.site.host.services.get(AUDIT).tail()
    found = [(one.action, one.subject, one.details.get("draft")) for one in entries]
    assert ("tool.saved", "text:greet", None) in found
    assert ("tool.called", "text:greet", True) in found

    status, _ = await editor.ask("DELETE", "/api/tool-files/text%2Fgreet?script=true", "*")
    assert status == 200
    assert [*(editor.root / "tools").rglob("*.json"), *(editor.root / "scripts").iterdir()] == []


async def test_a_script_that_others_name_stays(editor: Editor) -> None:
    await editor.save("one", GREET, CODE)
    assert (await editor.save("two", {**GREET, "id": "text:two"}))[0] == 201
    assert (await editor.ask("DELETE", "/api/tool-files/one?script=true", "*"))[0] == 200
    assert (editor.root / "scripts" / "greet.py").exists()


async def test_a_change_says_what_it_is_of(editor: Editor) -> None:
    await editor.save("loud", UPPER)
    first = editor.tag
    assert (await editor.save("loud", UPPER))[0] == 428
    assert (await editor.save("loud", {**UPPER, "version": "2.0.0"}, match=first))[0] == 200
    status, problem = await editor.save("loud", UPPER, match=first)
    assert (status, problem["code"]) == (412, "precondition_failed")
    (editor.root / "tools" / "loud.tool.json").write_text(json.dumps({**UPPER, "version": "3.0.0"}))
    assert (await editor.ask("DELETE", "/api/tool-files/loud", editor.tag))[0] == 412
    assert (await editor.save("absent", UPPER, match=first))[0] == 412
    assert not (editor.root / "tools" / "absent.tool.json").exists()
    _, stored = await editor.ask("GET", "/api/tool-files/loud")
    (editor.root / "scripts").mkdir()
    assert json.loads(stored["source"]["text"])["version"] == "3.0.0"
    await editor.save("greet", GREET, CODE)
    (editor.root / "scripts" / "greet.py").write_text("def greet(): ...")
    assert (await editor.save("greet", GREET, CODE, match=editor.tag))[0] == 412


async def test_mistakes_come_with_their_place(editor: Editor) -> None:
    taken = {"id": "FileOperator.ReadFile", "implementation": {"type": "node", "nodeType": "core:UpperCase"}}
    script = {"id": "a", "implementation": {"type": "script", "scriptPath": "a.py"}}
    outside = {"id": "a", "implementation": {"type": "script", "scriptPath": "../a.py"}}
    asking = {**GREET, "securityContext": {"networkAccess": {"allowHosts": ["example.com"]}}}
    rows: list[tuple[Any, str | None, bool, list[Any], str]] = [
        ("{", None, False, [], "is not JSON"),
        ("[]", None, False, [], "object"),
        ({"id": "a"}, None, False, [], "implementation"),
        ({**UPPER, "id": 3}, None, False, ["id"], "expected text"),
        ({**UPPER, "parameters": {"type": "obect"}}, None, False, ["parameters", "type"], "did you mean object"),
        (taken, None, False, ["id"], "the plugin tavern-tools"),
        (
            {"id": "a", "implementation": {"type": "node", "nodeType": "core:Nix"}},
            None,
            True,
            ["implementation"],
            "no node",
        ),
        (script, None, True, ["implementation", "scriptPath"], "no script"),
        (script, "def (:", True, ["code"], "invalid syntax"),
        (script, "f(" * 2000, True, ["code"], "nested"),
        (outside, "1", False, ["implementation", "scriptPath"], "scripts"),
        (asking, CODE, True, ["securityContext"], "the operator does not allow it"),
    ]
    with Failures() as failures:
        for document, code, ok, location, words in rows:
            with failures.row([document, code]):
                checked = await editor.check(document, code)
                assert checked["ok"] == ok
                assert [location, True] == [
                    checked["problems"][0]["location"],
                    words in checked["problems"][0]["message"],
                ]
                if not ok:
                    status, problem = await editor.save("x", document, code)
                    assert (status, problem["details"]["problems"][0]["location"]) == (400, location)
    assert not (editor.root / "tools").exists()


async def test_services_are_not_edited(editor: Editor) -> None:
    document = {"id": "a", "implementation": {"type": "service", "service": "settings", "method": "set"}}
    trial = {"name": "a", "source": source(document), "arguments": {}}
    (editor.root / "tools").mkdir()
    (editor.root / "tools" / "theirs.tool.json").write_text(json.dumps({**document, "id": "theirs"}))
    answers = [
        await editor.save("a", document),
        await editor.ask("POST", "/api/tool-try", json=trial),
        await editor.save("theirs", UPPER, match="*"),
        await editor.ask("DELETE", "/api/tool-files/theirs", "*"),
    ]
    for status, answer in answers:
        assert (status, answer["code"]) == (403, "permission_denied")


WITHIN = ["a..%2fx", "%2e%2e/x", "a..\u2215x", "file:x"]
"""Odd names, but names as any other: nothing in them is decoded."""
OUTWARDS = [
    *(
        "../x",
        "..%2fx",
        "..\u2215x",
        "a/../../x",
        "/../x",
        "//../x",
        "..\\x",
        "link/x",
        "link",
        "~/x",
        "C:/x",
        "a/.git/x",
        ".hidden",
        "a\nb",
    ),
    *("\uff0e\uff0e/x", "\u2024\u2024/x", "a\0b", "a\u202eb", "x" * 300, ".", "/"),
]


@pytest.mark.parametrize("kind", ["tool", "script"])
async def test_no_spelling_leads_out(editor: Editor, kind: str) -> None:
    root, outside = editor.root, editor.root.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "x.py").write_text("secret")
    for folder in ("tools", "scripts"):
        (root / folder).mkdir()
        (root / folder / "link").symlink_to(outside)
        for name in ("link.tool.json", "link.py"):
            (root / folder / name).symlink_to(outside / "x.py")
    before = _all_files(root.parent)
    with Failures() as failures:
        for number, name in enumerate(
            [*WITHIN, *OUTWARDS, *(["x.TOOL.json"] if kind == "tool" else ["__pycache__/x"])]
        ):
            with failures.row(name):
                document: Any = {**UPPER, "id": f"a{number}"}
                if kind == "script":
                    document["implementation"] = {"type": "script", "scriptPath": f"{name}.py"}
                address = quote(name, safe="") if kind == "tool" else f"safe{number}"
                status, answer = await editor.save(address, document, "print(1)")
                assert (status == 201) == (name in WITHIN)
                assert "secret" not in json.dumps(answer)
    own = (f"{root}/.tavern/", f"{root.parent}/s/")
    new = [path for path in _all_files(root.parent) if path not in before and not path.startswith(own)]
    assert len(new) == len(WITHIN) * (2 if kind == "script" else 1)
    assert all(path.startswith((f"{root}/tools/", f"{root}/scripts/")) for path in new)
    assert (outside / "x.py").read_text() == "secret"


async def test_a_name_that_is_taken_otherwise(editor: Editor) -> None:
    await editor.save("Greet", UPPER)
    assert (await editor.save("greet", {**UPPER, "id": "b"}))[0] == 409
    (editor.root / "scripts").mkdir()
    (editor.root / "scripts" / "greet.py").write_text("print(1)")
    status, problem = await editor.save("other", GREET, CODE)
    assert (status, "is there already" in problem["detail"]) == (409, True)
    status, _ = await editor.save("other", GREET, "x" * (1 << 20) + "y")
    assert status == 400
    status, _ = await editor.save("other", UPPER | {"description": "x" * (1 << 20)})
    assert status == 400
    assert [path.name for path in (editor.root / "tools").iterdir()] == ["Greet.tool.json"]


async def test_a_trial_keeps_to_the_rules(tmp_path: Path) -> None:
    make_project(tmp_path / "inn")
    access = {
        "roles": {"maker": {"deny": ["text:greet"], "approve": ["text:loud"]}},
        "principals": {"user:*": ["maker"]},
        "approvals": {"approvers": ["user:somebody-else"]},
    }
    settings = {"extensions.tavern-tools.access": access}
    folders = Folders(tmp_path / "c", tmp_path / "s", tmp_path / "d")
    async with Host(tmp_path / "inn", folders=folders, settings=settings) as host, served(host) as opened:
        editor = Editor(opened)
        for document, words in ((GREET, "denies it"), (UPPER, "with an approval only")):
            arguments = {"name": "Ada"} if document is GREET else {"text": "a"}
            trial = {"name": "x", "source": source(document, CODE), "arguments": arguments}
            _, result = await editor.ask("POST", "/api/tool-try", json=trial)
            assert result["error"]["type"] == "PermissionDenied"
            assert words in result["error"]["message"]
        statistics = await host.services.get(TOOL_MANAGER).statistics()
    assert statistics == {}


async def test_a_folder_behind_a_link_is_refused(editor: Editor, tmp_path: Path) -> None:
    (editor.root / "scripts").symlink_to(tmp_path)
    status, _ = await editor.save("greet", GREET, CODE)
    (editor.root / "scripts").unlink()
    assert (status, [*tmp_path.iterdir()]) == (400, [])


def _all_files(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()}
