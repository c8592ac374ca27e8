"""Files that are handed over with their folder, as that or as a ZIP archive: the file by which a folder is known, and
those beside it. Bounded; links are not followed, and what begins with a dot is left out."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from tavern_host.contracts.documents import read_document_bytes
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_importers.api.importers import MAX_BESIDE, MAX_FILE, ForeignFile
from tavern_knowledge.api.containers import CARD

_ZIP = b"PK\x03\x04"
_LEFT_OUT = frozenset({"node_modules", "__pycache__", "venv"})
_SHOWN = 5
_LONGEST, _DEEPEST = 1_000, 50


def from_path(path: Path, entries: Sequence[str]) -> ForeignFile:
    """Return the file at a path; of a folder the one that has a name of `entries`, with those beside it. Blocking.
    Raises `NotFound` and `InvalidInput`."""
    if path.is_dir():
        return _with_folder(path.name, _files_in(path), entries)
    content = read_document_bytes(path)
    if path.name in entries:
        beside = dict(_bounded(path.parent, _files_in(path.parent)))
        beside.pop(path.name, None)
        return ForeignFile(name=path.name, content=content, beside=beside)
    return ForeignFile(name=path.name[-300:], content=content)


def unpacked(file: ForeignFile, entries: Sequence[str]) -> ForeignFile:
    """Return a folder's content for that of a ZIP archive; that of a character, and any other file, as it is. Raises
    `InvalidInput`."""
    if not file.content.startswith(_ZIP):
        return file
    try:
        with zipfile.ZipFile(io.BytesIO(file.content)) as archive:
            names = {*archive.namelist()}
            if CARD in names and names.isdisjoint(entries):
                return file
            return _with_folder(file.name, _files_of(archive, file.name), entries)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError, ValueError) as error:
        raise InvalidInput(f"{file.name} is no ZIP archive that can be read: {error}") from None


def _with_folder(name: str, files: Iterator[tuple[str, bytes]], entries: Sequence[str]) -> ForeignFile:
    found = dict(_bounded(name, files))
    known = [path for path in found if PurePosixPath(path).name in entries]
    if not known:
        shown = ", ".join(sorted(found)[:_SHOWN]) or "no files"
        wanted = " or ".join(sorted(set(entries)))
        raise InvalidInput(f"{name} holds no {wanted}, by which a folder is known; it holds {shown}")
    first = min(known, key=lambda path: (path.count("/"), path))
    others = [path for path in known if path != first and path.count("/") == first.count("/")]
    if others:
        raise InvalidInput(f"{name} holds {first} and {others[0]}: import one folder at a time")
    root = first.rpartition("/")[0]
    inner = f"{root}/" if root else ""
    beside = {path[len(inner) :]: data for path, data in found.items() if path.startswith(inner) and path != first}
    return ForeignFile(name=PurePosixPath(first).name, content=found[first], beside=beside)


def _bounded(name: object, files: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    size = 0
    for count, (path, data) in enumerate(files):
        size += len(data)
        if count > MAX_BESIDE or size > MAX_FILE:
            raise InvalidInput(f"{name} holds more than {MAX_BESIDE} files or {MAX_FILE >> 20} MiB; import its part")
        yield path, data


def is_left_out(path: str) -> bool:
    """Return whether a file, or a folder, is none to hand over: it is hidden, or made of the others."""
    parts = path.split("/")
    return any(part.startswith(".") or part in _LEFT_OUT for part in parts)


def paths_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files in a folder by their paths, but links and what is left out. Blocking. Raises `NotFound`."""
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}")
    for inside, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not is_left_out(one))
        for name in sorted(names):
            path = Path(inside, name)
            if not is_left_out(name) and path.is_file() and not path.is_symlink():
                yield path.relative_to(folder).as_posix(), path


def _files_in(folder: Path) -> Iterator[tuple[str, bytes]]:
    return ((path, read_document_bytes(file)) for path, file in paths_in(folder))


def is_inside(path: str) -> bool:
    """Return whether the path of a file leads out of no folder, can be shown, and is one that file systems have."""
    steps = path.split("/") if len(path) <= _LONGEST and path.isprintable() and "\\" not in path else [""]
    return not {"", ".", ".."} & {*steps} and len(steps) <= _DEEPEST and all(len(one.encode()) < 256 for one in steps)


def _files_of(archive: zipfile.ZipFile, name: str) -> Iterator[tuple[str, bytes]]:
    left = MAX_FILE
    for entry in archive.infolist():
        path = entry.filename
        is_link = (entry.external_attr >> 16) & 0o170000 == 0o120000
        if entry.is_dir() or is_link:
            continue
        if not is_inside(path):
            raise InvalidInput(f"{name} holds the path {path!r:.200}, which leads out of it or is none")
        if is_left_out(path):
            continue
        with archive.open(entry) as opened:
            data = opened.read(left + 1)
        left -= len(data)
        if left < 0:
            raise InvalidInput(f"{name} holds more than {MAX_FILE >> 20} MiB")
        yield path, data
