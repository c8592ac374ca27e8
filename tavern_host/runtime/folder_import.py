"""Imports folder plugins: by path, under a package of their own, and only files that are as they were reviewed."""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType

from tavern_host.contracts.errors import PermissionDenied

_FOLDERS = "tavern_plugins"
"""The package under which folder plugins are imported, so that none can shadow an installed one."""

_reserved: dict[str, tuple[Path, Mapping[str, bytes]] | None] = {}
"""The packages of folder plugins, each with the files that it may import: its folder, and the hash of each reviewed
file in it; None where it may import any."""


def reserve(name: str) -> str:
    """Return a package name for a folder plugin, that no other host in this process uses; see `release`."""
    numbered = (f"{_FOLDERS}.{name}{f'_{n}' if n > 1 else ''}" for n in itertools.count(1))
    package = next(p for p in numbered if p not in _reserved)
    _reserved[package] = None
    return package


def release(package: str) -> None:
    """Let the package name of a folder plugin be used again."""
    _reserved.pop(package, None)


class NotReviewed(PermissionDenied, ImportError):
    """Code of a folder plugin is not as it was when the plugin was reviewed."""

    code = "not_reviewed"


def _check_reviewed(module: str, path: str, content: bytes) -> None:
    """Raise `NotReviewed` for a file that is not as it was when the plugin was reviewed."""
    reviewed = _reserved.get(".".join(module.split(".")[:2]))
    if reviewed is None:
        return
    root, files = reviewed
    if files.get(os.path.relpath(path, root)) != hashlib.sha256(content).digest():
        message = f"{path} was changed after it was reviewed; look at the plugin and grant it again"
        raise NotReviewed(message)


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """Compiles the source, which was reviewed; compiled files were not, and are never read."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = self.get_data(path)
        _check_reviewed(fullname, path, source)
        return self.source_to_code(source, path)


class _FolderFinder(importlib.abc.MetaPathFinder):
    """Finds the modules of folder plugins, as source or as extension modules only."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(f"{_FOLDERS}."):
            return None
        if "__pycache__" in fullname.split("."):
            raise NotReviewed(f"{fullname} is not imported: __pycache__ is for what Python keeps there")
        source = (_SourceLoader, importlib.machinery.SOURCE_SUFFIXES)
        extension = (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES)
        specs = (importlib.machinery.FileFinder(folder, extension, source).find_spec(fullname) for folder in path or ())
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None:  # no other finder may search: it would find compiled files
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        if isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
            _check_reviewed(fullname, spec.loader.path, Path(spec.loader.path).read_bytes())
        return spec


sys.modules[_FOLDERS] = ModuleType(_FOLDERS)
sys.modules[_FOLDERS].__path__ = []
sys.meta_path.insert(0, _FolderFinder())


def import_folder(package: str, root: Path, reviewed: Mapping[str, bytes] | None) -> ModuleType:
    """Import a folder plugin; without an `__init__.py` it is an empty package.

    Of files that are not as they were `reviewed` (by path and hash; None: any file) nothing is imported, now or later.
    """
    if reviewed is not None:
        _reserved[package] = root, reviewed
    init = root / "__init__.py"
    loader = _SourceLoader(package, str(init)) if init.is_file() else None
    spec = importlib.machinery.ModuleSpec(package, loader, origin=str(init), is_package=True)
    spec.submodule_search_locations = [str(root)]
    spec.has_location = loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[package] = module
    try:
        if loader is not None:
            loader.exec_module(module)
    except BaseException:
        if sys.modules.get(package) is module:
            del sys.modules[package]
        raise
    return module
