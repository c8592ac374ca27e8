"""`tavern assist`: what it shows, writes and answers, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

from helpers.command_line import tavern

from tavern_assistant.deliberation.difference import difference

SHOWN = """I count with it (text-length) behind up (up).

~ up (core:UpperCase)
    - text = "ale"
    + text = "beer"
+ Count text-length (core:TextLength)
+ up.text → text-length.text
"""


def test_the_assistant_is_asked_in_the_terminal(project: Path) -> None:
    file = project / "workflows" / "greet.json"
    before = file.read_text()
    shown = tavern("--project", project, "assist", "greet", "count the letters")
    assert (shown.code, shown.out) == (0, SHOWN)
    assert shown.err.splitlines()[-1] == "Nothing was changed: with --apply the changes are made."
    assert file.read_text() == before

    refused = tavern("--project", project, "assist", "greet", "sing")
    assert refused.code == 1
    assert "I could not make this change; nothing is changed." in refused.out
    assert refused.error == "Error: nothing was changed: the assistant found no change that is valid"
    answered = tavern("--project", project, "assist", str(file), "explain", "--json").json()
    assert (answered["outcome"], answered["reply"], answered["changes"]) == ("answered", "It shouts.", [])
    assert file.read_text() == before


def test_a_workflow_that_is_in_no_project_is_changed_in_its_file(project: Path, tmp_path: Path) -> None:
    file, outside = project / "workflows" / "greet.json", tmp_path / "out.json"
    before = file.read_text()
    outside.write_text(before)
    applied = tavern("--project", project, "assist", str(outside), "count", "--apply", "--json")
    assert (applied.code, applied.json()["outcome"]) == (0, "applied")
    assert json.loads(outside.read_text()) == applied.json()["workflow"]
    assert [node["id"] for node in json.loads(outside.read_text())["nodes"]] == ["up", "text-length"]
    assert file.read_text() == before
    assert tavern("--project", project, "assist", "nowhere", "count").code == 2
    assert tavern("--project", project, "assist", "greet", " ").code == 2


def test_a_difference_says_what_is_new_gone_and_other() -> None:
    before = {
        "name": "Old",
        "nodes": [{"id": "a", "type": "t", "bypassed": False}, {"id": "b", "type": "t", "position": {"x": 1, "y": 1}}],
        "edges": [{"id": "e", "source": "a", "sourceHandle": "x", "target": "b", "targetHandle": "y"}],
        "interfaceInputs": {"text": {"dataFlowType": "STRING"}},
    }
    after = {
        "name": "New",
        "nodes": [
            {"id": "b", "type": "t", "position": {"x": 9, "y": 9}},
            {"id": "c", "type": "t", "displayName": "Sea", "configValues": {"deep": True}, "parentNode": "b"},
        ],
        "edges": [],
        "interfaceOutputs": {"text": {"dataFlowType": "STRING"}},
    }
    assert difference(before, before) == []
    assert [line for _, line in difference(before, after)] == [
        "+ Sea c (t)",
        "    + deep = true",
        '    + parentNode = "b"',
        "- a (t)",
        "- a.x → b.y",
        '- input text = {"dataFlowType": "STRING"}',
        '+ output text = {"dataFlowType": "STRING"}',
        '- name = "Old"',
        '+ name = "New"',
    ]
