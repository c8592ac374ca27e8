"""Scripts that call tools: what they may call, what they are told, and that nothing of it outlives their runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from helpers.repetition import Failures, repetitions
from helpers.survival import Child
from helpers.waiting import until

from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.settings import SETTINGS, SettingsChange
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_host.projects import Folders, make_project
from tavern_scripts.api.code_mode import ambiguous_names, function_names, signatures
from tavern_scripts.api.scripts import SandboxLaunch, ScriptErrorType, ScriptLanguage, ScriptRequest
from tavern_scripts.sandbox.supervised import Supervised
from tavern_scripts.tool_calls.module import with_module
from tavern_tools.api.toolcalls import TaskFilter, ToolCallRequest, ToolResult, ToolRule, ToolScope
from tavern_tools.api.tools import TOOL_MANAGER
from tests.scripts.sandboxes import LIMITS, read, run
from tests.scripts.scripthost import Scripts, scripts_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGENT = Principal(kind="agent", id="clerk")
OPEN = ["CodeInterpreter:execute", "system:get_current_time", "FileOperator.ReadFile", "FileOperator.WriteFile"]
FRAMES = "import json, os\nfd = int(os.environ['TAVERN_CALLS_FD'])\n" + (
    "def send(data): os.write(fd, len(data).to_bytes(4, 'big') + data)\n"
    "def frame(**given): send(json.dumps(given).encode())\n"
    "ARGUMENTS = {'filePath': 'x', 'content': ''}\n"
    "CALL = json.dumps({'id': 1, 'tool': 'FileOperator.WriteFile', 'arguments': ARGUMENTS}).encode()\n"
    "FRAME = len(CALL).to_bytes(4, 'big') + CALL\n"
    "# tools\n"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def open_scripts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scripts]:
    """The scripts of a host whose scripts may make 10,000 calls."""
    place = tmp_path_factory.mktemp("calls")
    folders = Folders(*(place / name for name in ("config", "state", "data")))
    async with scripts_of(place, folders_of=folders, maxToolCalls=10_050) as opened:
        yield opened


async def execute(
    scripts: Scripts, code: str, language: str = "python", *, scope: ToolScope | None = None, **arguments: Any
) -> ToolResult:
    """Return the result of code that an agent has run."""
    request = ToolCallRequest(
        tool_id="CodeInterpreter:execute", arguments={"language": language, "code": code, **arguments}
    )
    call = CallContext(principal=AGENT, project=scripts.host.project.id)
    scope = scope or ToolScope(allowed=OPEN)
    return await scripts.host.services.get(TOOL_MANAGER).call(request, scope=scope, call=call)


async def value(scripts: Scripts, code: str, language: str = "python", **arguments: Any) -> Any:
    """Return the output of such code."""
    result = await execute(scripts, code, language, **arguments)
    assert result.error is None, result.error
    assert isinstance(result.structured, dict)
    return result.structured["outputData"]


PYTHON = """
import asyncio, json, threading, tools
from tools import file_operator_write_file, read_file
file_operator_write_file(filePath="a.txt", content="hi")
try:
    read_file(filePath="b.txt")
except tools.ToolError as error:
    failure = [error.type, "b.txt" in error.message, error.details]
