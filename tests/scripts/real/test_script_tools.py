"""Script tools, their settings, and the tools for agents."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from subprocess import check_output
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.settings import MASK, SETTINGS, SettingsChange
from tavern_host.projects import make_project
from tavern_tools.api.toolcalls import ToolCallRequest, ToolErrorType
from tavern_tools.api.tools import TOOL_MANAGER
from tests.scripts.scripthost import Scripts

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHOW = """
import json, os, sys
print(json.dumps({"in": json.load(sys.stdin), **{k: v for k, v in os.environ.items() if "CONFIG" in k}}))
print("cookie", os.environ.get("TAVERN_CONFIG_COOKIE"), file=sys.stderr)
sys.exit(int(os.environ.get("TAVERN_CONFIG_STATUS", "0")))
"""
SCHEMA = [
    {"key": "cookie", "type": "password", "label": "Cookie"},
    {"key": "base", "type": "string", "label": "Base", "defaultValue": "https://x.example"},
    {"key": "status", "type": "number", "label": "Status", "defaultValue": 0},
]
TOOL = {
    "id": "Acme:show",
    "implementation": {"type": "script", "command": "python scripts/show.py", "timeout": 20_000},
    "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "configSchema": SCHEMA,
}
KEY = "extensions.acme.tools.Acme:show."


def host_with(tmp_path: Path, *tools: Mapping[str, Any], **settings: Any) -> Host:
    """Return a host with the plugin `acme`, which has these tools."""
    make_project(tmp_path / "project")
    files = {"plugin.yaml": "name: acme\ndisplayName: Acme\nversion: 1.0.0\ntools: {entry: ./tools}\n"}
    files |= {"scripts/show.py": SHOW, **{f"tools/{n}.tool.json": json.dumps(tool) for n, tool in enumerate(tools)}}
    for name, text in files.items():
        (tmp_path / "acme" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "acme" / name).write_text(text)
    return Host(tmp_path / "project", plugins=[tmp_path / "acme"], trust=["acme"], settings=settings)


async def call(host: Host, tool: str, **arguments: Any) -> Any:
    """Return the result of a tool's call."""
    return await host.services.get(TOOL_MANAGER).call(ToolCallRequest(tool_id=tool, arguments=arguments))


# --- the settings of tools ------------------------------------------------------------------------


async def test_settings_of_a_tool_are_settings_of_its_plugin(tmp_path: Path, operator_folders: Path) -> None:
    other = {**TOOL, "id": "Acme:show.more"}
    newer = {**TOOL, "version": "2.0.0"}  # two versions share their settings
    set_already = {"extensions.acme.tools.Acme:show.more.base": "b"}
    async with host_with(tmp_path, {**TOOL, "version": "1.0.0"}, newer, other, **set_already) as host:
        assert host.plugin("acme").problems == []
        settings = host.services.get(SETTINGS)
        keys = [f"extensions.acme.tools.{tool}.{i['key']}" for tool in ("Acme:show", "Acme:show.more") for i in SCHEMA]
        assert sorted(item.key for item in await settings.options("acme")) == sorted(keys)
        await settings.save(SettingsChange(plugin="acme", values={f"{KEY}cookie": "SESSDATA=1"}))
        shown = {value.key: value.value for value in await settings.values("acme") if ".more." not in value.key}
        assert shown == {f"{KEY}cookie": MASK, f"{KEY}base": "https://x.example", f"{KEY}status": 0}
        told = {value.key.rpartition(".")[2]: value.value for value in await settings.of_tool("acme", "Acme:show")}
        assert told == {"cookie": "SESSDATA=1", "base": "https://x.example", "status": 0}
        assert {value.value for value in await settings.of_tool("acme", "Acme:show.more")} == {"b", 0}
        with pytest.raises(NotFound, match="there is no plugin 'acne'"):
            await settings.of_tool("acne", "Acme:show")
    written = b"".join(path.read_bytes() for path in operator_folders.rglob("*") if path.is_file())
    assert f"{KEY}cookie".encode() in written and b"SESSDATA" not in written


async def test_a_setting_that_cannot_be_is_left_out(tmp_path: Path) -> None:
    rows: list[Any] = [
        ({"key": "a.b", "type": "string", "label": "A"}, "its key must be letters, digits, - and _, found 'a.b'"),
        ({"type": "string", "label": "A"}, "found None"),
        ("cookie", "found None"),
        ({"key": "a", "type": "text", "label": "A"}, "(a): type: "),
        ({"key": "a", "type": "password", "label": "A", "defaultValue": "x"}, "a secret cannot have a default value"),
    ]
    tools = [
        {**TOOL, "id": f"Acme:show{number}", "configSchema": [item, *SCHEMA]} for number, (item, _) in enumerate(rows)
    ]
    async with host_with(tmp_path, *tools) as host:
        info = host.plugin("acme")
        assert info.state == "started"
        with Failures() as failures:
            for number, (item, said) in enumerate(rows):
                with failures.row(item):
                    file = f"acme/tools/{number}.tool.json"
                    (problem,) = [problem for problem in info.problems if problem.file == file]
                    assert "configSchema[0]" in problem.message and said in problem.message
        assert len(await host.services.get(SETTINGS).options("acme")) == 3 * len(rows)


