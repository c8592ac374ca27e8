"""The platform's examples of what a language model reads of tools, and of where people find them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from example_bench import OpenBench
from platform_documents import block, section

from tavern_host.contracts.http import HttpRequest, HttpResponse
from tavern_tools.api.observations import documented_tools

WORDS = {"描述": "Description", "参数": "Parameters"}


def reference_of(spec_dir: Path) -> str:
    """Return the tool reference within the prompt of §11.2, its labels in English."""
    prompt = block(spec_dir, "000", "11.2")
    [text] = re.findall(r"^\[可用工具参考\]\n(.*?)\n\n", prompt, re.MULTILINE | re.DOTALL)
    for theirs, ours in WORDS.items():
        text = text.replace(f"- {theirs}:", f"- {ours}:")
    return str(text)


async def test_the_reference_of_11_2_is_what_is_written_about_such_a_tool(
    open_bench: OpenBench, spec_dir: Path
) -> None:
    shown = reference_of(spec_dir)
    [tool_id] = re.findall(r"^- Tool ID: (.*)$", shown, re.MULTILINE)
    [description] = re.findall(r"^  - Description: (.*)$", shown, re.MULTILINE)
    parameters = re.findall(r"^    - (\w+) \((\w+), (\w+)\): (.*)$", shown, re.MULTILINE)
    assert len(parameters) == 3
    schema = {
        "type": "object",
        "properties": {name: {"type": kind, "description": text} for name, kind, _, text in parameters},
        "required": [name for name, _, need, _ in parameters if need == "required"],
    }
    implementation = {"type": "service", "service": "projectFiles", "method": "apply_edit"}
    async with open_bench() as bench:
        bench.write_tool(
            "edit",
            {"id": "Ours", "description": description, "implementation": implementation, "parameters": schema},
        )
        written = await bench.tools.describe(["Ours"])
        tool = await bench.tools.get("FileOperator.ApplyEdit")
        ours = await bench.tools.describe([tool.id])
    assert written == shown.replace(tool_id, "Ours")
    names = [name for name, *_ in parameters]
    assert tool.parameters["required"] == names, "the tool of the example is there"
    assert re.findall(r"^    - (\w+) \(string, required\)", ours, re.MULTILINE) == names


async def test_the_mark_of_7_2_becomes_the_documentation_of_the_agents_tools(
    open_bench: OpenBench, spec_dir: Path
) -> None:
    [mark] = re.findall(r"`(\{\{\{.*?\}\}\})`", section(spec_dir, "000", "7.2"))
    async with open_bench() as bench:
        expanded = await bench.tools.expand(f"Tools:\n{mark}\nGo.", tool_ids=["FileOperator.ApplyEdit"])
        documentation = await bench.tools.describe(["FileOperator.ApplyEdit"])
        instructions = await bench.tools.instructions()
        protocols = [protocol for protocol in await bench.tools.protocols() if protocol.source == "text"]
    assert expanded.value == f"Tools:\n{documented_tools(documentation, instructions)}\nGo."
    assert "<|[REQUEST_TOOL]|>" in instructions
    assert {protocol.name for protocol in protocols} == {"tam", "action", "tool_call"}
    rules = (
        "all the tools that you may call",
        "Decide from the task",
        "one of the tools you were given",
        "make results up",
    )
    for protocol in protocols:
        read = " ".join(documented_tools(documentation, protocol.instructions).split())
        places = [read.find(rule) for rule in (*rules[:1], documentation[:20], *rules[1:])]
        assert places == sorted(places)
        assert -1 not in places
    assert expanded.warnings == []


async def test_the_tools_are_listed_where_11_1_says(open_bench: OpenBench, spec_dir: Path) -> None:
    [(method, path)] = re.findall(r"`(GET) (/api/tools)`", section(spec_dir, "000", "11.1"))
    async with open_bench() as bench:
        route, parameters, _ = bench.host.registrations.find(method, path)
        request = HttpRequest(method=method, path=path, parameters=parameters, call=bench.host.call())
        answer = await route.call(request)
        known = [tool.id for tool in await bench.tools.list_tools()]
    assert isinstance(answer, HttpResponse) and answer.body is not None
    listed = json.loads(answer.body)
    assert [tool["id"] for tool in listed] == known
    assert all("parameters" in tool for tool in listed)
