"""Looks for damaged SQLite databases when a server starts, before somebody meets the damage."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sqlite3
import threading
from pathlib import Path

from tavern_host.storage.damage import OPENING, Corrupt, identity_of, is_corruption, move_aside, moved_aside
from tavern_host.storage.files import locked

_SECONDS = 10.0
_ASIDE = re.compile(r"(.+\.sqlite3\.damaged-\w+-[0-9a-f]{4})(\.unread)?")
_log = logging.getLogger("tavern.storage")


def check_databases(folder: Path, stop: threading.Event) -> None:
    """Move damaged databases below a folder aside, until `stop` is set; whoever has one open continues in the new one.
    What cannot be checked is left to those who use it. Those that were moved aside before are remembered."""
    for path in (Path(parent, name) for parent, _, names in os.walk(folder) for name in names):
        if aside := _ASIDE.fullmatch(path.name):
            known = path.with_name(aside[1])
            moved_aside.extend([known] if known not in moved_aside else [])
        elif path.suffix == ".sqlite3" and path.is_file() and not path.is_symlink() and not stop.is_set():
            with contextlib.suppress(sqlite3.Error, OSError):
                _check(path, stop)


def _check(path: Path, stop: threading.Event) -> None:
    identity = identity_of(path)
    with contextlib.closing(sqlite3.connect(path, timeout=_SECONDS, isolation_level=None)) as connection:
        connection.set_progress_handler(stop.is_set, 10_000)
        damage = _corruption(connection, "PRAGMA quick_check(1)")
        if damage is not None:
            with locked(path.with_name(OPENING)):
                _corruption(connection, "BEGIN IMMEDIATE")  # then nobody else is within a transaction
                if identity_of(path) == identity:
                    move_aside(path, damage, _log)


def _corruption(connection: sqlite3.Connection, statement: str) -> Exception | None:
    """Execute a statement; return what it finds corrupt. Raises other errors."""
    try:
        found = connection.execute(statement).fetchone()
    except sqlite3.DatabaseError as error:
        if not is_corruption(error):
            raise
        return error
    return None if found in (None, ("ok",)) else Corrupt(found[0].splitlines()[-1])
