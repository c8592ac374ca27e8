"""Finds plugins and reads their manifests; imports nothing of them.

Sources: entry points of the group `tavern_host.plugins`, folders in the project's `plugins/`, folders
given with `--dev`, and what an embedding program hands over.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import logging
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import importlib_metadata
from packaging.requirements import Requirement

from tavern_host.contracts.errors import describe
from tavern_host.contracts.plugins import PermissionInfo, PluginState, Problem
from tavern_host.manifest import MANIFEST, Manifest, read_manifest
from tavern_host.yamlfile import InvalidFile

GROUP = "tavern_host.plugins"
DISTRIBUTION = "tavern-host"

_log = logging.getLogger("tavern.plugins")

_CODE = tuple(importlib.machinery.all_suffixes())


@dataclass
class Record:
    """What the host knows of one plugin. `module` is None for a folder plugin, which is imported by path.

    `notes` is what is wrong with its files and costs it no more than a part; `read_at` is when they were read.
    """

    name: str
    source: str
    root: Path | None = None
    module: str | None = None
    first_party: bool = False
    pending_restart: bool = False
    is_dev: bool = False
    read_at: float = field(default_factory=time.time)
    manifest: Manifest | None = None
    state: PluginState = PluginState.DISCOVERED
    notes: list[Problem] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    permissions: list[PermissionInfo] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)

    def refuse(self, state: PluginState, *problems: Problem) -> None:
        """Say that the plugin is not to be used, and why."""
        self.state = state
        self.problems.extend(problems)

    @property
    def has_code(self) -> bool:
        """Whether the folder holds code that could be imported, compiled or not."""
        return self.root is not None and any(path.name.endswith(_CODE) for path in self.root.rglob("*"))


def discover(
    *, folders: Iterable[Path] = (), dev: Iterable[Path] = (), embedded: Iterable[Path | ModuleType] = ()
) -> list[Record]:
    """Return a record for every plugin that can be seen; what is wrong with one stands in its record.

    Two plugins of one name: a first-party one keeps it, else the first that is valid (entry points, then
    embedded, dev, folders).
    """
    records = [_from_entry_point(entry) for entry in _entry_points()]
    for item in embedded:
        records.append(_from_module(item) if isinstance(item, ModuleType) else _from_folder(item, "folder"))
    records += [_from_folder(path, "dev") for path in dev]
    for parent in folders:
        if parent.is_dir():
            children = sorted(p for p in parent.iterdir() if p.is_dir() and not p.name.startswith((".", "_")))
            records += [_from_folder(path, "folder", within=parent) for path in children]
    records.sort(key=lambda record: (not record.first_party, record.state is PluginState.INVALID))
    _refuse_duplicates(records)
    return records


def _entry_points() -> list[importlib_metadata.EntryPoint]:
    try:
        found = list(importlib_metadata.entry_points(group=GROUP))
    except Exception:  # the files of one installed distribution, any one, are damaged: go without that one
        found = [e for d in importlib_metadata.distributions() for e in _entry_points_of(d)]
    return sorted(found, key=lambda e: (e.name, e.value))


def _entry_points_of(distribution: Any) -> list[importlib_metadata.EntryPoint]:
    try:
        return [entry for entry in distribution.entry_points if entry.group == GROUP]
    except Exception as error:
        _log.warning("an installed distribution cannot be read and is left out: %s", describe(error))
        return []


def _from_entry_point(entry: importlib_metadata.EntryPoint) -> Record:
    distribution = _distribution_of(entry)
    record = Record(name=entry.name, source=f"entry-point:{distribution}", first_party=distribution == DISTRIBUTION)
    try:
        record.module = entry.module
    except (ValueError, AttributeError):  # not of the form package:object
        record.module = entry.value
    record.root = _package_folder(record.module)
    if record.root is None:
        record.refuse(
            PluginState.INVALID,
            Problem(
                message=f"the package {record.module!r} of the entry point {entry.name!r} cannot be found",
                hint=f"reinstall {distribution}; the entry point must name an importable package",
            ),
        )
        return record
    return _read(record, expected_name=entry.name)


def _distribution_of(entry: importlib_metadata.EntryPoint) -> str:
    try:
        return entry.dist.name if entry.dist is not None else "unknown"
    except Exception:  # an installation that was broken off, or is damaged
        return "unknown"


def _package_folder(module: str) -> Path | None:
    """Return a package's folder without importing it; its parents are walked as folders."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    for location in locations:
        folder = Path(location, *rest)
        if folder.is_dir():
            return folder
    return None


