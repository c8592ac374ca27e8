"""The log of a server: to standard error and into the project, line by line, with what each line is about."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from aiohttp import web

from tavern_host.cli.log import OnceASecond
from tavern_host.contracts.calls import new_id
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.log_context import log_context, logged_with
from tavern_host.server.errors import Handler
from tavern_host.storage.files import make_folder

LOG_FILE = "log/tavern.log"
"""Where the log is in a project's private folder."""
LOG_BYTES, LOG_FILES = 5 << 20, 5
"""How large a file of the log grows, and how many older ones are kept."""
FORMATS = ("text", "json")
REQUEST_ID = web.RequestKey("request_id", str)
"""Where a request has the id that its answer and its lines in the log have."""

_PLUGIN = "tavern.plugin."
_PARTS = frozenset({"audit", "blobs", "plugins", "scripts", "server", "settings", "watchdog"})
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
_UNSEEN = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in (*range(32), *range(127, 160))} | {
    code: f"\\u{code:04x}" for code in (*range(0x2028, 0x202F), *range(0x2066, 0x206A))
}
"""Characters that would end a line or turn it around, with what stands for them."""

_log = logging.getLogger("tavern.server")


class _Lines(logging.Formatter):
    """One line for each record; a traceback follows indented, so that no text in it looks like a record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text."""
        about = " ".join(f"{key}={value}" for key, value in log_context().items())
        line = f"{_time(record)} {record.levelname:<7} {_source(record)}{f' [{about}]' if about else ''}: "
        lines = [(line + record.getMessage()).translate(_UNSEEN)]
        if record.exc_info:
            lines += ["    " + part.translate(_UNSEEN) for part in self.formatException(record.exc_info).splitlines()]
        return "\n".join(lines)


class _Json(logging.Formatter):
    """One JSON object for each record: `time`, `level`, `source`, `message`, what it is about, `traceback`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON."""
        found: dict[str, Any] = {"time": _time(record), "level": record.levelname, "source": _source(record)}
        found |= {**log_context(), "message": record.getMessage()}
        if record.name.startswith(_PLUGIN):
            found["plugin"] = _source(record)
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found)


class _File(RotatingFileHandler):
    """A file that cannot be written is left as it is, which is said once: the terminal has the lines too.

    A project may come from anybody: nothing is written through a link.
    """

    is_told = False

    def handleError(self, record: logging.LogRecord) -> None:  # the standard library's name
        if not self.is_told:
            self.is_told = True
            _log.warning("the log is not written to %s: %s", self.baseFilename, sys.exc_info()[1])

    def _open(self) -> Any:
        return open(self.baseFilename, "a", encoding="utf-8", errors="replace", opener=_open_private)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _source(record: logging.LogRecord) -> str:
    return record.name.removeprefix(_PLUGIN).removeprefix("tavern.")


@contextlib.contextmanager
def server_log(private: Path, *, format: str = "text", levels: Sequence[str] = ()) -> Iterator[None]:
    """Log to standard error and into a project's private folder within the block.

    `levels` are as on the command line: `DEBUG`, or `NAME=DEBUG` for a plugin or a part of the host. Raises
    `InvalidInput` for what is none.
    """
    if format not in FORMATS:
        raise InvalidInput(f"--log-format {format}: there are {' and '.join(FORMATS)}")
    wanted = {"tavern": "INFO", "asyncio": "WARNING", "aiohttp": "WARNING"} | dict(map(_level, levels))
    formatter = _Json() if format == "json" else _Lines()
    loggers = {name: logging.getLogger(name) for name in wanted}
    before = {name: (logger.level, logger.handlers) for name, logger in loggers.items()}
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    problem = ""
    try:
        make_folder((file := private / LOG_FILE).parent)
        handlers.append(_File(file, maxBytes=LOG_BYTES, backupCount=LOG_FILES))
    except OSError as error:
        problem = f"no log is written to {private / LOG_FILE}: {error.strerror}"
    for handler in handlers:
        handler.setFormatter(formatter)
        handler.addFilter(OnceASecond(logging.WARNING))
    for name, logger in loggers.items():
        logger.setLevel(wanted[name])
        if name in ("tavern", "asyncio", "aiohttp"):
            logger.handlers = handlers
    try:
        if problem:
            _log.warning("%s", problem)
        yield
    finally:
        for name, logger in loggers.items():
            level, logger.handlers = before[name]
            logger.setLevel(level)
        for handler in handlers:
            handler.close()


def _level(text: str) -> tuple[str, str]:
    """Return the logger and the level that `--log-level` means."""
    name, found, level = text.rpartition("=")
    if level.upper() not in _LEVELS or (found and not name):
        raise InvalidInput(f"--log-level {text}: write {', '.join(_LEVELS)}, or such as tavern-engine=DEBUG")
    if not name:
        return "tavern", level.upper()
    return f"tavern.{name}" if name in _PARTS else f"{_PLUGIN}{name}", level.upper()


@web.middleware
async def logged(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Log each request that changes something or fails, under an id that its answer has as `X-Request-Id`."""
    given = request.headers.get("X-Request-Id", "")
    request[REQUEST_ID] = given if _ID.fullmatch(given) else new_id("request")
    began = time.perf_counter()
    with logged_with(request=request[REQUEST_ID]):
        response = await handler(request)
        # Strangers, who may be many, are not let in here either.
        is_told = response.status not in (401, 421) and (
            request.method not in ("GET", "HEAD") or response.status >= 400
        )
        level = logging.INFO if is_told else logging.DEBUG
        spent = (time.perf_counter() - began) * 1000
        _log.log(level, "%s %s %d, %.0f ms", request.method, request.path, response.status, spent)
    return response
