"""A project with workflows and an agent, which panels are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.tavern_project import Tavern, action
from helpers.workflow_documents import function

JOIN = function(
    "Join",
    {"join": {"type": "core:TextMerge", "inputValues": {"separator": " "}}},
    *("in.greeting > join.text_inputs__0", "in.name > join.text_inputs__1", "join.merged_text > out.text"),
    *("in.apiKey > out.echo",),
    takes={"greeting": "STRING", "name": "STRING", "apiKey": "STRING"},
    gives={"text": "STRING", "echo": "STRING"},
)
JOIN["interfaceInputs"]["name"]["required"] = True
JOIN["nodes"][1]["inputConnectionOrders"] = {"text_inputs": ["e0", "e1"]}

PICTURE = function("Picture", {}, "in.file > out.file", takes={"file": "BINARY"}, gives={"file": "BINARY"})


def panel(*elements: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the document of a panel."""
    return {"name": "Desk", "elements": [*elements], **more}


def element(id: str, kind: str = "workflow", target: str = "join", **more: Any) -> dict[str, Any]:
    """Return an element of a panel."""
    return {"id": id, "kind": kind, "target": target, **more}


@pytest.fixture
def project(tmp_path: Path) -> Tavern:
    """Return a project with the workflows `join` and `picture` and the agent `keeper`."""
    return written(tmp_path / "project")


def written(root: Path) -> Tavern:
    """Write the project."""
    project = Tavern(root)
    project.replies(({"last_contains": "Please shout."}, action("shout", text="ale")), ({}, "Good evening."))
    project.write("workflows/join.json", JOIN)
    project.write("workflows/picture.json", PICTURE)
    return project
