"""What rules say about a file holds for the file, however a call spells its path, its name or what it leaves out."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import tavern
from helpers.repetition import Failures, repetitions
from hypothesis import given, settings
from hypothesis import strategies as st

from tavern_host import CallContext, Host, Principal
from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.settings import SETTINGS, SettingsChange
from tavern_host.contracts.toolcalls import ToolCallRequest, ToolResult, ToolScope
from tavern_host.contracts.tools import TOOL_MANAGER
from tavern_tools.catalog.project_paths import read_path

KEY = "extensions.tavern-tools.access"
SECRET = "the secret"
SPELLINGS = [
    *("secret/x", "/secret/x", "./secret/x", "//secret/x", " secret/x", "secret//x", "secret/./x", "secret/x/"),
    *("/./secret/x", "\tsecret/x\n", "secret/x/.", "\u00a0secret/x", "///secret///x///", "./././secret/x"),
]
REFUSED = ["notes/../secret/x", "../files/secret/x", "\\secret\\x", "~/secret/x", "secret /x", "secret\0/x"]

Open = Callable[..., AbstractAsyncContextManager["Bench"]]

PATH = {"type": "string"}
SERVICE = {"type": "service", "service": "projectFiles"}
TOOLS: dict[str, dict[str, Any]] = {
    "my:plain": {"method": "read_file", "parameters": {"properties": {"filePath": PATH}}},
    "my:snake": {"method": "read_file", "parameters": {"properties": {"file_path": PATH}}},
    "my:open": {"method": "read_file", "parameters": {"properties": {}, "additionalProperties": True}},
    "my:write": {"method": "write_file", "parameters": {"properties": {"filePath": PATH, "content": PATH}}},
    "my:list": {"method": "list_files", "parameters": {"properties": {"filePath": PATH, "recursive": {}}}},
    "my:bare": {"method": "list_files", "parameters": {"properties": {"recursive": {}}}},
    "my:cached": {"method": "read_file", "parameters": {"properties": {"filePath": PATH}}, "cache": 60},
}

CALLS: list[tuple[str, str, dict[str, Any]]] = [
    *(("FileOperator.ReadFile", "filePath", {}), ("FileOperator.DeleteFile", "filePath", {})),
    *(("FileOperator.ListFiles", "filePath", {}), ("FileOperator.WriteFile", "filePath", {"content": "x"})),
    ("FileOperator.AppendFile", "filePath", {"content": "x"}),
    ("FileOperator.ApplyEdit", "filePath", {"search_string": "s", "replace_string": "x", "all": True}),
    *(("my:plain", "filePath", {}), ("my:snake", "file_path", {}), ("my:cached", "filePath", {})),
    *(("my:open", "filePath", {}), ("my:open", "file_path", {}), ("my:list", "filePath", {"recursive": True})),
    *(("node:core:ReadFile", "path", {}), ("node:core:WriteFile", "path", {"content": "x"})),
    *(("node:core:ListFiles", "folder", {"recursive": True}), ("workflow:reader", "file", {})),
]
"""A tool, the name of its path, and what else it takes."""


def rule(pattern: str, *names: str, tool: str = "*") -> dict[str, Any]:
    """Return a rule on the path under any of these names."""
    names = names or ("filePath", "path", "folder", "file")
    properties = {name: {"type": "string", "pattern": pattern} for name in names}
    return {"tool": tool, "arguments": {"properties": properties, "anyOf": [{"required": [n]} for n in names]}}


class Bench:
    """A host on a project with notes, secrets, and tools that take paths."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.root = host.project.folder("files")

    async def rules(self, **role: Any) -> None:
        """Let these be the rules for whoever is called `guest`."""
        access = {"roles": {"guest": role}, "principals": {"*:guest": ["guest"]}}
        access["approvals"] = {"approvers": ["user:operator"]}
        await self.host.services.get(SETTINGS).save(SettingsChange(plugin="tavern-tools", values={KEY: access}))

    async def call(self, tool: str, kind: str = "user", **arguments: Any) -> ToolResult:
        principal = Principal.model_validate({"kind": kind, "id": "guest"})
        request = ToolCallRequest(tool_id=tool, arguments=arguments)
        tools = self.host.services.get(TOOL_MANAGER)
        return await tools.call(
            request, scope=ToolScope(allowed=["*", "node:*"]), call=CallContext(principal=principal)
        )


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Return a function that opens the host of a `Bench`."""

    @asynccontextmanager
    async def open_host() -> AsyncIterator[Bench]:
        root = tmp_path / "project"
        for name in ("secret", "notes", "caf\u00e9", "cafe\u0301"):
            (root / "files" / name).mkdir(parents=True)
            (root / "files" / name / "x").write_text(SECRET)
        (root / "tools").mkdir()
        for tool_id, about in TOOLS.items():
            rest = dict(about)
            implementation = {**SERVICE, "method": rest.pop("method")}
            rest["parameters"] = {"type": "object", **rest["parameters"]}
            document = {"id": tool_id, "implementation": implementation, **rest}
            (root / "tools" / f"{tool_id.replace(':', '-')}.tool.json").write_text(json.dumps(document))
        (root / "workflows").mkdir()
        (root / "workflows" / "reader.json").write_text(json.dumps(READER))
        async with Host(root) as host:
            yield Bench(host)

    return open_host


SLOT = {"key": "file", "dataFlowType": "STRING", "displayName": "File", "config": {"format": "project-file"}}
READER = {
    "nodes": [
        {"id": "in", "type": "core:GroupInput"},
        {"id": "read", "type": "core:ReadFile"},
        {"id": "out", "type": "core:GroupOutput"},
    ],
    "edges": [
        {"id": "e1", "source": "in", "sourceHandle": "file", "target": "read", "targetHandle": "path"},
        {"id": "e2", "source": "read", "sourceHandle": "content", "target": "out", "targetHandle": "text"},
    ],
    "interfaceInputs": {"file": SLOT},
    "interfaceOutputs": {"text": {"key": "text", "dataFlowType": "STRING", "displayName": "Text"}},
}


async def test_no_spelling_of_a_path_passes_a_rule(opened: Open) -> None:
    async with opened() as bench:
        with Failures() as failures:
            for kind, rules in (
                ("deny", {"deny": [rule("^secret(/|$)")]}),
                ("allow", {"allow": [rule("^notes(/|$)"), rule("^notes(/|$)", tool="node:*")]}),
                ("approve", {"approve": [rule("^secret(/|$)")]}),
            ):
                await bench.rules(**rules)
                for tool, name, more in CALLS:
                    for path in [*SPELLINGS, *REFUSED] if kind == "deny" else SPELLINGS[:4]:
                        with failures.row(f"{kind} {tool} {name}={path!r}"):
                            result = await bench.call(tool, **{name: path}, **more)
                            if kind == "approve":
                                assert result.status == "awaiting_approval", result
                            else:
                                assert result.error is not None, result
                                allowed = ("ParameterValidationError",) if path in REFUSED else ("PermissionDenied",)
                                assert result.error.type in (*allowed, "PermissionDenied"), result
                            assert (bench.root / "secret" / "x").read_text() == SECRET


async def test_what_is_left_out_is_what_a_rule_sees(opened: Open) -> None:
    async with opened() as bench:
        only_notes = {"properties": {"filePath": {"pattern": "^notes"}, "folder": {"pattern": "^notes"}}}
        await bench.rules(allow=[{"tool": t, "arguments": only_notes} for t in ("*", "node:*")])
        with Failures() as failures:
            for tool in ("FileOperator.ListFiles", "my:list", "my:bare", "node:core:ListFiles"):
                with failures.row(tool):
                    result = await bench.call(tool, recursive=True)
                    assert result.error.type == "PermissionDenied"


async def test_an_argument_has_one_name(opened: Open) -> None:
    async with opened() as bench:
        await bench.rules(deny=[rule("^secret", "filePath")])
        both = await bench.call("my:open", filePath="notes/x", file_path="secret/x")
        assert "twice" in both.error.message
        assert (await bench.call("my:open", filePath="notes/x")).structured["content"] == SECRET


async def test_forbidding_ignores_unicode_forms(opened: Open) -> None:
    async with opened() as bench:
        for form in ("NFC", "NFD"):
            await bench.rules(deny=[rule(unicodedata.normalize(form, "^caf\u00e9/"))])
            for path in ("caf\u00e9/x", "cafe\u0301/x"):
                result = await bench.call("FileOperator.ReadFile", filePath=path)
                assert (result.status, (form, path)) == ("error", (form, path))


async def test_spellings_share_cache_audit_and_tool(opened: Open) -> None:
    async with opened() as bench:
        results = [await bench.call("my:cached", filePath=path) for path in ("notes/x", "/notes//x", " ./notes/x")]
        assert [result.cached for result in results] == [False, True, True]
        entries = await bench.host.services.get(AUDIT).tail(10)
        about = [entry.details["arguments"] for entry in entries if entry.action == "tool.called"]
        assert about == [{"filePath": "notes/x"}] * 3


async def test_an_approver_cannot_rename_a_file(opened: Open) -> None:
    async with opened() as bench:
        access = {
            "roles": {"asks": {"approve": ["FileOperator.*"]}, "decides": {"deny": [rule("^secret(/|$)")]}},
            "principals": {"user:guest": ["asks"], "user:boss": ["decides"]},
            "approvals": {"approvers": ["user:boss"]},
        }
        change = SettingsChange(plugin="tavern-tools", values={KEY: access})
        await bench.host.services.get(SETTINGS).save(change)
        waiting = await bench.call("FileOperator.ReadFile", filePath="notes/x")
        boss = Principal(kind="user", id="boss")
        tools = bench.host.services.get(TOOL_MANAGER)
        for path in SPELLINGS:
            with pytest.raises(Exception, match="may not call"):
                await tools.decide(
                    str(waiting.task_id), "approve", arguments={"filePath": path}, call=CallContext(principal=boss)
                )


def test_rules_hold_at_the_command_line(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "files" / "secret").mkdir(parents=True)
    (project / "files" / "secret" / "x").write_text(SECRET)
    (project / "tavern.yaml").write_text("name: p\n")
    role = {"deny": [rule("^secret(/|$)")]}
    access = {"roles": {"r": role}, "principals": {"user:*": ["r"]}}
    with Failures() as failures:
        for path in SPELLINGS[:5]:
            with failures.row(path):
                ran = tavern(
                    *("--project", project, "tools", "call", "FileOperator.ReadFile", "--arg", f"filePath={path}"),
                    TAVERN_SETTINGS=json.dumps({KEY: access}),
                )
                assert (ran.code, "PermissionDenied" in ran.err) == (1, True), ran


@settings(max_examples=repetitions(100, 2000), deadline=None)
@given(st.lists(st.sampled_from(["/", "./", "//", "/./", " "]), max_size=4), st.sampled_from(["secret/x", "a/b/c"]))
def test_a_path_has_one_canonical_form(noise: list[str], path: str) -> None:
    spelled = "".join(noise) + path.replace("/", "//") + "/" * len(noise)
    try:
        steps = read_path(spelled)
    except InvalidInput:
        return
    assert "/".join(steps) == path
    assert read_path("/".join(steps)) == steps
