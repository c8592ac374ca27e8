"""Copies files of the project to where a script may read them, and files that a script left into the project.

No link is followed on either side. All functions wait for the disk.
"""

from __future__ import annotations

import contextlib
import mimetypes
import os
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tavern_host.common.system import open_flags
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_scripts.api.scripts import ScriptFile

FOLDER = "scripts"
"""Where in the project's files folder files of scripts are put, each run's in a folder of its own."""

MAX_INPUT_FILES = 100
"""How many files of the project one run may read."""

_MAX_DEPTH = 16
_MAX_NAME = 200
_PIECE = 1 << 20
_FOLDER = open_flags("O_RDONLY", "O_DIRECTORY", "O_NOFOLLOW")
_READ = open_flags("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY")
_NEW = open_flags("O_WRONLY", "O_CREAT", "O_EXCL", "O_NOFOLLOW")


@dataclass(frozen=True)
class CopiedFiles:
    """The files that were taken over from a script, and what was not, each with the reason."""

    files: tuple[ScriptFile, ...] = ()
    notes: tuple[str, ...] = ()


def copy_in(root: Path, paths: Sequence[str], target: Path, *, most: int) -> list[str]:
    """Copy files of the project into `target`, under the same paths, `most` bytes in all; return the paths.

    Raises `InvalidInput`, `NotFound`.
    """
    if len(paths) > MAX_INPUT_FILES:
        raise InvalidInput(f"a script may read at most {MAX_INPUT_FILES} files, {len(paths)} were named")
    target.mkdir(mode=0o755)
    target.chmod(0o755)
    found = []
    for path in dict.fromkeys(_steps(path) for path in paths):
        name = "/".join(path)
        with _opened(root, path, name) as (handle, size):
            most -= size
            if most < 0:
                raise InvalidInput(f"the files for a script are too large: there is no room left for {name!r:.200}")
            copy = target.joinpath(*path)
            for folder in reversed(copy.relative_to(target).parents[:-1]):
                (target / folder).mkdir(mode=0o755, exist_ok=True)
                (target / folder).chmod(0o755)
            try:
                with os.fdopen(os.open(copy, _NEW, 0o644), "wb") as written:
                    _copy(handle, written.fileno(), size)
                    os.fchmod(written.fileno(), 0o644)
            except OSError as error:
                raise InvalidInput(f"{name!r:.200} cannot be handed over: {error.strerror}") from None
        found.append(name)
    return found


def copy_out(source: Path, root: Path, run: str, *, most_files: int, most_bytes: int) -> CopiedFiles:
    """Copy what a script left in `source` into the folder `scripts/{run}` of the project's files.

    Nothing is made there where nothing was left.
    """
    files: list[ScriptFile] = []
    notes: list[str] = []
    for steps, file in _left(source, notes):
        path = "/".join(steps)
        if len(files) >= most_files:
            notes.append(f"{path!r} and what comes after it is not kept: more than {most_files} files")
            break
        try:
            size = _take_over(file, root, (FOLDER, run, *steps), most_bytes)
        except OSError as error:
            notes.append(f"{path!r} is not kept: {error.strerror}")
            continue
        most_bytes -= size
        kind = mimetypes.guess_type(steps[-1], strict=False)[0]
        files.append(ScriptFile(path=f"{FOLDER}/{run}/{path}", size=size, mime_type=kind))
    return CopiedFiles(tuple(files), tuple(notes))


def _steps(path: str) -> tuple[str, ...]:
    steps = tuple(step for step in path.strip().split("/") if step not in ("", "."))
    if not steps or ".." in steps or len(steps) > _MAX_DEPTH or any(_problem(step) for step in steps):
        raise InvalidInput(f"{path!r:.200} is no path of a file in the project's files folder")
    return steps


def _problem(name: str) -> str | None:
    if any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in name) or "\\" in name:
        return "its name has characters that cannot be seen"
    if len(name.encode("utf-8", "replace")) > _MAX_NAME:
        return f"its name has more than {_MAX_NAME} bytes"
    return None


@contextlib.contextmanager
def _opened(root: Path, steps: tuple[str, ...], name: str) -> Iterator[tuple[int, int]]:
    """Give the descriptor and the size of a regular file below a folder."""
    with contextlib.ExitStack() as closing:
        try:
            folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            closing.callback(os.close, folder)
            for step in steps[:-1]:
                folder = os.open(step, _FOLDER, dir_fd=folder)
                closing.callback(os.close, folder)
            handle = os.open(steps[-1], _READ, dir_fd=folder)
            closing.callback(os.close, handle)
        except FileNotFoundError:
            raise NotFound(f"{name!r:.200} is not in the project's files folder") from None
        except OSError as error:
            raise InvalidInput(f"{name!r:.200} cannot be read: {error.strerror}; links are not followed") from None
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise InvalidInput(f"{name!r:.200} is not a file")
        yield handle, about.st_size


def _left(folder: Path, notes: list[str], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yield the regular files of a folder by path."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        notes.append(f"{'/'.join(above)!r} cannot be read: {error.strerror}")
        return
    for entry in entries:
        steps = (*above, entry.name)
        problem = _problem(entry.name) or ("it is too deep" if len(steps) > _MAX_DEPTH else None)
        if problem is not None:
            notes.append(f"{'/'.join(steps)!r:.200} is not kept: {problem}")
        elif entry.is_dir(follow_symlinks=False):
            yield from _left(Path(entry.path), notes, steps)
        elif entry.is_file(follow_symlinks=False):
            yield steps, Path(entry.path)


def _take_over(file: Path, root: Path, steps: tuple[str, ...], most: int) -> int:
    """Copy one file; return its size. Raises `OSError`."""
    with contextlib.ExitStack() as closing:
        source = os.open(file, _READ)
        closing.callback(os.close, source)
        about = os.fstat(source)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
            raise OSError(0, "it is no file of its own")
        if about.st_size > most:
            raise OSError(0, "there is no room left for it")
        root.mkdir(exist_ok=True)
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        closing.callback(os.close, folder)
        for step in steps[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(step, 0o755, dir_fd=folder)
            folder = os.open(step, _FOLDER, dir_fd=folder)
            closing.callback(os.close, folder)
        target = os.open(steps[-1], _NEW, 0o644, dir_fd=folder)
        closing.callback(os.close, target)
        try:
            _copy(source, target, about.st_size)
        except BaseException:
            os.unlink(steps[-1], dir_fd=folder)
            raise
        return about.st_size


def _copy(source: int, target: int, size: int) -> None:
    """Copy at most so many bytes: a file that grows meanwhile does not count for more than it was."""
    while size > 0 and (data := os.read(source, min(_PIECE, size))):
        size -= len(data)
        while data:
            data = data[os.write(target, data) :]
