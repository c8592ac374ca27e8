"""Says which interpreter and which packages the process of a plugin has: those of the host's environment that it
declares, or an environment that is built for it. Starts no process of a plugin."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from importlib_metadata import Distribution
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import Misconfigured, PermissionDenied
from tavern_host.contracts.plugins import GROUP
from tavern_isolation.installed_packages import (
    NONE,
    Packages,
    Pieces,
    find,
    installed_in,
    is_of_extra,
    parsed,
    required,
)
from tavern_scripts.api.environments import Check, DeclaredPackages, PackageBuilder, Python, Report, WantedPackages

DISTRIBUTION = "tavern-host"
"""The distribution of the host."""

_FORMAT = 1
_LOCK = "uv.lock"
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")


@dataclass(frozen=True)
class Environment:
    """What the process of a plugin runs in, besides the host's own packages. Nothing of it may be written to.

    `interpreter` is the program of an installation, never of a virtual environment; what is installed beside it is not
    part of the environment (`-S`). `folders` are searched for modules in this order, and after them one with all
    `packages` in it: single ones, by the path that each has below that folder (`yaml`, `google/protobuf`,
    `acme-1.0.dist-info`). `hash` is another one when a dependency, the interpreter or the machine is another; `python`
    is a version such as `3.13.1`; `built` are those of `folders` that were built, now or before. Which files there are
    is found out when it is asked for: `folders` and `packages` block, and raise as `Packages.pieces`.
    """

    interpreter: Path
    hash: str
    python: str
    built: tuple[Path, ...]
    read: Callable[[], Pieces] = field(compare=False, repr=False)

    @cached_property
    def _pieces(self) -> Pieces:
        return self.read()

    @property
    def folders(self) -> tuple[Path, ...]:
        """What is searched for modules."""
        return (*self.built, *self._pieces.folders)

    @property
    def packages(self) -> Mapping[str, Path]:
        """Single packages by path."""
        return self._pieces.packages


@dataclass(frozen=True)
class Builds:
    """How environments are built: `report` hears how far a build is, `check` is called with what is about to be
    installed for a plugin, and may raise."""

    builder: PackageBuilder
    report: Report
    check: Check


async def environment_of(
    plugin: str,
    *,
    root: Path | None = None,
    reviewed: Mapping[str, bytes] | None = None,
    distribution: str | None = None,
    path: Path | None = None,
    python: str | None = None,
    builds: Builds,
) -> Environment:
    """Return the environment of a plugin in a folder (`root`), or of an installed `distribution`, which may be in a
    folder of its own (`path`) with all that it requires; `python` is what its manifest asks for, `3.13` or a range such
    as `>=3.12`. `reviewed` are the hashes of the files in `root` by path, as `PluginSource` has them.

    Where what it declares is installed beside the host, and fits, that is used; else an environment is built, or the
    one that was built before is used. Raises `Misconfigured`, naming the requirement and the file at fault, and
    `PermissionDenied` for a declaration that is not as it was when it was reviewed.
    """
    try:
        own = await asyncio.to_thread(_installed, distribution, path)
        declared = await asyncio.to_thread(_declared, root, own, builds.builder)
        if root is not None and reviewed is not None:
            await asyncio.to_thread(_check_reviewed, plugin, root, declared, reviewed)
        chosen = await _chosen(python, declared, builds.builder)
        if chosen == host_python():
            beside = await asyncio.to_thread(_beside_the_host, declared, own)
            base = await asyncio.to_thread(_base)
            if not beside.missing:
                return await asyncio.to_thread(_environment, chosen, beside, base)
            builds.report(beside.missing[0])
            site = await _built(declared, chosen, base, builds)
            return await asyncio.to_thread(_environment, chosen, own, base, site)
        _check_compiled(own, chosen)
        base_site = await _base_built(chosen, builds)
        base = await asyncio.to_thread(installed_in, base_site)
        sites = [await _built(declared, chosen, base, builds)] if declared.lines else []
        return await asyncio.to_thread(_environment, chosen, own, NONE, *sites, base_site)
    except Misconfigured as error:
        details: dict[str, Any] = error.info.details
        raise Misconfigured(f"{plugin}: {error.message}", plugin=plugin, **details) from None


def environments_in(context: PluginContext) -> Path:
    """Return the folder of what is built for the plugins of a project, whichever of them this context is of: among the
    operator's files, since a project from elsewhere must not bring code that runs."""
    return context.operator_dir.parents[1] / "isolation" / "environments"


