"""What is wrong with the tools and action protocols of a plugin is told with the plugin, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.folder_plugins import write_plugin

from tavern_host import TOOL_MANAGER, Host
from tavern_host.contracts.errors import NotFound
from tavern_tools.api.tools import ToolManager

HEAD = """
from tavern_host import ToolDefinition, ToolImplementation, Veto, hookimpl
from tavern_tools.api.protocols import ActionProtocolInfo, ParseEvent

UPPER = ToolImplementation(kind="node", node_type="core:UpperCase")
TALL = {"type": "tall"}
"""
UPPER = {"type": "node", "nodeType": "core:UpperCase"}
HINT = "mend it there, or keep it out with `tavern plugins disable acme`"
ADDING = ["hook:server:tools:discover", "hook:server:actions:register-protocols"]
GUARDING = ["hook:server:toolmanager:before-register"]


def good(tool_id: str, **more: Any) -> dict[str, Any]:
    """Return a tool that can be used."""
    return {"id": tool_id, "implementation": UPPER, **more}


def plugin(folder: Path, code: str = "", tools: dict[str, Any] | None = None, hooks: list[str] = ADDING) -> Path:
    """Write a plugin with code and tool files; a text is written as it is, anything else as JSON."""
    texts = {name: text if isinstance(text, str) else json.dumps(text) for name, text in (tools or {}).items()}
    files = {f"tools/{name}.tool.json": text for name, text in texts.items()}
    entry = {"tools": {"entry": "./tools"}} if tools else {}
    return write_plugin(folder, {**files, "__init__.py": HEAD + code}, permissions={"hooks": hooks}, **entry)


def host_with(tmp_path: Path, *plugins: Path) -> Host:
    return Host(tmp_path / "project", plugins=plugins, trust=[folder.name for folder in plugins])


async def tools_with(host: Host, own: Any) -> dict[str, str | None]:
    """Write a tool file of the project's own, so that all is read again; return why each tool cannot be called."""
    folder = host.project.root / "tools"
    folder.mkdir(exist_ok=True)
    (folder / "own.tool.json").write_text(own if isinstance(own, str) else json.dumps(own))
    return {tool.id: tool.unavailable for tool in await tools_of(host).list_tools()}


def tools_of(host: Host) -> ToolManager:
    manager: ToolManager = host.services.get(TOOL_MANAGER)
    return manager


def told(host: Host, name: str = "acme") -> list[str]:
    """Return the problems of a plugin, with file names instead of paths."""
    problems = host.plugin(name).problems
    return [f"{Path(p.file).name}:{p.line}:{p.column}: {p.message}" if p.file else p.message for p in problems]


HELD, MISSING = "hook:server:tools:discover", "services.use:workflowManager:save"
FILES = {
    **{"a": "{", "b": good("b", parameters={"type": "tall"}), "c": {"id": "c"}, "good": good("g", permissions=[HELD])},
    "lacking": good("l", permissions=[HELD, MISSING]),
}
FROM_CODE = """
@hookimpl
def tavern_discover_tools():
    return [
        ToolDefinition(id="workflow:mine", implementation=UPPER),
        ToolDefinition(id="tall", implementation=UPPER, output=TALL),
        ToolDefinition(id="same", implementation=UPPER, description=__name__),
    ]
"""


