"""Finds plugins and reads their manifests; imports nothing of them.

Sources: entry points of the group `tavern_host.plugins` in the environment and in the operator's folder of packages,
folders in the project's `plugins/`, folders given with `--dev`, and what an embedding program hands over.
"""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import source_from_cache
from pathlib import Path
from types import ModuleType

import importlib_metadata

from tavern_host.contracts.manifest import PACKAGES, Manifest
from tavern_host.contracts.plugins import MANIFEST, PluginState, Problem, is_data
from tavern_host.plugins.file_settings import with_file_settings
from tavern_host.plugins.manifest import entry_problems, read_manifest
from tavern_host.plugins.record import Record
from tavern_host.runtime.installed import DISTRIBUTION, Installed, installed_plugins
from tavern_host.storage.yaml_file import InvalidFile


@dataclass(frozen=True)
class Sources:
    """Where plugins come from besides the environment: the operator's folder of packages, folders of the project, those
    being written, and those that an embedding program hands over."""

    folders: Sequence[Path] = ()
    dev: Sequence[Path] = ()
    embedded: Sequence[Path | ModuleType] = ()
    packages: Path | None = None


def discover(sources: Sources = Sources()) -> tuple[dict[str, Record], list[Record]]:
    """Return by name a record for every plugin that can be seen, and those whose name is taken; what is wrong with one
    stands in its record.

    Two plugins of one name: a first-party one keeps it, else the first that is valid (dev, entry points,
    embedded, folders). A folder that is handed over and is installed as well, as one that is being written
    often is, counts once, as the folder.
    """
    handed = {path.resolve() for path in (*sources.dev, *sources.embedded) if isinstance(path, Path)}
    installed = [_from_installed(found) for found in installed_plugins(sources.packages)]
    records = [r for r in installed if r.first_party or r.root is None or r.root.resolve() not in handed]
    _note_arrival(records)
    for item in sources.embedded:
        records.append(_from_module(item) if isinstance(item, ModuleType) else _from_folder(item, "folder"))
    records += [_from_folder(path, "dev") for path in sources.dev]
    for parent in sources.folders:
        if parent.is_dir():
            children = sorted(p for p in parent.iterdir() if p.is_dir() and not p.name.startswith((".", "_")))
            found = [_from_folder(p, "folder", within=parent) for p in children if p.resolve() not in handed]
            _note_arrival(found)
            records += found
    own = f"entry-point:{DISTRIBUTION}"  # their names are theirs also where another package was found in their place
    records.sort(key=lambda r: (not r.first_party, r.source != own, r.state is PluginState.INVALID, not r.is_dev))
    _add_file_settings(records)
    return _named(records)


def _note_arrival(records: list[Record]) -> None:
    """Note when each third-party plugin's manifest was put where it is."""
    for record in records:
        if record.manifest is not None and record.root is not None and not record.first_party:
            record.since = (record.root / MANIFEST).stat().st_ctime


def _from_installed(found: Installed) -> Record:
    source = f"{'entry-point' if found.path is None else 'package'}:{found.distribution}"
    record = Record(found.name, source, found.folder, found.module, found.path, found.first_party)
    record.undecided = found.path is not None or not found.requested
    if found.problem is not None:
        record.refuse(PluginState.INVALID, found.problem)
        return record
    return _read(record, expected_name=found.name)


def _from_module(module: ModuleType) -> Record:
    file = getattr(module, "__file__", None)
    root = Path(file).parent if file else None
    return _read(Record(module.__name__, f"embedded:{module.__name__}", root, module.__name__))


def _from_folder(path: Path, kind: str, within: Path | None = None) -> Record:
    path = path.resolve() if ".." in path.parts else path.absolute()  # nothing is mounted by a path with `..`
    record = Record(name=path.name, source=f"{kind}:{path}", root=path, is_dev=kind == "dev")
    if within is not None and not path.resolve().is_relative_to(within.resolve()):
        return _invalid(record, f"{path} leads out of {within}", "copy the plugin there instead of linking it")
    link = _link_out(path) if kind == "folder" else None
    if link is not None:
        return _invalid(record, f"{link} leads out of {path}", "copy what it needs there")
    return _read(record)


def _link_out(root: Path) -> Path | None:
    """Return a link in a plugin's folder to what is not in it, and so would be imported without a review."""
    inside = root.resolve()
    links = (path for path in root.rglob("*") if path.is_symlink())
    return next((link for link in links if not Path(os.path.realpath(link)).is_relative_to(inside)), None)


_read_first_party = functools.cache(functools.partial(read_manifest, first_party=True))
"""Reads what stays as it is as long as this process runs, for each of its hosts."""


