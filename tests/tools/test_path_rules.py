"""What rules say about a file holds for the file, however a call spells its path, its name or what it leaves out."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from helpers.command_line import tavern
from helpers.repetition import Failures, repetitions
from helpers.workflow_documents import workflow_document
from hypothesis import given, settings
from hypothesis import strategies as st

from tavern_host import CallContext, Host, Principal
from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.settings import SETTINGS, SettingsChange
from tavern_host.projects import Folders
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult, ToolScope
from tavern_tools.api.tools import TOOL_MANAGER
from tavern_tools.catalog.project_paths import read_path

KEY = "extensions.tavern-tools.access"
SECRET = "the secret"
SPELLINGS = [
    *("secret/x", "/secret/x", "./secret/x", "//secret/x", " secret/x", "secret//x", "secret/./x", "secret/x/"),
    *("/./secret/x", "\tsecret/x\n", "secret/x/.", "\u00a0secret/x", "///secret///x///", "./././secret/x"),
]
REFUSED = ["notes/../secret/x", "../files/secret/x", "\\secret\\x", "~/secret/x", "secret /x", "secret\0/x"]
STRING = {"type": "string"}
TOOLS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # the id of a tool, its method, its parameters and what else is said of it
    "my:plain": ("read_file", {"properties": {"filePath": STRING}}, {}),
    "my:snake": ("read_file", {"properties": {"file_path": STRING}}, {}),
    "my:open": ("read_file", {"properties": {}, "additionalProperties": True}, {}),
    "my:write": ("write_file", {"properties": {"filePath": STRING, "content": STRING}}, {}),
    "my:list": ("list_files", {"properties": {"filePath": STRING, "recursive": {}}}, {}),
    "my:bare": ("list_files", {"properties": {"recursive": {}}}, {}),
    "my:cached": ("read_file", {"properties": {"filePath": STRING}}, {"cache": 60}),
}
CALLS: list[tuple[str, str, dict[str, Any]]] = [
    # a tool, the name of its path, and what else it takes; the first ones are called with every spelling
    *(("FileOperator.ReadFile", "filePath", {}), ("my:open", "file_path", {}), ("node:core:ReadFile", "path", {})),
    *(("workflow:reader", "file", {}), ("my:cached", "filePath", {}), ("FileOperator.DeleteFile", "filePath", {})),
    *(("FileOperator.ListFiles", "filePath", {}), ("FileOperator.WriteFile", "filePath", {"content": "x"})),
    ("FileOperator.AppendFile", "filePath", {"content": "x"}),
    ("FileOperator.ApplyEdit", "filePath", {"search_string": "s", "replace_string": "x", "all": True}),
    *(("my:plain", "filePath", {}), ("my:snake", "file_path", {}), ("my:open", "filePath", {})),
    *(("my:list", "filePath", {"recursive": True}), ("node:core:WriteFile", "path", {"content": "x"})),
    *(("node:core:ListFiles", "folder", {"recursive": True}), ("my:write", "filePath", {"content": "x"})),
]
SLOT = {"key": "file", "dataFlowType": "STRING", "displayName": "File", "config": {"format": "project-file"}}
READER = workflow_document(
    {"in": "core:GroupInput", "read": "core:ReadFile", "out": "core:GroupOutput"},
    *("in.file > read.path", "read.content > out.text"),
    interfaceInputs={"file": SLOT},
    interfaceOutputs={"text": {"key": "text", "dataFlowType": "STRING", "displayName": "Text"}},
)


def rule(pattern: str, *names: str, tool: str = "*") -> dict[str, Any]:
    """Return a rule on the path under any of these names."""
    names = names or ("filePath", "path", "folder", "file")
    properties = {name: {"type": "string", "pattern": pattern} for name in names}
    return {"tool": tool, "arguments": {"properties": properties, "anyOf": [{"required": [n]} for n in names]}}


DENYING, APPROVING = {"deny": [rule("^secret(/|$)")]}, {"approve": [rule("^secret(/|$)")]}


class Bench:
    """A host on a project with notes, secrets, and tools that take paths."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.root = host.project.folder("files")
        self.tools = host.services.get(TOOL_MANAGER)

    async def rules(self, **role: Any) -> None:
        """Let these be the rules for the caller `guest`; `user:boss` and the operator approve."""
        access = {
            "roles": {"guest": role, "boss": DENYING},
            "principals": {"*:guest": ["guest"], "user:boss": ["boss"]},
        }
        access["approvals"] = {"approvers": ["user:operator", "user:boss"]}  # type: ignore[dict-item]
        await self.host.services.get(SETTINGS).save(SettingsChange(plugin="tavern-tools", values={KEY: access}))

    async def call(self, tool: str, **arguments: Any) -> ToolResult:
        call = CallContext(principal=Principal(kind="user", id="guest"))
        request, scope = ToolCallRequest(tool_id=tool, arguments=arguments), ToolScope(allowed=["*", "node:*"])
        return await self.tools.call(request, scope=scope, call=call)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    place = tmp_path_factory.mktemp("rules")
    root = place / "project"
    for name in ("secret", "notes", "caf\u00e9", "cafe\u0301"):
        (root / "files" / name).mkdir(parents=True)
        (root / "files" / name / "x").write_text(SECRET)
    for name in ("tools", "workflows"):
        (root / name).mkdir()
    for tool_id, (method, parameters, more) in TOOLS.items():
        implementation = {"type": "service", "service": "projectFiles", "method": method}
        document = {"id": tool_id, "implementation": implementation, "parameters": {"type": "object", **parameters}}
        (root / "tools" / f"{tool_id[3:]}.tool.json").write_text(json.dumps({**document, **more}))
    (root / "workflows" / "reader.json").write_text(json.dumps(READER))
    async with Host(root, folders=Folders(place / "c", place / "s", place / "d")) as host:
        yield Bench(host)


