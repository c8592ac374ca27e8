"""Builds environments for plugins; see `api.environments`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import Misconfigured
from tavern_scripts.api.environments import Check, DeclaredPackages, PackageBuilder, Python, Report, WantedPackages
from tavern_scripts.api.scripts import ScriptBackend
from tavern_scripts.environments.in_sandbox import environments_in
from tavern_scripts.environments.jobs import SITE
from tavern_scripts.environments.manifests import Manifests, PythonManifest
from tavern_scripts.environments.pythons import find_pythons
from tavern_scripts.environments.requirements import Requirements, left_out, read_requirements
from tavern_scripts.network.proxy_limits import ConnectionBudget
from tavern_scripts.policy.languages import Interpreter
from tavern_scripts.results.refusal import Refused


class ForPlugins(PackageBuilder):
    """Environments below one folder; see `PackageBuilder`."""

    def __init__(self, context: PluginContext, folder: Path, backend: ScriptBackend, *, build_scripts: bool) -> None:
        self._environments = environments_in(context, folder, backend, ConnectionBudget(), build_scripts=build_scripts)
        self._manifests = Manifests()

    def declared(self, folder: Path) -> DeclaredPackages | None:
        """Return the packages that a folder declares; see the interface."""
        with _misconfigured():
            found = self._manifests.find("python", folder, None)
        if not isinstance(found, PythonManifest):
            return None
        return DeclaredPackages(found.source, found.requirements.lines, found.requirements.python, found.lock)

    async def pythons(self) -> list[Python]:
        """Return the Pythons of this machine; see the interface."""
        with _misconfigured():
            return await find_pythons()

    async def build(self, wanted: WantedPackages, report: Report, check: Check | None) -> Path:
        """Return the folder of packages; see the interface."""
        declared, without = wanted.declared, wanted.without
        interpreter = Interpreter("python", str(wanted.python.program), wanted.python.version)
        with _misconfigured():
            lines = left_out(read_requirements("\n".join(declared.lines), declared.source).lines, without)
            requirements = Requirements(tuple(lines))
            manifest = PythonManifest(declared.source, requirements, declared.lock, wanted.constraints, without)
            built = await self._environments.ready(manifest, interpreter, report, check=check)
        return built.path / SITE

    def held(self, folder: Path) -> AbstractContextManager[None]:
        """Keep a folder of packages; see the interface."""
        return self._environments.held(folder.parent)

    async def prune(self, older_than: float) -> list[str]:
        """Remove what nobody uses; see the interface."""
        return await self._environments.prune(older_than)


@contextlib.contextmanager
def _misconfigured() -> Iterator[None]:
    """Raise as an error for other plugins what is refused to scripts."""
    try:
        yield
    except Refused as refused:
        raise Misconfigured(str(refused), log=refused.error.details) from None
