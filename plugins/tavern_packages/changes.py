"""Installs, upgrades and removes plugins: everything is looked at before anything is changed, and put back where a
running host cannot load what came.

A version is looked at as the host will see it, by a host of the same project whose packages are those that there
would be.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import distributions
from pathlib import Path

from tavern_host import Folders, Host, PluginContext, clock
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Conflict, InvalidInput
from tavern_host.contracts.packages import Package, PackageChange
from tavern_host.contracts.plugins import GROUP, AdmissionError, PluginInfo, PluginState, RunningHost
from tavern_host.storage.running_hosts import RunningHosts
from tavern_packages.installer import Installer, Wanted, unmet, versions
from tavern_packages.sources import IndexEntry, Offer, Options, Sources
from tavern_packages.store import PackageStore

_OPERATOR = "user:operator"
_BROKEN = frozenset({PluginState.INVALID, PluginState.INCOMPATIBLE, PluginState.FAILED})
_ROLLED_BACK = "plugin.rolled_back"
_NOT_RELOADED = "not reloaded"
"""What the problems of a version begin with whose load did not succeed, so that another stays in use."""


@dataclass(frozen=True)
class _Staged(Folders):
    """The operator's folders with other packages."""

    staged: Path = Path()

    @property
    def packages(self) -> Path:
        """The folder of packages that there would be."""
        return self.staged


