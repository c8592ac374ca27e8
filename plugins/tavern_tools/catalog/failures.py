"""Why a call failed, from wherever it failed, as a structured error."""

from __future__ import annotations

from typing import Any

from tavern_host.contracts.errors import ErrorInfo
from tavern_tools.api.toolcalls import ToolErrorType
from tavern_tools.catalog.schemas import ValueProblem

_TYPES = {
    "permission_denied": ToolErrorType.PERMISSION_DENIED,
    "forbidden": ToolErrorType.PERMISSION_DENIED,
    "service_unavailable": ToolErrorType.SERVICE_UNAVAILABLE,
    "vetoed": ToolErrorType.VETOED,
    "deadline_exceeded": ToolErrorType.TIMEOUT,
    "interrupted": ToolErrorType.INTERRUPTED,
    "output_error": ToolErrorType.OUTPUT,
}


class ToolFailure(Exception):
    """A call that failed; it never leaves this plugin but becomes the call's result."""

    def __init__(self, type: ToolErrorType, message: str, **details: Any) -> None:
        super().__init__(message)
        self.type = type
        self.message = message
        self.details = details


def failure_of(info: ErrorInfo, **details: Any) -> ToolFailure:
    """Return the failure that an error of a service, workflow or plugin is."""
    fields = {"code": info.code, **({"plugin": info.plugin} if info.plugin else {}), **info.details, **details}
    return ToolFailure(_TYPES.get(info.code, ToolErrorType.EXECUTION), info.message, **fields)


def value_failure(type: ToolErrorType, what: str, problems: list[ValueProblem]) -> ToolFailure:
    """Return the failure of a value (arguments or a result) that its schema does not allow."""
    listed = "; ".join(str(problem) for problem in problems)
    return ToolFailure(type, f"{what}: {listed}", problems=[problem.to_json() for problem in problems])