found = []
threads = [threading.Thread(target=lambda: found.append(read_file(filePath="a.txt")["content"])) for _ in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
async def both():
    return await asyncio.gather(*(tools.aio.read_file(filePath="a.txt") for _ in range(3)))
found += [one["content"] for one in asyncio.run(both())]
print(json.dumps([failure, found == ["hi"] * 7, "(FileOperator.ReadFile)" in read_file.__doc__]))
"""
JAVASCRIPT = """
import tools, { readFile, fileOperatorWriteFile, ToolError } from "tools";
await fileOperatorWriteFile({ filePath: "a.txt", content: "hi" });
let failure;
try { await readFile({ filePath: "b.txt" }); } catch (error) {
  failure = [error.type, error instanceof ToolError && error.message.includes("b.txt"), error.details];
}
const found = await Promise.all(Array.from({ length: 25 }, () => tools.readFile({ filePath: "a.txt" })));
console.log(JSON.stringify([failure, found.every((one) => one.content === "hi"), found.length === 25]));
"""


needs_bun = pytest.mark.skipif(shutil.which("bun") is None, reason="needs Bun: npm install bun")


@pytest.mark.parametrize(
    ("language", "code"),
    [("python", PYTHON), ("nodejs", JAVASCRIPT), pytest.param("bun", JAVASCRIPT, marks=needs_bun)],
)
async def test_tools_are_functions_and_failures_exceptions(open_scripts: Scripts, language: str, code: str) -> None:
    output = await value(open_scripts, code, language)

    assert output == [["ExecutionError", True, {"code": "not_found"}], True, True]
    entries = await open_scripts.host.services.get(AUDIT).tail(100)
    called = [each for each in entries if each.action == "tool.called" and '"a.txt"' in json.dumps(each.details)]
    assert {each.actor for each in called} == {str(AGENT)}


async def test_a_script_may_call_what_its_caller_may(open_scripts: Scripts) -> None:
    code = """
import json, tools
said = []
for tool in ("system:get_current_time", "FileOperator.DeleteFile", "CodeInterpreter:execute", "nothing"):
    try:
        tools.call(tool)
        said.append("made")
    except tools.ToolError as error:
        said.append(error.type)
print(json.dumps([said, hasattr(tools, "delete_file"), hasattr(tools, "get_current_time")]))
"""
    denied = "PermissionDenied"
    assert await value(open_scripts, code) == [["made", denied, denied, denied], False, True]


async def test_who_is_given_tools(open_scripts: Scripts) -> None:
    project = open_scripts.host.project.id
    nobody = CallContext(principal=AGENT, project=project)
    user = CallContext(principal=Principal(kind="user", id="ann"), project=project)
    code = "import json, os\nimport tools\nprint(json.dumps([dir(tools), 'TAVERN_CALLS_FD' in os.environ]))"

    async def tools_of(call: CallContext, *tools: str) -> Any:
        request = ScriptRequest(code=code, language="python", tools=tools)
        return (await open_scripts.service.run(request, call=call)).output_data

    assert await open_scripts.host.services.get(TOOL_MANAGER).callable_tools(call=nobody) == []
    own = ["ToolError", "aio", "call"]
    assert await tools_of(nobody, "*") == [own, True]
    assert await tools_of(user, "system:get_*") == [[*own, "get_current_time", "system_get_current_time"], True]
    assert {*own, "get_current_time", "write_file"} < {*(await tools_of(user, "*"))[0]}
    assert await tools_of(user.model_copy(update={"via": "acme"}), "*") is None  # without a module `tools`
    with pytest.raises(InvalidInput, match="no tools are given in a session"):
        await open_scripts.python("1", session="s", tools=["*"])


FILES = {
    "tell.py": "import json, sys, tools\nnames = dir(tools)\n"
    "def main(given): return [tools.read_file(**given)['content'], 'write_file' in names]\n"
    "if __name__ == '__main__': print(json.dumps(main(json.load(sys.stdin))))",
    "tell.mjs": "import tools, { readFile } from 'tools'; import fs from 'node:fs';\n"
    "const given = JSON.parse(fs.readFileSync(0));\n"
    "console.log(JSON.stringify([(await readFile(given)).content, 'writeFile' in tools]));",
}
TELLING: dict[str, dict[str, Any]] = {
    "a file": {"scriptPath": "scripts/tell.py"},
    "a function": {"scriptPath": "scripts/tell.py", "entryPoint": "main"},
    "a command": {"command": "python scripts/tell.py"},
    "JavaScript": {"scriptPath": "scripts/tell.mjs"},
}


async def test_script_tools_of_the_project_call_tools(tmp_path: Path) -> None:
    root = tmp_path / "project"
    make_project(root)
    (root / "tools").mkdir(exist_ok=True)
    for number, implementation in enumerate(TELLING.values()):
        about = {"type": "script", "tools": ["FileOperator.Read*"], **implementation}
        definition = {"id": f"Tell{number}", "handler": about, "parameters": {"properties": {"filePath": {}}}}
        (root / "tools" / f"{number}.tool.json").write_text(json.dumps(definition))
    async with scripts_of(tmp_path) as scripts:
        for path, text in FILES.items():
            scripts.put(path, text)
        scripts.put("a.txt", "hi", folder="files")
        manager = scripts.host.services.get(TOOL_MANAGER)
        with Failures() as failures:
            for number, name in enumerate(TELLING):
                request = ToolCallRequest(tool_id=f"Tell{number}", arguments={"filePath": "a.txt"})
                may, may_not = (ToolScope(allowed=[f"Tell{number}", *more]) for more in (OPEN, []))
                with failures.row(name):
                    result = await manager.call(request, scope=may, call=CallContext(principal=AGENT))
                    assert result.structured == ["hi", False], result
                with failures.row(f"{name}, by who may not read"):
                    result = await manager.call(request, scope=may_not, call=CallContext(principal=AGENT))
                    assert result.error is not None


async def test_code_finds_its_module_without_mounts(tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "packed.py").touch()
    programs: dict[ScriptLanguage, tuple[str | None, str]] = {
        "python": (sys.executable, "import packed, tools; print(callable(tools.call))"),
        "nodejs": (shutil.which("node"), "import tools from 'tools'; console.log(typeof tools.call === 'function')"),
    }
    for language, (program, code) in programs.items():
        folder = tmp_path / language
        folder.mkdir()
        (folder / "x.mjs").write_text(code)
        launch = SandboxLaunch(
            argv=[str(program), "/script/x.mjs"],
            limits=LIMITS,
            mounts=[read("/script", folder), read("/packages", tmp_path / "packages")],
            environment={"PYTHONPATH": "/packages"},
            address_space=language == "python",
        )

        came = await run(Supervised(is_limited=False), with_module(launch, folder, language, []))

        assert came.stdout.strip().lower() == b"true", came


HONEST = """
import json, tools
said = []
deep = 1
for _ in range(300):
    deep = [deep]
for given in ("\\ud800", deep):
    try:
        tools.read_file(filePath=given)
    except tools.ToolError as error:
        said.append(error.type)
print(json.dumps([said, tools.get_current_time()["unix"] > 0]))
"""


async def test_arguments_that_are_no_json_fail_alone(open_scripts: Scripts) -> None:
    code = """
import tools from "tools";
try { await tools.readFile({ filePath: "\\ud800" }); } catch (error) { console.log(JSON.stringify(error.type)); }
"""
    assert await value(open_scripts, HONEST) == [["ParameterValidationError"] * 2, True]
    assert await value(open_scripts, code, "nodejs") == "ParameterValidationError"


LIVES_ON = f"""{FRAMES}
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    for number in range(1, 100_000):
        frame(id=number, tool="FileOperator.AppendFile", arguments={{"filePath": "lives.txt", "content": "x"}})
        os.read(fd, 65536)
        number > 1 or os.write(writer, b"x")
os.read(reader, 1)
print(1)
"""


async def test_a_child_with_the_descriptor_ends_with_its_run(open_scripts: Scripts) -> None:
    scope = ToolScope(allowed=[*OPEN, "FileOperator.AppendFile"])
    assert (await value(open_scripts, LIVES_ON, scope=scope)) == 1

    file = open_scripts.host.project.root / "files" / "lives.txt"
    size = file.stat().st_size
    assert size > 0, "the child called"
    assert await value(open_scripts, "import tools; print(tools.get_current_time()['unix'] > 0)") == "True"
    assert file.stat().st_size == size


async def test_a_revoke_holds_for_the_next_call(open_scripts: Scripts) -> None:
    code = """
import json, time, tools
made = 0
tools.write_file(filePath="begun.txt", content="")
try:
    while made < 3000:
        tools.get_current_time()
        made += 1
        time.sleep(0.01)
except tools.ToolError as error:
    print(json.dumps([made > 0, error.type, "clerk" in error.message]))
"""
    settings = open_scripts.host.services.get(SETTINGS)
    key = "extensions.tavern-tools.access"
    rules = {"roles": {"clerks": {"deny": ["system:get_current_time"]}}, "principals": {"agent:clerk": ["clerks"]}}
    begun = open_scripts.host.project.root / "files" / "begun.txt"
    begun.unlink(missing_ok=True)
    running = asyncio.create_task(value(open_scripts, code))
    while not begun.exists():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    change = SettingsChange(plugin="tavern-tools", values={key: rules})
    try:
        await settings.save(change)
        assert await running == [True, "PermissionDenied", True]
    finally:
        await settings.save(change.model_copy(update={"values": {key: {}}}))


async def test_thousands_of_calls_are_made(open_scripts: Scripts) -> None:
    number = repetitions(500, 10_000)
    code = f"""
import json, tools
print(json.dumps(sum(tools.get_current_time()["unix"] > 0 for _ in range({number}))))
"""
    assert await value(open_scripts, code, timeoutMs=60_000) == number


async def test_calls_and_their_results_are_limited(tmp_path: Path) -> None:
    code = """
import json, tools
made = []
for tool in ("FileOperator.ReadFile", *["system:get_current_time"] * 4):
    try:
        tools.call(tool, **({"filePath": "large.txt"} if "Read" in tool else {}))
        made.append("made")
    except tools.ToolError as error:
        made.append(error.type)
print(json.dumps(made))
"""
    async with scripts_of(tmp_path, maxToolCalls=3, inputKilobytes=8) as scripts:
        scripts.put("large.txt", f"{'x' * 500}\n" * 100, folder="files")
        assert await value(scripts, code) == ["OutputError", *["made"] * 2, *["ResourceError"] * 2]


WAITING = """
import json, tools
try:
    print(json.dumps(tools.write_file(filePath="approved.txt", content="1")["path"]))
except tools.ToolError as error:
    print(json.dumps([error.type, "refused" in error.message]))
"""


async def test_time_stands_still_while_a_call_waits(open_scripts: Scripts) -> None:
    manager = open_scripts.host.services.get(TOOL_MANAGER)
    scope = ToolScope(allowed=OPEN, approval=[ToolRule(tool="FileOperator.*")])
    for decision, expected in (("approve", "approved.txt"), ("refuse", ["PermissionDenied", True])):
        running = asyncio.create_task(value(open_scripts, WAITING, scope=scope, timeoutMs=5000))
        task_id = await asked(open_scripts)
        if decision == "approve":
            await asyncio.sleep(5.2)  # longer than the script may take by itself
        await manager.decide(task_id, decision)  # type: ignore[arg-type]
        assert await running == expected
    endless = "import tools, time\ntools.get_current_time()\ntime.sleep(30)"
    late = await execute(open_scripts, endless, timeoutMs=1000)  # after a call it runs again
    assert late.error is not None and late.error.type == ScriptErrorType.TIMEOUT


async def test_a_call_that_nobody_waits_for_is_withdrawn(open_scripts: Scripts) -> None:
    scope = ToolScope(allowed=OPEN, approval=[ToolRule(tool="FileOperator.*")])
    running = asyncio.create_task(execute(open_scripts, WAITING, scope=scope))
    task_id = await asked(open_scripts)
    running.cancel()
    await asyncio.wait([running])

    task = await open_scripts.host.services.get(TOOL_MANAGER).task(task_id, wait=5)
    assert task.status == "cancelled"


async def asked(scripts: Scripts) -> str:
    """Return the task of a call that waits for a person."""
    manager = scripts.host.services.get(TOOL_MANAGER)
    while True:
        tasks = await manager.tasks(TaskFilter(statuses=["awaiting_approval"]))
        if tasks:
            return tasks[0].id
        await asyncio.sleep(0.02)


FORGED = {
    "too short": "os.write(fd, bytes(4))",
    "too long": "os.write(fd, b'\\xff\\xff\\xff\\xff')",
    "no JSON": "send(b'{')",
    "no text": "send(b'\\xff\\xfe')",
    "deep": "send(b'[' * 100_000)",
    "no call": "send(b'[1]')",
    "more than a call": "frame(id=1, tool='system:get_current_time', arguments={}, scope={'allowed': ['*']})",
    "less than a call": "frame(id=1)",
    "no number": "frame(id=True, tool='system:get_current_time', arguments={})",
    "a huge number": "frame(id=2**70, tool='system:get_current_time', arguments={})",
    "no arguments": "frame(id=1, tool='system:get_current_time', arguments=[])",
    "not finite": 'send(b\'{"id": 1, "tool": "x", "arguments": {"a": NaN}}\')',
    "an answer": "frame(id=1, value=1)",
    "twice at once": "os.write(fd, 2 * FRAME)",
}


async def test_forged_frames_end_their_run_only(open_scripts: Scripts) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    with Failures() as failures:
        for name, code in FORGED.items():
            with failures.row(name):
                result = await execute(open_scripts, f"{FRAMES}{code}\nimport time; time.sleep(20)")
                assert result.error is not None
                assert "channel of its tools" in result.error.message
    honest = f"{FRAMES}frame(id=7, tool='system:get_current_time', arguments={{}})\nprint(len(os.read(fd, 9999)) > 40)"
    assert await value(open_scripts, honest) == "True"
    async with asyncio.timeout(60):
        while len(set(Path("/proc/self/fd").iterdir()) - before) > 2:
            await asyncio.sleep(0.05)


async def test_an_unread_flood_of_calls_is_bounded(open_scripts: Scripts) -> None:
    code = f"""{FRAMES}
os.set_blocking(fd, False)
sent = 0
try:
    for number in range(1, 1_000_000):
        frame(id=number, tool="FileOperator.ReadFile", arguments={{"filePath": "big.txt"}})
        sent += 1
except BlockingIOError:
    print(sent < 100_000)
"""
    open_scripts.put("big.txt", "x" * 100_000, folder="files")
    assert await value(open_scripts, code) == "True"


async def call_without_end(place: Path, token: str) -> None:
    """Run a script that calls tools without end, with a token in its environment."""
    code = "import tools\nwhile True: tools.append_file(filePath='begun.txt', content='x')"
    call = CallContext(principal=Principal(kind="user", id="ann"))
    async with scripts_of(place, folders_of=Folders(*(place / name for name in ("c", "s", "d")))) as scripts:
        await scripts.service.run(ScriptRequest(code=code, language="python", tools=["*"], tool_id=token), call=call)


async def test_nothing_of_calls_is_left_of_a_killed_host(tmp_path: Path) -> None:
    token = f"token-{tmp_path.name}-{os.getpid()}"
    begun = tmp_path / "project" / "files" / "begun.txt"
    async with Child(call_without_end, tmp_path, token) as host:
        await until(lambda: host.check() and begun.exists() and begun.stat().st_size >= 3)
        assert running(token), "the script runs"
        await host.killed()
    await until(lambda: not running(token))
    size = begun.stat().st_size
    await asyncio.sleep(0.3)
    assert begun.stat().st_size == size


def running(token: str) -> list[str]:
    """Return the processes whose environment holds a text."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if token.encode() in (process / "environ").read_bytes():
                found.append(process.name)
    return found


async def test_names_of_functions_are_told_apart() -> None:
    ids = ["a.get", "b.get", "FileOperator.ReadFile", "kb:Query", "x.class", "工具.搜索", "a_get"]

    names = function_names(ids)

    assert names["read_file"] == names["file_operator_read_file"] == "FileOperator.ReadFile"
    assert "get" not in names
    assert (names["a_get"], names["a_get_2"], names["b_get"]) == ("a.get", "a_get", "b.get")
    assert ambiguous_names(ids)["get"] == ["a_get", "b_get"]
    assert names["class_"] == "x.class"
    assert names["搜索"] == "工具.搜索"
    assert all(name.isidentifier() for name in names)
    assert function_names(ids, "javascript")["readFile"] == "FileOperator.ReadFile"


async def test_signatures_say_what_is_required() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"limit": {"type": "integer"}, "path": {"type": "string"}},
        "required": ["path"],
    }
    about = ToolImplementation(kind="service", service="s", method="m")
    tool = ToolDefinition(id="f.ReadAll", description="Reads.", implementation=about, parameters=schema)

    assert signatures([tool]) == ('def read_all(*, path: str, limit: int = …) -> object\n    """Reads. (f.ReadAll)"""')