# --- script tools ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("module_scripts")
async def test_a_script_tool_gets_its_arguments_and_settings(tmp_path: Path) -> None:
    tools = {
        "Acme:show": TOOL["implementation"],
        "Acme:fails": TOOL["implementation"],
        "Acme:named": {"type": "script", "scriptPath": "scripts/show.py"},  # its end says the language
        "Acme:unclear": {"type": "script", "scriptPath": "scripts/show"},
    }
    settings = {f"{KEY}cookie": "SESSDATA=1", "extensions.acme.tools.Acme:fails.status": 3}
    settings["extensions.acme.tools.Acme:fails.cookie"] = "SESSDATA=1"
    definitions = [{**TOOL, "id": name, "implementation": about} for name, about in tools.items()]
    async with host_with(tmp_path, *definitions, **settings) as host:
        shown, failed, named, unclear = [await call(host, tool, n=3) for tool in tools]
        said = " ".join(str(problem) for problem in host.plugin("acme").problems)

    assert shown.structured == {
        "in": {"n": 3},
        "TAVERN_CONFIG_COOKIE": "SESSDATA=1",
        "TAVERN_CONFIG_BASE": "https://x.example",
        "TAVERN_CONFIG_STATUS": "0",
    }
    assert failed.error.type is ToolErrorType.SCRIPT
    assert failed.error.message == "the script ended with exit code 3: cookie ********"
    assert "SESSDATA" not in str(failed.error.details)
    assert named.structured["in"] == {"n": 3}
    assert unclear.error.type is ToolErrorType.TOOL_NOT_FOUND
    assert 'needs "language" beside its "scriptPath", or a name that ends with one of .py, .js' in said


# --- the tools for agents -------------------------------------------------------------------------


async def test_an_agent_runs_files(scripts: Scripts) -> None:
    scripts.put("echo.py", "import json, sys\nprint(json.dumps({'received': json.load(sys.stdin)['message']}))")
    arguments = {"scriptPath": "echo.py", "inputData": {"message": "good evening"}}
    result = await call(scripts.host, "core:execute-python-script", **arguments)
    assert result.error is None, result.error
    assert result.structured["success"] is True
    assert result.structured["outputData"] == {"received": "good evening"}
    assert set(result.structured) == {"success", "outputData", "error", "logs", "files"}
    assert [part.data for part in result.content] == [{"received": "good evening"}]
    if shutil.which("node") is not None:
        scripts.put("a.mjs", "console.log(JSON.stringify([1, 2]))")
        result = await call(scripts.host, "core:execute-nodejs-script", scriptPath="a.mjs")
        assert result.structured["outputData"] == [1, 2]


FAILING = [
    ("print('so far'); 1 / 0", {}, ToolErrorType.SCRIPT, "ZeroDivisionError: division by zero", "Traceback"),
    ("import sys; print('why', file=sys.stderr); sys.exit(3)", {}, ToolErrorType.SCRIPT, "exit", "why"),
    ("while True: pass", {"timeoutMs": 100}, ToolErrorType.TIMEOUT, "0.1 s", ""),
]


async def test_a_script_that_fails_is_a_failed_call(scripts: Scripts) -> None:
    with Failures() as failures:
        for number, (code, limit, kind, message, detail) in enumerate(FAILING):
            scripts.put(f"{number}.py", code)
            for tool, how in (
                ("core:execute-python-script", {"scriptPath": f"{number}.py"}),
                ("CodeInterpreter:execute", {"language": "python", "code": code}),
                ("CodeInterpreter:execute", {"language": "python", "code": code, "session": "one"}),
            ):
                with failures.row((tool, code)):
                    result = await call(scripts.host, tool, **how, **limit)
                    assert (result.status, result.error.type, result.structured) == ("error", kind, None)
                    assert message in result.error.message
                    assert detail in result.error.details.get("details", "")
                    assert "logs" in result.error.details


async def test_a_chain_sees_that_a_script_failed(scripts: Scripts) -> None:
    scripts.put("exit.py", "raise SystemExit(1)")
    tools = scripts.host.services.get(TOOL_MANAGER)
    failing = (
        "command_1:「始」core:execute-python-script「末」\nscriptPath_1:「始」exit.py「末」\nretry_1:「始」1「末」"
    )
    second = "command_2:「始」CodeInterpreter:execute「末」\nlanguage_2:「始」python「末」\ncode_2:「始」print(1)「末」"
    for on_error, expected in (("", ["error"]), ("\non_error_1:「始」continue「末」", ["error", "done"])):
        done = await tools.call_text(f"<|[REQUEST_TOOL]|>\n{failing}{on_error}\n{second}\n<|[END_TOOL]|>")
        assert [result.status for result in done.results] == expected
    ended = [entry for entry in await scripts.host.services.get(AUDIT).tail() if entry.action == "tool.ended"]
    outcomes = [entry.details["outcome"] for entry in ended if entry.subject == "core:execute-python-script"]
    assert outcomes[-4:] == ["ScriptError"] * 4, "each of two tries, of two chains"


