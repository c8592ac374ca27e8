"""The platform's direct tools carried out by a service that runs scripts, and what their agent is told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from example_bench import Bench
from platform_documents import block, plain_json
from test_direct_tool_examples import TOOL, action, sentences, told

from tavern_tools.api.toolcalls import ToolErrorType


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
    found: Any = done.structured
    assert (done.status, found["success"], found["outputData"]) == ("done", True, good["expectedOutput"]["outputData"])
    # the document shows what the service gives, of which a failed call is made
    shown = bad["expectedOutput"]["error"]
    assert (failed.error.type, failed.error.message) == (shown["type"], shown["message"])


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
