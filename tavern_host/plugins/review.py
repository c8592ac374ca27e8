"""Decides from manifests, grants and the operator's choices which plugins may be loaded; imports none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tavern_host import __version__
from tavern_host.contracts.manifest import Manifest, ModulesEntry
from tavern_host.contracts.plugins import PermissionInfo, Placement, PluginState, Problem
from tavern_host.plugins.discovery import content_hash, file_hashes, has_code
from tavern_host.plugins.grants import Grant, Switches
from tavern_host.plugins.operator_file import THIRD_PARTY, OperatorFile
from tavern_host.plugins.permissions import CODE, IMPORT, Publishers, Trust, asked, decide
from tavern_host.plugins.record import Record

Code = Mapping[str, bytes] | Problem | None
"""The hashes of a folder plugin's files, none where there is no code among them; why they cannot be read; or None
for a plugin that is no folder."""


@dataclass(frozen=True)
class Review:
    """What an operator said beforehand, and for this run, about which plugins may be loaded.

    `trust` names plugins that need no grant, `without` plugins to leave out; without `third_party` every one
    is left out that is not first-party.
    """

    operator: OperatorFile
    trust: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    third_party: bool = True

    def codes(self, records: Iterable[Record]) -> dict[str, Code]:
        """Return by name what `decide` takes of plugins' code. Reads whole folders, and decides nothing."""
        return {record.name: _code(record) for record in records}

    def decide(
        self, record: Record, grant: Grant | None, code: Code, *, switches: Switches, publishers: Publishers
    ) -> None:
        """Set a record's permissions, its placement, its state, and why it may not be loaded where it may not."""
        manifest = record.manifest
        if record.rest is not None:  # all mistakes at once, those of the readable part of the file too
            wrong = asked(record.rest, publishers=publishers, places=record.places)[1]
            for problem in [*wrong, *_namespace_problems(record, record.rest)]:
                record.add_problem(problem)
        if manifest is None or record.state is PluginState.INVALID:
            return
        record.state, record.problems = PluginState.DISCOVERED, list(record.notes)
        if isinstance(code, Problem):
            record.refuse(PluginState.INVALID, code)
            return
        record.reviewed = None if self.trust_in(record) == "everything" else code
        record.code_hash = f"sha256:{content_hash(code)}" if code else None
        undecided = record.undecided and not record.first_party
        wanted, problems = asked(
            manifest, code_hash=record.code_hash, undecided=undecided, publishers=publishers, places=record.places
        )
        problems += [*_namespace_problems(record, manifest), *record.faults]
        record.placement = self.placement(record, switches)
        record.permissions = decide(wanted, grant, record.source, trust=self.trust_in(record))
        if problems:
            record.refuse(PluginState.INVALID, *problems)
        elif (incompatible := _incompatibility(manifest, record)) is not None:
            record.refuse(PluginState.INCOMPATIBLE, incompatible)
        elif (out := self.left_out(record, disabled=record.name in switches.disabled)) is not None:
            record.refuse(PluginState.DISABLED, out)
        elif missing := [p for p in record.permissions if not p.granted]:
            record.refuse(PluginState.NEEDS_REVIEW, _review_problem(record, manifest, missing, grant))

    def placement(self, record: Record, switches: Switches) -> Placement:
        """Return where a plugin is to run: as `host.yaml` says by name, else as the operator said since, else as its
        manifest asks, else as `host.yaml` says of third parties. What has no code, and the host's own, runs here."""
        said, manifest = self.operator.placement, record.manifest
        has_code = record.module is not None or record.code_hash is not None
        if record.first_party or manifest is None or not has_code:
            return "in-process"
        named = said.get(record.name) or switches.placed.get(record.name)
        if named is not None:
            return named
        if manifest.runtime.placement == "process":
            return "process"
        is_embedded = record.source.startswith("embedded:")
        return "in-process" if is_embedded else said.get(THIRD_PARTY, "in-process")

    def trust_in(self, record: Record) -> Trust:
        """Return the permissions of a plugin that need no grant."""
        if record.first_party or record.is_dev or record.name in self.trust:
            return "everything"
        return "permissions" if record.name in self.operator.trust else "nothing"

    def left_out(self, record: Record, *, disabled: bool) -> Problem | None:
        """Return why the operator does not want a plugin, or None."""
        if record.name in self.without:
            return Problem(message="it is left out of this run", hint="start without --no-plugin for it")
        if not self.third_party and not record.first_party:
            return Problem(message="only first-party plugins are loaded in this run", hint="start without --no-plugins")
        if record.name in self.operator.disabled:
            hint = "take it out of `disabled` in host.yaml"
            return Problem(message="the operator has disabled it", hint=hint)
        if disabled:
            return Problem(message="the operator has disabled it", hint=f"`tavern plugins enable {record.name}`")
        return None

    def why_no_grant(self, record: Record) -> str | None:
        """Return why a plugin needs no grant, or None where it needs one."""
        if record.first_party:
            return "it is first-party"
        if record.state is PluginState.INVALID:
            return None
        if all(p.level == "add" for p in record.permissions):
            return "it only adds things"
        if all(p.granted for p in decide(record.permissions, None, record.source, trust=self.trust_in(record))):
            return "it is loaded with --dev" if record.is_dev else "it is trusted"
        return None

    def why_granted(self, record: Record, permission: PermissionInfo, grant: Grant | None) -> str:
        """Return by what a plugin has a permission, or that it has not."""
        if not permission.granted:
            return "not granted"
        if permission.level == "add":
            return "granted by declaring it"
        if record.first_party:
            return "granted since it is first-party"
        if record.is_dev:
            return "granted since it is loaded with --dev"
        if grant is not None and grant.source == record.source and permission.name in grant.permissions:
            return f"granted by the operator at {grant.granted_at:%Y-%m-%d %H:%M} UTC"
        return "granted since the operator trusts the plugin"


