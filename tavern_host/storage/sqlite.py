"""Opens SQLite databases of the host and of plugins, migrates their tables, and gives each a thread to work on.

A database's folder and file are this user's own and no link is followed, since a project may come from anybody. A
corrupt file is moved aside, and a new one begun with what can be read of it. What is in the tables is the caller's
business.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from tavern_host import clock
from tavern_host.contracts.errors import DeadlineExceeded, Misconfigured, ServiceUnavailable, TavernError
from tavern_host.storage import damage
from tavern_host.storage.damage import Corrupt, Identity, identity_of, is_corruption
from tavern_host.storage.files import locked, make_folder

T = TypeVar("T")

MAX_BATCH = 200
"""How many writes become one transaction at most."""

CLOSE_SECONDS = 15.0
"""How long closing waits for jobs in progress, unless the caller says otherwise."""

_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full: make room",
    sqlite3.SQLITE_READONLY: "it may not be written: check the rights of the file and its folder",
    sqlite3.SQLITE_PERM: "it may not be written: check the rights of the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check the rights of the file and its folder",
    sqlite3.SQLITE_TOOBIG: "a value is too large to be kept",
}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Schema:
    """The database of a store: the name of its file, and the statements that migrate each version of its tables to the
    next. Released migrations never change.

    `is_derived` says that all rows follow from what is kept elsewhere: none is copied out of a damaged file.
    With `synchronous` NORMAL, committed data survives the end of the process, with FULL that of the machine too. With
    `secure_delete`, nothing of deleted data is left in the file. `busy_seconds` is how long a writer waits for another.
    """

    file: str
    migrations: tuple[tuple[str, ...], ...]
    synchronous: Literal["NORMAL", "FULL"] = "NORMAL"
    secure_delete: bool = False
    busy_seconds: float = 10
    is_derived: bool = False


# --- opening ------------------------------------------------------------------------------------------


def open_database(folder: Path, schema: Schema, log: logging.Logger) -> tuple[sqlite3.Connection, Identity]:
    """Return a connection to the database of a folder, created if need be, and which file that is.

    It may be used by one thread at a time. Raises `Misconfigured` for a database of a newer version, `OSError` and
    `sqlite3.Error`.
    """
    make_folder(folder)
    path = folder / schema.file
    with _opening(path, schema):
        try:
            return _connect(path, schema, log)
        except sqlite3.DatabaseError as error:
            if not is_corruption(error):
                raise
            damage.move_aside(path, error, log)
            return _connect(path, schema, log)


def open_read_only(path: Path) -> sqlite3.Connection:
    """Return a connection that only reads; neither the file nor its tables are made. Raises `OSError`, `sqlite3.Error`.

    `OSError` is raised for a file that is not there, a link or what is no regular file.
    """
    path.lstat()
    _require_regular(path)
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _connect(path: Path, schema: Schema, log: logging.Logger) -> tuple[sqlite3.Connection, Identity]:
    # Only a file that is not there is opened here: closing one that SQLite has open would drop its locks.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    _require_regular(path)
    connection = sqlite3.connect(path, timeout=schema.busy_seconds, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.create_function("microseconds", 0, clock.microseconds)
        if connection.execute("PRAGMA user_version").fetchone() == (0,):  # new; else this would wait for a writer
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        connection.execute(f"PRAGMA synchronous = {schema.synchronous}")
        if schema.secure_delete:
            connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA foreign_keys = ON")
        _migrate(connection, schema, path, log)
        damage.mark_read(path)
        _drop_triggers(connection)
        identity = identity_of(path)
        if identity is None:
            raise FileNotFoundError(errno.ENOENT, "it was removed while it was opened", str(path))
        return connection, identity
    except BaseException:
        connection.close()
        raise


def _require_regular(path: Path) -> None:
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link, and nothing is kept behind one", str(path))
    if not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def _migrate(connection: sqlite3.Connection, schema: Schema, path: Path, log: logging.Logger) -> None:
    """Bring the tables to the newest version, in one transaction. Raises `Misconfigured` for newer ones.

    New tables get the rows that can be read of a damaged file that was moved aside before.
    """
    newest = len(schema.migrations)
    if _version(connection, newest, path) == newest:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection, newest, path)
        for old in damage.unread(path)[-1:] if version == 0 and not schema.is_derived else ():
            with contextlib.closing(open_read_only(old)) as source:
                version, count = damage.rescue(source, connection, schema.migrations)
            log.warning("%s: %d rows could be read of the damaged file, and are in the new one", path, count)
        for statement in itertools.chain(*schema.migrations[version:]):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {newest}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, newest: int, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if not 0 <= version <= newest:
        raise Misconfigured(
            f"{path} was written by another version of the program (its tables are of version {version}, this one"
            f" knows up to {newest}): use that version, or move the file away to begin a new one"
        )
    return version


def _drop_triggers(connection: sqlite3.Connection) -> None:
    """Remove triggers: no migration creates any, and a project may come from anybody."""
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute('DROP TRIGGER IF EXISTS "{}"'.format(name.replace('"', '""')))


def _opening(path: Path, schema: Schema) -> AbstractContextManager[None]:
    """Keep others from opening the database meanwhile, in this process too. Raises `TimeoutError`."""
    return locked(path.with_name(damage.OPENING), schema.busy_seconds)


# --- errors -------------------------------------------------------------------------------------------


def explain(error: Exception, schema: Schema) -> str:
    """Return, as a clause, what an error of the database or the file system means and how to mend it."""
    if isinstance(error, sqlite3.Error):
        if _is_busy(error):
            return f"another process did not release it for {schema.busy_seconds:g} s; try again"
        return _ADVICE.get(damage.code_of(error) or 0, str(error))
    if isinstance(error, OSError):
        return _ADVICE[sqlite3.SQLITE_FULL] if error.errno in _FULL else error.strerror or str(error)
    return str(error)


def _readable(error: Exception, path: Path, schema: Schema) -> Exception:
    """Return the error that callers get for one of the database or the file system; any other as it is."""
    if isinstance(error, sqlite3.Error):
        is_known = damage.code_of(error) in _ADVICE
        kind = DeadlineExceeded if _is_busy(error) else ServiceUnavailable if is_known else TavernError
        return kind(f"{path}: {explain(error, schema)}")
    if isinstance(error, OSError):
        return ServiceUnavailable(f"{error.filename or path}: {explain(error, schema)}")
    return error


def _is_busy(error: sqlite3.Error) -> bool:
    return damage.code_of(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


# --- a connection that survives what happens to its file ----------------------------------------------


class Database:
    """A connection for one thread at a time: opened when it is used, and reopened where the file was replaced."""

    def __init__(self, folder: Path, schema: Schema, log: logging.Logger) -> None:
        self.path = folder / schema.file
        self._schema = schema
        self._log = log
        self._connection: sqlite3.Connection | None = None
        self._identity: Identity | None = None

    def get(self) -> sqlite3.Connection:
        """Return the connection. Raises what `open_database` raises."""
        if self._connection is not None and self._connection.in_transaction:
            return self._connection
        if self._connection is not None and identity_of(self.path) != self._identity:
            self.close()
        if self._connection is None:
            self._connection, self._identity = open_database(self.path.parent, self._schema, self._log)
        return self._connection

    def begin(self) -> sqlite3.Connection:
        """Begin a transaction that writes, in the file that the path leads to by then; return the connection."""
        while True:
            connection = self.get()
            connection.execute("BEGIN IMMEDIATE")
            if identity_of(self.path) == self._identity:
                return connection
            connection.execute("ROLLBACK")  # it was moved aside while this waited for its writer

    def failed(self, error: Exception) -> Exception:
        """Roll back what is not committed; return the error for callers. A corrupt database is moved aside."""
        if self._connection is not None and self._connection.in_transaction:
            with contextlib.suppress(Exception):
                self._connection.execute("ROLLBACK")
        if is_corruption(error):
            identity = self._identity
            self.close()
            try:
                with _opening(self.path, self._schema):
                    if identity is not None and identity_of(self.path) == identity:  # nobody did so before
                        damage.move_aside(self.path, error, self._log, is_read=isinstance(error, Corrupt))
            except OSError as problem:
                return _readable(problem, self.path, self._schema)
        return _readable(error, self.path, self._schema)

    def close(self) -> None:
        """Close the connection; the next use opens one again."""
        if self._connection is not None:
            with contextlib.suppress(Exception):  # it may be corrupt, or gone
                self._connection.close()
        self._connection = self._identity = None


# --- threads ------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Job(Generic[T]):
    """What a caller wants done on the thread, and the future that gets the result."""

    work: Callable[[], T]
    is_write: bool = False
    future: Future[T] = field(default_factory=Future)

    def settle(self, result: Any, error: BaseException | None) -> None:
        """Hand the result over, unless the caller was cancelled."""
        if not self.future.set_running_or_notify_cancel():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class DatabaseThread:
    """A worker thread with a connection of its own, which does one job after the other.

    Writes that wait at the same moment become one transaction. `name` is whose thread it is and what for, as in
    `run store: writing`. Neither thread nor database is made before it is needed. Jobs raise their own errors, and
    `TavernError` for those of the database and the file system.
    """

    def __init__(
        self, folder: Path, schema: Schema, log: logging.Logger, name: str, *, close_seconds: float = CLOSE_SECONDS
    ) -> None:
        self._database = Database(folder, schema, log)
        self._name = name
        self._close_seconds = close_seconds
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    async def read(self, work: Callable[[sqlite3.Connection], T], absent: T) -> T:
        """Return `work(connection)`, or `absent` where there is no database: reading makes none."""
        if self._thread is None and not self._database.path.exists():
            return absent
        return await self._do(lambda: work(self._database.get()) if self._database.path.exists() else absent)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return `work(connection)`, called in a transaction that is committed by then, or undone where it raises.

        It may be called a second time where the transaction that it shared could not be committed: what it does beside
        the database must bear that.
        """
        return await self._do(lambda: work(self._database.get()), is_write=True)

    async def run(self, work: Callable[[], T]) -> T:
        """Return `work()`, called on the thread without the database."""
        return await self._do(work)

    async def close(self, last: Callable[[], None] | None = None) -> None:
        """Finish the jobs that wait, call `last` on the thread, if there is one, and close the connection."""
        with self._lock:
            thread = self._thread
            if not self._is_closed:
                self._is_closed = True
                if last is not None:
                    self._jobs.put(_Job(last))
                self._jobs.put(None)
        if thread is not None:
            await asyncio.to_thread(thread.join, self._close_seconds)

    async def _do(self, work: Callable[[], T], *, is_write: bool = False) -> T:
        job = _Job(work, is_write)
        with self._lock:
            if self._is_closed:
                raise ServiceUnavailable(f"the {self._name.partition(':')[0]} is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._jobs.put(job)
        with clock.awaits_thread():
            return await asyncio.wrap_future(job.future)

    def _run(self) -> None:
        is_open = True
        while is_open:
            jobs = [self._jobs.get()]
            with contextlib.suppress(queue.Empty):
                while len(jobs) < MAX_BATCH:
                    jobs.append(self._jobs.get_nowait())
            is_open = None not in jobs
            self._serve([job for job in jobs if job is not None])
            del jobs  # and with them what they hold, while there is nothing to do
        self._database.close()

    def _serve(self, jobs: list[_Job[Any]]) -> None:
        for is_write, group in itertools.groupby(jobs, lambda job: job.is_write):
            if is_write:
                self._write(list(group))
            else:
                self._read(group)

    def _read(self, jobs: Iterator[_Job[Any]]) -> None:
        for job in jobs:
            result, error = None, None
            try:
                result = job.work()
            except Exception as raised:
                error = self._database.failed(raised)
            job.settle(result, error)

    def _write(self, jobs: list[_Job[Any]]) -> None:
        results: list[tuple[Any, Exception | None]] = []
        try:
            connection = self._database.begin()
            for job in jobs:
                results.append(self._savepoint(connection, job) if len(jobs) > 1 else (job.work(), None))
            connection.execute("COMMIT")
        except Exception as raised:
            error = self._database.failed(raised)
            if len(jobs) > 1:  # one of them may be at fault: each by itself
                for job in jobs:
                    self._write([job])
                return
            results = [(None, error)]
        for job, (result, refusal) in zip(jobs, results, strict=True):
            job.settle(result, refusal)

    def _savepoint(self, connection: sqlite3.Connection, job: _Job[Any]) -> tuple[Any, Exception | None]:
        """Do one of several jobs of a transaction so that its failure undoes its own changes alone."""
        connection.execute("SAVEPOINT job")
        try:
            result, error = job.work(), None
        except TavernError as refused:
            connection.execute("ROLLBACK TO job")
            result, error = None, refused
        connection.execute("RELEASE job")
        return result, error
