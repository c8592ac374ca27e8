"""What is known of the plugins of one host, as data, and the problems that are reported against them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tavern_host.contracts.manifest import Entry, Manifest
from tavern_host.contracts.plugins import (
    AdmissionError,
    AskedPermission,
    AskingPlugin,
    Blocked,
    PluginAsset,
    PluginInfo,
    PluginState,
    Problem,
)
from tavern_host.plugins.discovery import file_hashes, fingerprint
from tavern_host.plugins.lifecycle import Lifecycle
from tavern_host.plugins.permissions import all_permissions
from tavern_host.plugins.record import Record, log_failure, problem_of
from tavern_host.services.registry import ServiceRegistry
from tavern_host.settings.store import SettingsStore

_log = logging.getLogger("tavern.plugins")


class Problems:
    """Reports problems against plugins: in their records, where people see them, and in the log."""

    def __init__(self, records: Mapping[str, Record], audit: Callable[..., object]) -> None:
        self._records = records
        self._audit = audit

    def failed(self, plugin: str, where: str, error: BaseException) -> Problem | None:
        """Report a failure of a plugin; return what people see of it."""
        log_failure(plugin, where, error)
        if (problem := self.of(plugin, where, error)) is not None:
            self._records[plugin].add_problem(problem)
        return problem

    def of(self, plugin: str, where: str, error: BaseException) -> Problem | None:
        """Return a failure of a plugin as people see it; None where there is no such plugin."""
        record = self._records.get(plugin)
        return problem_of(error, where, record.root, plugin) if record is not None else None

    def add(self, plugin: str, problem: Problem) -> None:
        """Report, once, what is wrong with something that a plugin contributed."""
        record = self._records.get(plugin)
        if record is not None and record.add_problem(problem):
            _log.warning("%s: %s", plugin, problem)

    def blocked(self, blocked: Blocked) -> None:
        """Report that a plugin blocked the event loop."""
        record = self._records.get(blocked.plugin or "")
        if record is None:
            return
        message = f"{blocked.function} kept the whole host waiting for {blocked.seconds:.1f} s"
        hint = "let it await, or run it in a thread (a node declared `blocking`)"
        record.add_problem(Problem(message=message, hint=hint, file=blocked.file, line=blocked.line))
        if all(other.state is not PluginState.STARTED for other in self._records.values()):
            return  # a host that only loads its plugins writes nothing
        details = {"seconds": round(blocked.seconds, 1), "where": f"{blocked.file}:{blocked.line}"}
        self._audit("plugin.blocked", actor="system:host", subject=record.name, details=details)


@dataclass(frozen=True)
class Report:
    """Looks up what is known of the plugins of one host."""

    records: Mapping[str, Record]
    lifecycle: Lifecycle
    services: ServiceRegistry
    settings: SettingsStore

    def info(self, record: Record, *, collected: bool = True) -> PluginInfo:
        """Return a record as data, with or without the names of what is collected from its modules, for which they
        may have to be imported."""
        manifest = record.manifest
        loaded = self.lifecycle.active.get(record.name)
        shown = loaded.manifest if loaded is not None else manifest
        known = (loaded.frontend, loaded.declarations.ui) if loaded is not None else ()
        frontend = shown.frontend.info(record.name, *known) if shown and shown.frontend else None
        options = [o.model_dump(mode="json", exclude_unset=True) for o in manifest.config_options] if manifest else []
        settings = self.settings.problems(manifest) if manifest else []
        return PluginInfo(
            name=record.name,
            display_name=manifest.display_name if manifest else record.name,
            version=manifest.version if manifest else "",
            description=manifest.description if manifest else None,
            frontend=frontend,
            config_options=options or None,
            icon=manifest.icon if manifest else None,
            is_enabled=record.state is not PluginState.DISABLED,
            state=record.state,
            source=record.source,
            first_party=record.first_party,
            pending_restart=record.pending_restart,
            problems=[*record.problems, *settings, *self._conflicts(record.name)],
            permissions=list(record.permissions),
            timings={stage: round(ms, 2) for stage, ms in record.timings.items()},
            contributions=self.contributions(record.name, collected=collected),
            placement=record.placement,
            process=loaded.runtime.process() if loaded is not None and collected else None,
        )

    def _conflicts(self, plugin: str) -> list[Problem]:
        """Return the unsettled conflicts over services that a plugin is part of, as they are now."""
        services = self.services
        conflicts = {s: services.conflict(s) for s in services.services()}
        return [c for s, c in conflicts.items() if c and any(o.plugin == plugin for o in services.overrides(s))]

    def manifests(self) -> dict[str, Manifest]:
        """Return the manifests of all valid plugins by name, and of first-party ones all that can be read: what those
        publish is there in any case."""
        return {
            name: record.manifest
            for name, record in self.records.items()
            if record.manifest is not None and (record.first_party or record.state is not PluginState.INVALID)
        }

    def permissions(self) -> list[AskedPermission]:
        """Return every permission that there is with the plugins that ask for it, and whether each has it."""
        known = {p.name: p for p in all_permissions(self.manifests())}
        asking: dict[str, list[AskingPlugin]] = {}
        for record in self.records.values():
            for each in record.permissions:
                known.setdefault(each.name, each)
                asking.setdefault(each.name, []).append(AskingPlugin(name=record.name, granted=each.granted))
        return [
            AskedPermission(name=name, level=p.level, description=p.description, plugins=asking.get(name, []))
            for name, p in known.items()
        ]

    def contributions(self, name: str, *, collected: bool = True) -> dict[str, list[str]]:
        """Return the names of what a plugin has registered, by kind, with or without what its modules define."""
        loaded = self.lifecycle.active.get(name)
        if loaded is None:
            return {}
        owned = {**loaded.ledger.owned(), "hook": [i.info.hook for i in loaded.implementations]}
        for hook, kind in self.services.catalogue.collected().items() if collected else ():
            if names := [getattr(item, kind.title) for item in loaded.runtime.collect(hook)]:
                owned[kind.name] = names
        return owned

    def owned(self, name: str) -> dict[str, list[str]]:
        """Return everything in the ledgers of a plugin by kind, those of draining loads included."""
        owned: dict[str, list[str]] = {}
        for loaded in self.lifecycle.loads_of(name):
            for kind, names in loaded.ledger.owned().items():
                owned.setdefault(kind, []).extend(names)
        return owned

    def assets(self, kind: str) -> list[PluginAsset]:
        """Return the folders of a kind (`tools`, `workflows`) that loaded plugins declare, or their own: `plugin`."""
        assets = []
        for name, loaded in self.lifecycle.active.copy().items():
            root, entry = loaded.record.root, getattr(loaded.manifest, kind, None)
            if kind == "plugin" and root is not None:
                changed = _differs_from_review(loaded.record)
                assets.append(PluginAsset(plugin=name, kind=kind, path=str(root.resolve()), changed=changed))
            if root is None or not isinstance(entry, Entry):
                continue
            folder = (root / entry.entry).resolve()
            if folder.is_relative_to(root.resolve()):
                assets.append(PluginAsset(plugin=name, kind=kind, path=str(folder)))
        return assets

    def locate(self, file: str) -> str | None:
        """Return the plugin that a file of code belongs to, loaded or not, or None. Safe on any thread."""
        inside = f"{Path(file)}{os.sep}"  # as texts: every stop of a command's loop asks for each frame and plugin
        roots = ((record.name, f"{record.root}{os.sep}") for record in tuple(self.records.values()) if record.root)
        return next((name for name, root in roots if inside.startswith(root)), None)


def check_in_order(infos: Sequence[PluginInfo]) -> None:
    """Raise `AdmissionError` with every problem unless each plugin is disabled, or started without a problem."""
    bad = [
        p for p in infos if p.state is not PluginState.DISABLED and (p.state is not PluginState.STARTED or p.problems)
    ]
    if bad:
        lines = [f"  {p.name} is {p.state.value}: {problem}" for p in bad for problem in p.problems]
        problems = [problem for p in bad for problem in p.problems]
        raise AdmissionError("not all plugins are in order:\n" + "\n".join(lines), problems)


def _differs_from_review(record: Record) -> bool:
    """Return whether a plugin's folder had to be reviewed and has changed since. Blocking."""
    if record.root is None or record.reviewed is None or fingerprint(record.root) == record.fingerprint:
        return False
    try:
        return file_hashes(record.root) != record.reviewed
    except OSError:
        return True
