"""The thread that holds the connection to the database of the tasks: opens it, and does one piece of work at a time.

What is written is flushed to the disk before a piece of work counts as done.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tavern_host.contracts.errors import DeadlineExceeded, Misconfigured, ServiceUnavailable, TavernError

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

BUSY_SECONDS = 10
"""How long a process waits for another that is writing."""

CLOSE_SECONDS = 5.0
"""How long closing waits for what is under way."""

_VERSION = 1
_TABLES = (
    # `entry`, `approval`, `result` and `callback` are JSON. `is_open`: the task has not ended, or its end is still to
    # be told to a callback. `changed` numbers all changes, `writer` is the host that made the latest. Times are in
    # microseconds since 1970. Large columns come last, so that lists do not read them.
    """
    CREATE TABLE tasks (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        tool TEXT NOT NULL,
        principal TEXT NOT NULL,
        status TEXT NOT NULL,
        is_final INTEGER NOT NULL,
        is_open INTEGER NOT NULL,
        owner TEXT,
        attempt INTEGER NOT NULL,
        idempotent INTEGER NOT NULL,
        cancelled_by TEXT,
        created INTEGER NOT NULL,
        started INTEGER,
        finished INTEGER,
        due INTEGER,
        callback_due INTEGER,
        changed INTEGER NOT NULL,
        writer TEXT NOT NULL,
        is_audited INTEGER NOT NULL,
        progress REAL,
        progress_text TEXT,
        size INTEGER NOT NULL,
        approval BLOB,
        callback BLOB,
        entry BLOB NOT NULL,
        result BLOB
    )
    """,
    "CREATE INDEX tasks_by_status ON tasks (status, seq)",
    "CREATE INDEX tasks_open ON tasks (owner) WHERE is_open = 1",
    "CREATE INDEX tasks_ended ON tasks (finished, seq) WHERE is_open = 0",
    "CREATE INDEX tasks_unaudited ON tasks (writer) WHERE is_audited = 0",
    "CREATE INDEX tasks_changed ON tasks (changed)",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO counters (name, value) VALUES ('changes', 0)",
)


class Lane:
    """One thread with its connection to a database, which is made by the first write."""

    def __init__(self, path: Path, log: logging.Logger) -> None:
        self._path = path
        self._log = log
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    async def read(self, work: Callable[[sqlite3.Connection], T], absent: T) -> T:
        """Return `work(connection)`, or `absent` where there is no database: reading makes none."""
        if self._thread is None and not self._path.exists():  # most hosts never have a task
            return absent
        return await self._do(lambda: work(self._connected()) if self._path.exists() else absent)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return `work(connection)`, called in a transaction; it is committed by then, or undone where it raises."""
        return await self._do(lambda: self._transaction(work))

    async def close(self, last: Callable[[], None]) -> None:
        """Finish what was begun, call `last` and close the connection."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._jobs.put(last)
                self._jobs.put(None)
            thread = self._thread
        if thread is not None:
            await asyncio.to_thread(thread.join, CLOSE_SECONDS)

    async def _do(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            result: Any = None
            problem: Exception | None = None
            try:
                result = work()
            except Exception as error:
                problem = _told(error, self._path)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, future, result, problem)

        with self._lock:
            if self._is_closed:
                raise ServiceUnavailable("the tasks of tools are closed: the host stops")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tool tasks", daemon=True)
                self._thread.start()
            self._jobs.put(job)
        return await future

    # --- on the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # and with it what it holds, while there is nothing to do
        if self._connection is not None:
            with contextlib.suppress(Exception):  # it may be damaged, or gone
                self._connection.close()

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connected()
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None and _identity(self._path) != self._identity:
            self._connection.close()  # somebody removed the file, or put another in its place
            self._connection = None
        if self._connection is None:
            self._connection = _open(self._path, self._log)
            self._identity = _identity(self._path)
        return self._connection


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _open(path: Path, log: logging.Logger) -> sqlite3.Connection:
    """Return a connection; a damaged file is put aside, which the log says, and a new one made."""
    import sqlite3

    _make_folder(path.parent)
    with _one_at_a_time(path.with_name(".opening.lock")):
        try:
            return _connect(path)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            aside = path.with_name(f"{path.name}.damaged-{uuid.uuid4().hex[:8]}")
            for suffix in ("-wal", "-shm", ""):
                with contextlib.suppress(FileNotFoundError):
                    path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
            log.error("%s is damaged (%s): it is kept as %s, and a new one is begun", path, error, aside.name)
            return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    import sqlite3

    _refuse_link(path)
    # Only a file that is not there is opened here: to close one that SQLite has open would drop its locks.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    if not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    path.chmod(0o600)
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        # A project may come from anybody: what its schema calls is not trusted.
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA journal_size_limit = 16777216")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
        _make_tables(connection, path)
        return connection
    except BaseException:
        connection.close()
        raise


def _make_tables(connection: sqlite3.Connection, path: Path) -> None:
    if _has_tables(connection, path):  # who only looks need not wait for one that writes
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _has_tables(connection, path):
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _has_tables(connection: sqlite3.Connection, path: Path) -> bool:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, _VERSION):
        raise Misconfigured(
            f"{path} was written by another version of the program (its tables are of version {version}, this one"
            f" knows up to {_VERSION}): use that version, or move the file away to begin a new one"
        )
    return bool(version == _VERSION)


def _make_folder(folder: Path) -> None:
    """Make a folder that only this user may enter. Raises `OSError` for a link: a project may come from anybody."""
    if not folder.parent.exists():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_link(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _refuse_link(folder)
    folder.chmod(0o700)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return which file a path leads to, or None where there is none."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link, and nothing is kept behind one", str(path))


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Keep others from opening the database meanwhile, in this process too. Raises `TimeoutError`."""
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


def _is_damage(error: BaseException) -> bool:
    import sqlite3

    return isinstance(error, sqlite3.Error) and _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _told(error: Exception, path: Path) -> Exception:
    """Return what is raised of an error of the database or the file system; any other is returned as it is."""
    import sqlite3

    if isinstance(error, sqlite3.Error):
        code = _code(error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return DeadlineExceeded(f"{path}: another process did not let go of it for {BUSY_SECONDS} s; try again")
        if code == sqlite3.SQLITE_FULL:
            return TavernError(f"{path}: the disk is full: make room")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
            return TavernError(f"{path}: it may not be written: check the rights of the file and its folder")
        return TavernError(f"{path}: {error}")
    if isinstance(error, OSError):
        return TavernError(f"{error.filename or path}: {error.strerror or error}")
    return error


def _code(error: sqlite3.Error) -> int | None:
    """Return the primary result code; errors that Python's own module raises have none."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
