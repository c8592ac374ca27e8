"""Makes a backup of a project while hosts may work on it.

The databases are copied as they are at one moment, the same for all, so that a backup is what a kill at that moment
would have left. The operator's files are copied before, such as the anchor of the audit log, and those of the project
after, such as the contents of Blobs.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import tempfile
import time
import zipfile
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from pathlib import Path

from tavern_host import Folders, __version__, clock
from tavern_host.context import Project
from tavern_host.contracts.errors import Conflict, DeadlineExceeded, InvalidInput
from tavern_host.storage.confined_fs import is_text
from tavern_host.storage.damage import OPENING
from tavern_host.storage.files import TEMPORARY, locked
from tavern_host.storage.open_folder import open_private
from tavern_operations.archive import PROJECT, PROJECT_FILE, STATE, Contents, copy_in, write_list

BUSY_SECONDS = 30.0
"""How long others may keep the databases from being read at one moment."""

_ATTEMPT_SECONDS, _PAUSE = 1.0, 0.01
_SUFFIXES = (".sqlite3", ".sqlite", ".db")
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR)
"""What is tried again: the last two are what a database gives that is renamed while it is opened."""
_SIDES = ("-wal", "-shm", "-journal")
_PASSED_OVER = {f"{PROJECT}/.tavern/{name}" for name in ("cache", "log", "plugins/tavern-scripts/environments")} | {
    f"{STATE}/hosts",
    f"{STATE}/isolation",
    f"{STATE}/served",
}
"""What is rebuilt, the log, and what says which hosts run."""

Paths = dict[str, Path]
"""Files by their names in the ZIP."""


def make_backup(project: Project, folders: Folders, target: Path) -> Generator[Contents]:
    """Write a backup of a project into a new file, step by step; yield after each what is in it by then.

    Raises `InvalidInput`, `Conflict`, `OSError`, `DeadlineExceeded` where a database stays busy; then there is no file.
    """
    if not (project.root / PROJECT_FILE).is_file():
        raise InvalidInput(f"{project.root} is not a project: it has no {PROJECT_FILE}")
    if target.resolve().is_relative_to(project.root):
        raise InvalidInput(f"{target} is within the project: give a file in another folder")
    if folders.state.resolve().is_relative_to(project.root):
        raise InvalidInput(
            f"{folders.state} with your keys is within the project: set TAVERN_STATE_DIR to another folder"
        )
    if not target.parent.is_dir():
        raise InvalidInput(f"there is no folder {target.parent}")
    if os.path.lexists(target):
        raise Conflict(f"{target} is there already: give the name of a new file")
    contents = Contents(version=__version__, root=str(project.root), made_at=clock.now())
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=target.parent) as folder:
        new = Path(folder, "backup")
        with open(new, "xb", opener=open_private) as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                writer = _Writer(archive, contents, Path(folder, "copy"))
                for _ in writer.add_all(project.root, folders.project_state(project)):
                    yield contents
                write_list(archive, contents, folders.state)
            file.flush()
            os.fsync(file.fileno())
        target.hardlink_to(new)  # which fails where there is a file by now


class _Writer:
    """Copies files into a ZIP; `copy` is the path of a temporary file for databases."""

    def __init__(self, archive: zipfile.ZipFile, contents: Contents, copy: Path) -> None:
        self._archive = archive
        self._contents = contents
        self._copy = copy

    def add_all(self, root: Path, state: Path) -> Iterator[None]:
        """Add the files of a project and of the operator's folder for it."""
        yield from self._add_files(self._found(state, STATE)[0])
        yield from self._add_databases(lambda: {**self._found(state, STATE)[1], **self._found(root, PROJECT)[1]})
        self._contents.left_out.clear()
        for folder, name in ((state, STATE), (root, PROJECT)):
            yield from self._add_files(self._found(folder, name)[0])

    def _found(self, root: Path, prefix: str) -> tuple[Paths, Paths]:
        """Return the files below a folder that are to be added yet, and the databases; list folders and the rest."""
        files: Paths = {}
        databases: Paths = {}
        for parent, folders, names in os.walk(root, onerror=_refuse):
            inner = prefix / Path(parent).relative_to(root)
            folders[:] = sorted(name for name in folders if str(inner / name) not in _PASSED_OVER)
            for name in (*folders, *sorted(names)):
                path, key = Path(parent, name), str(inner / name)
                if not is_text(name):
                    raise InvalidInput(f"the name {os.fsencode(path)!r} is not UTF-8: rename the file")
                kind = stat.S_IFMT(path.lstat().st_mode) if os.path.lexists(path) else 0
                if kind == stat.S_IFDIR:
                    self._contents.folders[key] = stat.S_IMODE(path.stat().st_mode) & 0o777
                elif kind not in (0, stat.S_IFREG):
                    self._contents.left_out.append(key)
                elif kind and key not in self._contents.files and not _is_passing(path, key, names):
                    (databases if _is_database(name, names) else files)[key] = path
        return files, databases

    def _add_files(self, files: Paths) -> Iterator[None]:
        for name, path in files.items():
            with (
                contextlib.suppress(FileNotFoundError),  # it has gone meanwhile
                open(path, "rb", opener=open_private) as file,
            ):
                self._contents.files[name] = copy_in(self._archive, name, file)
            yield

    def _add_databases(self, find: Callable[[], Paths]) -> Iterator[None]:
        with _snapshots(find) as (databases, connections):
            for name, connection in connections.items():
                self._copy.unlink(missing_ok=True)
                self._copy.touch(mode=0o600)
                with contextlib.closing(sqlite3.connect(self._copy, isolation_level=None)) as copy:
                    connection.backup(copy)
                    copy.execute("PRAGMA journal_mode = DELETE")
                connection.execute("COMMIT")
                yield from self._add_files({name: self._copy})
        yield from self._add_files({name: path for name, path in databases.items() if name not in connections})


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _is_passing(path: Path, key: str, names: Collection[str]) -> bool:
    """Return whether a file is none to save: unfinished, of a database that is copied as a whole, or a lock's."""
    database = next((name for side in _SIDES if (name := path.name.removesuffix(side)) != path.name), "")
    if path.name.startswith(TEMPORARY) or (database in names and _is_database(database, names)):
        return True
    return path.suffix == ".lock" and key.startswith((f"{STATE}/", f"{PROJECT}/.tavern/")) and not path.stat().st_size


