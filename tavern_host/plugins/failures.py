"""How a plugin's failure is told: in one line with its place in the plugin's own code, and in the log."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

from tavern_host.contracts.errors import TavernError, describe, one_line
from tavern_host.contracts.plugins import Problem


def problem_of(error: BaseException, where: str, root: Path | None, plugin: str) -> Problem:
    """Return an exception as a problem that names the plugin's own file and line where its code was left, or none."""
    message = one_line(f"{where}: {error.message if isinstance(error, TavernError) else describe(error)}")
    causes = [one for one in (error, error.__cause__) if one is not None]
    own = [place for one in causes for place in _places_in(one) if root is not None and _is_in(place[0], root)]
    file, line = own[0] if own else (None, None)
    mend = "mend it there" if own else "mend it"
    hint = f"{mend}, or keep it out with `tavern plugins disable {plugin}`"
    return Problem(message=message, hint=hint, file=file, line=line)


def _places_in(error: BaseException) -> list[tuple[str, int | None]]:
    """Return the files and lines that an exception passed, the innermost first; a syntax error begins with its own."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    written = [(error.filename, error.lineno)] if isinstance(error, SyntaxError) and error.filename is not None else []
    return [*written, *reversed(frames)]


def _is_in(file: str, root: Path) -> bool:
    return Path(file).is_relative_to(root)


def log_failure(log: logging.Logger, plugin: str, where: str, error: BaseException) -> None:
    """Write a plugin's failure into the log, with its traceback."""
    log.error("%s failed in %s: %s", plugin, where, describe(error), exc_info=error)
