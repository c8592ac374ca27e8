"""Who may read and write which bases: the rules of a base, and what an agent's profile refers to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from tavern_agents.api.agents import AGENT_RUNTIME
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import PermissionDenied, TavernError
from tavern_knowledge.api.knowledge import NODES, TOOLS, BaseHeader

Writable = Literal["yes", "suggest", "no"]

_WRITES = {"write", "write_caiu"}
_SUGGESTS = {"write_suggestions", "suggest_edits"}


@dataclass(frozen=True)
class Rights:
    """What a caller may do. `references` are the bases that an agent's profile refers to, each with what it may do
    there; None for who is not an agent. `aliases` are the names that the profile gives them."""

    principal: Principal | None = None
    references: dict[str, Writable] | None = None
    aliases: dict[str, str] = field(default_factory=dict)

    @property
    def is_person(self) -> bool:
        """Whether no base keeps the caller out: a person, the host, or this plugin's own commands."""
        return self.principal is None or self.principal.kind in ("user", "system")

    def base_id(self, name: str) -> str:
        """Return the id of the base that the caller calls by this name."""
        return self.aliases.get(name, name)

    def may_read(self, base: str, header: BaseHeader) -> bool:
        """Return whether the caller may read a base; everybody may read the host's own."""
        if self.is_person or base in (NODES, TOOLS):
            return True
        return self._referred(base, header) is not None and self._fits(header.access.read)

    def writable(self, base: str, header: BaseHeader) -> Writable:
        """Return whether the caller may write a base."""
        if base in (NODES, TOOLS):
            return "no"
        if self.is_person:
            return "yes"
        if not self._fits(header.access.write):
            return "no"
        return self._referred(base, header) or "no"

    def chosen(self, patterns: Sequence[str] | None, known: Iterable[tuple[str, BaseHeader]]) -> list[str]:
        """Return the ids of those bases that may be read and that ids, aliases and patterns name; without patterns all
        of the project's."""
        readable = [(id, {id, header.kb_id}) for id, header in known if self.may_read(id, header)]
        if patterns is None:
            return [id for id, _ in readable if id not in (NODES, TOOLS)]
        wanted = [*patterns, *(self.aliases[p] for p in patterns if p in self.aliases)]
        return [id for id, names in readable if any(n == p or fnmatchcase(n, p) for p in wanted for n in names)]

    def denied(self, base: str, doing: str) -> PermissionDenied:
        """Return the error for what the caller may not do."""
        agent = self.references is not None
        hint = "its profile's knowledge_base_references name what it may read and write" if agent else "see its access"
        return PermissionDenied(f"{self.principal} may not {doing} the knowledge base {base!r}: {hint}", base=base)

    def _referred(self, base: str, header: BaseHeader) -> Writable | None:
        """Return an agent's right to write to a base, by its file's name or its own id; None where it has no access."""
        if self.references is None:
            return "yes"
        return self.references.get(base) or self.references.get(header.kb_id)

    def _fits(self, patterns: Iterable[str]) -> bool:
        return any(fnmatchcase(str(self.principal), pattern) for pattern in patterns)


async def rights_of(context: PluginContext, call: CallContext | None) -> Rights:
    """Return the caller's rights. An agent that is not there, or whose profile is wrong, may read nothing."""
    principal = None if call is None else call.principal
    if principal is None or (principal.kind == "plugin" and principal.id == context.plugin):
        return Rights()
    if principal.kind != "agent":
        return Rights(principal)
    try:
        profile = await context.services.get(AGENT_RUNTIME).get(principal.id)
    except TavernError:
        return Rights(principal, {})
    found = profile.knowledge_base_references
    aliases = {reference.alias: reference.source_id for reference in found if reference.alias is not None}
    return Rights(principal, {one.source_id: _writable(one.access_permissions) for one in found}, aliases)


def _writable(permissions: Iterable[str]) -> Writable:
    granted = set(permissions)
    return "yes" if granted & _WRITES else "suggest" if granted & _SUGGESTS else "no"