@cache
def host_python() -> Python:
    """Return the Python of this process, as it was installed."""
    return Python(Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable))), platform.python_version())


def _environment(chosen: Python, own: Packages, base: Packages, *sites: Path) -> Environment:
    """Return an environment of what was built (`sites`), of distributions beside the host, and of those of the `base`
    whose place none takes. Blocking."""
    taken = {*own.distributions}.union(*(installed_in(site).distributions for site in sites))
    facts = [_FORMAT, str(chosen.program), chosen.version, platform.system(), platform.machine(), *platform.libc_ver()]
    facts += [*own.versions, "", *base.versions, "", *(site.parent.parent.name for site in sites)]
    return Environment(
        interpreter=chosen.program,
        read=lambda: own.pieces() | base.pieces(taken, metadata=False),
        hash=hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:40],
        python=chosen.version,
        built=sites,
    )


# --- what is declared, and what there is -------------------------------------------------------------------


def _installed(distribution: str | None, path: Path | None) -> Packages:
    """Return the distribution that a plugin came in; none for a folder."""
    if distribution is None:
        return NONE
    one = find(distribution, [str(path)] if path is not None else sys.path)
    if one is None:
        raise Misconfigured(f"its distribution {distribution} is not installed any more: install it again")
    return Packages({canonicalize_name(distribution): one})


def _declared(root: Path | None, own: Packages, builder: PackageBuilder) -> DeclaredPackages:
    """Return the requirements of a plugin besides the host."""
    found = builder.declared(root) if root is not None else None
    for one in own.distributions.values():
        found = DeclaredPackages(f"{one.name} {one.version}", _without_extras(one))
    if found is None:
        return DeclaredPackages("it")
    kept = []
    for line, plain in zip(found.lines, found.requirements, strict=True):
        wanted = parsed(plain, found.source)
        is_host = canonicalize_name(wanted.name) in _of_the_host()
        kept += _of_extras(wanted.extras) if is_host else [line]
    return replace(found, lines=tuple(kept), lock=found.lock if kept else None)


def _of_extras(extras: Collection[str]) -> list[str]:
    """Return the requirements that the host has only with extras."""
    wanted = [parsed(line, DISTRIBUTION) for line in _host().requires or () if extras]
    return [f"{one.name}{one.specifier}" for one in wanted if is_of_extra(one.marker, extras)]


def _check_reviewed(plugin: str, root: Path, declared: DeclaredPackages, reviewed: Mapping[str, bytes]) -> None:
    files = [root / name for name in (declared.source, _LOCK) if (root / name).is_file()]
    changed = [file for file in files if reviewed.get(file.name) != hashlib.sha256(file.read_bytes()).digest()]
    if changed:
        message = f"{changed[0]} was changed after {plugin} was reviewed; look at the plugin and grant it again"
        raise PermissionDenied(message, plugin=plugin)


def _without_extras(one: Distribution) -> tuple[str, ...]:
    return tuple(line for line in one.requires or () if "extra" not in str(parsed(line, one.name).marker))


@cache
def _of_the_host() -> frozenset[str]:
    """Return the normalised names of the host and of its first-party plugins: their code is there anyway."""
    plugins = _host().entry_points.select(group=GROUP).names
    return frozenset(map(canonicalize_name, (DISTRIBUTION, *plugins)))


@cache
def _host() -> Distribution:
    found = find(DISTRIBUTION, sys.path)
    assert found is not None  # it runs
    return found


@cache
def _base() -> Packages:
    """Return the packages that the host itself requires, as installed: its code needs them in a process, and authors
    may take for granted. Blocking."""
    return required(_host().requires or (), sys.path, DISTRIBUTION, _of_the_host())