def _read(record: Record, *, expected_name: str | None = None) -> Record:
    began = time.perf_counter()
    if record.root is None:
        return _without_manifest(record)
    try:
        read = _read_first_party if record.first_party and not record.is_dev else read_manifest
        manifest, notes, record.places = read(record.root, is_dev=record.is_dev)
        record.notes = [*notes]
    except InvalidFile as error:
        record.refuse(PluginState.INVALID, *error.problems)
        record.rest, record.places = error.rest, error.places
        if record.rest is not None:
            faults, notes = entry_problems(record.rest, record.root, record.places)
            record.refuse(PluginState.INVALID, *faults, *notes)
        return record
    except FileNotFoundError:
        return _without_manifest(record)
    except OSError as error:
        return _invalid(record, f"{MANIFEST} cannot be read: {error.strerror}")
    record.faults, notes = entry_problems(manifest, record.root, record.places)
    record.notes += notes
    if not record.first_party:
        record.fingerprint = fingerprint(record.root, is_dev=record.is_dev)
    record.timings["manifest"] = (time.perf_counter() - began) * 1000
    record.manifest = manifest
    if expected_name is not None and expected_name != manifest.name:
        message = f"the entry point is called {expected_name!r}, the manifest {manifest.name!r}"
        record.refuse(PluginState.INVALID, record.places.problem(("name",), message, "give both the same name"))
        return record
    record.name = manifest.name
    return record


def _without_manifest(record: Record) -> Record:
    return _invalid(record, f"there is no {MANIFEST} in {record.root}", "every plugin needs one beside its code")


def _invalid(record: Record, message: str, hint: str | None = None) -> Record:
    record.refuse(PluginState.INVALID, Problem(message=message, hint=hint))
    return record


def _add_file_settings(records: list[Record]) -> None:
    """Add to all manifests the settings that the plugins' files declare, where first-party manifests say which do."""
    rules = [rule for r in records if r.first_party and r.manifest for rule in r.manifest.settings_in_files]
    for record in records:
        if record.manifest is not None and record.root is not None:
            record.manifest, problems = with_file_settings(record.manifest, record.root, rules)
            record.notes += problems


def _named(records: list[Record]) -> tuple[dict[str, Record], list[Record]]:
    """Return the first record of each name, and the others, which are refused."""
    named: dict[str, Record] = {}
    conflicts = []
    for record in records:
        first = named.setdefault(record.name, record)
        if first is not record:
            message = f"the name {record.name!r} is taken by the plugin from {first.source}"
            conflicts.append(_invalid(record, message, "remove one of the two"))
    return named, conflicts


def has_code(root: Path, manifest: Manifest | None) -> bool:
    """Return whether a folder holds a file that something could run: any that is no data, in whatever language, or a
    front end, of which a page runs whatever it is made of."""
    if manifest is not None and manifest.frontend is not None and manifest.frontend.folder() is not None:
        return True
    return any(not is_data(path.name) for path in _files(root) if path.is_file())


def file_hashes(root: Path, *, is_dev: bool = False) -> dict[str, bytes]:
    """Return the hash of every file of a folder plugin by its path in there. Raises `OSError`."""
    found = {}
    for path in sorted(path for path in _files(root, is_dev) if path.is_file()):
        with path.open("rb") as file:
            found[str(path.relative_to(root))] = hashlib.file_digest(file, "sha256").digest()
    return found


def _files(root: Path, is_dev: bool = False) -> Iterator[Path]:
    """Yield what is in a folder and no folder. Of a plugin that is being written, what its front end is built with is
    left out: thousands of files, which nobody reviews."""
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if not (is_dev and name == PACKAGES)]
        paths = (Path(folder, name) for name in names)
        yield from (path for path in paths if not _is_compiled(root, path.relative_to(root)))


def _is_compiled(root: Path, inner: Path) -> bool:
    """Return whether a file in a folder is bytecode beside its source. The host reads none, nor shows it to scripts."""
    try:
        return inner.suffix == ".pyc" and (root / source_from_cache(str(inner))).is_file()
    except ValueError:  # it is not where Python keeps it
        return False


def content_hash(files: Mapping[str, bytes]) -> str:
    """Return a hash over the names and contents of all files of a folder plugin, from their hashes."""
    digest = hashlib.sha256()
    for path, file in files.items():
        digest.update(os.fsencode(path) + b"\0" + file)
    return digest.hexdigest()[:32]


def fingerprint(root: Path, *, is_dev: bool = False) -> int:
    """Return a stamp that differs once any file of a plugin's folder was written, added or removed."""
    try:
        return hash(tuple(sorted((str(path), path.lstat().st_ctime_ns) for path in _files(root, is_dev))))
    except OSError:
        return 0


def upgraded_since(record: Record) -> list[str]:
    """Return the distributions that a plugin's own requires and that were installed again since it was read.

    What the process imported of them is the old version; no reload changes that.
    """
    from packaging.requirements import Requirement

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
