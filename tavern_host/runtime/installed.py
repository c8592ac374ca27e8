"""Says of installed plugins which distribution each is of, by what pip recorded; imports nothing of them.

They are in the environment of the host, or in folders of their own (see `contracts.packages`).
"""

from __future__ import annotations

import csv
import functools
import importlib.util
import logging
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tavern_host.contracts.errors import NotFound, describe
from tavern_host.contracts.languages import Catalogue
from tavern_host.contracts.plugins import GROUP, MANIFEST, Problem
from tavern_host.runtime.package_path import SEARCHED

if TYPE_CHECKING:
    import importlib_metadata

DISTRIBUTION = "tavern-host"
_RUNNING = Path(__file__).parents[1]
_FILES = ("__init__.py", MANIFEST)

_log = logging.getLogger("tavern.plugins")


@dataclass(frozen=True)
class Installed:
    """An entry point of the group: its package and the folder of that, if there is one; the name of its distribution,
    and whether that is the one of the running host; or why it may not be used. `path` is the folder of its own that it
    was installed in, None for the environment of the host; `requested` says whether somebody asked for the distribution
    itself to be installed there."""

    name: str
    module: str
    folder: Path | None
    distribution: str
    first_party: bool = False
    problem: Problem | None = None
    path: Path | None = None
    requested: bool = False


def installed_plugins(packages: Path | None = None) -> list[Installed]:
    """Return the entry points of all distributions, sorted: those of the environment, then those of the packages."""
    own = _own()
    found = _of_environment(_visible())
    hidden = [one for one in own if one not in found]  # by another that is called like the host, earlier on the path
    places = [(one, None) for one in (*found, *hidden)]
    entries = [(e, one, path) for one, path in (*places, *_in_folders(packages)) for e in one.entry_points()]
    entries.sort(key=lambda each: (each[2] is not None, each[0].name, each[0].value))
    return [_installed(*each, own) for each in entries]


def _own() -> list[_Distribution]:
    """Return the distributions that the running host was installed by: one, unless something is wrong."""
    found = _of_environment(_unique(_found(name=DISTRIBUTION)))
    return [one for one in found if one.name and one.has(_RUNNING)]


def first_party_modules(name: str) -> tuple[ModuleType, ...]:
    """Return the modules of this name that first-party plugins have in their packages, loaded or not, enabled or not:
    parts of the program that the host finds there. No project and no other distribution can add one."""
    found = (module for module, folder in first_party() if (folder / f"{name}.py").exists())
    return tuple(importlib.import_module(f"{module}.{name}") for module in found)


_said: list[tuple[str, Path]] = []


def take_first_party(packages: Iterable[str]) -> None:
    """Take the host's word for which packages are first-party, in a process that it has started for a plugin."""
    found = ((name, importlib.util.find_spec(name)) for name in packages)
    _said[:] = [(name, Path(spec.origin).parent) for name, spec in found if spec is not None and spec.origin]


@functools.cache
def first_party() -> tuple[tuple[str, Path], ...]:
    """The packages of the first-party plugins with their folders: the same as long as this process runs."""
    if _said:
        return tuple(_said)
    own = _own()
    found = [_installed(entry, one, None, own) for one in own for entry in one.entry_points()]
    return tuple((one.module, one.folder) for one in found if one.first_party and one.folder is not None)


def is_published(module: str) -> bool:
    """Return whether a module is one of the host's contracts, or of the `api` of a first-party plugin."""
    package, _, part = module.partition(".")
    own = package == _RUNNING.name and part.startswith("contracts.")
    return own or (part.startswith("api.") and package in {name for name, _ in first_party()})


@functools.cache
def first_party_part(reference: str) -> Any:
    """Return the object at `module:name` in such a module. Raises `NotFound`."""
    module, _, name = reference.partition(":")
    for found in first_party_modules(module):
        return resolve_name(f"{found.__name__}:{name}")
    raise NotFound(f"this installation lacks {reference}, a part of a first-party plugin: reinstall it")


@functools.cache
def catalogue(language: str) -> Catalogue:
    """Return the texts of the host and of first-party plugins in a language; no others speak for the host."""
    if language == "en":
        return Catalogue()
    folders = [_RUNNING, *(folder for _, folder in first_party())]
    return Catalogue.read(language, [folder / "messages" / f"{language}.json" for folder in folders])


def _in_folders(packages: Path | None) -> list[tuple[_Distribution, Path]]:
    """Return the distributions that were installed in folders of their own, each with its folder."""
    try:
        from tavern_host.contracts.packages import Packages

        known = Packages.read(packages).packages.values() if packages is not None else ()
    except (OSError, ValueError) as error:
        _log.warning("the plugins in %s are left out: %s", packages, describe(error))
        return []
    places = [(one.distribution, Path(packages or "", one.folder)) for one in known]
    return [(one, path) for name, path in places for one in _unique(_found(name=name, path=[str(path)]))]


def _found(**which: Any) -> Iterable[Any]:
    """Return distributions; what looks for them is imported here, since a process of a plugin looks for none."""
    from importlib_metadata import distributions

    return distributions(**which)