def _is_database(name: str, names: Collection[str]) -> bool:
    return name.endswith(_SUFFIXES) or f"{name}-wal" in names


@contextlib.contextmanager
def _snapshots(find: Callable[[], Paths]) -> Iterator[tuple[Paths, dict[str, sqlite3.Connection]]]:
    """Give the databases that `find` returns, and connections that see them as they are at one moment, when nobody is
    within a change of any; none for a file that is no database. Raises `DeadlineExceeded`."""
    deadline, problem = time.monotonic() + BUSY_SECONDS, ""  # this thread really waits for locks
    while time.monotonic() < deadline:
        databases = find()
        locks = {path.with_name(OPENING) for path in databases.values()}
        with contextlib.ExitStack() as readers:
            try:
                with contextlib.ExitStack() as writers:
                    for lock in sorted(lock for lock in locks if lock.exists()):  # nobody is within making one, either
                        writers.enter_context(locked(lock, _ATTEMPT_SECONDS))
                    names = [name for name, path in databases.items() if _hold(writers, path)]
                    found = {name: _connect(readers, databases[name]) for name in names}
                    for connection in found.values():
                        connection.execute("BEGIN")
                        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                    is_whole = _beside(databases.values()) <= {*databases.values()}
            except TimeoutError:
                continue
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in _BUSY:
                    raise
                problem = f" (at last: {error})"
                time.sleep(_PAUSE)
                continue
            if is_whole:  # no file was renamed, or made, before its writers were held
                yield databases, found
                return
    message = f"other processes did not release the databases for {BUSY_SECONDS:g} s{problem}; try again"
    raise DeadlineExceeded(message)


def _beside(paths: Iterable[Path]) -> set[Path]:
    beside = (each for folder in {path.parent for path in paths} for each in folder.iterdir())
    return {each for each in beside if each.suffix in _SUFFIXES and each.is_file() and not each.is_symlink()}


def _hold(stack: contextlib.ExitStack, path: Path) -> bool:
    """Keep others from changing a database; return whether it is one."""
    try:
        _connect(stack, path).execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            raise
        return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY  # then nobody changes it
    except sqlite3.DatabaseError:
        return False
    return True


def _connect(stack: contextlib.ExitStack, path: Path) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=_ATTEMPT_SECONDS, isolation_level=None)
    stack.callback(connection.close)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection
