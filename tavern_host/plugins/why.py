"""Explains why a service, a hook, a permission or a plugin is as it is: `tavern why service:toolManager`.

Reads what the manager, the services and the hooks know; decides and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.manifest import canonical
from tavern_host.contracts.names import look_up
from tavern_host.contracts.plugins import Explanation, Involvement, PermissionInfo, PluginState
from tavern_host.contracts.services import interface_methods
from tavern_host.plugins.manager import Manager
from tavern_host.plugins.permissions import all_permissions
from tavern_host.plugins.record import Record


def explain(manager: Manager, subject: str) -> Explanation:
    """Explain `kind:name`. Raises `InvalidInput` for an unknown kind, `NotFound` for an unknown name."""
    kind, _, name = subject.partition(":")
    if kind not in _KINDS or not name:
        raise InvalidInput(f"{subject!r} must be one of {', '.join(f'{k}:NAME' for k in _KINDS)}")
    known = _Facts(manager)
    answer, facts = _KINDS[kind](known, name)
    return Explanation(subject=subject, answer=answer, facts=facts, involved=known.involved)


Answer = tuple[str, list[str]]


class _Facts:
    """Looks things up in one host, and words them."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._grants = manager.grants.read()
        self.involved: list[Involvement] = []

    def plugin(self, name: str) -> Answer:
        """Explain a plugin: its state, and by what it has each permission."""
        record = self._manager.get(name)
        facts = [f"it comes from {record.source}" + (", first-party" if record.first_party else "")]
        facts += [f"it requires {other} {versions}".rstrip() for other, versions in record.required.items()]
        required_by = [other.name for other in self._manager.records.values() if name in other.required]
        facts += [f"{', '.join(required_by)} requires it"] if required_by else []
        facts += [f"{p.name} ({p.level}): {self._why_granted(record, p)}" for p in record.permissions]
        contributions = self._manager.report.contributions(name)
        facts += [
            f"it has the {kind} {', '.join(filter(None, names))}" for kind, names in contributions.items() if any(names)
        ]
        facts += [f"{stage} took {ms:.1f} ms" for stage, ms in record.timings.items()]
        problems = [str(problem) for problem in self._manager.report.info(record).problems]
        reason = problems[0] if problems else _ORDINARY.get(record.state, "nothing is wrong with it")
        return f"{name} is {record.state.value}: {reason}", [*problems[1:], *facts]

    def service(self, name: str) -> Answer:
        """Explain a service: its stack, the overrides that are not used, and who may act on it."""
        services = self._manager.services
        interface = look_up("service", name, services.catalogue.interfaces)
        stack = services.stack(name)
        if not stack:
            return f"{name} has no provider", self._asking(lambda p: p == f"services.override:{name}")
        facts = []
        for layer in stack:
            since = f"since {layer.since:%Y-%m-%d %H:%M:%S} UTC"
            if not layer.override:
                self._involve(layer.plugin, "provides", str(layer.handler), "declared")
                facts.append(f"{layer.plugin} provides it with {layer.handler}, {since}")
                continue
            later = [m for m, info in interface_methods(interface).items() if info.since > layer.version]
            falls = f"; leaves {', '.join(later)} to the next provider in the stack" if later else ""
            by = self._granted_to(layer.plugin, f"services.override:{name}")
            self._involve(layer.plugin, "overrides", str(layer.handler), by)
            facts.append(f"{layer.plugin} overrides version {layer.version} with {layer.handler}, {since}, {by}{falls}")
        conflict = services.conflict(name)
        facts += [str(conflict)] if conflict is not None else []
        facts += self._asking(lambda p: p.startswith(f"services.use:{name}:") or p == "services.use:*")
        top = stack[-1]
        how = "overrides" if top.override else "provides"
        return f"{top.plugin} {how} {name} (version {interface.service_version})", facts

    def hook(self, name: str) -> Answer:
        """Explain a hook: who calls it, and who is called in which order."""
        dispatcher = self._manager.dispatcher
        spec = look_up("hook", name, dispatcher.catalogue.hooks)
        facts = [f"called by {self._caller(spec.caller)}, policy {spec.policy}; needs {spec.permission} ({spec.level})"]
        implementations = dispatcher.implementations(name)
        for place, one in enumerate(implementations, start=1):
            where = f"{one.info.file}:{one.info.line}" if one.info.file else one.info.function
            by = self._granted_to(one.info.plugin, spec.permission)
            self._involve(one.info.plugin, "implements", where, by)
            facts.append(f"{place}. {one.info.plugin} ({where}), {by}")
        facts += self._asking(lambda p: p == spec.permission, only_refused=True)
        names = ", ".join(dict.fromkeys(one.info.plugin for one in implementations))
        return f"{name} is implemented by {names}" if names else f"nobody implements {name}", facts

    def permission(self, name: str) -> Answer:
        """Explain a permission: what it allows, who asks for it, and by what each has it."""
        name = canonical(name)
        known = {p.name: p for p in all_permissions(self._manager.report.manifests())}
        known |= {p.name: p for record in self._manager.records.values() for p in record.permissions}
        permission = look_up("permission", name, known)
        asking = self._asking(lambda p: p == name)
        return f"{permission.description} (level {permission.level})", asking or ["no plugin asks for it"]

    # --- parts of answers ---------------------------------------------------------------------------

    def _involve(self, plugin: str, role: Literal["provides", "overrides", "implements"], where: str, by: str) -> None:
        self.involved.append(Involvement(plugin=plugin, role=role, where=where, granted=by))

    def _why_granted(self, record: Record, permission: PermissionInfo) -> str:
        return self._manager.review.why_granted(record, permission, self._grants.get(record.name))

    def _granted_to(self, plugin: str, permission: str) -> str:
        record = self._manager.records.get(plugin)
        asked = next((p for p in record.permissions if p.name == permission), None) if record else None
        return self._why_granted(record, asked) if record is not None and asked is not None else "declared"

    def _asking(self, wanted: Callable[[str], bool], *, only_refused: bool = False) -> list[str]:
        return [
            f"{record.name} ({record.state.value}) asks for {p.name}: {self._why_granted(record, p)}"
            for record in self._manager.records.values()
            for p in record.permissions
            if wanted(p.name) and not (only_refused and record.name in self._manager.active)
        ]

    def _caller(self, caller: str) -> str:
        if caller == "host" or caller.startswith("plugin:"):
            return caller.removeprefix("plugin:")
        provider = self._manager.services.provider_of(caller)
        return f"the provider of {caller}" + (f", {provider.plugin}" if provider is not None else ", which is missing")


_KINDS: dict[str, Callable[[_Facts, str], Answer]] = {
    "service": _Facts.service,
    "hook": _Facts.hook,
    "permission": _Facts.permission,
    "plugin": _Facts.plugin,
}
_ORDINARY = {
    PluginState.DISCOVERED: "it may be loaded, and the host has not started",
    PluginState.LOADED: "it is loaded, and the host has not started",
}
