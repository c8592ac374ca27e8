"""Finds what a script depends on: the block in it, or the manifest and lock beside it. Reads files only."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cachetools import LRUCache

from tavern_scripts.api.scripts import ScriptLanguage
from tavern_scripts.environments.packages import Packages, read_package
from tavern_scripts.environments.refusals import refuse
from tavern_scripts.environments.requirements import (
    Requirements,
    check_lock,
    read_block,
    read_pyproject,
    read_requirements,
)

MAX_MANIFEST = 512 << 10
MAX_LOCK = 16 << 20

_REMEMBERED = 64

T = TypeVar("T")


@dataclass(frozen=True)
class PythonManifest:
    """What a Python script depends on. `lock` is uv's, which was made from it.

    Whatever is installed also fits the `constraints`; `without` are normalised names of what is left out of the lock.
    """

    source: str
    requirements: Requirements
    lock: str | None = None
    constraints: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class NodeManifest:
    """What a JavaScript script depends on. `lock` is npm's, not checked yet: that needs to know the registries."""

    source: str
    packages: Packages
    lock: str | None = None
    lock_source: str = ""


Manifest = PythonManifest | NodeManifest


class Manifests:
    """Reads manifests, each again only when its file has changed."""

    def __init__(self, *, build_scripts: bool = False) -> None:
        """Take whether packages may run something while they are installed."""
        self._build_scripts = build_scripts
        self._known: LRUCache[tuple[str, str], tuple[tuple[int, ...], str]] = LRUCache(_REMEMBERED)
        self._read: LRUCache[tuple[str, ...], Manifest | None] = LRUCache(_REMEMBERED)

    def find(self, language: ScriptLanguage, folder: Path | None, code: str | None, name: str = "") -> Manifest | None:
        """Return the manifest of a script's dependencies, or None where it has none. Blocking.

        `folder` is where it lies, None for code that was handed over; `code` is its text, `name` its name. Raises
        `Refused`, a DependencyError that names the line, for a manifest that asks for what is not allowed.
        """
        if language == "python":
            return self._python(folder, code, name or "the script")
        return self._node(folder)

    def _python(self, folder: Path | None, code: str | None, name: str) -> Manifest | None:
        block = read_block(code, name) if code is not None else None
        if block is not None:
            lock = self._text(folder / f"{name}.lock", MAX_LOCK) if folder is not None else None
            return _python_manifest(name, block, lock, f"{name}.lock")
        if folder is None:
            return None
        text = self._text(folder / "requirements.txt", MAX_MANIFEST)
        if text is not None:
            return self._parsed(
                ("requirements.txt", text),
                lambda: _python_manifest("requirements.txt", read_requirements(text, "requirements.txt"), None, ""),
            )
        project = self._text(folder / "pyproject.toml", MAX_MANIFEST)
        if project is None:
            return None
        lock = self._text(folder / "uv.lock", MAX_LOCK)
        return self._parsed(
            ("pyproject.toml", project, lock or ""),
            lambda: _python_manifest("pyproject.toml", read_pyproject(project, "pyproject.toml"), lock, "uv.lock"),
        )

    def _node(self, folder: Path | None) -> Manifest | None:
        text = self._text(folder / "package.json", MAX_MANIFEST) if folder is not None else None
        if folder is None or text is None:
            return None
        for name in ("npm-shrinkwrap.json", "package-lock.json"):
            lock = self._text(folder / name, MAX_LOCK)
            if lock is not None:
                break
        else:
            self._refuse_other_locks(folder)
        packages = self._parsed(
            ("package.json", text, str(self._build_scripts)),
            lambda: NodeManifest("package.json", read_package(text, "package.json", scripts=self._build_scripts)),
        )
        if not isinstance(packages, NodeManifest) or packages.packages.is_empty:
            return None
        return NodeManifest("package.json", packages.packages, lock, name)

    def _refuse_other_locks(self, folder: Path) -> None:
        for name in ("bun.lock", "bun.lockb", "yarn.lock", "pnpm-lock.yaml"):
            if (folder / name).exists():
                raise refuse(name, "it is not read; write package-lock.json by `npm install --package-lock-only`")

    def _parsed(self, key: tuple[str, ...], read: Callable[[], Manifest | None]) -> Manifest | None:
        if key not in self._read:
            self._read[key] = read()
        return self._read[key]

    def _text(self, path: Path, limit: int) -> str | None:
        """Return the text of a regular file, None where there is none. A link is not followed: what it leads to could
        be shown in a message."""
        try:
            entry = path.lstat()
        except (OSError, ValueError):
            return None
        stamp = (entry.st_ino, entry.st_dev, entry.st_size, entry.st_mtime_ns, entry.st_ctime_ns)
        key = (str(path), str(limit))
        known = self._known.get(key)
        if known is not None and known[0] == stamp:
            return known[1]
        if not stat.S_ISREG(entry.st_mode):
            raise refuse(path.name, "it must be a plain file, not a link or anything else")
        text = _read(path, limit)
        self._known[key] = (stamp, text)
        return text


def _python_manifest(source: str, found: Requirements, lock: str | None, lock_source: str) -> PythonManifest | None:
    if not found.lines:
        return None
    if lock is not None:
        check_lock(lock, lock_source, found)
    return PythonManifest(source, found, lock)


def _read(path: Path, limit: int) -> str:
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(number, "rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise refuse(path.name, f"it cannot be read: {error.strerror or error}") from None
    if len(data) > limit:
        raise refuse(path.name, f"it is larger than {limit >> 10:,} KiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise refuse(path.name, "it must be UTF-8 text") from None
