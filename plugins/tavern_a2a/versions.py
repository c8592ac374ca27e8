"""What differs between the versions of the protocol: names of methods, and the form of what is answered.

Answers are made in the form of 1.0 (ProtoJSON of its `a2a.proto`) and turned into that of 0.3 (its JSON schema).
"""

from __future__ import annotations

from typing import Any

VERSIONS = ("1.0", "0.3")
"""The versions that are spoken, the preferred one first."""

OLD_METHODS = {
    "message/send": "SendMessage",
    "message/stream": "SendStreamingMessage",
    "tasks/get": "GetTask",
    "tasks/cancel": "CancelTask",
    "tasks/resubscribe": "SubscribeToTask",
    "tasks/pushNotificationConfig/set": "CreateTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/get": "GetTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/list": "ListTaskPushNotificationConfigs",
    "tasks/pushNotificationConfig/delete": "DeleteTaskPushNotificationConfig",
    "agent/getAuthenticatedExtendedCard": "GetExtendedAgentCard",
}
"""What methods of 0.3 are called in 1.0."""

_STATE = "TASK_STATE_"


def speaks(version: str) -> bool:
    """Return whether a header `A2A-Version` names a version that is spoken; its patch number says nothing."""
    return not version or ".".join(version.split(".")[:2]) in VERSIONS


def in_old_form(result: dict[str, Any]) -> dict[str, Any]:
    """Return an answer of 0.3: the task or the event itself, which names its kind."""
    if "task" in result:
        return _task(result["task"])
    if "statusUpdate" in result:
        update = result["statusUpdate"]
        status = _status(update["status"])
        return {**update, "kind": "status-update", "status": status, "final": status["state"] in _LAST}
    if "artifactUpdate" in result:
        update = result["artifactUpdate"]
        return {**update, "kind": "artifact-update", "artifact": _artifact(update["artifact"])}
    return _task(result)


_LAST = frozenset({"completed", "failed", "canceled", "rejected", "input-required"})
"""The states with which a stream ends."""


def _task(task: dict[str, Any]) -> dict[str, Any]:
    return {
        **task,
        "kind": "task",
        "status": _status(task["status"]),
        "artifacts": [_artifact(one) for one in task.get("artifacts", ())],
        "history": [_message(one) for one in task.get("history", ())],
    }


def _status(status: dict[str, Any]) -> dict[str, Any]:
    state = status["state"].removeprefix(_STATE).lower().replace("_", "-")
    message = {"message": _message(status["message"])} if "message" in status else {}
    return {**status, "state": state, **message}


def _artifact(artifact: dict[str, Any]) -> dict[str, Any]:
    return {**artifact, "parts": [_part(part) for part in artifact["parts"]]}


def _message(message: dict[str, Any]) -> dict[str, Any]:
    role = "user" if message["role"] == "ROLE_USER" else "agent"
    return {**message, "kind": "message", "role": role, "parts": [_part(part) for part in message["parts"]]}


def _part(part: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "text" if "text" in part else "data", **part}
