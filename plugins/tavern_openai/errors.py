"""Failures in the form of OpenAI's API: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tavern_host.contracts.errors import HTTP_STATUS, InvalidInput, TavernError
from tavern_host.contracts.http import HttpResponse
from tavern_host.contracts.languages import say

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
_BUSY = frozenset({429, 529})
_LATER = frozenset({429, 503})


def in_form(problem: Mapping[str, Any]) -> HttpResponse:
    """Return problem details as OpenAI's API answers with a failure, under the status that its clients expect.

    Clients repeat a request by themselves after most failures; they are asked to do so only where time helps, since
    what an agent has done is not undone.
    """
    details = problem.get("details") or {}
    status, code = _status(problem["status"], problem["code"], details)
    headers = {"x-should-retry": "true" if status in _LATER else "false"}
    wait = details.get("retry_after")
    if status in _LATER and isinstance(wait, int | float):
        headers["Retry-After"] = str(-int(-wait // 1))
    return HttpResponse(status=status, data=_body(status, code, problem["detail"], details), headers=headers)


def failed(error: TavernError) -> dict[str, Any]:
    """Return the event by which a stream that has begun tells of a failure."""
    info = error.info
    status, code = _status(HTTP_STATUS.get(info.code, 500), info.code, info.details)
    return _body(status, code, say(info.message), info.details)


def wrong(message: str, param: str) -> InvalidInput:
    """Return the error for a parameter of a request that is wrong, or is not taken."""
    return InvalidInput(message, param=param)


def _status(status: int, code: str, details: Mapping[str, Any]) -> tuple[int, str]:
    """Return the status and the code of a failure; one of a model's server is no failure of this host."""
    if details.get("overflow"):
        return 400, "context_length_exceeded"
    said = details.get("status")
    if code == "plugin_error" and (isinstance(said, int) or "retry_after" in details):
        return (429, "rate_limit_exceeded") if said in _BUSY else (503 if said == 503 else 502, "upstream_error")
    if status == 404 and "model" in details:
        return 404, "model_not_found"
    return status, _CODES.get(status, code)


def _body(status: int, code: str, message: str, details: Mapping[str, Any]) -> dict[str, Any]:
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    param = "model" if code == "model_not_found" else details.get("param")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
