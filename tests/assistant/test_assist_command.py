"""`tavern assist`: what it shows, writes and answers, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import tavern
from helpers.screen import on_screen
from helpers.tavern_project import MODELS

from tavern_assistant.deliberation.difference import difference

GREET: dict[str, Any] = {
    "name": "Greet",
    "nodes": [{"id": "up", "type": "core:UpperCase", "inputValues": {"text": "ale"}, "position": {"x": 0, "y": 0}}],
    "edges": [],
}
COUNT = {
    "reply": "I count with [it](node:n) behind [up](node:up).",
    "operations": [
        {"op": "add", "path": "/nodes/-", "value": {"localId": "n", "type": "core:TextLength", "displayName": "Count"}},
        {
            "op": "add",
            "path": "/edges/-",
            "value": {"source": "up", "sourceHandle": "text", "targetLocalId": "n", "targetHandle": "text"},
        },
        {"op": "replace", "path": "/nodes/up/inputValues/text", "value": "beer"},
    ],
}
SHOWN = """I count with it (text-length) behind up (up).

~ up (core:UpperCase)
    - text = "ale"
    + text = "beer"
+ Count text-length (core:TextLength)
+ up.text → text-length.text
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with a workflow, and a model that counts, explains, or makes no sense."""
    root = tmp_path / "project"
    (root / "workflows").mkdir(parents=True)
    (root / "workflows" / "greet.json").write_text(json.dumps(GREET))
    replies = [
        {"when": {"last_contains": "count"}, "reply": json.dumps(COUNT)},
        {"when": {"last_contains": "explain"}, "reply": json.dumps({"reply": "It shouts.", "operations": []})},
        {"reply": "No idea."},
    ]
    (root / "replies.json").write_text(json.dumps(replies))
    settings = {MODELS: {"m": {"adapter": "scripted", "file": "replies.json"}}}
    (root / "tavern.yaml").write_text(json.dumps({"settings": settings}))
    return root


def test_the_assistant_is_asked_in_the_terminal(project: Path, tmp_path: Path) -> None:
    file, outside = project / "workflows" / "greet.json", tmp_path / "out.json"
    outside.write_text(json.dumps(GREET))
    shown = tavern("--project", project, "assist", "greet", "count the letters")
    assert (shown.code, shown.out) == (0, SHOWN)
    assert shown.err.splitlines()[-1] == "Nothing was changed: with --apply the changes are made."
    assert json.loads(file.read_text()) == GREET

    refused = tavern("--project", project, "assist", "greet", "sing")
    assert refused.code == 1
    assert "I could not make this change; the workflow is as it was." in refused.out
    assert refused.error == "Error: nothing was changed: the assistant found no change that is valid"
    answered = tavern("--project", project, "assist", str(file), "explain", "--json").json()
    assert (answered["outcome"], answered["reply"], answered["changes"]) == ("answered", "It shouts.", [])

    applied = tavern("--project", project, "assist", str(outside), "count", "--apply", "--json")
    assert (applied.code, applied.json()["outcome"]) == (0, "applied")
    assert json.loads(outside.read_text()) == applied.json()["workflow"]
    assert [node["id"] for node in json.loads(outside.read_text())["nodes"]] == ["up", "text-length"]
    assert json.loads(file.read_text()) == GREET
    assert tavern("--project", project, "assist", "nowhere", "count").code == 2
    assert tavern("--project", project, "assist", "greet", " ").code == 2


def test_a_person_at_a_terminal_is_asked(project: Path) -> None:
    file = project / "workflows" / "greet.json"
    code, screen, _ = on_screen(
        "--project", project, "assist", str(file), "count the letters", typed="y\n", NO_COLOR=""
    )
    assert code == 0
    assert "Make these changes? [y]es, [n]o:" in screen.text
    assert {"31", "32", "33"} <= screen.colours
    assert [node["id"] for node in json.loads(file.read_text())["nodes"]] == ["up", "text-length"]


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
