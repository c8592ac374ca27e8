"""Says in one line what is wrong with a store's database or files, and what to do."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from tavern_host.contracts.errors import DeadlineExceeded, TavernError

BUSY_SECONDS = 10
"""How long a process waits for another that is writing."""

_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full: make room",
    sqlite3.SQLITE_READONLY: "it may not be written: check the rights of the file and its folder",
    sqlite3.SQLITE_PERM: "it may not be written: check the rights of the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check the rights of the file and its folder",
    sqlite3.SQLITE_TOOBIG: "a value is too large to be kept",
}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_damage(error: BaseException) -> bool:
    """Return whether an error says that the file is no sound database."""
    return isinstance(error, sqlite3.Error) and _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def told(error: Exception, path: Path) -> Exception:
    """Return what is raised of an error of the database or the file system; any other is returned as it is."""
    if isinstance(error, sqlite3.Error):
        code = _code(error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return DeadlineExceeded(f"{path}: another process did not let go of it for {BUSY_SECONDS} s; try again")
        return TavernError(f"{path}: {_ADVICE.get(code or 0, str(error))}")
    if isinstance(error, OSError):
        name = error.filename or path
        advice = _ADVICE[sqlite3.SQLITE_FULL] if error.errno in _FULL else error.strerror or str(error)
        return TavernError(f"{name}: {advice}")
    return error


def _code(error: sqlite3.Error) -> int | None:
    """Return the primary result code; errors that Python's own module raises have none."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