def _beside_the_host(declared: DeclaredPackages, own: Packages) -> Packages:
    """Return the distribution of a plugin and what it declares, as they are installed beside the host. Blocking."""
    places = [str(one.locate_file("")) for one in own.distributions.values()]  # where it may have versions of its own
    found = required(declared.requirements, [*places, *sys.path], declared.source, _of_the_host())
    if declared.lock is not None or "--hash=" in "".join(declared.lines):
        found = replace(found, missing=(f"{declared.source} says which files it takes", *found.missing))
    return replace(found, distributions={**found.distributions, **own.distributions})


# --- which Python -----------------------------------------------------------------------------------------


async def _chosen(python: str | None, declared: DeclaredPackages, builder: PackageBuilder) -> Python:
    """Return the host's Python where it fits, else the newest of this machine that does."""
    asked = {"runtime.python in plugin.yaml": python or "", f"requires-python in {declared.source}": declared.python}
    ranges = {where: _range(text, where) for where, text in asked.items() if text}
    ranges[f"the host, {DISTRIBUTION}"] = SpecifierSet(_host().metadata["Requires-Python"] or "")

    def fits(one: Python) -> bool:
        return all(wanted.contains(one.version) for wanted in ranges.values())

    if fits(host_python()):
        return host_python()
    found = await builder.pythons()
    for one in found:
        if fits(one):
            return one
    wanted = " and ".join(f"Python {wanted} ({where})" for where, wanted in ranges.items())
    there = ", ".join(dict.fromkeys(one.version for one in (host_python(), *found)))
    raise Misconfigured(
        f"it asks for {wanted}, and this machine has {there}: install one that fits, such as by "
        "`uv python install VERSION`, or change what is asked for"
    )


def _range(text: str, where: str) -> SpecifierSet:
    number = _VERSION.fullmatch(text.strip())
    try:
        return SpecifierSet(f"=={number[0]}{'' if number[1] else '.*'}" if number else text)
    except InvalidSpecifier:
        raise Misconfigured(f"{where} is {text!r:.80}, and no version or range such as 3.13 or >=3.12") from None


def _check_compiled(own: Packages, chosen: Python) -> None:
    """Raise `Misconfigured` for a distribution that only the host's Python can load."""
    tag = f".{sys.implementation.cache_tag}-"
    for one in own.distributions.values():
        for file in one.files or ():
            if tag in file.name and not file.name.endswith(".pyc"):
                raise Misconfigured(
                    f"{file} of {one.name} was compiled for Python {host_python().version}, and it asks for "
                    f"{chosen.version}: leave runtime.python in plugin.yaml out"
                )


# --- building ---------------------------------------------------------------------------------------------


async def _built(declared: DeclaredPackages, chosen: Python, base: Packages, builds: Builds) -> Path:
    """Return the folder of what is declared; where something of the base is among it, in a version that fits the
    base."""
    wanted = WantedPackages(declared, chosen, base.constraints, _of_the_host())
    try:
        return await builds.builder.build(wanted, builds.report, builds.check)
    except Misconfigured as error:
        names = {one.name for line in declared.requirements if not _fits(one := parsed(line, declared.source), base)}
        needed = [line for line in base.constraints if parsed(line, DISTRIBUTION).name in names]
        hint = f"; {DISTRIBUTION} and what it requires need {', '.join(needed)}" if needed else ""
        details: dict[str, Any] = error.info.details
        raise Misconfigured(f"{error.message}{hint}", **details) from None


def _fits(wanted: Requirement, base: Packages) -> bool:
    """Return whether what the base has is of a wanted version, if it has such a distribution."""
    one = base.distributions.get(canonicalize_name(wanted.name))
    return one is None or wanted.specifier.contains(one.version, prereleases=True)


async def _base_built(chosen: Python, builds: Builds) -> Path:
    """Return the folder of the base for another Python, in the versions of the host, for all plugins together."""
    base = await asyncio.to_thread(_base)
    lines = _without_extras(_host())
    exact = tuple(f"{one.name}=={one.version}" for one in base.distributions.values())
    return await builds.builder.build(
        WantedPackages(DeclaredPackages(DISTRIBUTION, lines), chosen, exact), builds.report, None
    )
