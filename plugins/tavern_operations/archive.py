"""What is in the file of a backup: a ZIP with the files of a project and of the operator's folder for it, and a list of
them that is sealed with a key of the operator's. Which files belong there is decided elsewhere."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import math
import os
import secrets
import stat
import zipfile
import zlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from pydantic import Field

from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.wire import Model
from tavern_host.storage.files import make_folder, unfinished

FORMAT = 1
PROJECT, STATE = "project", "state"
"""The folders in the ZIP: what is in the project, and what the operator's folder has for it."""
PROJECT_FILE = "tavern.yaml"
KEY_FILE = "backup.key"

_CHUNK = 2**20
_LIST, _SEAL = "backup.json", "backup.seal"
_MAX_LIST = 2**28


class SavedFile(Model):
    """One file: its bytes, their SHA-256 in hex, its permissions and when it was changed, in nanoseconds since 1970."""

    size: int = Field(ge=0)
    sha256: str
    mode: int = Field(default=0o600, ge=0, le=0o777)
    changed: int = 0


class Contents(Model):
    """The list: `root` is where the project was, folders (with their permissions) and files have their names in the
    ZIP. `left_out` names links, and what is neither file nor folder."""

    format: int = FORMAT
    version: str
    root: str
    made_at: datetime
    folders: dict[str, int] = Field(default_factory=dict)
    files: dict[str, SavedFile] = Field(default_factory=dict)
    left_out: list[str] = Field(default_factory=list)


def write_list(archive: zipfile.ZipFile, contents: Contents, keys: Path) -> None:
    """Write the list and its seal, with the key in a folder. Raises `OSError` where there can be none."""
    data = contents.model_dump_json(by_alias=True).encode()
    archive.writestr(_LIST, data)
    archive.writestr(_SEAL, _seal(keys, data))


def _seal(keys: Path, data: bytes) -> str:
    path = keys / KEY_FILE
    if not path.exists():
        make_folder(keys)
        with unfinished(keys, secrets.token_bytes(32), 0o600) as new, contextlib.suppress(FileExistsError):
            path.hardlink_to(new)
    return hmac.new(path.read_bytes(), data, "sha256").hexdigest()


@contextlib.contextmanager
def opened(file: Path) -> Iterator[zipfile.ZipFile]:
    """Open a backup within the block. Raises `InvalidInput` for what is none, and where the block finds it damaged."""
    if not file.is_file():
        raise InvalidInput(f"there is no file {file}")
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError) as error:
        raise InvalidInput(f"{file} is no backup, or damaged: {error}") from None


def read_list(archive: zipfile.ZipFile, keys: Path, *, trust: bool) -> Contents:
    """Return the list, once it is certain that the ZIP holds nothing else, and that this operator has sealed it, unless
    one says with `trust` that another may have. Raises `InvalidInput`."""
    with archive.open(_LIST) as entry:
        data = entry.read(_MAX_LIST)
    with archive.open(_SEAL) as entry:
        is_own = hmac.compare_digest(_seal(keys, data).encode(), entry.read(100))
    try:
        if (found := json.loads(data))["format"] > FORMAT:
            why = f"it was made by the newer version {found.get('version')} of the program"
            raise _bad(archive, f"{why}: restore it with that")
        contents = Contents.model_validate(found)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise _bad(archive, "its list of files is damaged") from None
    if not (is_own or trust):
        why = f"nothing shows that it was made with the key in {keys / KEY_FILE}, and it may grant rights to plugins"
        raise _bad(archive, f"{why}; if you know where it is from, say so with --trust")
    _check_names(archive, contents)
    return contents


def _check_names(archive: zipfile.ZipFile, contents: Contents) -> None:
    """Raise `InvalidInput` for a name that leads elsewhere, a link, and what is twice there or only on one side."""
    entries = archive.infolist()
    names = sorted(entry.filename for entry in entries)
    for name in {*contents.folders, *contents.files, *names} - {_LIST, _SEAL}:
        root, *parts = PurePosixPath(name).parts
        is_plain = "/".join((root, *parts)) == name and ".." not in parts and not {"\\", "\0"} & set(name)
        if not parts or root not in (PROJECT, STATE) or not is_plain:
            raise _bad(archive, f"the name {name!r} leads out of it")
    if any(stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG) for entry in entries):
        raise _bad(archive, "it holds links, or what is no file")
    if names != sorted((*contents.files, _LIST, _SEAL)) or f"{PROJECT}/{PROJECT_FILE}" not in names:
        raise _bad(archive, "what is in it is not what its list says")


def _bad(archive: zipfile.ZipFile, why: str) -> InvalidInput:
    return InvalidInput(f"{archive.filename}: {why}")


def copy_in(archive: zipfile.ZipFile, name: str, source: BinaryIO) -> SavedFile:
    """Add an open file, and return what the list says of it."""
    entry, about = zipfile.ZipInfo(name), os.fstat(source.fileno())
    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (stat.S_IFREG | 0o600) << 16
    with archive.open(entry, "w", force_zip64=True) as target:
        size, sha256 = _copied(source, target)
    mode = stat.S_IMODE(about.st_mode) & 0o777
    return SavedFile(size=size, sha256=sha256, mode=mode, changed=about.st_mtime_ns)


def copy_out(archive: zipfile.ZipFile, name: str, about: SavedFile, target: BinaryIO) -> None:
    """Read a file into another one. Raises `InvalidInput` where it is not as it was saved."""
    with archive.open(name) as source:
        if _copied(source, target, about.size) != (about.size, about.sha256):
            raise _bad(archive, f"{name} is not as it was saved")


def _copied(source: IO[bytes], target: IO[bytes], most: float = math.inf) -> tuple[int, str]:
    """Copy a file, and little more than `most` bytes of it; return its size and its SHA-256."""
    digest, size = hashlib.sha256(), 0
    while size <= most and (chunk := source.read(_CHUNK)):
        digest.update(chunk)
        size += len(chunk)
        target.write(chunk)
    return size, digest.hexdigest()
