"""Which packages of an environment belong together: what distributions require, and the files that are theirs, by what
their installer recorded. Imports nothing of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email import message_from_string
from functools import cached_property
from importlib.machinery import all_suffixes
from pathlib import Path, PurePosixPath
from typing import Any

from importlib_metadata import Distribution
from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tavern_host.contracts.errors import Misconfigured

_SUFFIXES = tuple(all_suffixes())


@dataclass(frozen=True)
class Pieces:
    """What is importable of distributions: `folders` to be searched whole, and `packages`, single ones by the path that
    each has to have below a folder that is searched (`yaml`, `google/protobuf`, `acme-1.0.dist-info`)."""

    folders: tuple[Path, ...] = ()
    packages: Mapping[str, Path] = field(default_factory=dict)

    def __or__(self, other: Pieces) -> Pieces:
        return Pieces(
            tuple(dict.fromkeys([*self.folders, *other.folders])), {**dict(other.packages), **dict(self.packages)}
        )


@dataclass(frozen=True)
class Packages:
    """Installed distributions by normalised name, and the requirements by which they came (`constraints`): whatever
    takes the place of one of them has to fit those. `missing` says in words what is not installed as it is required."""

    distributions: Mapping[str, Distribution]
    constraints: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @cached_property
    def versions(self) -> list[str]:
        """What distinguishes them from others: names, versions and places, sorted."""
        found = self.distributions.items()
        return sorted(f"{name}=={one.version} {one.locate_file('')}" for name, one in found)

    def pieces(self, without: Collection[str] = (), *, metadata: bool = True) -> Pieces:
        """Return their files, but those of distributions `without`. Raises `Misconfigured` for a distribution whose
        files nobody recorded."""
        kept = [pieces for name, pieces in self._each.items() if name not in without]
        packages = {name: path for one in kept for name, path in one.packages.items()}
        if not metadata:
            packages = {name: path for name, path in packages.items() if not name.endswith("-info")}
        return Pieces(tuple(dict.fromkeys(folder for one in kept for folder in one.folders)), packages)

    @cached_property
    def _each(self) -> dict[str, Pieces]:
        return {name: _pieces(one) for name, one in self.distributions.items()}


NONE = Packages({})


def required(
    requirements: Iterable[str], path: Sequence[str], asked_by: str, without: Collection[str] = ()
) -> Packages:
    """Return the packages installed for requirements and all that they require, as first found on `path`; `asked_by`
    has them, as messages say. Distributions `without`, by normalised names, and what they require are left out."""
    walk = _Walk(path, without)
    for text in requirements:
        walk.follow(text, asked_by, ())
    return Packages(walk.found, tuple(dict.fromkeys(walk.constraints)), tuple(dict.fromkeys(walk.missing)))


def installed_in(folder: Path) -> Packages:
    """Return all that is installed in a folder, and what its distributions require of each other."""
    found: dict[str, Distribution] = {
        canonicalize_name(one.name): one for one in map(_Read, Distribution.discover(path=[str(folder)]))
    }
    walk = _Walk([str(folder)], ())
    for name in found:
        walk.follow(name, str(folder), ())
    return Packages({**found, **walk.found}, tuple(dict.fromkeys(walk.constraints)))


def find(name: str, path: Sequence[str]) -> Distribution | None:
    """Return the first distribution of a name on a path, but what a broken installation left."""
    found = map(_Read, Distribution.discover(name=name, path=list(path)))
    return next((one for one in found if one.metadata), None)


class _Read(Distribution):
    """A distribution whose metadata are read once, without the page of text that most have after them."""

    def __init__(self, found: Distribution) -> None:
        self._found = found

    def read_text(self, filename: str) -> str | None:
        """Return one of the files about it."""
        return self._found.read_text(filename)

    def locate_file(self, path: Any) -> Any:
        """Return where one of its files is."""
        return self._found.locate_file(path)

    @cached_property
    def metadata(self) -> Any:
        """The fields; none where there are no metadata."""
        text = self.read_text("METADATA") or self.read_text("PKG-INFO") or ""
        return message_from_string(text.partition("\n\n")[0])


class _Walk:
    """Goes from requirement to requirement."""

    def __init__(self, path: Sequence[str], without: Collection[str]) -> None:
        self._path = path
        self._without = without
        self._followed: set[tuple[str, str]] = set()
        self.found: dict[str, Distribution] = {}
        self.constraints: list[str] = []
        self.missing: list[str] = []

    def follow(self, text: str, asked_by: str, extras: Collection[str]) -> None:
        """Take one requirement of a distribution that is installed with some extras."""
        wanted = parsed(text, asked_by)
        name = canonicalize_name(wanted.name)
        if name in self._without or not _holds(wanted.marker, extras):
            return
        one = self.found.get(name) or find(wanted.name, self._path)
        if one is None or not wanted.specifier.contains(one.version, prereleases=True):
            is_there = f"{one.version} is installed" if one is not None else "it is not installed"
            self.missing.append(f"{asked_by} requires {wanted.name}{wanted.specifier}, and {is_there}")
            if one is None:
                return
        self.found[name] = one
        if wanted.specifier:
            self.constraints.append(f"{wanted.name}{wanted.specifier}{_marker(wanted.marker)}")
        for extra in ("", *wanted.extras):
            if (name, extra) not in self._followed:
                self._followed.add((name, extra))
                for inner in one.requires or ():
                    self.follow(inner, one.name, [extra])


def parsed(text: str, asked_by: str) -> Requirement:
    """Return a requirement of `asked_by`. Raises `Misconfigured`."""
    try:
        return Requirement(text)
    except InvalidRequirement:
        raise Misconfigured(f"{asked_by} requires {text!r:.200}, which is no requirement such as `name>=1.2`") from None


def _holds(marker: Marker | None, extras: Collection[str]) -> bool:
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in (extras or ("",)))


def is_of_extra(marker: Marker | None, extras: Collection[str]) -> bool:
    """Return whether what has this marker is required with one of these extras, and not without."""
    return bool(extras) and _holds(marker, extras) and not _holds(marker, ())


def _marker(marker: Marker | None) -> str:
    """Return a marker as a constraint has it, which knows no extras."""
    return f"; {marker}" if marker is not None and "extra" not in str(marker) else ""


# --- files ------------------------------------------------------------------------------------------------


def _pieces(one: Distribution) -> Pieces:
    base = Path(str(one.locate_file("")))
    files = one.files
    if files is None:
        hint = f"reinstall it by `pip install --force-reinstall {one.name}`"
        raise Misconfigured(f"no installer recorded which files {one.name} in {base} has; {hint}")
    paths = [PurePosixPath(str(file)) for file in files if file.parts[0] not in ("..", "/", "bin")]
    packages = {name: base / name for name in dict.fromkeys(_outermost(paths)) if (base / name).exists()}
    for name in [name for name in packages if name.endswith(".py")]:
        packages |= {str(compiled.relative_to(base)): compiled for compiled in _compiled(base / name)}
    return Pieces(tuple(_edited(one, base, paths)), packages)


def _outermost(paths: Collection[PurePosixPath]) -> Iterator[str]:
    """Yield what is mounted of these files: packages, folders that are no part of a namespace, and single modules."""
    packages = {path.parent for path in paths if path.name.startswith("__init__.")}
    for path in paths:
        folders = [*reversed(path.parents)][1:]
        if not folders:
            if path.name.endswith(_SUFFIXES):
                yield str(path)
        elif not folders[0].name.endswith(("__pycache__", "-stubs")):
            is_namespace = folders[0].name.isidentifier()
            whole = [folder for folder in folders if folder in packages] if is_namespace else folders
            yield str(whole[0] if whole else path)


def _compiled(module: Path) -> Iterator[Path]:
    """Yield what Python keeps of a module that is a single file: without it, each process would compile it."""
    yield from (module.parent / "__pycache__").glob(f"{module.stem}.*.pyc")


def _edited(one: Distribution, base: Path, paths: Iterable[PurePosixPath]) -> Iterator[Path]:
    """Yield the folders in which an editable installation is edited. Raises `Misconfigured` where it does not say."""
    origin = json.loads(one.read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable"):
        return
    lines = [line for path in paths if path.suffix == ".pth" for line in _lines(base / path)]
    found = [Path(line) for line in lines if Path(line).is_absolute() and Path(line).is_dir()]
    if not found:
        hint = "install it without --editable, or with --config-settings editable_mode=compat"
        raise Misconfigured(f"{one.name} is installed to be edited in a way that only its own code can follow: {hint}")
    yield from found


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