class Changes:
    """Changes what is installed for one operator, seen from one project; `call` says for whom, None for the operator.
    With `is_running` this is the process of a host that runs, in which nothing is loaded to try it."""

    def __init__(self, context: PluginContext, call: CallContext | None = None, *, is_running: bool = False) -> None:
        self._context = context
        self._call = call
        self._is_running = is_running
        self._folders = replace(Folders.of_user(), state=context.operator_dir.parents[3])
        self.store = PackageStore(self._folders.packages)
        self.sources = Sources(context, str(context.settings.get("index", "") or "").strip())

    async def search(self, word: str) -> list[tuple[IndexEntry, str | None]]:
        """Return the plugins in the index with a word in their name or summary, each with the installed version.
        Raises `Misconfigured` where there is no index."""
        installed = {name: one.version for one in self.store.read().values() for name in one.plugins}
        return [(entry, installed.get(entry.name)) for entry in await self.sources.search(word)]

    async def install(self, text: str, options: Options) -> PackageChange:
        """Install what is not installed yet. Raises `Conflict` where it does not fit to what is there."""
        return await self._put(text, None, options)

    async def upgrade(self, name: str, text: str | None, options: Options) -> PackageChange:
        """Put another version in the place of the one that is installed, by default the newest."""
        before = self.store.find(name)
        by_index = bool(self.sources.index) and not options.outside_index
        return await self._put(text or (before.plugins[0] if by_index else before.distribution), before, options)

    async def rollback(self, name: str) -> PackageChange:
        """Put the version before in the place of the one that is in use, granted in this project if it was. Raises
        `Conflict` where none is kept."""
        with self.store.changing():
            known, now = self.store.read(), self.store.find(name)
            before = now.previous
            if before is None or not (self.store.folder / before.folder).is_dir():
                raise Conflict(f"no version of {now.distribution} from before {now.version} is kept")
            was_granted = set(self._in_project(before.plugins)) <= set(now.previous_granted)
            return await self._change(before, now, known, Options(grant=was_granted), _ROLLED_BACK)

    async def uninstall(self, name: str, *, purge: bool) -> PackageChange:
        """Remove an installed plugin; with `purge` also its data in this project, for which no host may run then."""
        state = self._folders.project_state(self._context.project)
        if purge and RunningHosts(state / "hosts").all():
            raise Conflict("a host runs for this project and may write data: stop it, or uninstall without --purge")
        with self.store.changing():
            known, package = self.store.read(), self.store.find(name)
            left = {key: one for key, one in known.items() if one != package}
            async with self._host() as host, self._host(left) as staged:
                _check_others(host.plugins(), staged.plugins(), f"without {package.distribution}", package)
                async with self._decision(host, "plugin.uninstalled", package):
                    self.store.write(left)
                running = await host.running_hosts()
                for plugin in package.plugins:
                    with contextlib.suppress(Conflict):  # it needs no grant
                        await host.revoke(plugin, call=self._call)
            for plugin in package.plugins if purge else ():
                for folder in (self._context.project.private, state):
                    await asyncio.to_thread(shutil.rmtree, folder / "plugins" / plugin, ignore_errors=True)
            await asyncio.to_thread(self._tidy)
        return PackageChange(package=package, running=[line for one in running for line in _became(one, package)])

    def _in_project(self, plugins: Iterable[str]) -> list[str]:
        """Return how the record, which all projects have in common, names plugins of this one."""
        return [f"{self._context.project.id}/{name}" for name in plugins]

    def _installer(self) -> Installer:
        return Installer(self._context.settings.get("installer") or None, self._context.http.proxy_variables())

    async def _put(self, text: str, before: Package | None, options: Options) -> PackageChange:
        with self.store.changing(), _work() as work:
            await asyncio.to_thread(self._tidy)
            known, installer = self.store.read(), self._installer()
            before = (
                known.get(before.distribution) if before is not None else None
            )  # another command may have changed it
            wanted = await self.sources.find(text, work, options)
            is_offer = before is None and (wanted.distribution or "") in known
            before = known[wanted.distribution or ""] if is_offer else before
            others = [one for one in known.values() if one != before]
            environment = self._environment()
            here = await asyncio.to_thread(versions, environment)
            _check_distribution(wanted.distribution, before, here, known)
            places = [*environment, *(str(self.store.folder / one.folder) for one in others)]
            pins = await installer.resolve(wanted, places, work)
            distribution = wanted.distribution or _built(wanted, pins)
            _check_distribution(distribution, before, here, known)
            folder = self.store.new_folder(distribution)
            try:
                await installer.unpack(wanted, pins.values(), folder)
                package = await asyncio.to_thread(self._package, wanted, distribution, folder)
                is_same = before is not None and (before.version, before.sha256) == (package.version, package.sha256)
                if before is not None and is_same and not wanted.build:
                    return PackageChange(package=before, before=before.version, changed=False)
                return await self._change(package, before, known, options, "plugin.upgraded", is_offer=is_offer)
            finally:
                if all(self.store.folder / one.folder != folder for one in self.store.read().values()):
                    await asyncio.to_thread(self.store.remove, folder)

    def _package(self, wanted: Wanted, distribution: str, folder: Path) -> Package:
        """Return the package that was installed in a folder. Raises `InvalidInput` where it holds no plugin."""
        found = next(iter(distributions(name=distribution, path=[str(folder)])), None)
        entries = [entry for entry in found.entry_points if entry.group == GROUP] if found is not None else []
        if found is None or not entries:
            raise InvalidInput(f"{wanted.requested} holds no plugin: it has no entry point in the group {GROUP}")
        nested = next((entry.value for entry in entries if "." in entry.value), None)
        if nested is not None:
            raise InvalidInput(f"{wanted.requested}: the entry point must name a package at the top, not {nested!r}")
        if wanted.plugin is not None and wanted.plugin not in {entry.name for entry in entries}:
            names = ", ".join(sorted(entry.name for entry in entries))
            raise Conflict(f"the index calls it {wanted.plugin}, and what is there is {names}; nothing was changed")
        beside = versions([str(folder)])
        beside.pop(distribution, None)
        return Package(
            distribution=distribution,
            version=found.version,
            plugins=sorted(entry.name for entry in entries),
            folder=str(folder.relative_to(self.store.folder)),
            requested=wanted.requested,
            installed_at=clock.now(),
            sha256=wanted.sha256,
            dependencies=beside,
        )

    async def _change(
        self,
        package: Package,
        before: Package | None,
        known: Mapping[str, Package],
        options: Options,
        action: str,
        *,
        is_offer: bool = False,
    ) -> PackageChange:
        """Let a package be in use that is in its folder, unless that would not go well; the audit log calls it
        `action` where there was one before. Raises `Conflict` for an offer that nobody accepts."""
        after = {**known, package.distribution: package}
        change = PackageChange(package=package, before=before.version if before is not None else None)
        async with self._host() as host, self._host(after) as staged:
            plugins = _plugins_of(package, staged.plugins())
            _check_others(host.plugins(), staged.plugins(), f"with {package.distribution} {package.version}", package)
            await asyncio.to_thread(self._check_needs, package, known, after)
            was = [one for one in host.plugins() if before is not None and one.name in before.plugins]
            in_use = any(one.state is not PluginState.NEEDS_REVIEW for one in was)
            if before is not None:
                granted_before = self._in_project(one.name for one in was if all(p.granted for p in one.permissions))
                kept = before.model_copy(update={"previous": None, "previous_granted": []})
                package = package.model_copy(update={"previous": kept, "previous_granted": granted_before})
                after[package.distribution] = package
                change = change.model_copy(update={"package": package})
            missing = {
                one.name: [p for p in one.permissions if not (in_use and p.granted)]
                for one in plugins
                if not all(p.granted for p in one.permissions)
            }
            is_revoked = action == _ROLLED_BACK and not in_use  # since the upgrade, before which it was granted
            if is_offer and before is not None:
                offer = Offer(before, package, missing, _dropped(was, plugins))
                if not await options.replace(offer):
                    raise Conflict(f"{offer}; nothing was changed")
                options = replace(options, grant=True)
            is_granted = not is_revoked and (options.grant or (bool(missing) and await options.ask(missing)))
            if missing and in_use and not is_granted:
                return change.model_copy(update={"missing": missing, "changed": False})
            if not self._is_running and (is_granted or not missing):
                await self._check_loading(package, after)
            granted = [*missing] if is_granted else []
            if action == _ROLLED_BACK and is_granted:  # what only the newer version asked for is taken back
                granted = [one.name for one in plugins]
            async with self._decision(host, "plugin.installed" if before is None else action, package, before):
                for name in granted:
                    await staged.grant(name, call=self._call)
                self.store.write(after)
            running = await host.running_hosts()
            failed = [line for one in running for line in _failures(one, package)]
            if failed:
                await self._put_back(host, package, before, known)
                for name in granted:
                    had_grant = all(p.granted for one in host.plugins() if one.name == name for p in one.permissions)
                    is_known = before is not None and name in before.plugins
                    await (host.grant if is_known and had_grant else staged.revoke)(name, call=self._call)
        told = [line for one in running for line in _became(one, package)]
        left = {} if is_granted else missing
        return change.model_copy(update={"missing": left, "changed": not failed, "failed": failed, "running": told})

    def _check_needs(self, package: Package, known: Mapping[str, Package], after: Mapping[str, Package]) -> None:
        """Raise `Conflict` where what a package needs, or another one, would not be met any more."""
        sets = ([str(self.store.folder / one.folder) for one in packages.values()] for packages in (known, after))
        now, then = (unmet(self._environment(), folders) for folders in sets)
        if lost := sorted(then - now):
            when = f"with {package.distribution} {package.version}"
            raise Conflict(f"{when}, a need would not be met, and nothing was changed: {'; '.join(lost)}")

    def _environment(self) -> list[str]:
        return [place for place in sys.path if not Path(place).is_relative_to(self.store.folder)]

    async def _put_back(
        self, host: Host, package: Package, before: Package | None, known: Mapping[str, Package]
    ) -> None:
        async with self._decision(host, "plugin.restored" if before else "plugin.uninstalled", before or package):
            self.store.write(known)
        for name in before.plugins if before is not None else ():
            host.ask_to_reload(name)
        await host.running_hosts()

    async def _check_loading(self, package: Package, after: Mapping[str, Package]) -> None:
        """Raise `AdmissionError` where a package cannot be loaded with all other plugins of the project."""
        async with self._host(after, trust=package.plugins) as host:
            try:
                await host.load()
                plugins = host.plugins()
            finally:
                await host.stop()
        _plugins_of(package, plugins)

    @contextlib.asynccontextmanager
    async def _host(
        self, packages: Mapping[str, Package] | None = None, trust: Sequence[str] = ()
    ) -> AsyncIterator[Host]:
        """Give a host of the project that knows its plugins and has imported none, with other packages where they are
        given."""
        folders = self._folders
        with _work() as staged:
            if packages is not None:
                places = {name: str(self.store.folder / one.folder) for name, one in packages.items()}
                moved = {name: one.model_copy(update={"folder": places[name]}) for name, one in packages.items()}
                self.store.write_to(staged, moved)
                folders = _Staged(folders.config, folders.state, folders.data, staged)
            host = Host(self._context.project.root, folders=folders, trust=trust)
            await asyncio.to_thread(host.link)
            try:
                yield host
            finally:
                await host.audit.close()

    def _decision(
        self, host: Host, action: str, package: Package, before: Package | None = None
    ) -> contextlib.AbstractAsyncContextManager[None]:
        details = package.model_copy(update={"previous": None, "previous_granted": []}).to_json()
        if before is not None:
            details["before"] = before.version
        actor = self._call.principal if self._call is not None else _OPERATOR
        return host.audit.decision(action, actor=actor, subject=", ".join(package.plugins), details=details)

    def _tidy(self) -> None:
        """Remove what is not in use, unless a host of any project may still use it."""
        hosts = (RunningHosts(folder).all() for folder in self._folders.state.glob("projects/*/hosts"))
        if not any(hosts):
            self.store.remove_unused()


