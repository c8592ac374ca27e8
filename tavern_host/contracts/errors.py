"""The errors that cross a plugin boundary: a stable code, a message for a person, details for a program.

Callers match on `code`, never on the class: across a process boundary only the
`ErrorInfo` travels. The classes exist so that code in one process can raise the right code tersely.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, JsonValue

from tavern_host.contracts.wire import Model

HTTP_STATUS = {
    "invalid_input": 400,
    "invalid_file": 400,
    "unauthorized": 401,
    "permission_denied": 403,
    "not_reviewed": 403,
    "forbidden": 403,
    "vetoed": 403,
    "not_found": 404,
    "conflict": 409,
    "precondition_failed": 412,
    "precondition_required": 428,
    "admission": 409,
    "limit_reached": 429,
    "misconfigured": 503,
    "service_unavailable": 503,
    "plugin_ended": 503,
    "deadline_exceeded": 504,
}
"""The status of an answer over HTTP by the code of its error; of any other code it is 500."""


class ErrorInfo(Model):
    """An error as data.

    `code` is stable and lower-case; `message` is one line that says who, what was expected and what to
    do; `plugin` names the plugin at fault where there is one; `retryable` says whether the same call
    may succeed later without a change.
    """

    code: str
    message: str
    details: dict[str, JsonValue] = Field(default_factory=dict)
    plugin: str | None = None
    retryable: bool = False


class TavernError(Exception):
    """Base of every error that the host raises on purpose; `info` is what travels."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, plugin: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.info = ErrorInfo(
            code=type(self).code,
            message=message,
            details=details,
            plugin=plugin,
            retryable=type(self).retryable,
        )

    @property
    def message(self) -> str:
        """The one line for a person."""
        return self.info.message


class InvalidInput(TavernError):
    """What the caller gave is wrong; the message says what was expected. Exit code 2 on the command line."""

    code = "invalid_input"


class OutputError(TavernError):
    """What a node or tool gave is no value that can be passed on; the message says where in it."""

    code = "output_error"


class NotFound(TavernError):
    """The thing named does not exist; the message lists near names where there are any."""

    code = "not_found"


class Conflict(TavernError):
    """The state has moved on (a stale revision, a name already taken)."""

    code = "conflict"


class PreconditionFailed(TavernError):
    """What a change was made conditional on is no longer so; details: the `revision` that there is now."""

    code = "precondition_failed"


class PreconditionRequired(TavernError):
    """A change could overwrite another's: the request must say which revision it is meant for."""

    code = "precondition_required"


class PermissionDenied(TavernError):
    """*Unauthorized*: the permission exists and was not granted. Details: plugin, permission, service, method."""

    code = "permission_denied"


class Unauthorized(TavernError):
    """Nobody knows who asks: the name or the password is wrong."""

    code = "unauthorized"


class Forbidden(TavernError):
    """*Forbidden*: no permission could ever allow it (a private name, another plugin's hook)."""

    code = "forbidden"


class Vetoed(TavernError):
    """A veto hook refused; the message names the plugin and its reason."""

    code = "vetoed"


class ServiceUnavailable(TavernError):
    """No plugin provides the service that is needed, or what it keeps cannot be reached or written now."""

    code = "service_unavailable"
    retryable = True


class PluginEnded(ServiceUnavailable):
    """The process of a plugin ended before it answered; nobody knows how far it came. The host never repeats a call."""

    code = "plugin_ended"


class LimitReached(TavernError):
    """As much was used as is allowed for now; details: `retry_after` in seconds, where time helps."""

    code = "limit_reached"
    retryable = True


class PluginFailure(TavernError):
    """A plugin raised something of its own; the traceback is in the log."""

    code = "plugin_error"


class Recursion(PluginFailure):
    """A plugin's override of a service called itself without end."""

    code = "recursion"


class DeadlineExceeded(TavernError):
    """The call was not answered before its deadline."""

    code = "deadline_exceeded"
    retryable = True


class Interrupted(TavernError):
    """The run or call was interrupted on request."""

    code = "interrupted"


class Misconfigured(TavernError):
    """A file of the project or the operator says something that cannot be; the message names file and line."""

    code = "misconfigured"


def error_info(error: BaseException, *, plugin: str | None = None) -> ErrorInfo:
    """Return `error` as data; an exception of any other class becomes `plugin_error` whatever its `__str__` does."""
    if isinstance(error, TavernError):
        info = error.info
        return info if info.plugin or not plugin else info.model_copy(update={"plugin": plugin})
    return ErrorInfo(code=PluginFailure.code, message=describe(error), plugin=plugin)


def error_of(info: ErrorInfo) -> TavernError:
    """Return the error that `info` describes, as the class of its code; of a code that is not the host's, the base."""
    error = _by_code().get(info.code, TavernError)(info.message)
    error.info = info
    return error


def _by_code() -> dict[str, type[TavernError]]:
    own = (value for value in globals().values() if isinstance(value, type) and issubclass(value, TavernError))
    return {value.code: value for value in own}


def describe(error: BaseException) -> str:
    """Return `Type: text` for any exception, including one whose `__str__` raises."""
    try:
        text = str(error)
    except BaseException:  # whatever a hostile or broken __str__ does must not break the report of the failure
        text = "(its text cannot be shown)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


MAX_SHOWN = 500
"""How many characters of a text that a plugin made are shown."""


def one_line(text: str) -> str:
    """Return a text of any length and shape as one line of at most `MAX_SHOWN` characters."""
    line = " ".join(text[: 4 * MAX_SHOWN].split())
    return line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN]} …"
