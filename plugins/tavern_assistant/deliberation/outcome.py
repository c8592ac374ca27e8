"""What became of a patch: the answer to the creator, what the model is to mend, what the studio is to show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from tavern_assistant.api.assistant import PatchProblem, PatchResult
from tavern_assistant.deliberation.answers import with_nodes
from tavern_assistant.deliberation.refusals import refusal, said
from tavern_tools.api.toolcalls import ToolErrorType

Data = dict[str, Any]

_MOST_PROBLEMS = 20

_CONFLICT = (
    "The workflow was changed while I worked on it, in the same places. Nothing was overwritten; ask again for the "
    "workflow as it is now."
)
_AGAIN = "Nothing was changed. Answer again with the whole JSON object, in which all operations are right."


@dataclass(frozen=True)
class Outcome:
    """`response` is the answer to the creator; `mend` what the model reads where it is asked again; `update` the event
    with a workflow that is proposed; `is_refused`: the last answer could not be carried out."""

    is_done: bool
    response: Data
    mend: str = ""
    update: Data | None = None
    is_refused: bool = False


def judge(request: str, world: Data, response: Data, answer: Data, results: list[Any], before: Data) -> Outcome:
    """Return the outcome of an answer; `results` are those of its call, empty where it made none."""
    operations, result = answer["operations"], results[0] if results else None

    def answered(text: str) -> Data:
        return {**_summed(response, before), "text": text}

    def mend(problems: list[str], *, is_done: bool = False) -> Outcome:
        listed = "\n".join(f"- {one}" for one in problems[:_MOST_PROBLEMS])
        text = refusal(request, problems, operations, str(response.get("text", "")))
        return Outcome(is_done, answered(text), mend=f"{listed}\n{_AGAIN}", is_refused=True)

    if answer["problem"]:
        return mend([answer["problem"]])
    if result is None:
        if operations:
            return mend(["no workflow is open, so operations must be []"])
        ids = _ids(world.get("workflow") or {})
        reply = with_nodes(answer["reply"], ids, {}) or said("There is nothing to change.", request)
        return Outcome(True, answered(reply))
    if result["status"] in ("awaiting_approval", "pending"):
        return Outcome(True, answered(said(f"The change waits for approval (task {result['taskId']}).", request)))
    if result["status"] == "error":
        is_mendable = result["error"].get("type") == ToolErrorType.PARAMETER_VALIDATION
        return mend([result["error"]["message"]], is_done=not is_mendable)  # such as: the workflow was deleted
    patched = PatchResult.model_validate(result["structured"])
    if patched.conflict is not None:
        return Outcome(True, answered(_conflict(request, patched)), is_refused=True)
    if not patched.applied:
        return mend([problem_line(one) for one in patched.problems])
    new = {one.local_id: one.id for one in patched.changes if one.local_id is not None}
    is_auto = answer["mode"] == "auto"
    unsaid = said("The change is made." if is_auto else "Here is what I propose.", request)
    reply = with_nodes(answer["reply"], _ids(patched.document or {}), new) or unsaid
    more: Data = {"mode": "auto" if is_auto else "preview", "conversationId": world.get("conversationId")}
    panel = world.get("panelId")
    event = panel_event(str(panel), patched, operations, request, **more) if panel is not None else None
    if not is_auto and event is None:
        event = update_event(str(world.get("workflowId")), patched, operations, request, **more)
    update = None if is_auto and panel is None else event
    return Outcome(True, answered(reply), update=update)


def update_event(
    workflow_id: str, result: PatchResult, operations: list[JsonValue], reason: str, **more: JsonValue
) -> dict[str, Any]:
    """Return the payload of `UPDATE_WORKFLOW_STATE_FROM_AGENT`; of a patch that is only proposed `more` says so."""
    return {
        "workflowId": workflow_id,
        "revision": result.revision,
        "workflow": result.document,
        "changes": [one.to_json() for one in result.changes],
        "reason": reason[:500],
        "mode": "auto",
        "operations": operations,
        **more,
    }


def panel_event(
    panel_id: str, result: PatchResult, operations: list[JsonValue], reason: str, **more: JsonValue
) -> dict[str, Any]:
    """Return the payload of `UPDATE_PANEL_FROM_AGENT`."""
    event = update_event("", result, operations, reason, **more)
    del event["workflowId"], event["workflow"]
    return {"panelId": panel_id, "panel": result.document, **event}


def problem_line(problem: PatchProblem) -> str:
    """Return a problem as one line."""
    where = "" if problem.index is None else f"operation {problem.index}"
    place = f"{where} ({problem.path})" if where and problem.path else where or problem.path
    return f"{f'{place}: ' if place else ''}{problem.message}{f'. {problem.hint}' if problem.hint else ''}"


def _conflict(request: str, patched: PatchResult) -> str:
    conflict = patched.conflict
    assert conflict is not None
    lines = [f"- {one.kind}: {one.what} {one.id}" for one in conflict.changes[:_MOST_PROBLEMS]]
    return "\n".join([said(_CONFLICT, request), "", *lines])


def _ids(document: Data) -> set[str]:
    return {str(one.get("id")) for one in document.get("nodes", []) if isinstance(one, dict)}


def _summed(response: Data, before: Data) -> Data:
    """Return a model's answer without its calls, with the tokens of the rounds before added."""
    usage, earlier = response.get("usage") or {}, before.get("usage") or {}
    counted = [one for one in (usage, earlier) if one]
    known = {key for one in counted for key, value in one.items() if value is not None}
    added = {key: sum(one.get(key) or 0 for one in counted) for key in known}
    return {**response, "tool_calls": [], "choices": [], "usage": added}
