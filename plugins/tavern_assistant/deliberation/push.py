"""The event with which the studio gets a workflow that an agent proposes or has changed."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.assistant import PatchResult


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