async def test_each_problem_is_told_once_with_its_plugin(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    acme = plugin(tmp_path / "acme", FROM_CODE, FILES)
    zenith = plugin(tmp_path / "zenith", FROM_CODE.replace('"workflow:mine"', '"z"').replace("output=TALL", ""))
    many = plugin(tmp_path / "many", tools={f"t{number:02}": "{" for number in range(30)})
    async with host_with(tmp_path, zenith, acme, many) as host:
        assert {"g", "same"} <= {tool.id for tool in await tools_of(host).list_tools()}
        for number in range(2):
            tools = await tools_with(host, good(f"own{number}", permissions=[MISSING]))
        lacking = f"needs the permission {MISSING}, which the plugin acme does not hold"
        assert (tools["g"], tools["own1"], tools["l"]) == (None, None, lacking)
        assert (await tools_of(host).get("same")).plugin == "acme"

        types = '"string", "integer", "number", "boolean", "array", "object", "null" or a list of them, got "tall"'
        assert sorted(told(host)) == [
            "a.tool.json:1:2: is not JSON: Expecting property name enclosed in double quotes",
            f"b.tool.json:1:94: $.parameters.type: expected one of {types}",
            'c.tool.json:1:1: $: "implementation" is missing (or "handler", in the other form)',
            f"plugin acme, tool 'tall': $.output.type: expected one of {types}",
            "plugin acme, tool 'workflow:mine': $.id: ids that begin with \"workflow:\" are made from workflows; "
            "choose another",
        ]
        assert 'plugin zenith: the tool "same" is defined in plugin acme already, which is used' in told(host, "zenith")
        assert HINT in {problem.hint for problem in host.plugin("acme").problems}
        before = {plugin.name: plugin.problems for plugin in host.plugins()}
        await tools_with(host, "{")  # what is wrong with a file of the project is told of no plugin
        assert {plugin.name: plugin.problems for plugin in host.plugins()} == before
    for name in ("a.tool.json", "t00.tool.json", "own.tool.json:1:2: is not JSON"):
        assert caplog.text.count(name) == 1, name


GUARD = """
@hookimpl
def tavern_before_register_tool(tool):
    if tool.id == "node:core:UpperCase":
        return Veto(reason="no")
    return tool.model_copy(update={"output": TALL}) if tool.id == "mine" else None
"""


async def test_who_ruins_a_tool_is_told(tmp_path: Path) -> None:
    acme = plugin(tmp_path / "acme", tools={"mine": good("mine")}, hooks=[])
    async with host_with(tmp_path, acme, plugin(tmp_path / "guard", GUARD, hooks=GUARDING)) as host:
        assert "mine" not in [tool.id for tool in await tools_of(host).list_tools()]
        assert told(host) == []
        (problem,) = told(host, "guard")
        said = (
            'the tool "mine", as tavern_before_register_tool of guard changed it, is left out: $.output.type: expected'
        )
        assert problem.startswith(said)
        assert (await tools_of(host).get("node:core:LowerCase")).kind == "node"
        with pytest.raises(NotFound):  # a plugin may hide the tool of a node
            await tools_of(host).get("node:core:UpperCase")


# --- action protocols -------------------------------------------------------------------------------

PROTOCOLS = """
class Parser:
    def __init__(self, options): pass
    def feed(self, text): return []
    def finish(self): return []
"""
PARSER = """
class {name}(Parser):
    def {method}(self, _): {body}
"""
PARSERS = {
    # the name of a parser, its method, what that does, and why it failed
    "raises": ("feed", "raise RuntimeError('no')", "RuntimeError: no"),
    "exits": ("feed", "raise SystemExit(3)", "it tried to end the program (SystemExit: 3)"),
    "breaks": ("__init__", "raise KeyboardInterrupt", "it tried to end the program (KeyboardInterrupt)"),
    "tam": ("feed", "return []", ""),
    "number": ("feed", "return 5", "returned int, expected a list of ParseEvent"),
    "numbers": ("feed", "return [5]", "returned a list with int, expected a list of ParseEvent"),
    "untyped": ("feed", "return [ParseEvent.model_construct(kind='text', text=5)]", "TypeError: "),
}
INFOS = """
@hookimpl
def tavern_register_action_protocols():
    names = {names}
    return [ActionProtocolInfo(name=name, handler=f"{{__name__}}:{{name}}") for name in names]
"""
TEXT = "Well.\n<|[REQUEST_TOOL]|>\ncommand:「始」info「末」\n<|[END_TOOL]|>"


BOUNDARY = pytest.mark.in_process_only("the boundary tells of what is no event before the tool manager sees it")


@pytest.mark.parametrize(
    "names", [[*PARSERS][:4], pytest.param([*PARSERS][4:], marks=BOUNDARY)], ids=["raising", "wrong"]
)
async def test_a_failing_parser_costs_its_own_findings(tmp_path: Path, names: list[str]) -> None:
    parsers = [PARSER.format(name=name, method=method, body=body) for name, (method, body, _) in PARSERS.items()]
    code = PROTOCOLS + "".join(parsers)
    async with host_with(tmp_path, plugin(tmp_path / "acme", code + INFOS.format(names=names))) as host:
        for _ in range(2):
            parsed = await tools_of(host).parse_text(TEXT)
            assert [(call.tool_id, call.protocol) for call in parsed.calls] == [("info", "tam")]
        problems = {problem.message: problem.hint for problem in host.plugin("acme").problems}
        taken = "the action protocol 'tam' is not used: it is tavern-tam's already, and tavern-tam keeps it"
        assert (taken in problems) == ("tam" in names)
        assert told(host, "tavern-tam") == []
        for name in names:
            if reason := PARSERS[name][2]:
                assert any(warning.startswith(f"{name}: its parser failed: {reason}") for warning in parsed.warnings), (
                    name
                )
                said = f"the parser of the action protocol '{name}' failed: {reason}"
                assert [hint for message, hint in problems.items() if message.startswith(said)] == [HINT], name
        assert len(problems) == len(names)
