"""What is wrong with the tools and action protocols of a plugin is told with the plugin, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.folder_plugins import write_plugin

from tavern_host import TOOL_MANAGER, Host
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.tools import ToolManager

HEAD = """
from tavern_host import ToolDefinition, ToolImplementation, hookimpl
from tavern_host.contracts.protocols import ActionProtocolInfo, ParseEvent

UPPER = ToolImplementation(kind="node", node_type="core:UpperCase")
TALL = {"type": "tall"}
"""
UPPER = {"type": "node", "nodeType": "core:UpperCase"}
BOUNDARY = pytest.mark.in_process_only("the boundary tells of what is no event before the tool manager sees it")
ADDING = ["hook:server:tools:discover", "hook:server:actions:register-protocols"]


def plugin(
    folder: Path, *, code: str = "", tools: dict[str, Any] | None = None, hooks: list[str] | None = None
) -> Path:
    """Write a plugin with code and tool files; a text is written as it is, anything else as JSON."""
    texts = {name: text if isinstance(text, str) else json.dumps(text) for name, text in (tools or {}).items()}
    files = {f"tools/{name}.tool.json": text for name, text in texts.items()}
    entry = {"tools": {"entry": "./tools"}} if tools else {}
    files["__init__.py"] = HEAD + code
    return write_plugin(folder, files, permissions={"hooks": ADDING if hooks is None else hooks}, **entry)


def host_with(tmp_path: Path, *plugins: Path) -> Host:
    return Host(tmp_path / "project", plugins=plugins, trust=[folder.name for folder in plugins])


def own_file(host: Host, text: str) -> None:
    """Write a tool file of the project's own."""
    folder = host.project.root / "tools"
    folder.mkdir(exist_ok=True)
    (folder / "own.tool.json").write_text(text)


def tools_of(host: Host) -> ToolManager:
    manager: ToolManager = host.services.get(TOOL_MANAGER)
    return manager


def told(host: Host, name: str = "acme") -> list[str]:
    """Return what is told of a plugin, with file names instead of paths."""
    problems = host.plugin(name).problems
    return [f"{Path(p.file).name}:{p.line}:{p.column}: {p.message}" if p.file else p.message for p in problems]


async def test_each_broken_tool_file_is_told_once_with_its_plugin_and_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = {
        "a": "{",
        "b": {"id": "b", "implementation": UPPER, "parameters": {"type": "tall"}},
        "c": {"id": "c"},
        "good": good("g"),
    }
    async with host_with(tmp_path, plugin(tmp_path / "acme", tools=files)) as host:
        assert "g" in [tool.id for tool in await tools_of(host).list_tools()]
        own_file(host, json.dumps(good("own")))  # all is read again
        assert "own" in [tool.id for tool in await tools_of(host).list_tools()]

        types = '"string", "integer", "number", "boolean", "array", "object", "null"'
        assert told(host) == [
            "a.tool.json:1:2: is not JSON: Expecting property name enclosed in double quotes",
            f'b.tool.json:1:94: $.parameters.type: expected one of {types} or a list of them, got "tall"',
            'c.tool.json:1:1: $: "implementation" is missing (or "handler", in the other form)',
        ]
        hints = {problem.hint for problem in host.plugin("acme").problems}
        assert hints == {"mend it there, or keep it out with `tavern plugins disable acme`"}
    assert caplog.text.count("a.tool.json") == 1


async def test_more_broken_files_than_are_kept_are_not_told_again_and_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = {f"t{number:02}": "{" for number in range(30)}
    async with host_with(tmp_path, plugin(tmp_path / "acme", tools=files)) as host:
        for number in range(3):
            own_file(host, json.dumps(good(f"own{number}")))
            await tools_of(host).list_tools()
    assert caplog.text.count("t00.tool.json") == 1


async def test_what_is_wrong_with_a_file_of_the_project_is_told_of_no_plugin(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with host_with(tmp_path, plugin(tmp_path / "acme")) as host:
        own_file(host, "{")
        await tools_of(host).list_tools()

        assert [p.name for p in host.plugins() if p.problems] == []
    assert "own.tool.json:1:2: is not JSON" in caplog.text


async def test_a_tool_from_code_that_cannot_be_used_is_told_with_its_plugin(tmp_path: Path) -> None:
    code = """
@hookimpl
def tavern_discover_tools():
    return [
        ToolDefinition(id="workflow:mine", implementation=UPPER),
        ToolDefinition(id="tall", implementation=UPPER, output=TALL),
        ToolDefinition(id="good", implementation=UPPER),
    ]
"""
    async with host_with(tmp_path, plugin(tmp_path / "acme", code=code)) as host:
        assert "good" in [tool.id for tool in await tools_of(host).list_tools()]

        reserved, tall = told(host)
        assert reserved == (
            "plugin acme, tool 'workflow:mine': $.id: ids that begin with \"workflow:\" are made from workflows; "
            "choose another"
        )
        assert tall.startswith("plugin acme, tool 'tall': $.output.type: expected one of")


async def test_who_was_loaded_first_keeps_a_tool_and_both_are_told(tmp_path: Path) -> None:
    code = """
@hookimpl
def tavern_discover_tools():
    return [ToolDefinition(id="same", implementation=UPPER, description=__name__)]
"""
    first, second = plugin(tmp_path / "acme", code=code), plugin(tmp_path / "zenith", code=code)
    async with host_with(tmp_path, second, first) as host:
        assert (await tools_of(host).get("same")).plugin == "acme"

        assert told(host, "acme") == [
            'plugin acme: the tool "same" is defined in plugin zenith as well, which is not used'
        ]
        assert told(host, "zenith") == [
            'plugin zenith: the tool "same" is defined in plugin acme already, which is used'
        ]


async def test_a_plugin_that_ruins_a_tool_is_told_not_the_one_whose_tool_it_is(tmp_path: Path) -> None:
    code = """
@hookimpl
def tavern_before_register_tool(tool):
    return tool.model_copy(update={"output": TALL}) if tool.id == "mine" else None
"""
    acme = plugin(tmp_path / "acme", tools={"mine": good("mine")}, hooks=[])
    guard = plugin(tmp_path / "guard", code=code, hooks=["hook:server:toolmanager:before-register"])
    async with host_with(tmp_path, acme, guard) as host:
        assert "mine" not in [tool.id for tool in await tools_of(host).list_tools()]

        assert told(host, "acme") == []
        (problem,) = told(host, "guard")
        assert problem.startswith(
            'the tool "mine", as tavern_before_register_tool of guard changed it, is left out: $.output.type: expected'
        )


async def test_a_plugin_may_hide_the_tool_of_a_node(tmp_path: Path) -> None:
    code = """
from tavern_host import Veto

@hookimpl
def tavern_before_register_tool(tool):
    return Veto(reason="no") if tool.id == "node:core:UpperCase" else None
"""
    guard = plugin(tmp_path / "guard", code=code, hooks=["hook:server:toolmanager:before-register"])
    async with host_with(tmp_path, guard) as host:
        assert (await tools_of(host).get("node:core:LowerCase")).kind == "node"
        with pytest.raises(NotFound):
            await tools_of(host).get("node:core:UpperCase")


async def test_a_tool_whose_plugin_lacks_a_permission_that_it_declares_says_so(tmp_path: Path) -> None:
    held, missing = "hook:server:tools:discover", "services.use:workflowManager:save"
    tools = {"a": {**good("a"), "permissions": [held]}, "b": {**good("b"), "permissions": [held, missing]}}
    async with host_with(tmp_path, plugin(tmp_path / "acme", tools=tools, hooks=[held])) as host:
        own_file(host, json.dumps({**good("own"), "permissions": [missing]}))
        assert {t.id: t.unavailable for t in await tools_of(host).list_tools() if t.id in ("a", "b", "own")} == {
            "a": None,
            "b": f"needs the permission {missing}, which the plugin acme does not hold",
            "own": None,
        }


# --- action protocols -------------------------------------------------------------------------------

PROTOCOL = """
@hookimpl
def tavern_register_action_protocols():
    return [ActionProtocolInfo(name={name!r}, handler=f"{{__name__}}:Parser")]

class Parser:
    def __init__(self, options): {made}
    def feed(self, text): {fed}
    def finish(self): return []
"""


def protocol(name: str = "odd", *, made: str = "pass", fed: str = "return []") -> str:
    return PROTOCOL.format(name=name, made=made, fed=fed)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (protocol(fed="raise RuntimeError('no')"), "RuntimeError: no"),
        (protocol(fed="raise SystemExit(3)"), "it tried to end the program (SystemExit: 3)"),
        (protocol(made="raise KeyboardInterrupt"), "it tried to end the program (KeyboardInterrupt)"),
        pytest.param(protocol(fed="return 5"), "returned int, expected a list of ParseEvent", marks=BOUNDARY),
        pytest.param(
            protocol(fed="return [5]"), "returned a list with int, expected a list of ParseEvent", marks=BOUNDARY
        ),
        pytest.param(
            protocol(fed="return [ParseEvent.model_construct(kind='text', text=5)]"), "TypeError: ", marks=BOUNDARY
        ),
        (protocol().replace(":Parser", ":Gone"), "acme: there is no handler 'tavern_plugins.acme:Gone'"),
    ],
)
async def test_a_parser_that_fails_costs_its_own_findings_and_is_told_with_its_plugin(
    tmp_path: Path, code: str, reason: str
) -> None:
    text = "Well.\n<|[REQUEST_TOOL]|>\ncommand:「始」info「末」\n<|[END_TOOL]|>"
    async with host_with(tmp_path, plugin(tmp_path / "acme", code=code)) as host:
        for _ in range(2):
            parsed = await tools_of(host).parse_text(text)
            assert [call.tool_id for call in parsed.calls] == ["info"]
            assert any(warning.startswith(f"odd: its parser failed: {reason}") for warning in parsed.warnings)

        (problem,) = host.plugin("acme").problems
        assert problem.message.startswith(f"the parser of the action protocol 'odd' failed: {reason}")
        assert problem.hint == "mend it there, or keep it out with `tavern plugins disable acme`"


async def test_nobody_takes_the_name_of_a_protocol_that_is_there(tmp_path: Path) -> None:
    text = "<|[REQUEST_TOOL]|>\ncommand:「始」info「末」\n<|[END_TOOL]|>"
    async with host_with(tmp_path, plugin(tmp_path / "acme", code=protocol("tam"))) as host:
        parsed = await tools_of(host).parse_text(text, protocols=["tam"])

        assert [call.tool_id for call in parsed.calls] == ["info"]
        assert told(host) == [
            "the action protocol 'tam' is not used: it is tavern-tam's already, and tavern-tam keeps it"
        ]
        assert told(host, "tavern-tam") == []


def good(tool_id: str) -> dict[str, Any]:
    """Return a tool that can be used."""
    return {"id": tool_id, "implementation": UPPER}
