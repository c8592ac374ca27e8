"""The platform's direct tools: their files, the ACTION that calls one, and the feedback for its agent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

from example_bench import Bench, OpenBench
from platform_documents import block, plain_json, section

from tavern_host.contracts.services import interface_methods
from tavern_scripts.api.scripts import ScriptErrorType, ScriptExecution, ScriptLanguage, ScriptRequest, ScriptResult
from tavern_tools.api.toolcalls import ToolErrorType, ToolResult
from tavern_tools.catalog.definitions import read_definition

TOOL = "core:execute-python-script"


# --- tool files ---------------------------------------------------------------------------------------


def test_the_result_and_the_parameters_of_2_1_3_are_those_of_the_service_here(spec_dir: Path) -> None:
    code = block(spec_dir, "003", "2.1.3")
    parameters, result = (re.findall(rf"interface {name} \{{(.*?)^\}}", code, re.DOTALL | re.MULTILINE)[0] for name in (
        "ScriptExecutionParams",
        "ScriptExecutionResult",
    ))  # fmt: skip
    fields = {field.alias or name for name, field in ScriptRequest.model_fields.items()}
    assert set(re.findall(r"^  (\w+)\??:", parameters, re.MULTILINE)) <= fields
    assert set(re.findall(r"^  (\w+)\??:", result, re.MULTILINE)) <= {
        field.alias or name for name, field in ScriptResult.model_fields.items()
    }
    assert set(re.findall(r'"(\w+)"', parameters)) == set(get_args(ScriptLanguage))
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


async def test_without_that_service_the_python_tool_says_what_it_needs(open_bench: OpenBench, spec_dir: Path) -> None:
    async with open_bench() as bench:
        bench.write_tool("execute-python-script", block(spec_dir, "003", "2.2.3", 1))
        tool = await bench.tools.get(TOOL)
        result = await bench.call(TOOL, scriptPath="examples/echo.py")
    assert tool.unavailable == "needs service scriptExecution"
    assert result.error.type == ToolErrorType.SERVICE_UNAVAILABLE


# --- messages (§3.4) ------------------------------------------------------------------------------


def sentences(spec_dir: Path) -> list[str]:
    """Return the sentences that §3.4 gives as examples."""
    found = re.findall(r'`"(Tool .*)"`', section(spec_dir, "003", "3.4"))
    return [sentence.replace('\\"', '"') for sentence in found]


async def told(bench: Bench, text: str) -> tuple[str, str, ToolResult]:
    """Return the feedback on the one call in a text, plain and framed, and its result."""
    done = await bench.tools.call_text(text)
    [feedback] = await bench.tools.feedback(done.parsed.calls, done.results)
    return feedback.text, feedback.framed, done.results[0]


def action(**inputs: str) -> str:
    elements = "".join(f'<input name="{name}">{value}</input>' for name, value in inputs.items())
    return f"<ACTION><tool_id>{TOOL}</tool_id><inputs>{elements}</inputs></ACTION>"


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
