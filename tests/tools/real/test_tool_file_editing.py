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
from tavern_host.contracts.settings import SETTINGS, SettingsChange
from tavern_host.projects import Folders, make_project
from tavern_host.testing.http import HttpClient, served
from tavern_tools.api.tools import TOOL_MANAGER

pytestmark = pytest.mark.asyncio(loop_scope="module")

CODE = 'def greet(name: str, times: int = 1) -> str:\n    """Greet."""\n    return "Hello, " * times + name\n'
UPPER: dict[str, Any] = {"id": "text:loud", "implementation": {"type": "node", "nodeType": "core:UpperCase"}}
GREET = {
    "id": "text:greet",
    "description": "Greet somebody.",
    "parameters": {"type": "object", "properties": {"name": {"type": "string"}, "times": {"type": "integer"}}},
    "implementation": {"type": "script", "scriptPath": "greet.py", "entryPoint": "greet"},
}


class Editor:
    """The routes of a served project, and its folders."""

    def __init__(self, site: HttpClient) -> None:
        self.site = site
        self.root = site.host.project.root
        self.tools, self.scripts = self.root / "tools", self.root / "scripts"
        self.tag = ""

    async def ask(self, method: str, path: str, match: str = "", **options: Any) -> tuple[int, Any]:
        """Return status and answer; what the server says the revision is, is remembered."""
        headers = {"If-Match": match} if match else {}
        answer = await self.site.request(method, path, headers=headers, **options)
        self.tag = answer.headers.get("ETag", self.tag)
        return answer.status, await answer.json()

    async def save(self, name: str, document: Any, code: str | None = None, match: str = "") -> tuple[int, Any]:
        return await self.ask("PUT", f"/api/tool-files/{name}", match, json=source(document, code))

    async def saved(self, *arguments: Any, match: str = "") -> int:
        return (await self.save(*arguments, match=match))[0]

    async def delete(self, name: str, match: str = "*") -> int:
        return (await self.ask("DELETE", f"/api/tool-files/{name}", match))[0]

    async def check(self, document: Any, code: str | None = None) -> Any:
        status, answer = await self.ask("POST", "/api/tool-check", json={"name": "x", "source": source(document, code)})
        assert status == 200
        return answer

    async def attempt(self, document: Any, code: str | None = None, **arguments: Any) -> tuple[int, Any]:
        body = {"name": "x", "source": source(document, code), "arguments": arguments}
        return await self.ask("POST", "/api/tool-try", json=body)


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
    assert (checked["ok"], checked["problems"], checked["enforced"]["limits"]["memory"] > 0) == (True, [], True)
    _, result = await editor.attempt(GREET, CODE, name="Ada", times=2)
    if result.get("error", {}).get("type") == "SecurityError":
        pytest.skip(result["error"]["message"])
    assert (result["structured"], editor.tools.exists()) == ("Hello, Hello, Ada", False)

    status, saved = await editor.save("text%2Fgreet", GREET, CODE)
    assert (status, saved["script"], saved["toolId"]) == (201, "scripts/greet.py", "text:greet")
    assert (editor.scripts / "greet.py").read_text() == CODE
    call = {"toolId": "text:greet", "arguments": {"name": "Bo"}}
    _, called = await editor.ask("POST", "/api/tools/execute", json=call)
    assert called["results"][0]["structured"] == "Hello, Bo"
    _, listed = await editor.ask("GET", "/api/tool-files")
    assert [(one["name"], one["kind"], "source" in one) for one in listed] == [("text/greet", "script", False)]
    entries = await editor.site.host.services.get(AUDIT).tail()
    found = [(one.action, one.subject, one.details.get("draft")) for one in entries]
    assert {("tool.saved", "text:greet", None), ("tool.called", "text:greet", True)} <= {*found}

    assert await editor.saved("two", {**GREET, "id": "text:two"}) == 201
    for name, left in (("text%2Fgreet", ["greet.py"]), ("two", [])):  # a script that others name stays
        assert await editor.delete(f"{name}?script=true") == 200
        assert [path.name for path in editor.scripts.iterdir()] == left
    assert not [*editor.tools.rglob("*.json")]


