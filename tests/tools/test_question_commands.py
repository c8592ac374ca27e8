"""Questions to people over HTTP and by the commands `tavern approvals`, called as the host calls them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import Conflict, InvalidInput, PermissionDenied
from tavern_tools.api.toolcalls import ToolCallRequest, ToolScope

AGENT = CallContext(principal=Principal(kind="agent", id="lin"))
FORM = {"properties": {"city": {"type": "string"}, "copies": {"type": "integer"}}, "required": ["city"]}


async def ask(bench: Any, **arguments: Any) -> str:
    """Return the id of a question of an agent."""
    request = ToolCallRequest(tool_id="system:request_user_interaction", arguments={"question": "Which?", **arguments})
    result = await bench.tools.call(request, scope=ToolScope(allowed=["system:*"]), call=AGENT)
    return str(result.task_id)


async def answer(bench: Any, task_id: str) -> Any:
    """Return what came of a question."""
    task = await bench.tools.task(task_id, wait=60, call=bench.host.call())
    assert task.result is not None
    return task.result.structured


async def test_questions_are_answered_by_commands(stocked: Any, tmp_path: Path) -> None:
    file = tmp_path / "note.txt"
    file.write_text("a note")
    rows: list[tuple[dict[str, Any], dict[str, Any], Any]] = [
        ({}, {"answer": "Ada"}, "Ada"),
        ({"choices": ["tea", "ale"]}, {"answer": "2"}, "ale"),
        ({"choices": ["tea", "ale"], "multiple": True}, {"answer": "ale, tea"}, ["ale", "tea"]),
        ({"schema": FORM}, {"answer": '{"city": "Ghent"}'}, {"city": "Ghent"}),
        ({"schema": FORM}, {"field": ["city=7", "copies=3"]}, {"city": "7", "copies": 3}),
        ({"kind": "file"}, {"file": str(file)}, None),
    ]
    with Failures() as failures:
        for arguments, options, expected in rows:
            with failures.row((arguments, options)):
                task = await ask(stocked, **arguments)
                [row] = (await stocked.run("approvals list", limit=1)).rows
                assert (row[1], row[2], row[4]) == ("system:request_user_interaction", "agent:lin", "asks: Which?")
                said = await stocked.run("approvals answer", task=task, **options)
                assert said.text == f"{task}: answered"
                found = (await answer(stocked, task))["answer"]
                assert found == (expected or f"answers/{task}/note.txt")
    assert (stocked.root / "files" / "answers" / task / "note.txt").read_text() == "a note"
    with pytest.raises(Conflict):
        await stocked.run("approvals answer", task=task, file=str(file))
    task = await ask(stocked, schema=FORM)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "give an answer to: Which?"),
        ({"answer": "Ghent"}, "an object as JSON"),
        ({"answer": "{}"}, "city: is required and missing"),
        ({"field": ["city=Ghent", "copies=many"]}, "copies"),
        ({"answer": "{}", "field": ["city=x"]}, "give one of"),
        ({"file": str(tmp_path / "none")}, "cannot be read"),
    ]
    with Failures() as failures:
        for options, message in wrong:
            with failures.row(options), pytest.raises(InvalidInput, match=message):
                await stocked.run("approvals answer", task=task, **options)
    stocked.write_info("ask", requiresApproval=True, parameters={"type": "object", "properties": {}})
    request = ToolCallRequest(tool_id="ask")
    plain = await stocked.tools.call(request, scope=ToolScope(allowed=["*"]), call=AGENT)
    with pytest.raises(InvalidInput, match="asks no question"):
        await stocked.run("approvals answer", task=plain.task_id, answer="x")
    for one in (task, plain.task_id):
        await stocked.run("approvals refuse", task=one)


async def test_questions_are_answered_over_http(stocked: Any) -> None:
    task = await ask(stocked, choices=["tea", "ale"])
    [waiting] = (await stocked.ask("GET", "/api/approvals")).data["approvals"]
    assert waiting["approval"]["question"] == {
        "kind": "choice",
        "message": "Which?",
        "expects": {"enum": ["tea", "ale"]},
    }
    path = f"/api/approvals/{task}"
    with pytest.raises(PermissionDenied):
        await stocked.ask("POST", path, {"decision": "approve", "arguments": {"answer": "ale"}}, call=AGENT)
    for body in ({"decision": "approve"}, {"decision": "approve", "arguments": {"answer": "wine"}}):
        with pytest.raises(InvalidInput) as caught:
            await stocked.ask("POST", path, body)
    assert json.dumps(caught.value.info.details).count("problems") == 1
    await stocked.ask("POST", path, {"decision": "approve", "arguments": {"answer": "ale"}})
    assert await answer(stocked, task) == {"answer": "ale"}
