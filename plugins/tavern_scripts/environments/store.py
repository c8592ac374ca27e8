"""Where environments are kept: one read-only folder for each key, moved into place whole, made by one process at a
time, checked before it is used and taken away when nobody has used it for long."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from tavern_host import clock
from tavern_host.common import system
from tavern_scripts.api.piped_program import to_the_end

_RECORD = "record.json"
_CONTENT = "content"
_BUILDING = ".building-"
_KEY = re.compile(r"[0-9a-f]{40}")
_USED_EVERY = 60.0
"""How many seconds may lie between two notes that an environment was used."""


class Store:
    """The environments below one folder."""

    def __init__(self, folder: Path) -> None:
        """Take the folder, which is made when something is stored."""
        self._folder = folder
        self._checked: dict[str, tuple[int, ...]] = {}
        self._noted: dict[str, float] = {}

    def find(self, key: str) -> Path | None:
        """Return the content of an environment that is as it was built, or None. Blocking; the first time in a process
        every file of it is looked at."""
        content = self._folder / key / _CONTENT
        try:
            stamp = _stamp(content, self._folder / key / _RECORD)
        except OSError:
            return None
        if self._checked.get(key) != stamp:
            if not self._is_whole(key, content):
                return None
            self._checked[key] = stamp
        self._note(key)
        return content

    @contextlib.asynccontextmanager
    async def building(self, key: str, wait: Callable[[], None]) -> AsyncIterator[Path | None]:
        """Give a new folder to build in, or None where another process has built it meanwhile. `wait` is called if
        another one is building. What an interrupted build left there is removed."""
        await asyncio.to_thread(_private, self._folder)
        async with _locked(self._lock(key), wait):
            if await asyncio.to_thread(self.find, key) is not None:
                yield None
                return
            await to_the_end(asyncio.to_thread(self._clear, key))
            folder = self._folder / f"{_BUILDING}{key}-{secrets.token_hex(4)}"
            folder.mkdir(mode=0o700)
            try:
                yield folder
            finally:
                await to_the_end(asyncio.to_thread(remove, folder))

    def keep(self, key: str, folder: Path, about: dict[str, object]) -> None:
        """Put what was built in `folder` / content in its place, read-only. Blocking; only within `building`."""
        _close(folder / _CONTENT)
        record = {**about, "digest": _digest(folder / _CONTENT)}
        (folder / _RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
        (folder / _RECORD).chmod(0o444)
        folder.chmod(0o755)
        for path in (folder / _RECORD, folder):
            _sync(path)
        folder.rename(self._folder / key)
        _sync(self._folder)

    def prune(self, older_than: float) -> list[str]:
        """Remove what nobody has used for so many seconds, and what is left of builds that broke off; return the keys.
        What is being built is left alone. Blocking."""
        removed: list[str] = []
        if not self._folder.is_dir():
            return removed
        names = {entry.name for entry in self._folder.iterdir()}
        for key in sorted({match[0] for name in names if (match := _KEY.search(name))}):
            lock = self._lock(key)
            with _try_lock(lock) as number:
                if number is None:
                    continue
                for name in names:
                    if name.startswith(f"{_BUILDING}{key}"):
                        remove(self._folder / name)
                if clock.file_seconds() - os.fstat(number).st_mtime >= older_than and not self._is_held(key):
                    removed += [key] if key in names else []
                    self._forget(key)
                    lock.unlink(missing_ok=True)
                    self._holders(key).unlink(missing_ok=True)
        return removed

    @contextlib.contextmanager
    def held(self, key: str) -> Iterator[None]:
        """Keep an environment from being removed by any process as long as the block runs."""
        number = os.open(self._holders(key), system.open_flags("O_RDWR", "O_CREAT", "O_NOFOLLOW"), 0o600)
        try:
            system.lock(number, wait=True, shared=True)
            yield
        finally:
            os.close(number)

    def _is_held(self, key: str) -> bool:
        if not self._holders(key).exists():
            return False
        with _try_lock(self._holders(key)) as number:
            return number is None

    def _holders(self, key: str) -> Path:
        return self._folder / f"{key}.held"

    def _lock(self, key: str) -> Path:
        return self._folder / f"{key}.lock"

    def _note(self, key: str) -> None:
        """Note that an environment is used, by the time of its lock."""
        now = clock.monotonic()
        if now - self._noted.get(key, -_USED_EVERY) >= _USED_EVERY:
            self._noted[key] = now
            with contextlib.suppress(OSError):
                self._lock(key).touch(mode=0o600)

    def _is_whole(self, key: str, content: Path) -> bool:
        try:
            record = json.loads((self._folder / key / _RECORD).read_text(encoding="utf-8"))
            return isinstance(record, dict) and record.get("digest") == _digest(content)
        except (OSError, ValueError):
            return False

    def _clear(self, key: str) -> None:
        """Remove what cannot be used under this key."""
        for entry in self._folder.glob(f"{_BUILDING}{key}-*"):
            remove(entry)
        self._forget(key)

    def _forget(self, key: str) -> None:
        self._checked.pop(key, None)
        self._noted.pop(key, None)
        doomed = self._folder / f"{_BUILDING}{key}-{secrets.token_hex(4)}"
        with contextlib.suppress(FileNotFoundError):
            (self._folder / key).rename(doomed)
            remove(doomed)


def content_of(folder: Path) -> Path:
    """Return where the content goes of what is built in `folder`."""
    return folder / _CONTENT


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it, read-only as it may be; a link is not followed."""
    if folder.is_dir() and not folder.is_symlink():
        for here, folders, _ in os.walk(folder):
            with contextlib.suppress(OSError):
                Path(here).chmod(0o700)
            folders[:] = [name for name in folders if not Path(here, name).is_symlink()]
        shutil.rmtree(folder, ignore_errors=True)


