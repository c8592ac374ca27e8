"""What authors of tools see at the command line: what is wrong with their files, and who calls when they call."""

from __future__ import annotations

from typing import Any

from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.commands import CommandOutput
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_tools.catalog.documentation import describe_tool

INFO = {"type": "service", "service": "plugins", "method": "get"}


async def run(bench: Any, name: str, **arguments: Any) -> list[CommandOutput]:
    return [output async for output in bench.host.registrations.commands[name].call(arguments)]


def said(outputs: list[CommandOutput]) -> list[str]:
    return [output.text for output in outputs if output.kind in ("text", "progress", "failure")]


def exit_code(outputs: list[CommandOutput]) -> int:
    return max((output.exit_code or 1 for output in outputs if output.kind == "failure"), default=0)


async def test_a_project_without_tool_files_has_nothing_wrong(bench: Any) -> None:
    outputs = await run(bench, "tools check")
    assert (said(outputs), exit_code(outputs)) == (["The project has no tool files."], 0)


async def test_a_warning_alone_is_no_failure(bench: Any) -> None:
    path = bench.write_tool("info", INFO, discription="x")
    outputs = await run(bench, "tools check")
    [warning, verdict] = said(outputs)
    assert warning.startswith(f"warning: {path}:1:")
    assert warning.endswith("$.discription: is not a key of a tool and is left unread (did you mean description?)")
    assert (verdict, exit_code(outputs)) == ("Nothing is wrong.", 0)


async def test_nodes_workflows_services_and_methods_that_are_not_there_are_told(bench: Any) -> None:
    bench.write_tool("a", {"type": "node", "nodeType": "core:UperCase"})
    bench.write_tool("b", {"type": "workflow", "workflowId": "absent"})
    bench.write_tool("c", {"type": "node", "nodeType": "core:UpperCase"})
    bench.write_tool("d", {"type": "service", "service": "plugin", "method": "get"})
    bench.write_tool("e", {"type": "service", "service": "plugins", "method": "gte"})
    bench.write_tool("f", INFO)
    outputs = await run(bench, "tools check")
    [node, workflow, service, method, verdict] = said(outputs)
    assert "there is no node core:UperCase (did you mean core:UpperCase" in node
    assert workflow.endswith("there is no workflow absent")
    assert "there is no service 'plugin'" in service
    assert method.endswith("there is no method of plugins 'gte'; did you mean get?")
    assert (verdict, exit_code(outputs)) == ("4 problems found", 1)


async def test_what_is_typed_is_called_by_the_operator(bench: Any) -> None:
    bench.write_info("info")
    await run(bench, "tools call", id="info", arg=["name=tavern-tools"])
    entries = await bench.host.services.get(AUDIT).tail(20)
    assert {entry.actor for entry in entries if entry.subject == "info"} == {"user:operator"}


async def test_a_call_of_a_tool_whose_file_is_wrong_says_what_is_wrong(bench: Any) -> None:
    path = bench.write_tool("info", {"type": "servce"})
    outputs = await run(bench, "tools call", id="info")
    [problem, verdict] = said(outputs)
    assert problem.startswith(f"{path}:1:")
    assert '"servce" (did you mean service?)' in problem
    assert (verdict, exit_code(outputs)) == ('ToolNotFound: no tool has the id "info"', 2)


async def test_an_example_whose_arguments_stand_under_another_key_is_told(bench: Any) -> None:
    bench.write_tool("info", INFO, examples=[{"description": "One.", "arguments": {"name": "a"}}, {"input": {}}])
    [warning, _] = said(await run(bench, "tools check"))
    assert warning.endswith('$.examples[0].arguments: is not read: the arguments of an example stand in "input"')


def test_bounds_are_told_in_words_that_fit_their_number() -> None:
    properties: dict[str, Any] = {
        "one": {"type": "string", "minLength": 1, "maxLength": 2},
        "none": {"type": "array", "minItems": 0, "maxItems": 1},
        "zero": {"type": "integer", "minimum": 0},
    }
    implementation = ToolImplementation(kind="service", service="plugins", method="get")
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    text = describe_tool(ToolDefinition(id="t", implementation=implementation, parameters=parameters))
    assert text.splitlines()[-3:] == [
        "    - one (string, optional): At least 1 character. At most 2 characters.",
        "    - none (array, optional): At most 1 item.",
        "    - zero (integer, optional): At least 0.",
    ]
