"""The platform's direct tools: their files, the ACTION that calls one, and the feedback for its agent."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import pytest
from example_bench import Bench, OpenBench
from platform_documents import block, plain_json, section
from script_plugin import write_script_plugin

from tavern_host.contracts.scripts import ScriptErrorType, ScriptExecution, ScriptLanguage, ScriptRequest, ScriptResult
from tavern_host.contracts.services import interface_methods
from tavern_host.contracts.toolcalls import ToolErrorType, ToolResult
from tavern_tools.catalog.definitions import read_definition

TOOL = "core:execute-python-script"
ANALYZER = """
import json, sys
given = json.load(sys.stdin)
assert given == {"data_url": "http://example.com/data.csv", "threshold": 0.75}
print(json.dumps({"processed_items": 10, "report_url": "/reports/analyzer_123.html"}))
"""
ECHO = "import json, sys\nprint(json.dumps({'received_message': json.load(sys.stdin)['message']}))\n"
SLOW = "import time\ntime.sleep(60)\n"
BROKEN = "1 / 0\n"


@pytest.fixture
async def scripts(open_bench: OpenBench, spec_dir: Path, tmp_path: Path) -> AsyncIterator[Bench]:
    """Return a host with the tool of §2.2.3 and a service that runs scripts."""
    plugin = write_script_plugin(
        tmp_path,
        user_scripts__data_analysis__analyzer=ANALYZER,
        examples__echo=ECHO,
        examples__long_running=SLOW,
        broken=BROKEN,
    )
    async with open_bench(plugin) as bench:
        bench.write_tool("execute-python-script", block(spec_dir, "003", "2.2.3", 1))
        yield bench


# --- tool files ---------------------------------------------------------------------------------------


def test_the_result_and_the_parameters_of_2_1_3_are_those_of_the_service_here(spec_dir: Path) -> None:
    code = block(spec_dir, "003", "2.1.3")
    given, result = (re.findall(rf"interface {name} \{{(.*?)^\}}", code, re.DOTALL | re.MULTILINE)[0] for name in (
        "ScriptExecutionParams",
        "ScriptExecutionResult",
    ))  # fmt: skip
    fields = {field.alias or name for name, field in ScriptRequest.model_fields.items()}
    assert set(re.findall(r"^  (\w+)\??:", given, re.MULTILINE)) <= fields
    assert set(re.findall(r"^  (\w+)\??:", result, re.MULTILINE)) <= {
        field.alias or name for name, field in ScriptResult.model_fields.items()
    }
    assert set(re.findall(r'"(\w+)"', given)) == set(get_args(ScriptLanguage))
    errors = set(re.findall(r"'(\w+Error)'", result))
    assert errors <= {error.value for error in ScriptErrorType}
    assert errors <= {error.value for error in ToolErrorType}
    assert "execute" in interface_methods(ScriptExecution)


def test_the_template_of_2_2_2_is_read_key_by_key(spec_dir: Path) -> None:
    template: dict[str, Any] = json.loads(plain_json(block(spec_dir, "003", "2.2.2")))
    template["toolId"] = "custom:my-data-processor"
    script = {**template["handler"], "type": "external-script", "language": "python"}
    method = {**template["handler"], "type": "service-method"}
    for handler, kind in ((script, "script"), (method, "service")):
        del handler["serviceName" if kind == "script" else "language"]
        definition, findings = read_definition({**template, "handler": handler}, source="", plugin=None)
        # "string" stands there for any text, and is no version; its default and example are none that it allows
        assert [(finding.location, finding.warning) for finding in findings] == [
            (("version",), True),
            (("parameters", "properties", "paramName1", "default"), True),
            (("examples", 0, "input", "paramName1"), True),
        ]
        assert definition.kind == kind
        assert definition.parameters == template["parameters"]
        assert definition.output == template["output"]
        assert definition.security_context == template["securityContext"]
        assert definition.examples == template["examples"]
        assert definition.tags == template["tags"]


async def test_the_python_tool_of_2_2_3_is_listed_and_does_what_its_examples_say(
    scripts: Bench, spec_dir: Path
) -> None:
    file = json.loads(plain_json(block(spec_dir, "003", "2.2.3", 1)))
    tool = await scripts.tools.get(TOOL)
    assert [t.id for t in await scripts.tools.list_tools() if t.id.startswith("core:")] == [TOOL]
    assert tool.unavailable is None
    assert (tool.display_name, tool.version, tool.kind) == (file["displayName"], file["version"], "service")
    assert (tool.parameters, tool.output, tool.tags) == (file["parameters"], file["output"], file["tags"])
    assert (tool.security_context, tool.examples) == (file["securityContext"], file["examples"])

    good, bad = tool.examples
    done, failed = [await scripts.call(TOOL, **example["input"]) for example in (good, bad)]
    given: Any = done.structured
    assert (done.status, given["success"], given["outputData"]) == ("done", True, good["expectedOutput"]["outputData"])
    # the document shows what the service gives, of which a failed call is made
    shown = bad["expectedOutput"]["error"]
    assert (failed.error.type, failed.error.message) == (shown["type"], shown["message"])


async def test_without_that_service_the_python_tool_says_what_it_needs(open_bench: OpenBench, spec_dir: Path) -> None:
    async with open_bench() as bench:
        bench.write_tool("execute-python-script", block(spec_dir, "003", "2.2.3", 1))
        tool = await bench.tools.get(TOOL)
        result = await bench.call(TOOL, scriptPath="examples/echo.py")
    assert tool.unavailable == "needs service scriptExecution"
    assert result.error.type == ToolErrorType.SERVICE_UNAVAILABLE


async def test_the_other_handler_of_2_2_3_makes_a_tool_that_asks_for_the_language(
    scripts: Bench, spec_dir: Path
) -> None:
    part = json.loads(plain_json(f"{{\n{block(spec_dir, '003', '2.2.3', 2)}}}"))
    part["parameters"]["properties"]["scriptPath"] = {"type": "string"}  # which the document leaves out
    scripts.write_tool("any", {"toolId": "core:execute-script", **part})
    done = await scripts.call("core:execute-script", language="python", scriptPath="broken.py")
    wrong = await scripts.call("core:execute-script", language="perl", scriptPath="broken.py")
    assert done.error.type is ToolErrorType.SCRIPT
    assert wrong.error.message.endswith('language: "perl" is not one of "python", "nodejs" or "bun"')


# --- the ACTION of §3.1 -------------------------------------------------------------------------------


async def test_the_action_of_3_1_is_read_and_its_texts_become_what_the_tool_takes(
    scripts: Bench, spec_dir: Path
) -> None:
    text = block(spec_dir, "003", "3.1")
    parsed = await scripts.tools.parse_text(text)
    done = await scripts.tools.call_text(text)
    [call] = parsed.calls
    assert (call.tool_id, call.protocol) == (TOOL, "action")
    assert call.arguments == {
        "scriptPath": "user_scripts/data_analysis/analyzer.py",
        "inputData": '{"data_url": "http://example.com/data.csv", "threshold": 0.75}',
        "timeoutMs": "30000",
    }
    assert parsed.warnings == []
    assert parsed.text.strip() == ""
    [result] = done.results
    assert result.status == "done"
    assert [text.split(" became ")[1] for text in result.coercions] == ["an object", "an integer"]
    assert isinstance(result.structured, dict)
    assert result.structured["outputData"] == {"processed_items": 10, "report_url": "/reports/analyzer_123.html"}


# --- what is told (§3.4) ------------------------------------------------------------------------------


def sentences(spec_dir: Path) -> list[str]:
    """Return the sentences that §3.4 gives as examples."""
    found = re.findall(r'`"(Tool .*)"`', section(spec_dir, "003", "3.4"))
    return [sentence.replace('\\"', '"') for sentence in found]


async def told(bench: Bench, text: str) -> tuple[str, str, ToolResult]:
    """Return what is told of the one call in a text, plain and framed."""
    done = await bench.tools.call_text(text)
    [feedback] = await bench.tools.feedback(done.parsed.calls, done.results)
    return feedback.text, feedback.framed, done.results[0]


def action(**inputs: str) -> str:
    given = "".join(f'<input name="{name}">{value}</input>' for name, value in inputs.items())
    return f"<ACTION><tool_id>{TOOL}</tool_id><inputs>{given}</inputs></ACTION>"


def handled(tool_id: str, script: str, **parameters: str) -> dict[str, Any]:
    """Return a tool that is a script."""
    handler = {"type": "external-script", "scriptPath": script, "language": "python"}
    properties = {name: {"type": kind} for name, kind in parameters.items()}
    return {"toolId": tool_id, "handler": handler, "parameters": {"type": "object", "properties": properties}}


async def test_results_are_told_in_the_words_of_3_4(scripts: Bench, spec_dir: Path) -> None:
    success, failure, _ = sentences(spec_dir)
    before, output = success.split("Output: ")
    script = "user_scripts/data_analysis/analyzer.py"
    scripts.write_tool("direct", handled("core:analyze", script, data_url="string", threshold="number"))
    scripts.write_tool("broken", handled("core:broken", "broken.py"))
    by_method, _, _ = await told(scripts, block(spec_dir, "003", "3.1"))
    call = action(data_url="http://example.com/data.csv", threshold="0.75").replace(TOOL, "core:analyze")
    by_script, framed, _ = await told(scripts, call)
    assert by_script == f"{before.replace(TOOL, 'core:analyze')}Output: {output}"
    assert framed == f"<OBSERVATION>\n<tool_id>core:analyze</tool_id>\n{by_script}\n</OBSERVATION>"
    assert by_method == f"{before}Output: {output}"

    pattern = r"Tool (\S+) failed\. Error type: (\w+)\. Message: (.*?)\.? Details: (.*)"
    [(_, kind, _, details)] = re.findall(pattern, failure)
    assert kind == ToolErrorType.SCRIPT
    assert details.startswith("Traceback (most recent call last)")
    text, framed, result = await told(scripts, action().replace(TOOL, "core:broken"))
    assert result.error is not None
    assert text.startswith(
        "Tool core:broken failed. Error type: ScriptError. Message: ZeroDivisionError: division by zero Details: "
    )
    assert "Traceback (most recent call last)" in text
    assert framed.startswith("<OBSERVATION>\n<tool_id>core:broken</tool_id>\nTool core:broken failed.")


async def test_wrong_calls_are_answered_as_3_4_and_3_5_say(scripts: Bench, spec_dir: Path) -> None:
    before, message = sentences(spec_dir)[2].split("Message: ")
    assert "'timeoutMs' must be an integer" in message
    text, _, _ = await told(scripts, action(scriptPath="examples/echo.py", timeoutMs="soon"))
    assert text.startswith(before)
    assert "timeoutMs" in text and "integer" in text

    flow = block(spec_dir, "003", "3.5")
    assert "getToolById(tool_id)" in flow and "Parameter Validation Failed" in flow
    unknown, framed, result = await told(scripts, action().replace(TOOL, "core:execute-python-scrip"))
    assert result.error.type == ToolErrorType.TOOL_NOT_FOUND
    assert TOOL in unknown  # the near name
    assert framed.startswith("<OBSERVATION>")
    _, _, wrong = await told(scripts, action())
    assert wrong.error.type == ToolErrorType.PARAMETER_VALIDATION
    assert "scriptPath: is required and missing" in wrong.error.message