async def test_a_projects_tool_names_its_script_from_the_project(scripts: Scripts) -> None:
    scripts.put("echo.py", "import json, sys\nprint(json.dumps(json.load(sys.stdin)))")
    with Failures() as failures:
        for number, implementation in enumerate(
            (
                {"scriptPath": "echo.py"},
                {"scriptPath": "scripts/echo.py"},
                {"command": "python scripts/echo.py"},
            )
        ):
            tool = {"id": f"echo{number}", "implementation": {"type": "script", **implementation}}
            tool["parameters"] = {"type": "object", "properties": {"n": {"type": "integer"}}}
            scripts.put(f"echo{number}.tool.json", json.dumps(tool), folder="tools")
            with failures.row(implementation):
                assert (await call(scripts.host, f"echo{number}", n=number)).structured == {"n": number}
    outside = await call(scripts.host, "core:execute-python-script", scriptPath="scripts/echo.py")
    assert "there is no script 'scripts/echo.py'" in outside.error.message


TYPED = """
import { readFileSync } from "node:fs";
interface Given { input: string }
const given: Given = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(given.input));
"""


def types_are_read() -> bool:
    """Return whether a program on this machine runs TypeScript."""
    said = check_output(["node", "--version"], text=True).strip(" v\n").split(".")
    version = (int(said[0]), int(said[1]))
    return shutil.which("bun") is not None or (version >= (22, 18) and not (23, 0) <= version < (23, 6))


async def test_a_typed_script_runs_or_says_why_not(scripts: Scripts) -> None:
    if shutil.which("node") is None:
        pytest.skip("needs Node.js: apt install nodejs")
    scripts.put("said.ts", TYPED)
    scripts.put("broken.mjs", "function f() { throw new TypeError('no such thing') }\nf()")
    result = await scripts.run(command="node said.ts", input_data={"input": "hello"})
    broken = await scripts.run(script_path="broken.mjs")
    if types_are_read():
        assert result.output_data == "hello"
    else:
        assert result.error is not None
        told = "cannot run the typed script said.ts: install Bun, or Node.js 22.18 or newer"
        assert result.error.message.startswith("Node.js ") and result.error.message.endswith(told)
    assert broken.error is not None and broken.error.message.endswith("exit code 1: TypeError: no such thing")


async def test_an_agent_runs_code_with_files(scripts: Scripts) -> None:
    scripts.put("a.txt", "hello", folder="files")
    code = (
        "text = open('/files/a.txt').read()\nopen('up.csv', 'w').write(text.upper())\n"
        "open('chart.png', 'w').write('12')\nprint(len(text))"
    )
    result = await call(scripts.host, "CodeInterpreter:execute", language="python", code=code, files=["a.txt"])
    assert result.error is None, result.error
    whole, image, file = result.content  # files and images are parts of the answer
    assert (whole.data, result.structured["outputData"]) == (5, 5)
    assert (image.type, image.name, image.mime_type, image.size) == ("image", "chart.png", "image/png", 2)
    assert (file.type, file.name, file.mime_type) == ("file", "up.csv", "text/csv")
    assert [part.uri for part in (image, file)] == [file["path"] for file in result.structured["files"]]
    assert (scripts.host.project.folder("files") / file.uri).read_text() == "HELLO"


async def test_a_language_may_be_called_as_models_call_it(scripts: Scripts) -> None:
    with Failures() as failures:
        for language, code in (
            *((name, "print(6 * 7)") for name in ("Python", "py", "PY", " python ")),
            *((name, "console.log(6 * 7)") for name in ("javascript", "js", "JavaScript", "NodeJS")),
        ):
            with failures.row(language):
                result = await call(scripts.host, "CodeInterpreter:execute", language=language, code=code)
                assert (result.error, result.structured and result.structured["outputData"]) == (None, 42)


async def test_wrong_arguments_are_the_agents_mistake(scripts: Scripts) -> None:
    rows: list[Any] = [
        ("core:execute-python-script", {}),
        ("core:execute-python-script", {"scriptPath": "a.py", "timeoutMs": 99}),
        *(("core:execute-python-script", {"scriptPath": path}) for path in ("./a.py", "/a.py", "b//a.py", "b/../a.py")),
        ("core:execute-python-script", {"scriptPath": "a.py", "inputData": [1]}),
        ("CodeInterpreter:execute", {"code": "1"}),
        ("CodeInterpreter:execute", {"code": "1", "language": "cobol"}),
    ]
    with Failures() as failures:
        for tool, arguments in rows:
            with failures.row((tool, arguments)):
                result = await call(scripts.host, tool, **arguments)
                assert result.error.type is ToolErrorType.PARAMETER_VALIDATION


async def test_the_examples_of_the_tools_are_what_their_schemas_allow(scripts: Scripts) -> None:
    await scripts.host.services.get(TOOL_MANAGER).list_tools()
    assert scripts.host.plugin("tavern-scripts").problems == []
