"""Why a script is not run, or gives no result; becomes its result and never leaves this plugin."""

from __future__ import annotations

from tavern_scripts.api.scripts import ScriptError, ScriptErrorType


class Refused(Exception):
    """A script that is not run, or whose result does not count."""

    def __init__(self, type: ScriptErrorType, message: str, details: str | None = None) -> None:
        super().__init__(message)
        self.error = ScriptError(type=type, message=message, details=details or None)
