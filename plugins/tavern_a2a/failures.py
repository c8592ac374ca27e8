"""Failures as JSON-RPC errors with the codes of the Agent2Agent protocol (its specification, "Error Handling")."""

from __future__ import annotations

from typing import Any

from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.languages import say

INVALID_REQUEST = (-32600, "INVALID_REQUEST")
NO_METHOD = (-32601, "METHOD_NOT_FOUND")
INVALID_PARAMS = (-32602, "INVALID_PARAMS")
INTERNAL = (-32603, "INTERNAL_ERROR")
UNREADABLE = (-32700, "JSON_PARSE_ERROR")
NO_TASK = (-32001, "TASK_NOT_FOUND")
NOT_CANCELABLE = (-32002, "TASK_NOT_CANCELABLE")
NO_PUSHES = (-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED")
UNSUPPORTED = (-32004, "UNSUPPORTED_OPERATION")
WRONG_CONTENT = (-32005, "CONTENT_TYPE_NOT_SUPPORTED")
NO_CARD = (-32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED")
WRONG_VERSION = (-32009, "VERSION_NOT_SUPPORTED")

_OF_CODES = {"invalid_input": INVALID_PARAMS, "conflict": UNSUPPORTED}


class Refused(Exception):
    """A request is answered with one of the protocol's errors."""

    def __init__(self, kind: tuple[int, str], message: str) -> None:
        super().__init__(message)
        self.kind = kind


def error_of(failure: TavernError | Refused) -> dict[str, Any]:
    """Return the `error` of a response. Its data say the reason as the protocol has it, and the host's own code."""
    if isinstance(failure, Refused):
        code, reason = failure.kind
        return {"code": code, "message": str(failure), "data": [_info(reason)]}
    info = failure.info
    code, reason = _OF_CODES.get(info.code, INTERNAL)
    return {"code": code, "message": say(info.message), "data": [_info(reason, code=info.code)]}


def _info(reason: str, **metadata: str) -> dict[str, Any]:
    kind = "type.googleapis.com/google.rpc.ErrorInfo"
    return {"@type": kind, "reason": reason, "domain": "a2a-protocol.org", "metadata": metadata}
