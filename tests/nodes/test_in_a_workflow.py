"""The basic nodes in workflows that a whole host runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from helpers.workflow_documents import workflow_document

from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.executions import ExecutionEngine, Run, RunRequest
from tavern_host.contracts.workflows import Workflow


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with Host(project=tmp_path / "project") as host:
        yield host


@pytest.fixture
def engine(host: Host) -> ExecutionEngine:
    return host.services.get(EXECUTION_ENGINE)


def workflow(nodes: dict[str, dict[str, Any]], edges: list[str], **interface: Any) -> Workflow:
    """Return a workflow of nodes by id and edges written `source.slot > target.slot`."""
    return Workflow.model_validate(workflow_document(nodes, *edges, name="test", **interface))


async def run(engine: ExecutionEngine, document: Workflow, **inputs: Any) -> Run:
    return await engine.run(RunRequest(workflow=document, inputs=inputs))


def node(type: str, config: dict[str, Any] | None = None, /, **inputs: Any) -> dict[str, Any]:
    return {"type": f"core:{type}", "inputValues": inputs, "configValues": config or {}}


async def test_branches_and_streams_meet_again(engine: ExecutionEngine) -> None:
    document = workflow(
        {
            "switch": node("Switch", condition=True, value="Hey"),
            "upper": node("UpperCase"),
            "pad": node("PadText", length=5),
            "merge": node("Merge"),
            "gate": node("Gate", is_open=False, value=1),
            "never": node("Fail", message="never"),
            "case": node("SwitchCase", {"cases": ["a", 2]}, key=3),
            "first": node("ToJson"),
            "rest": node("ToJson"),
            "text": node("TextToStream", text="one two 三四"),
            "whole": node("StreamToString", separator="|"),
            "few": node("StreamToList", limit=2),
            "bypassed": {**node("Switch", condition=True, value="v"), "bypassed": True},
            "no": node("ToJson"),
        },
        [
            *("switch.when_true > upper.text", "switch.when_false > pad.text"),
            *("upper.text > merge.values", "pad.text > merge.values", "gate.value > never.value"),
            *("case.case_1 > first.value", "case.default > rest.value"),
            *("text.stream > whole.stream", "text.stream > few.stream", "bypassed.when_false > no.value"),
        ],
    )
    result = await run(engine, document)
    assert result.error is None
    given = {key: result.nodes[key].output for key in ("merge", "rest", "whole", "few", "no")}
    assert given == {
        "merge": {"value": "HEY"},
        "rest": {"text": "3"},
        "whole": {"text": "one |two |三|四"},
        "few": {"items": ["one ", "two "]},
        "no": {"text": '"v"'},
    }
    assert {id for id, state in result.nodes.items() if state.status == "skipped"} == {"pad", "never", "first"}


async def test_a_changed_file_is_read_again(host: Host, engine: ExecutionEngine) -> None:
    files = host.project.folder("files")
    files.mkdir(exist_ok=True)
    nodes = {"path": node("Text", text="a.txt"), "read": node("ReadFile", path="a.txt"), "upper": node("UpperCase")}
    for edges in (["read.content > upper.text"], ["read.content > upper.text", "path.text > read.path"]):
        found = []
        for text in ("one", None, "two"):
            if text is not None:
                (files / "a.txt").write_text(text)
            found.append((await run(engine, workflow(nodes, edges))).nodes["upper"].output)
        assert found == [{"text": "ONE"}, {"text": "ONE"}, {"text": "TWO"}]
