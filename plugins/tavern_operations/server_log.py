"""The log of a server: to standard error and into the project, line by line, with what each line is about."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from tavern_host.common.log_context import log_context
from tavern_host.common.redaction import redacted
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.settings import MASK
from tavern_host.storage.files import make_folder
from tavern_host.storage.open_folder import open_private

LOG_FILE = "log/tavern.log"
"""Where the log is in a project's private folder."""
LOG_BYTES, LOG_FILES = 5 << 20, 5
"""How large a file of the log grows, and how many older ones are kept."""
FORMATS = ("text", "json")

_PLUGIN = "tavern.plugin."
_LOGGERS = {"tavern": "INFO", "asyncio": "WARNING", "aiohttp": "WARNING"}
_CREDENTIAL = re.compile(
    r"(?i)(\b(?:bearer|basic)\s+|\b(?:token|api[_-]?key|access[_-]?key|password|secret)['\"]?\s*[=:]\s*['\"]?)"
    r"[^\s'\"&,;]{6,}"
)
_PARTS = frozenset({"audit", "blobs", "plugins", "scripts", "server", "settings", "storage", "watchdog"})
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_UNSEEN = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in (*range(32), *range(127, 160))} | {
    code: f"\\u{code:04x}" for code in (*range(0x2028, 0x202F), *range(0x2066, 0x206A))
}
"""Characters that would end a line or turn it around, with what stands for them."""

_log = logging.getLogger("tavern.server")


class _Entries(logging.Formatter):
    """A line for each record, a traceback after it indented, so that no text in it looks like a record; or as JSON an
    object for each. What `secrets` gives is masked wherever it stands."""

    def __init__(self, secrets: Callable[[], Collection[str]], *, as_json: bool) -> None:
        super().__init__()
        self._secrets, self._as_json = secrets, as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        source = record.name.removeprefix(_PLUGIN).removeprefix("tavern.")
        message, about = self._masked(record.getMessage()), log_context()
        trace = self._masked(self.formatException(record.exc_info)) if record.exc_info else ""
        if self._as_json:
            found = {"time": time, "level": record.levelname, "source": source, **about, "message": message}
            found |= {"plugin": source} if record.name.startswith(_PLUGIN) else {}
            return json.dumps(found | ({"traceback": trace} if trace else {}))
        told = f" [{' '.join(f'{key}={value}' for key, value in about.items())}]" if about else ""
        lines = [f"{time} {record.levelname:<7} {source}{told}: {message}"]
        lines += [f"    {part}" for part in trace.splitlines()]
        return "\n".join(line.translate(_UNSEEN) for line in lines)

    def _masked(self, text: str) -> str:
        return _CREDENTIAL.sub(rf"\1{MASK}", redacted(text, self._secrets()))


class _File(RotatingFileHandler):
    """A file that cannot be written is left as it is, which is said once: the terminal has the lines too.

    A project may come from anybody: nothing is written through a link.
    """

    is_told = False

    def handleError(self, record: logging.LogRecord) -> None:  # the standard library's name
        if not self.is_told:
            self.is_told = True
            _log.warning("no log is written to %s: %s", self.baseFilename, sys.exc_info()[1])

    def _open(self) -> Any:
        make_folder(Path(self.baseFilename).parent)
        return open(self.baseFilename, "a", encoding="utf-8", errors="replace", opener=open_private)


@contextlib.contextmanager
def server_log(
    private: Path,
    *,
    format: str = "text",
    levels: Sequence[str] = (),
    secrets: Callable[[], Collection[str]] = frozenset,
    filters: Sequence[Callable[[], logging.Filter]] = (),
) -> Iterator[None]:
    """Log to standard error and into a project's private folder within the block, without what `secrets` gives and what
    `filters` leave out.

    `levels` are as on the command line: `DEBUG`, or `NAME=DEBUG` for a plugin or a part of the host. Raises
    `InvalidInput` for what is none.
    """
    if format not in FORMATS:
        raise InvalidInput(f"--log-format {format}: there are {' and '.join(FORMATS)}")
    wanted = {**_LOGGERS, **dict(map(_level, levels))}
    before = [(logger, logger.level, logger.handlers) for logger in map(logging.getLogger, wanted)]
    file = _File(private / LOG_FILE, maxBytes=LOG_BYTES, backupCount=LOG_FILES, delay=True)
    handlers: list[logging.Handler] = [logging.StreamHandler(), file]
    for handler in handlers:
        handler.setFormatter(_Entries(secrets, as_json=format == "json"))
        for make_filter in filters:
            handler.addFilter(make_filter())
    try:
        for logger, _, others in before:
            logger.setLevel(wanted[logger.name])
            logger.handlers = handlers if logger.name in _LOGGERS else others
        yield
    finally:
        for logger, level, others in before:
            logger.setLevel(level)
            logger.handlers = others
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