def _check_distribution(
    name: str | None, before: Package | None, here: Mapping[str, str], known: Mapping[str, Package]
) -> None:
    """Raise `Conflict` for a distribution that cannot be installed, or not in the place of that before."""
    if before is not None and name not in (None, before.distribution):
        raise InvalidInput(f"{name} is not {before.distribution}: `tavern plugins install` takes it")
    if name is not None and name in here:
        there = f"{name} {here[name]} is in the environment of the host"
        raise Conflict(f"{there}: change it there, or uninstall it there first, with pip or uv")
    if before is None and name is not None and name in known:
        plugin = known[name].plugins[0]
        raise Conflict(f"{name} {known[name].version} is installed: `tavern plugins upgrade {plugin} …`")


def _built(wanted: Wanted, pins: Mapping[str, str]) -> str:
    """Return which of the distributions that were found is that of a path."""
    names = [name for name, pin in pins.items() if " @ file:" in pin]
    if len(names) != 1:
        raise InvalidInput(f"{wanted.requested} is in the environment of the host, or is no project")
    return names[0]


def _plugins_of(package: Package, infos: Sequence[PluginInfo]) -> list[PluginInfo]:
    """Return the plugins of a package as a host sees them. Raises `AdmissionError` for one that cannot be used."""
    found = [info for info in infos if info.source == f"package:{package.distribution}"]
    for info in found:
        if info.state in _BROKEN and not info.pending_restart:
            text = "; ".join(map(str, info.problems))
            message = f"{info.name} {package.version} would be {info.state.value}, and nothing was changed: {text}"
            raise AdmissionError(message, info.problems, plugin=info.name)
    return found


