"""Environments of Python packages for other first-party plugins: built in the sandbox in which the dependencies of
scripts are installed, by the same rules, and kept in the same way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Protocol

from tavern_host.context import PluginContext
from tavern_scripts.api.scripts import ScriptBackend

_BUILDER = "tavern_scripts.environments.for_plugins:ForPlugins"

Report = Callable[[str], None]
"""Called with one line at a time about how far a build is."""


@dataclass(frozen=True)
class Python:
    """A Python of this machine: its program, and its version such as `3.13.1`."""

    program: Path
    version: str


@dataclass(frozen=True)
class DeclaredPackages:
    """What a folder declares in the file `source`: requirements, one on each line and with its hashes; the versions of
    Python (`>=3.12`, or empty), and the text of its `uv.lock` where it has one."""

    source: str
    lines: tuple[str, ...] = ()
    python: str = ""
    lock: str | None = None

    @property
    def requirements(self) -> list[str]:
        """The requirements without hashes."""
        return [line.partition(" --hash=")[0] for line in self.lines]


@dataclass(frozen=True)
class WantedPackages:
    """An environment to be built for a Python. What is installed fits the `constraints` too, if it is installed;
    `without` are normalised names of distributions that are left out of a lock."""

    declared: DeclaredPackages
    python: Python
    constraints: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PinnedPackage:
    """A package that is about to be installed."""

    name: str
    version: str


Check = Callable[[Sequence[PinnedPackage]], Awaitable[None]]
"""Called with all that is about to be installed, before any of it is fetched to be installed; may raise."""


class PackageBuilder(Protocol):
    """Builds environments in one folder. Its methods raise `Misconfigured`, with the file and line at fault where there
    is one."""

    def declared(self, folder: Path) -> DeclaredPackages | None:
        """Return the packages that a folder declares in `requirements.txt` or `pyproject.toml`, None for none. Names,
        versions, markers and hashes are read; whatever names a place to install from is refused. Blocking."""

    async def pythons(self) -> list[Python]:
        """Return the CPythons of this machine, newest first: those on the path, those of uv and those of pyenv. None is
        downloaded."""

    async def build(self, wanted: WantedPackages, report: Report, check: Check | None) -> Path:
        """Return the folder of packages, `KEY/content/site`, read-only. There is one for each manifest, Python and
        machine, which is built where there is none yet."""

    def held(self, folder: Path) -> AbstractContextManager[None]:
        """Keep a folder that `build` returned from being removed, by any process, as long as the block runs."""

    async def prune(self, older_than: float) -> list[str]:
        """Remove what nobody holds, and nobody has asked for since so many seconds, a day at least; return the keys."""


def package_builder(
    context: PluginContext, folder: Path, backend: ScriptBackend, *, build_scripts: bool = False
) -> PackageBuilder:
    """Return the builder of environments in a folder of this machine, to which no plugin may write. `context` records
    connections and knows the proxies. With `build_scripts`, packages may run something while they are installed."""
    builder: PackageBuilder = resolve_name(_BUILDER)(context, folder, backend, build_scripts=build_scripts)
    return builder