async def test_a_tool_that_lacks_what_callers_go_by_is_saved_and_says_so(editor: Editor) -> None:
    bare: dict[str, Any] = {"id": "text:bare", "implementation": {"type": "script", "scriptPath": "bare.py"}}
    misnamed = {**GREET, "id": "text:misnamed", "implementation": {**bare["implementation"], "entryPoint": "run"}}
    lacking = ["description", "parameters", "implementation"]
    for name, document, places in (("bare", bare, lacking), ("misnamed", misnamed, ["implementation"])):
        checked = await editor.check(document, CODE)
        status, saved = await editor.save(name, document, CODE)
        assert (status, checked["ok"], saved["problems"]) == (201, True, checked["problems"])
        assert [one["location"][0] for one in saved["problems"]] == places
        assert all(one["warning"] for one in saved["problems"])
    assert saved["problems"][0]["message"] == "the code defines no function 'run', which each call asks for"
    _, opened = await editor.ask("GET", "/api/tool-files/bare")
    assert [one["location"][0] for one in opened["problems"]] == lacking
    reads = {**GREET, "implementation": bare["implementation"]}
    assert (await editor.check(reads, "import sys\nprint(sys.stdin.read())"))["problems"] == []


async def test_a_change_says_what_it_is_of(editor: Editor) -> None:
    file = editor.tools / "loud.tool.json"
    await editor.save("loud", UPPER)
    first = editor.tag
    assert await editor.saved("loud", UPPER) == 428
    assert await editor.saved("loud", {**UPPER, "version": "2.0.0"}, match=first) == 200
    status, problem = await editor.save("loud", UPPER, match=first)
    assert (status, problem["code"]) == (412, "precondition_failed")
    file.write_text(json.dumps({**UPPER, "version": "3.0.0"}))
    assert await editor.delete("loud", editor.tag) == 412
    assert (await editor.saved("absent", UPPER, match=first), [*editor.tools.iterdir()]) == (412, [file])
    _, stored = await editor.ask("GET", "/api/tool-files/loud")
    assert json.loads(stored["source"]["text"])["version"] == "3.0.0"
    await editor.save("greet", GREET, CODE)
    (editor.scripts / "greet.py").write_text("def greet(): ...")
    assert await editor.saved("greet", GREET, CODE, match=editor.tag) == 412


def script(path: str, **more: Any) -> dict[str, Any]:
    return {"id": "a", "implementation": {"type": "script", "scriptPath": path}, **more}


ASKING = {**GREET, "securityContext": {"networkAccess": {"allowHosts": ["example.com"]}}}
MISTAKES: Any = [
    # a document, the code of its script, whether it can be saved, where the first problem is and what it says
    *(
        ("{", None, False, [], "is not JSON"),
        ("[]", None, False, [], "object"),
        ({"id": "a"}, None, False, [], "implementation"),
    ),
    ({**UPPER, "id": 3}, None, False, ["id"], "expected text"),
    ({**UPPER, "parameters": {"type": "obect"}}, None, False, ["parameters", "type"], "did you mean object"),
    ({**UPPER, "id": "FileOperator.ReadFile"}, None, False, ["id"], "the plugin tavern-tools"),
    (
        {"id": "a", "implementation": {"type": "node", "nodeType": "core:Nix"}},
        None,
        True,
        ["implementation"],
        "no node",
    ),
    (script("a.py"), None, True, ["implementation", "scriptPath"], "no script"),
    (script("a.py"), "def (:", True, ["code"], "invalid syntax"),
    (script("a.py"), "f(" * 2000, True, ["code"], "nested"),
    (script("../a.py"), "1", False, ["implementation", "scriptPath"], "scripts"),
    (ASKING, CODE, True, ["securityContext"], "the operator does not allow it"),
]


async def test_mistakes_come_with_their_place(editor: Editor) -> None:
    with Failures() as failures:
        for document, code, ok, location, words in MISTAKES:
            with failures.row([document, code]):
                checked = await editor.check(document, code)
                first = checked["problems"][0]
                assert (checked["ok"], first["location"], words in first["message"]) == (ok, location, True)
                if not ok:
                    status, problem = await editor.save("x", document, code)
                    assert (status, problem["details"]["problems"][0]["location"]) == (400, location)
    assert not editor.tools.exists()


WITHIN = ["a..%2fx", "%2e%2e/x", "a..\u2215x", "file:x"]
"""Odd names, but names as any other: nothing in them is decoded."""
OUTWARDS = [
    *("../x", "..%2fx", "..\u2215x", "a/../../x", "/../x", "//../x", "..\\x", "link/x", "link", "~/x", "C:/x"),
    *("a/.git/x", ".hidden", "a\nb", "\uff0e\uff0e/x", "\u2024\u2024/x", "a\0b", "a\u202eb", "x" * 300, ".", "/"),
]


