"""Opens a store's database: makes its folder, brings its tables up to date, and puts a damaged file aside."""

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

from tavern_engine.keeping.runstore.faults import BUSY_SECONDS, is_damage
from tavern_engine.keeping.runstore.schema import Tables, upgrade

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


def make_folder(folder: Path) -> None:
    """Make a folder that only this user may enter, and those above it.

    Raises `OSError` for a link: a project may come from anybody.
    """
    if not folder.parent.exists():
        make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link, and nothing is kept behind one", str(folder))


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
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        upgrade(connection, tables, str(path))
        identity = identity_of(path)
        if identity is None:
            raise FileNotFoundError(errno.ENOENT, "it was removed while it was opened", str(path))
        return connection, identity
    except BaseException:
        connection.close()
        raise


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
