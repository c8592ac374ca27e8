"""Opens a SQLite database with care, and says in one line what is wrong with it, and what to do.

Its folder and file are this user's own, no link is followed, its tables are brought up to date, and a damaged file is
put aside. What is in the tables is not known here.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import sqlite3
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from tavern_host.contracts.errors import DeadlineExceeded, TavernError
from tavern_host.storage.files import make_folder
from tavern_host.storage.tables import Tables, upgrade

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

Identity = tuple[int, int]
"""Which file a path leads to: device and inode."""


def open_database(folder: Path, tables: Tables, log: logging.Logger) -> tuple[sqlite3.Connection, Identity]:
    """Return a connection to the database of a folder, made if need be, and which file that is.

    A damaged file is put aside, which the log says, and a new one made. Raises `Misconfigured` for a database of a
    newer version, `OSError` and `sqlite3.Error`.
    """
    make_folder(folder)
    path = folder / tables.file
    with _one_at_a_time(folder):
        try:
            return _connect(path, tables)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            _put_aside(path, error, log)
            return _connect(path, tables)


def put_aside(path: Path, identity: Identity, error: Exception, log: logging.Logger) -> None:
    """Put a database aside that turned out to be damaged, unless somebody did so already; nobody here has it open."""
    with _one_at_a_time(path.parent):
        if identity_of(path) == identity:
            _put_aside(path, error, log)


def identity_of(path: Path) -> Identity | None:
    """Return which file a path leads to, or None where there is none."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


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


def _connect(path: Path, tables: Tables) -> tuple[sqlite3.Connection, Identity]:
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link, and nothing is kept behind one", str(path))
    # Only a file that is not there is opened here: to close one that SQLite has open would drop its locks.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    if not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        # A project may come from anybody: what its schema calls is not trusted.
        connection.execute("PRAGMA trusted_schema = OFF")
        if connection.execute("PRAGMA user_version").fetchone() == (0,):  # new; else this would wait for who writes
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        connection.execute(f"PRAGMA synchronous = {tables.synchronous}")
        if tables.overwrites:
            connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA foreign_keys = ON")
        upgrade(connection, tables, str(path))
        _drop_triggers(connection)
        identity = identity_of(path)
        if identity is None:
            raise FileNotFoundError(errno.ENOENT, "it was removed while it was opened", str(path))
        return connection, identity
    except BaseException:
        connection.close()
        raise


def _drop_triggers(connection: sqlite3.Connection) -> None:
    """Remove what would write of its own accord: none of it was made here, and a project may come from anybody."""
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute('DROP TRIGGER IF EXISTS "{}"'.format(name.replace('"', '""')))


def _put_aside(path: Path, error: Exception, log: logging.Logger) -> None:
    """Rename a database and what belongs to it; the database last, so that a new one never meets the old one's log."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = path.with_name(f"{path.name}.damaged-{moment}-{uuid.uuid4().hex[:4]}")
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    log.error("%s is damaged (%s): it is kept as %s, and a new one is begun", path, error, aside.name)


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Keep others from opening the database meanwhile, in this process too. Raises `TimeoutError`."""
    path = folder / ".opening.lock"
    deadline = time.monotonic() + BUSY_SECONDS
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    message = f"another process did not let go of it for {BUSY_SECONDS} s"
                    raise TimeoutError(errno.ETIMEDOUT, message, str(path)) from None
                time.sleep(0.01)
        yield
    finally:
        os.close(file)


def _code(error: sqlite3.Error) -> int | None:
    """Return the primary result code; errors that Python's own module raises have none."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