@pytest.mark.parametrize("kind", ["tool", "script"])
async def test_no_spelling_leads_out(editor: Editor, kind: str, tmp_path: Path) -> None:
    root, outside = editor.root, editor.root.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "x.py").write_text("secret")
    for folder in (editor.tools, editor.scripts):
        folder.mkdir()
        for name, target in (("link", outside), ("link.tool.json", outside / "x.py"), ("link.py", outside / "x.py")):
            (folder / name).symlink_to(target)
    before = _all_files(root.parent)
    names = [*WITHIN, *OUTWARDS, *(["x.TOOL.json"] if kind == "tool" else ["__pycache__/x"])]
    with Failures() as failures:
        for number, name in enumerate(names):
            with failures.row(name):
                document = script(f"{name}.py", id=f"a{number}") if kind == "script" else {**UPPER, "id": f"a{number}"}
                address = quote(name, safe="") if kind == "tool" else f"safe{number}"
                status, answer = await editor.save(address, document, "print(1)" if kind == "script" else None)
                assert (status == 201, "secret" in json.dumps(answer)) == (name in WITHIN, False)
    own = (f"{root}/.tavern/", f"{root.parent}/s/")
    new = [path for path in _all_files(root.parent) if path not in before and not path.startswith(own)]
    assert len(new) == len(WITHIN) * (2 if kind == "script" else 1)
    assert all(path.startswith((f"{editor.tools}/", f"{editor.scripts}/")) for path in new)
    assert (outside / "x.py").read_text() == "secret"
    shutil.rmtree(editor.scripts)
    editor.scripts.symlink_to(tmp_path)  # nor is a folder behind a link
    status = await editor.saved("greet", GREET, CODE)
    editor.scripts.unlink()
    assert (status, [path.name for path in tmp_path.iterdir()]) == (400, [])


async def test_what_is_taken_or_a_service_is_not_edited(editor: Editor) -> None:
    await editor.save("Greet", UPPER)
    editor.scripts.mkdir()
    (editor.scripts / "greet.py").write_text("print(1)")
    service = {"id": "a", "implementation": {"type": "service", "service": "settings", "method": "set"}}
    (editor.tools / "theirs.tool.json").write_text(json.dumps({**service, "id": "theirs"}))
    status, problem = await editor.save("other", GREET, CODE)
    assert (status, "is there already" in problem["detail"]) == (409, True)
    assert await editor.saved("greet", {**UPPER, "id": "b"}) == 409
    assert await editor.saved("other", GREET, "x" * (1 << 20) + "y") == 400
    assert await editor.saved("other", UPPER | {"description": "x" * (1 << 20)}) == 400
    assert [await editor.saved("a", service), (await editor.attempt(service))[0]] == [403, 403]
    assert [await editor.saved("theirs", {**UPPER, "id": "c"}, match="*"), await editor.delete("theirs")] == [403, 403]
    assert sorted(path.name for path in editor.tools.iterdir()) == ["Greet.tool.json", "theirs.tool.json"]


async def test_a_trial_keeps_to_the_rules(editor: Editor) -> None:
    key, host = "extensions.tavern-tools.access", editor.site.host
    maker = {"deny": ["text:greet"], "approve": ["text:loud"]}
    access: Any = {
        "roles": {"maker": maker},
        "principals": {"user:*": ["maker"]},
        "approvals": {"approvers": ["user:x"]},
    }
    before = await host.services.get(TOOL_MANAGER).statistics()
    await host.services.get(SETTINGS).save(SettingsChange(plugin="tavern-tools", values={key: access}))
    for document, code, words, arguments in (
        (GREET, CODE, "denies it", {"name": "A"}),
        (UPPER, None, "with an approval only", {"text": "a"}),
    ):
        _, result = await editor.attempt(document, code, **arguments)
        assert (result["error"]["type"], words in result["error"]["message"]) == ("PermissionDenied", True)
    await host.services.get(SETTINGS).save(SettingsChange(plugin="tavern-tools", values={key: None}))
    assert await host.services.get(TOOL_MANAGER).statistics() == before


def _all_files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if path.is_file()}


async def test_code_that_no_script_of_the_tool_would_hold_is_refused(editor: Editor) -> None:
    """No part of a body is thrown away: the file stays as it was."""
    command = {"id": "text:say", "implementation": {"type": "script", "command": "echo hello"}}
    with Failures() as failures:
        for document in (command, {**UPPER, "id": "text:upper"}):
            with failures.row(document["id"]):
                status, told = await editor.save("say", document, CODE)
                assert (status, "it is the code of no script" in told["error"]) == (400, True), told
                assert not (editor.tools / "say.tool.json").exists()
                problems = (await editor.check(document, CODE))["problems"]
                assert [one["location"] for one in problems if not one["warning"]] == [["code"]]
                assert await editor.saved("say", document, None) == 201
                assert await editor.delete("say") == 200