def _from_module(module: ModuleType) -> Record:
    file = getattr(module, "__file__", None)
    record = Record(name=module.__name__, source=f"embedded:{module.__name__}", module=module.__name__)
    record.root = Path(file).parent if file else None
    return _read(record)


def _from_folder(path: Path, kind: str, within: Path | None = None) -> Record:
    path = path.absolute()
    record = Record(name=path.name, source=f"{kind}:{path}", root=path, is_dev=kind == "dev")
    if within is not None and not path.resolve().is_relative_to(within.resolve()):
        hint = "copy the plugin there instead of linking it"
        record.refuse(PluginState.INVALID, Problem(message=f"{path} leads out of {within}", hint=hint))
        return record
    link = _link_out(path) if kind == "folder" else None
    if link is not None:
        message = f"{link} leads out of {path}"
        record.refuse(PluginState.INVALID, Problem(message=message, hint="copy what it needs there"))
        return record
    return _read(record)


def _link_out(root: Path) -> Path | None:
    """Return a link in a plugin's folder to what is not in it, and so would be imported without a review."""
    inside = root.resolve()
    links = (path for path in root.rglob("*") if path.is_symlink())
    return next((link for link in links if not Path(os.path.realpath(link)).is_relative_to(inside)), None)


def _read(record: Record, *, expected_name: str | None = None) -> Record:
    began = time.perf_counter()
    try:
        manifest, problems = read_manifest(record.root) if record.root is not None else (None, [])
        record.notes = problems
    except InvalidFile as error:
        record.refuse(PluginState.INVALID, *error.problems)
        return record
    except OSError as error:
        manifest = None
        if not isinstance(error, FileNotFoundError):
            record.refuse(PluginState.INVALID, Problem(message=f"{MANIFEST} cannot be read: {error.strerror}"))
            return record
    record.timings["manifest"] = (time.perf_counter() - began) * 1000
    if manifest is None:
        record.refuse(
            PluginState.INVALID,
            Problem(message=f"there is no {MANIFEST} in {record.root}", hint="every plugin needs one beside its code"),
        )
        return record
    record.manifest = manifest
    if expected_name is not None and expected_name != manifest.name:
        record.refuse(
            PluginState.INVALID,
            Problem(
                message=f"the entry point is called {expected_name!r}, the manifest {manifest.name!r}",
                hint="give both the same name",
            ),
        )
        return record
    record.name = manifest.name
    return record


def _refuse_duplicates(records: list[Record]) -> None:
    seen: dict[str, Record] = {}
    for record in records:
        first = seen.setdefault(record.name, record)
        if first is not record:
            record.refuse(
                PluginState.INVALID,
                Problem(
                    message=f"the name {record.name!r} is taken by the plugin from {first.source}",
                    hint="remove one of the two",
                ),
            )


def content_hash(root: Path) -> str:
    """Return a hash over the names and contents of all files of a folder plugin. Raises `OSError`."""
    digest = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        digest.update(os.fsencode(path.relative_to(root)) + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:32]


def changed_since(root: Path, when: float) -> bool:
    """Return whether anything in a plugin's folder was written, added or removed since a time in seconds."""
    before = when - 0.02  # file systems keep coarser times than the clock
    paths = (path for path in (root, *root.rglob("*")) if "__pycache__" not in path.parts)
    try:
        return any(path.lstat().st_ctime > before for path in paths)
    except OSError:
        return True


def upgraded_since(record: Record) -> list[str]:
    """Return the distributions that a plugin's own requires and that were installed anew since it was read.

    What the process imported of them is the old version; no reload changes that.
    """
    if not record.source.startswith("entry-point:"):
        return []
    try:
        requires = importlib_metadata.requires(record.source.partition(":")[2]) or []
    except importlib_metadata.PackageNotFoundError:
        return []
    names = dict.fromkeys(Requirement(text).name for text in requires if "extra ==" not in text)
    return [name for name in names if _installed_at(name) > record.read_at]


def _installed_at(distribution: str) -> float:
    try:
        files = importlib_metadata.distribution(distribution).files or ()
        written = [Path(str(f.locate())).lstat().st_ctime for f in files if Path(str(f)).name == "METADATA"]
    except (importlib_metadata.PackageNotFoundError, OSError):
        return 0.0
    return max(written, default=0.0)