def _installed(
    entry: importlib_metadata.EntryPoint, of: _Distribution, path: Path | None, own: list[_Distribution]
) -> Installed:
    try:
        module = entry.module
    except (ValueError, AttributeError):  # not of the form package:object
        module = entry.value
    folder, name = _package_folder(module, path), of.name or "unknown"
    problem = None
    if of.name is None:
        message = f"the metadata in {of.place} are damaged, or name another distribution than the folder"
        problem = Problem(message=message, hint="reinstall it")
    elif folder is None:
        message = f"the package {module!r} of the entry point {entry.name!r} cannot be found"
        problem = Problem(message=message, hint=f"reinstall {name}; the entry point must name an importable package")
    elif _normal(name) == DISTRIBUTION and own != [of]:
        places = " and ".join(one.place for one in own) or "no distribution"
        message = f"{of.place} is called {name}, and the running host was installed by {places}"
        problem = Problem(message=message, hint="uninstall all but one")
    elif not of.has(folder):
        message = f"{folder} is not what was installed with {name}"
        problem = Problem(message=message, hint=f"remove it, or reinstall {name}")
    first_party = problem is None and path is None and of in own
    return Installed(entry.name, module, folder, name, first_party, problem, path, of.requested)


class _Distribution:
    """An installed distribution; equal to another that has its metadata in the same place."""

    def __init__(self, found: Any) -> None:
        self._found = found
        self._path = str(getattr(found, "_path", found))
        self.called = Path(self._path).name.partition("-")[0].removesuffix(".egg-info")
        """What the folder of its metadata is called after."""

    @functools.cached_property
    def place(self) -> str:
        """The folder of its metadata."""
        return os.path.realpath(self._path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Distribution) and self.place == other.place

    def __hash__(self) -> int:
        return hash(self.place)

    @functools.cached_property
    def name(self) -> str | None:
        """What the header of its metadata calls it; None where the folder of its metadata is called otherwise."""
        try:
            name = str(self._found.name)
        except Exception:  # an installation that was broken off, or is damaged
            return None
        return name if _normal(name) == _normal(self.called) else None

    def entry_points(self) -> list[importlib_metadata.EntryPoint]:
        """Return those of the group."""
        try:
            if GROUP not in (self._found.read_text("entry_points.txt") or ""):  # as in most, which are not parsed then
                return []
            return [entry for entry in self._found.entry_points if entry.group == GROUP]
        except Exception as error:
            _log.warning("an installed distribution cannot be read and is left out: %s", describe(error))
            return []

    def has(self, package: Path) -> bool:
        """Return whether a package was installed with it: its record has the package's first files, or it is an
        editable installation of the folder that the package is in."""
        place = Path(os.path.realpath(package.parent), package.name)
        base = os.path.realpath(self._found.locate_file(""))
        if place.is_relative_to(base):
            inner = place.relative_to(base)
            return self._record.issuperset((inner / file).as_posix() for file in _FILES if (package / file).exists())
        return self._edited is not None and place.is_relative_to(self._edited)

    @property
    def requested(self) -> bool:
        """Whether it was asked for, and did not come as the dependency of another (PEP 376: `REQUESTED`)."""
        try:
            return self._found.read_text("REQUESTED") is not None
        except (OSError, ValueError):
            return False

    @functools.cached_property
    def _record(self) -> frozenset[str]:
        try:
            lines = (self._found.read_text("RECORD") or "").splitlines()
            return frozenset(row[0] for row in csv.reader(lines) if row)
        except (OSError, ValueError, csv.Error):
            return frozenset()

    @functools.cached_property
    def _edited(self) -> str | None:
        try:
            from urllib.parse import urlsplit
            from urllib.request import url2pathname

            url = urlsplit(self._found.origin.url)
            is_edited = url.scheme == "file" and self._found.origin.dir_info.editable is True
            return os.path.realpath(url2pathname(url.path)) if is_edited else None
        except (OSError, ValueError, TypeError, AttributeError):  # it was not installed from a folder
            return None


def _of_environment(found: Iterable[_Distribution]) -> list[_Distribution]:
    return [one for one in found if os.path.dirname(one.place) not in SEARCHED]  # noqa: PTH120  # a text


def _unique(found: Iterable[Any]) -> list[_Distribution]:
    return list(dict.fromkeys(map(_Distribution, found)))


def _visible() -> list[_Distribution]:
    """Return the distributions with entry points of the group, but for those that have another of their name earlier on
    the path: importing finds that one."""
    first: dict[str, _Distribution] = {}
    for one in map(_Distribution, _found()):
        first.setdefault(_normal(one.called), one)
    return [one for one in first.values() if one.entry_points()]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _package_folder(module: str, path: Path | None) -> Path | None:
    """Return a package's folder without importing it; its parents are walked as folders. With `path`, that is where an
    import will find it once this folder is searched after all others: it cannot take the name of another module."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top) if path is None else _beside_others(top, path)
    except (ImportError, ValueError):
        return None
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    return next((folder for location in locations if (folder := Path(location, *rest)).is_dir()), None)


def _beside_others(top: str, path: Path) -> Any:
    """Return where a module is that is imported from a package's own folder, after the host's environment."""
    others = [each for each in sys.path if Path(each).parent != path.parent]
    return None if top in sys.stdlib_module_names else PathFinder.find_spec(top, [*others, str(path)])