def _code(record: Record) -> Code:
    try:
        if record.module is not None or record.root is None:
            return None
        return file_hashes(record.root, is_dev=record.is_dev) if has_code(record.root, record.manifest) else {}
    except OSError as error:
        message = f"{error.filename} cannot be read: {error.strerror}"
        return Problem(message=message, hint="all of a plugin's code is reviewed")


def _namespace_problems(record: Record, manifest: Manifest) -> list[Problem]:
    own = {None, manifest.name, *(["core"] if record.first_party else [])}
    return [
        record.places.problem(
            (key, "namespace"),
            f"{key}.namespace: {entry.namespace!r} is not the plugin's own",
            f"leave it out; it is {manifest.name!r} then",
        )
        for key, entry in manifest.entries().items()
        if isinstance(entry, ModulesEntry) and entry.namespace not in own
    ]


def _incompatibility(manifest: Manifest, record: Record) -> Problem | None:
    if not SpecifierSet(manifest.api_version).contains(Version(__version__), prereleases=True):
        hint = f"install a version of {manifest.name} for tavern-host {__version__}"
        return Problem(message=f"it is made for tavern-host {manifest.api_version}; this is {__version__}", hint=hint)
    if manifest.runtime.wire != 1:
        message = f"it is made for the wire version {manifest.runtime.wire}; this host has 1"
        return Problem(message=message, hint=f"install a version of {manifest.name} for tavern-host {__version__}")
    if record.placement != "in-process":
        why = "its manifest says so (runtime.placement)" if manifest.runtime.placement == "in-process" else ""
        if record.source.startswith("embedded:"):
            why = "it is a part of the program that the host is in"
        if why:
            hint = f"say `placement: {{{manifest.name}: in-process}}` in host.yaml, or disable it"
            return Problem(message=f"it cannot run in a process of its own, as it is placed: {why}", hint=hint)
    return None


def _review_problem(record: Record, manifest: Manifest, missing: list[PermissionInfo], grant: Grant | None) -> Problem:
    names = ", ".join(p.name for p in missing)
    hint = f"look at `tavern plugins show {record.name}`, then `tavern plugins grant {record.name}`"
    if all(p.name == IMPORT for p in missing):
        came = "it came with another package" if record.path is None else "it is installed"
        return Problem(message=f"{came}, and nobody has decided yet that its code be run", hint=hint)
    if grant is None or grant.source != record.source:
        return Problem(message=f"it asks for {names}, which nobody has granted", hint=hint)
    when = f"{grant.granted_at:%Y-%m-%d}"
    if any(p.name.startswith(CODE) for p in missing) and any(name.startswith(CODE) for name in grant.permissions):
        more = ", ".join(p.name for p in missing if not p.name.startswith(CODE))
        message = f"its code has changed since it was reviewed at {when}" + (
            f"; it asks for {more} now" if more else ""
        )
        return Problem(message=message, hint=hint)
    version = f" of version {grant.version}" if grant.version and grant.version != manifest.version else ""
    return Problem(message=f"it asks for {names} now, which the grant{version} of {when} does not cover", hint=hint)
