"""Places that a program may write to: filled before it begins and copied out after it has ended, from and to folders of
the host. Only folders and regular files with one name are copied; nothing is written outside of the folder named."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tavern_host.common.system import open_flags
from tavern_scripts.api.scripts import SandboxMount

MAX_ENTRIES = 10_000
"""How many files and folders are copied in or out of one place."""

_MAX_DEPTH = 64
_CHUNK = 1 << 20
_STEP = open_flags("O_PATH", "O_DIRECTORY", "O_NOFOLLOW")
_FOLDER = open_flags("O_RDONLY", "O_DIRECTORY", "O_NOFOLLOW")
_NAMED = 20
"""How many of the files that were left out are named."""

Stamp = tuple[int, int, int, int]


class StagingError(Exception):
    """A place could not be made or filled; the message says why."""


@dataclass
class Stage:
    """A place inside (`inside`: an open folder in it) and the folder of the host that is mounted there (`outside`)."""

    mount: SandboxMount
    inside: int
    outside: int
    limit: int
    """How many bytes are copied in or out."""
    stamps: dict[str, Stamp] = field(default_factory=dict)
    """What the files were that were filled in, so that they are not written back where nothing changed."""

    def close(self) -> None:
        """Give up the descriptors."""
        for number in (self.inside, self.outside):
            with contextlib.suppress(OSError):
                os.close(number)


def open_stage(mount: SandboxMount, root: str, limit: int) -> Stage:
    """Open a staged mount of a sandbox whose root folder is `root`, and its folder on the host.

    Raises `StagingError` where either is not the folder that it should be, or is reached through a symbolic link.
    """
    return _stage(mount, _open_inside(root, mount.target), limit)


def open_plain_stage(mount: SandboxMount, folder: str, limit: int) -> Stage:
    """As `open_stage`, where the place is a folder of the host that was made for it."""
    return _stage(mount, os.open(folder, _FOLDER), limit)


def _stage(mount: SandboxMount, inside: int, limit: int) -> Stage:
    try:
        return Stage(mount, inside, _open_outside(mount.source), limit)
    except BaseException:
        os.close(inside)
        raise


def fill(stage: Stage) -> None:
    """Copy what is in the folder of the host into the place. Raises `StagingError` where it is too much."""
    budget = _Budget(stage.limit)
    try:
        for path, entry, source, target in _walk(stage.outside, stage.inside, budget, for_all=True):
            if not budget.take(entry.st_size):
                raise StagingError(
                    f"{stage.mount.source} holds more than the {stage.limit} bytes that the sandbox has for it"
                )
            _copy(source, target, PurePosixPath(path).name, entry, replace=False, mode=0o666)
            stage.stamps[path] = _stamp(os.stat(PurePosixPath(path).name, dir_fd=target, follow_symlinks=False))
    except OSError as error:
        raise StagingError(f"{stage.mount.source} could not be copied into the sandbox: {error.strerror}") from None
    if budget.left_out:
        raise StagingError(f"{stage.mount.source} could not be copied into the sandbox: {budget.said()}")


def copy_out(stage: Stage) -> str:
    """Copy the regular files that were written to the folder of the host, and remove there what was filled in and is
    gone; return what was left out and why, or ''."""
    budget, left = _Budget(stage.limit), set(stage.stamps)
    for path, entry, source, target in _walk(stage.inside, stage.outside, budget):
        left.discard(path)
        if stage.stamps.get(path) == _stamp(entry):
            continue
        if not budget.take(entry.st_size):
            budget.leave(path, "there is more than fits")
            continue
        try:
            _copy(source, target, PurePosixPath(path).name, entry, replace=True, mode=0o644)
        except OSError as error:
            budget.leave(path, error.strerror or str(error))
    for path in left if budget.entries >= 0 else ():
        _remove(stage.outside, path)
    said = budget.said()
    return f"not copied to {stage.mount.source}: {said}" if said else ""


def _remove(folder: int, path: str) -> None:
    """Remove what was filled in and is no more; nothing where it is gone already or became something else."""
    here = os.dup(folder)
    try:
        *folders, name = path.split("/")
        for step in folders:
            inner = os.open(step, _FOLDER, dir_fd=here)
            os.close(here)
            here = inner
        os.unlink(name, dir_fd=here)
    except OSError:
        return
    finally:
        os.close(here)


@dataclass
class _Budget:
    """How much may still be copied, and what was left out."""

    bytes: int
    entries: int = MAX_ENTRIES
    left_out: list[str] = field(default_factory=list)
    more: int = 0

    def take(self, size: int) -> bool:
        if size > self.bytes:
            return False
        self.bytes -= size
        return True

    def leave(self, path: str, why: str) -> None:
        if len(self.left_out) < _NAMED:
            self.left_out.append(f"{path!r} ({why})")
        else:
            self.more += 1

    def said(self) -> str:
        more = [f"{self.more} more"] if self.more else []
        return ", ".join([*self.left_out, *more])


def _walk(
    source: int, target: int, budget: _Budget, *, for_all: bool = False
) -> Iterator[tuple[str, os.stat_result, int, int]]:
    """Yield the regular files below `source` with their relative paths, and the open folders that they are in and go
    to; folders are made on the way. Nothing is followed."""
    waiting: list[tuple[str, int, int]] = [("", os.dup(source), os.dup(target))]
    try:
        while waiting:
            prefix, here, there = waiting.pop()
            try:
                for name in sorted(os.listdir(here)):
                    path = f"{prefix}{name}"
                    budget.entries -= 1
                    if budget.entries < 0:
                        budget.leave(path, f"there are more than {MAX_ENTRIES} files and folders")
                        return
                    try:
                        entry = os.stat(name, dir_fd=here, follow_symlinks=False)
                        if stat.S_ISDIR(entry.st_mode):
                            if path.count("/") >= _MAX_DEPTH:
                                budget.leave(path, f"it is more than {_MAX_DEPTH} folders deep")
                            else:
                                waiting.append((f"{path}/", *_descend(name, here, there, 0o777 if for_all else 0o755)))
                        elif not stat.S_ISREG(entry.st_mode):
                            budget.leave(path, "it is neither a file nor a folder")
                        elif entry.st_nlink != 1:
                            budget.leave(path, "the file has several names")
                        else:
                            yield path, entry, here, there
                    except OSError as error:
                        budget.leave(path, error.strerror or str(error))
            finally:
                os.close(here)
                os.close(there)
    finally:
        for _, here, there in waiting:
            os.close(here)
            os.close(there)


def _descend(name: str, here: int, there: int, mode: int) -> tuple[int, int]:
    inner = os.open(name, _FOLDER, dir_fd=here)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=there)
            _give(os.open(name, _FOLDER, dir_fd=there), there, mode)
        return inner, os.open(name, _FOLDER, dir_fd=there)
    except BaseException:
        os.close(inner)
        raise


def _give(number: int, folder: int, mode: int) -> None:
    """Give a new file or folder to whom the folder that it is in belongs, and close it."""
    try:
        os.fchmod(number, mode)
        if os.geteuid() == 0:
            owner = os.fstat(folder)
            os.fchown(number, owner.st_uid, owner.st_gid)
    finally:
        os.close(number)


def _copy(source: int, target: int, name: str, entry: os.stat_result, *, replace: bool, mode: int) -> None:
    """Copy one regular file by its name from one open folder to another; what had the name there is replaced whole."""
    reading = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source)
    try:
        opened = os.fstat(reading)
        if not stat.S_ISREG(opened.st_mode) or opened.st_nlink != 1 or opened.st_ino != entry.st_ino:
            raise OSError(0, "it changed while it was copied")
        temporary = f".tavern-{secrets.token_hex(8)}" if replace else name
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        writing = os.open(temporary, flags, 0o600, dir_fd=target)
        try:
            left = entry.st_size
            while left > 0 and (data := os.read(reading, min(_CHUNK, left))):
                left -= len(data)
                while data:
                    data = data[os.write(writing, data) :]
            _give(os.dup(writing), target, mode)
            if replace:
                os.replace(temporary, name, src_dir_fd=target, dst_dir_fd=target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=target)
            raise
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _stamp(entry: os.stat_result) -> Stamp:
    return entry.st_ino, entry.st_size, entry.st_mtime_ns, entry.st_ctime_ns


def _open_inside(root: str, target: str) -> int:
    """Open a folder of a sandbox, in which no symbolic link leads to a folder of the host."""
    try:
        above = _step_by_step(
            os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), PurePosixPath(target).parts[1:-1]
        )
        try:
            folder = os.open(os.path.basename(target), _FOLDER, dir_fd=above)
            is_its_own = os.fstat(folder).st_dev != os.fstat(above).st_dev
        finally:
            os.close(above)
    except OSError as error:
        raise StagingError(f"{target} cannot be written to in the sandbox: {error.strerror}") from None
    if not is_its_own:
        os.close(folder)
        raise StagingError(f"{target} is no place of its own in the sandbox")
    return folder


def _open_outside(source: str) -> int:
    """Open the folder of the host; its parents were resolved when it was allowed, and it is no symbolic link itself."""
    if not os.path.isabs(source):
        raise StagingError(f"files are copied to an absolute path only, not to {source!r}")
    try:
        parents = PurePosixPath(os.path.realpath(os.path.dirname(source))).parts[1:]
        above = _step_by_step(os.open("/", _STEP), parents)
        try:
            return os.open(os.path.basename(source), _FOLDER, dir_fd=above)
        finally:
            os.close(above)
    except OSError as error:
        raise StagingError(f"files cannot be copied to {source}: {error.strerror}") from None


def _step_by_step(folder: int, names: Sequence[str]) -> int:
    """Go down from an open folder, which is closed, name by name and through no symbolic link."""
    for name in names:
        try:
            inner = os.open(name, _STEP, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder
