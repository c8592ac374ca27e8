"""What one does with `tavern`: run workflows, call tools, give agents a message, read action text."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import COMMAND, minds_ctrl_c, tavern

ACTION = "Well.\n<|[REQUEST_TOOL]|>\ncommand:「始」text:shout「末」\ntext:「始」Grüße「末」\n<|[END_TOOL]|>\nDone."


def document(*nodes: dict[str, Any], **more: Any) -> str:
    """Return a workflow of nodes without edges."""
    return json.dumps({"name": "W", "nodes": list(nodes), "edges": [], **more})


# --- nodes and workflows --------------------------------------------------------------------------


def test_nodes_are_listed_by_their_full_type() -> None:
    ran = tavern("nodes", "list")

    assert ran.code == 0
    assert "core:TextMerge" in ran.out and "separator: STRING" in ran.out
    assert "TextMerge" in {node["type"] for node in tavern("nodes", "list", "--json").json()}


def test_a_stored_workflow_runs_with_its_progress_on_stderr() -> None:
    ran = tavern("workflow", "run", "greeting", "--input", "name=Ada")

    assert (ran.code, ran.out) == (0, "Text: Hello, Ada\n")
    done = [line for line in ran.err.splitlines() if line.endswith(" done")]
    assert sorted(done) == [
        "input (core:GroupInput) done",
        "merge (core:TextMerge) done",
        "output (core:GroupOutput) done",
        "trim (core:Trim) done",
    ]


def test_a_workflow_file_runs_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(
        json.dumps(
            {
                "name": "Shout",
                "nodes": [{"id": "up", "type": "core:UpperCase"}, {"id": "out", "type": "core:GroupOutput"}],
                "edges": [{"id": "e", "source": "up", "sourceHandle": "text", "target": "out", "targetHandle": "t"}],
                "interfaceInputs": {"n": {"key": "n", "dataFlowType": "INTEGER"}},
                "interfaceOutputs": {"t": {"key": "t", "dataFlowType": "STRING"}},
            }
        ).replace('"core:UpperCase"', '"core:UpperCase", "inputValues": {"text": "hi"}')
    )

    ran = tavern("workflow", "run", "w.json", "--input", "n=3", "--json", cwd=tmp_path)

    assert (ran.code, ran.err) == (0, "")
    assert ran.json()["status"] == "complete"
    assert (ran.json()["inputs"], ran.json()["outputs"]) == ({"n": 3}, {"t": "HI"})


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["greeting"], "Error: $.inputs.name: the input 'name' is required"),
        (
            ["greeting", "--input", "name=Ada", "--input", "greting=Hi"],
            "Error: $.inputs.greting: the workflow has no input 'greting' (did you mean greeting?)",
        ),
        (["greeting", "--input", "name"], "Error: --input name: write KEY=VALUE"),
        (
            ["greetin"],
            "Error: there is no file greetin, and there is no workflow 'greetin' (did you mean greeting?)",
        ),
    ],
)
def test_a_run_that_cannot_be_is_refused_in_one_line(arguments: list[str], error: str, tmp_path: Path) -> None:
    ran = tavern("workflow", "run", *arguments, cwd=tmp_path)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == error + "\n"


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_file_that_is_not_json_is_told_with_line_and_column(command: str, tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text('{"name": "W",\n "nodes": [}')

    ran = tavern("workflow", command, tmp_path / "w.json")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"Error: {tmp_path / 'w.json'} is not JSON: line 2, column 12: Expecting value\n"
    (tmp_path / "w.json").write_text("[]")
    assert "must hold a JSON object" in tavern("workflow", command, tmp_path / "w.json").err


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_folder_is_no_workflow(command: str, tmp_path: Path) -> None:
    ran = tavern("workflow", command, tmp_path)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"Error: there is no file {tmp_path}, and ") and ran.err.count("\n") == 1


def test_check_names_every_problem_at_once(tmp_path: Path) -> None:
    nodes = [{"id": "a", "type": "core:UpperCas"}, {"id": "b", "type": "nobody:Knows"}]
    (tmp_path / "w.json").write_text(document(*nodes))

    ran = tavern("workflow", "check", tmp_path / "w.json")
    as_json = tavern("workflow", "check", tmp_path / "w.json", "--json")

    assert (ran.code, ran.err) == (2, "Error: w.json has 2 problems\n")
    assert "$.nodes[0].type: there is no node type 'core:UpperCas' (did you mean core:UpperCase?)" in ran.out
    assert "$.nodes[1].type: there is no node type 'nobody:Knows'" in ran.out
    assert as_json.code == 2
    assert (as_json.json()["ok"], len(as_json.json()["problems"])) == (False, 2)


def test_check_is_content_with_a_workflow_that_can_be_run(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(document({"id": "a", "type": "core:UpperCase", "inputValues": {"text": "a"}}))

    ran = tavern("workflow", "check", tmp_path / "w.json")

    assert (ran.code, ran.out, ran.err) == (0, "w.json is a workflow that can be run\n", "")


def test_a_run_that_fails_says_which_node_and_why(tmp_path: Path) -> None:
    nodes = {"id": "stop", "type": "core:Fail", "inputValues": {"value": 1, "condition": True, "message": "enough"}}
    (tmp_path / "w.json").write_text(document(nodes))

    ran = tavern("workflow", "run", tmp_path / "w.json")
    as_json = tavern("workflow", "run", tmp_path / "w.json", "--json")

    assert (ran.code, ran.out) == (1, "")
    assert "stop (core:Fail) failed: " in ran.err
    assert ran.error.startswith("Error: ") and "enough" in ran.error
    assert (as_json.code, as_json.json()["status"]) == (1, "error")


def test_ctrl_c_interrupts_a_run(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(document({"id": "w", "type": "core:Wait", "inputValues": {"seconds": 60}}))
    command = [*COMMAND, "workflow", "run", str(tmp_path / "w.json")]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(os.environ),
        preexec_fn=minds_ctrl_c,  # noqa: PLW1509
    )
    try:
        assert process.stderr.readline().decode() == "w (core:Wait) …\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()

    assert (process.returncode, out) == (130, b"")
    assert err.decode().endswith("` resumes it from here.\ninterrupted\n")


# --- tools ----------------------------------------------------------------------------------------


def test_tools_are_listed_with_what_they_are() -> None:
    ran = tavern("tools", "list")
    as_json = tavern("tools", "list", "--json")

    own = [words[:3] for line in ran.out.splitlines() if "project" in (words := line.split())]
    assert own == [
        ["text:shout", "node", "project"],
        *(
            [f"workflow:{name}", "workflow", "project"]
            for name in (
                "agents/LLMDecisionWithTools",
                "agents/deliberation",
                "agents/deliberation-with-loop",
                "conversation",
                "deliberation",
                "greeting",
            )
        ),
    ]
    ids = [tool["id"] for tool in as_json.json()]
    assert {"FileOperator.ReadFile", "system:get_current_time", "text:shout", "workflow:greeting"} < set(ids)
    assert ids == sorted(ids)


def test_tools_are_listed_by_what_they_are() -> None:
    named = tavern("tools", "list", "--namespace", "system", "--text", "time", "--json").json()
    assert "system:get_current_time" in [tool["id"] for tool in named]
    assert tavern("tools", "list", "--kind", "nod").code == 2


def test_where_there_are_no_tools_the_list_says_none(tmp_path: Path) -> None:
    assert tavern("init", tmp_path / "inn").code == 0

    assert tavern("--project", tmp_path / "inn", "tools", "list", "--kind", "workflow").out == "none\n"


def test_a_tool_is_shown_with_its_parameters() -> None:
    ran = tavern("tools", "show", "workflow:greeting")

    assert "- Tool ID: workflow:greeting" in ran.out
    assert "- name (string, required): Whom to greet." in ran.out
    assert tavern("tools", "show", "workflow:greeting", "--json").json()["implementation"]["workflowId"] == "greeting"


def test_a_tool_is_called() -> None:
    ran = tavern("tools", "call", "text:shout", "--arg", "text=a=b 你好")

    assert (ran.code, ran.out, ran.err) == (0, "A=B 你好\n", "")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["text:shou"], 'Error: ToolNotFound: no tool has the id "text:shou"'),
        (["text:shout"], "Error: ParameterValidationError: the arguments of text:shout are not right: text: "),
        (["text:shout", "--arg", "text=a", "--arg", "txt=b"], "Error: ParameterValidationError: "),
        (["text:shout", "--arg", "text"], "Error: --arg expects NAME=VALUE, got 'text'"),
        (["text:shout", "--arg", "text=a", "--arg", "text=b"], "Error: --arg text is given twice"),
    ],
)
def test_a_wrong_call_is_the_users_mistake(arguments: list[str], error: str) -> None:
    ran = tavern("tools", "call", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(error) and ran.err.count("\n") == 1


def test_a_call_that_fails_is_still_one_json_document() -> None:
    ran = tavern("tools", "call", "nobody:knows", "--json")

    assert ran.code == 2
    assert (ran.json()["status"], ran.json()["error"]["type"]) == ("error", "ToolNotFound")


def test_showing_a_tool_that_is_not_there_is_the_users_mistake() -> None:
    ran = tavern("tools", "show", "text:shou")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == 'Error: no tool has the id "text:shou" (did you mean text:shout?)\n'


# --- action text ----------------------------------------------------------------------------------


def test_action_text_is_taken_apart_and_nothing_is_done(tmp_path: Path) -> None:
    (tmp_path / "said.txt").write_text(ACTION, encoding="utf-8")

    from_file = tavern("parse", tmp_path / "said.txt")
    from_stdin = tavern("parse", "-", stdin=ACTION)

    assert from_file.out == from_stdin.out
    assert from_file.out.startswith('text:shout (step 1, tam, on error: stop)\n  text = "Grüße"\n')
    assert "GRÜSSE" not in from_file.out


def test_parsed_text_is_one_json_document() -> None:
    ran = tavern("parse", "-", "--json", stdin=ACTION)

    (call,) = ran.json()["calls"]
    assert (call["toolId"], call["arguments"], call["protocol"]) == ("text:shout", {"text": "Grüße"}, "tam")


def test_text_without_calls_has_none() -> None:
    assert tavern("parse", "-", stdin="Good evening.").out == "no calls\nremaining text:\nGood evening.\n"


@pytest.mark.parametrize(("file", "why"), [("nowhere.txt", "No such file or directory"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_is_the_users_mistake(file: str, why: str, tmp_path: Path) -> None:
    ran = tavern("parse", file, cwd=tmp_path)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith(f"cannot be read: {why}\n")


def test_bytes_that_are_no_text_do_not_break_the_json() -> None:
    ran = tavern("parse", "-", "--json", stdin="a \udcff b")

    assert ran.code == 0
    assert ran.json()["calls"] == []