def _close(content: Path) -> None:
    """Take the right to write from everything, and give everybody the right to read."""
    for path, entry in _walk(content):
        if stat.S_ISDIR(entry.st_mode):
            Path(path).chmod(0o555)
        elif stat.S_ISREG(entry.st_mode):
            Path(path).chmod(0o555 if entry.st_mode & stat.S_IXUSR else 0o444)


def _digest(content: Path) -> str:
    """Return a hash over all files: any change of one changes its inode's time, which nobody can set."""
    found = []
    for path, entry in _walk(content):
        name = os.path.relpath(path, content)
        facts: tuple[object, ...] = (name, stat.filemode(entry.st_mode))
        if not stat.S_ISDIR(entry.st_mode):
            facts += (entry.st_size, entry.st_ino, entry.st_nlink, entry.st_mtime_ns, entry.st_ctime_ns)
        found.append(facts)
    return hashlib.sha256(repr(sorted(found)).encode("utf-8", "surrogateescape")).hexdigest()


def _walk(content: Path) -> Iterator[tuple[str, os.stat_result]]:
    waiting = [str(content)]
    yield str(content), os.lstat(content)
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                yield entry.path, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def _stamp(*paths: Path) -> tuple[int, ...]:
    entries = [path.lstat() for path in paths]
    return tuple(number for entry in entries for number in (entry.st_ino, entry.st_mtime_ns, entry.st_ctime_ns))


def _private(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(number)


@contextlib.asynccontextmanager
async def _locked(path: Path, wait: Callable[[], None]) -> AsyncIterator[None]:
    """Hold a lock that other tasks and processes respect; it ends with the process."""
    pause, logged = 0.02, False
    while True:
        with _try_lock(path) as number:
            if number is not None:
                yield
                return
        if not logged:
            logged = True
            wait()
        await asyncio.sleep(pause)
        pause = min(0.25, pause * 1.5)


@contextlib.contextmanager
def _try_lock(path: Path) -> Iterator[int | None]:
    """Give the descriptor of a lock if nobody else holds it."""
    number = os.open(path, system.open_flags("O_RDWR", "O_CREAT", "O_NOFOLLOW"), 0o600)
    try:
        try:
            system.lock(number, wait=False)
            held: int | None = number
            if path.stat().st_ino != os.fstat(number).st_ino:  # it was removed while we took it
                held = None
        except OSError:
            held = None
        yield held
    finally:
        os.close(number)
