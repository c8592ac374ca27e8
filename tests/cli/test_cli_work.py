"""What one does with `tavern`: run workflows, call tools, give agents a message, read action text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.command_line import Ran, tavern
from helpers.repetition import Failures
from helpers.workflow_documents import workflow_document

ACTION = "Well.\n<|[REQUEST_TOOL]|>\ncommand:「始」text:shout「末」\ntext:「始」Grüße「末」\n<|[END_TOOL]|>\nDone."


def write(folder: Path, *nodes: dict[str, Any]) -> Path:
    """Write a workflow of nodes without edges."""
    (folder / "w.json").write_text(json.dumps({"name": "W", "nodes": list(nodes), "edges": []}))
    return folder / "w.json"


def refused(ran: Ran) -> str:
    """Return the one line that a mistake of the user is answered with."""
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    return line


# --- nodes and workflows --------------------------------------------------------------------------


def test_nodes_are_listed_by_their_full_type() -> None:
    ran = tavern("nodes", "list")
    assert ran.code == 0
    assert "core:TextMerge" in ran.out and "separator: STRING" in ran.out


def test_a_stored_workflow_runs_with_its_progress_on_stderr() -> None:
    ran = tavern("workflow", "run", "greeting", "--input", "name=Ada")

    assert (ran.code, ran.out) == (0, "Text: Hello, Ada\n")
    nodes = ("input (core:GroupInput)", "merge (core:TextMerge)", "output (core:GroupOutput)", "trim (core:Trim)")
    assert sorted(line for line in ran.err.splitlines() if line.endswith(" done")) == [f"{node} done" for node in nodes]


def test_a_workflow_file_is_checked_and_runs_from_anywhere(tmp_path: Path) -> None:
    nodes = {"up": {"type": "core:UpperCase", "inputValues": {"text": "hi"}}, "out": "core:GroupOutput"}
    ends = {
        "interfaceInputs": {"n": {"dataFlowType": "INTEGER"}},
        "interfaceOutputs": {"t": {"dataFlowType": "STRING"}},
    }
    (tmp_path / "w.json").write_text(json.dumps(workflow_document(nodes, "up.text > out.t", name="Shout", **ends)))

    checked = tavern("workflow", "check", tmp_path / "w.json")
    ran = tavern("workflow", "run", "w.json", "--input", "n=3", "--json", cwd=tmp_path)

    assert (checked.code, checked.out, checked.err) == (0, "w.json is a workflow that can be run\n", "")
    assert (ran.code, ran.err, ran.json()["status"]) == (0, "", "complete")
    assert (ran.json()["inputs"], ran.json()["outputs"]) == ({"n": 3}, {"t": "HI"})


def test_a_run_that_cannot_be_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "torn.json").write_text('{"name": "W",\n "nodes": [}')
    (tmp_path / "list.json").write_text("[]")
    torn = f"Error: {tmp_path / 'torn.json'} is not JSON: line 2, column 12: Expecting value"
    unknown = "Error: $.inputs.greting: the workflow has no input 'greting' (did you mean greeting?)"
    absent = "Error: there is no file greetin, and there is no workflow 'greetin' (did you mean greeting?)"
    rows = [
        (["run", "greeting"], "Error: $.inputs.name: the input 'name' is required"),
        (["run", "greeting", "--input", "name=Ada", "--input", "greting=Hi"], unknown),
        (["run", "greeting", "--input", "name"], "Error: --input name: write KEY=VALUE"),
        (["run", "greetin"], absent),
        (["run", "torn.json"], torn),
        (["check", "torn.json"], torn),
    ]
    with Failures() as failures:
        for words, error in rows:
            with failures.row(words):
                assert refused(tavern("workflow", *words, cwd=tmp_path)) == error
        for command in ("run", "check"):
            with failures.row(command):
                assert "must hold a JSON object" in tavern("workflow", command, tmp_path / "list.json").err
                assert refused(tavern("workflow", command, tmp_path)).startswith(f"Error: there is no file {tmp_path},")


def test_check_names_every_problem_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, {"id": "a", "type": "core:UpperCas"}, {"id": "b", "type": "nobody:Knows"})

    ran = tavern("workflow", "check", path)
    as_json = tavern("workflow", "check", path, "--json")

    assert (ran.code, ran.err) == (2, "Error: w.json has 2 problems\n")
    assert "$.nodes[0].type: there is no node type 'core:UpperCas' (did you mean core:UpperCase?)" in ran.out
    assert "$.nodes[1].type: there is no node type 'nobody:Knows'" in ran.out
    assert (as_json.code, as_json.json()["ok"], len(as_json.json()["problems"])) == (2, False, 2)


def test_a_run_that_fails_says_which_node_and_why(tmp_path: Path) -> None:
    inputs = {"value": 1, "condition": True, "message": "enough"}
    path = write(tmp_path, {"id": "stop", "type": "core:Fail", "inputValues": inputs})

    ran = tavern("workflow", "run", path)
    as_json = tavern("workflow", "run", path, "--json")

    assert (ran.code, ran.out) == (1, "")
    assert "stop (core:Fail) failed: " in ran.err
    assert ran.error.startswith("Error: ") and "enough" in ran.error
    assert (as_json.code, as_json.json()["status"]) == (1, "error")


# --- tools ----------------------------------------------------------------------------------------


def test_tools_are_listed_by_what_they_are(project: Path) -> None:
    ran = tavern("tools", "list")
    own = [words[:3] for line in ran.out.splitlines() if "project" in (words := line.split())]
    agents = [f"agents/{name}" for name in ("LLMDecisionWithTools", "deliberation", "deliberation-with-loop")]
    workflows = [f"workflow:{name}" for name in (*agents, "conversation", "deliberation", "greeting")]
    assert own == [["text:shout", "node", "project"], *([name, "workflow", "project"] for name in workflows)]
    ids = [tool["id"] for tool in tavern("tools", "list", "--json").json()]
    assert {"FileOperator.ReadFile", "system:get_current_time", "text:shout", "workflow:greeting"} < set(ids)
    assert ids == sorted(ids)
    named = tavern("tools", "list", "--namespace", "system", "--text", "time", "--json").json()
    assert "system:get_current_time" in [tool["id"] for tool in named]
    assert tavern("tools", "list", "--kind", "nod").code == 2
    assert tavern("--project", project, "tools", "list", "--kind", "workflow").out == "none\n"


def test_a_tool_is_shown_with_its_parameters_and_called() -> None:
    shown = tavern("tools", "show", "workflow:greeting").out
    assert "- Tool ID: workflow:greeting" in shown and "- name (string, required): Whom to greet." in shown
    assert tavern("tools", "show", "workflow:greeting", "--json").json()["implementation"]["workflowId"] == "greeting"
    ran = tavern("tools", "call", "text:shout", "--arg", "text=a=b 你好")
    assert (ran.code, ran.out, ran.err) == (0, "A=B 你好\n", "")


def test_a_wrong_call_is_the_users_mistake() -> None:
    wrong = "Error: ParameterValidationError: "
    rows = [
        (["call", "text:shou"], 'Error: ToolNotFound: no tool has the id "text:shou"'),
        (["call", "text:shout"], f"{wrong}the arguments of text:shout are not right: text: "),
        (["call", "text:shout", "--arg", "text=a", "--arg", "txt=b"], wrong),
        (["call", "text:shout", "--arg", "text"], "Error: --arg expects NAME=VALUE, got 'text'"),
        (["call", "text:shout", "--arg", "text=a", "--arg", "text=b"], "Error: --arg text is given twice"),
        (["show", "text:shou"], 'Error: no tool has the id "text:shou" (did you mean text:shout?)'),
    ]
    with Failures() as failures:
        for words, error in rows:
            with failures.row(words):
                assert refused(tavern("tools", *words)).startswith(error)
    ran = tavern("tools", "call", "nobody:knows", "--json")
    assert (ran.code, ran.json()["status"], ran.json()["error"]["type"]) == (2, "error", "ToolNotFound")


# --- action text ----------------------------------------------------------------------------------


def test_action_text_is_taken_apart_and_nothing_is_done(tmp_path: Path) -> None:
    (tmp_path / "said.txt").write_text(ACTION, encoding="utf-8")
    said = tavern("parse", tmp_path / "said.txt").out
    assert said == tavern("parse", "-", stdin=ACTION).out
    assert said.startswith('text:shout (step 1, tam, on error: stop)\n  text = "Grüße"\n') and "GRÜSSE" not in said
    (call,) = tavern("parse", "-", "--json", stdin=ACTION).json()["calls"]
    assert (call["toolId"], call["arguments"], call["protocol"]) == ("text:shout", {"text": "Grüße"}, "tam")
    assert tavern("parse", "-", stdin="Good evening.").out == "no calls\nremaining text:\nGood evening.\n"
    assert tavern("parse", "-", "--json", stdin="a \udcff b").json()["calls"] == []  # which is no text
    for file, why in (("nowhere.txt", "No such file or directory"), (".", "Is a directory")):
        assert refused(tavern("parse", file, cwd=tmp_path)).endswith(f"cannot be read: {why}")