def _dropped(before: Iterable[PluginInfo], after: Iterable[PluginInfo]) -> list[str]:
    """Return the permissions that plugins no longer ask for."""
    asked = {one.name for plugin in after for one in plugin.permissions}
    return sorted({one.name for plugin in before for one in plugin.permissions} - asked)


def _check_others(now: Sequence[PluginInfo], then: Sequence[PluginInfo], when: str, package: Package) -> None:
    """Raise `Conflict` where another plugin could not be used any more."""
    broken = {(info.name, info.source) for info in now if info.state in _BROKEN}
    for info in then:
        is_own = info.source == f"package:{package.distribution}"
        if info.state in _BROKEN and not is_own and (info.name, info.source) not in broken:
            reason = info.problems[0] if info.problems else info.state.value
            raise Conflict(f"{when}, {info.name} could not be used, and nothing was changed: {reason}")


def _failures(host: RunningHost, package: Package) -> list[str]:
    """Return why a running host could not take a package, or nothing."""
    found = []
    for name in package.plugins:
        info = host.plugin(name)
        if info is None or info.pending_restart or host.problem is not None:
            continue
        told = any(problem.message.startswith(_NOT_RELOADED) for problem in info.problems)
        if info.state in _BROKEN or told:
            why = "; ".join(map(str, info.problems))
            found.append(f"the running host (process {host.process}): {name} is {info.state.value}: {why}")
    return found


def _became(host: RunningHost, package: Package) -> list[str]:
    """Return lines on the plugins of a package in a running host: the state and problems of each."""
    what = f"The running host (process {host.process})"
    if host.problem is not None:
        return [f"{what}: {host.problem}"]
    infos = [(name, host.plugin(name)) for name in package.plugins]
    states = [(name, info.state.value if info is not None else "gone", info) for name, info in infos]
    return [
        f"{what}: {name} is {state}"
        + (f"; {'; '.join(map(str, info.problems))}" if info is not None and info.problems else "")
        for name, state, info in states
    ]


@contextlib.contextmanager
def _work() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tavern-install-") as folder:
        yield Path(folder)