@pytest.mark.asyncio(loop_scope="module")
async def test_no_spelling_of_a_path_passes_a_rule(bench: Bench) -> None:
    allowing = {"allow": [rule("^notes(/|$)"), rule("^notes(/|$)", tool="node:*")]}
    with Failures() as failures:
        for kind, rules in (("deny", DENYING), ("allow", allowing), ("approve", APPROVING)):
            await bench.rules(**rules)
            for number, (tool, name, more) in enumerate(CALLS):
                for path in [*SPELLINGS, *REFUSED] if kind == "deny" and number < 4 else SPELLINGS[:2]:
                    with failures.row(f"{kind} {tool} {name}={path!r}"):
                        result = await bench.call(tool, **{name: path}, **more)
                        if kind == "approve":
                            assert result.status == "awaiting_approval", result
                        else:
                            assert result.error is not None, result
                            refused = ["ParameterValidationError"] if path in REFUSED else []
                            assert result.error.type in ["PermissionDenied", *refused], result
                        assert (bench.root / "secret" / "x").read_text() == SECRET


@pytest.mark.asyncio(loop_scope="module")
async def test_rules_see_one_name_form_and_default(bench: Bench) -> None:
    only_notes = {"properties": {"filePath": {"pattern": "^notes"}, "folder": {"pattern": "^notes"}}}
    await bench.rules(allow=[{"tool": tool, "arguments": only_notes} for tool in ("*", "node:*")])
    for tool in ("FileOperator.ListFiles", "my:list", "my:bare", "node:core:ListFiles"):
        result: Any = await bench.call(tool, recursive=True)  # what is left out is what a rule sees
        assert result.error.type == "PermissionDenied", tool
    await bench.rules(deny=[rule("^secret", "filePath")])
    both: Any = await bench.call("my:open", filePath="notes/x", file_path="secret/x")
    assert "twice" in both.error.message
    read: Any = await bench.call("my:open", filePath="notes/x")
    assert read.structured["content"] == SECRET
    for form in ("NFC", "NFD"):  # forbidding ignores the forms of Unicode
        await bench.rules(deny=[rule(unicodedata.normalize(form, "^caf\u00e9/"))])
        for path in ("caf\u00e9/x", "cafe\u0301/x"):
            assert (await bench.call("FileOperator.ReadFile", filePath=path)).status == "error", (form, path)


@pytest.mark.asyncio(loop_scope="module")
async def test_spellings_share_cache_audit_and_approval(bench: Bench) -> None:
    await bench.rules(**APPROVING)
    results = [await bench.call("my:cached", filePath=path) for path in ("notes/x", "/notes//x", " ./notes/x")]
    assert [result.cached for result in results] == [False, True, True]
    entries = await bench.host.services.get(AUDIT).tail(10)
    called = [entry.details["arguments"] for entry in entries if entry.action == "tool.called"]
    assert called[-3:] == [{"filePath": "notes/x"}] * 3
    await bench.rules(approve=["FileOperator.*"])
    waiting = await bench.call("FileOperator.ReadFile", filePath="notes/x")
    boss = CallContext(principal=Principal(kind="user", id="boss"))
    for path in SPELLINGS:  # an approver cannot rename a file
        with pytest.raises(Exception, match="may not call"):
            await bench.tools.decide(str(waiting.task_id), "approve", arguments={"filePath": path}, call=boss)


def test_rules_hold_at_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "files" / "secret").mkdir(parents=True)
    (tmp_path / "files" / "secret" / "x").write_text(SECRET)
    (tmp_path / "tavern.yaml").write_text("name: p\n")
    access = {"roles": {"r": DENYING}, "principals": {"user:*": ["r"]}}
    words = ("--project", tmp_path, "tools", "call", "FileOperator.ReadFile", "--arg", "filePath=//secret/x")
    ran = tavern(*words, TAVERN_SETTINGS=json.dumps({KEY: access}))
    assert (ran.code, "PermissionDenied" in ran.err) == (1, True), ran


@settings(max_examples=repetitions(150, 2000), deadline=None)
@given(st.text(st.sampled_from("./\\~% \0\n:．․ab") | st.characters(), max_size=40), st.booleans())
def test_a_path_has_one_form_which_leads_nowhere_else(text: str, is_noise: bool) -> None:
    noise = "".join(part for part in text if part in "./ ").replace("..", "./")
    try:
        steps = read_path(f"{noise}/secret//x/./" if is_noise else text)
    except TavernError:
        return
    assert not {"", ".", ".."} & set(steps)
    assert not any("/" in step or "\0" in step for step in steps)
    assert read_path("/".join(steps)) == steps
    assert not is_noise or "/".join(steps).endswith("secret/x")
