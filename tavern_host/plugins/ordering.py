"""In which order plugins are loaded, and whose requirements are not met."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tavern_host.contracts.names import suggest
from tavern_host.contracts.plugins import PluginState, Problem
from tavern_host.plugins.record import Record

_USABLE = frozenset({PluginState.DISCOVERED, PluginState.LOADED, PluginState.STARTED})


def load_order(records: list[Record]) -> list[Record]:
    """Return the records first-party first, then after what they require, then the earlier ones, then by name: what is
    loaded first keeps the names that it contributes.

    Plugins that require each other in a circle come last; `dependency_problems` says so.
    """
    waiting = sorted(records, key=lambda r: (not r.first_party, r.since, r.name))
    ordered: list[Record] = []
    while waiting:
        pending = {record.name for record in waiting}
        ready = next((r for r in waiting if pending.isdisjoint(r.required)), waiting[0])
        waiting.remove(ready)
        ordered.append(ready)
    return ordered


def dependency_problems(records: dict[str, Record]) -> Iterator[tuple[str, list[Problem]]]:
    """Yield each plugin that cannot be loaded for its requirements, or could not be once it were granted, with why.

    A plugin that is refused counts as missing for those that require it, so refusals spread; the caller
    applies each one before asking for the next.
    """
    order = list(records)
    for index, (name, record) in enumerate(records.items()):
        if record.state not in _USABLE and record.state is not PluginState.NEEDS_REVIEW:
            continue
        problems = []
        for needed, versions in record.required.items():
            other = records.get(needed)
            version = other.manifest.version if other is not None and other.manifest is not None else None
            if other is None:
                message = f"it requires the plugin {needed}, which is not installed"
                hint = suggest(needed, records) or f"install the plugin {needed}"
            elif other.state not in _USABLE:
                message = f"it requires {needed}, which is {other.state.value}"
                hint = f"see `tavern plugins show {needed}`"
            elif order.index(needed) >= index:
                message = f"it requires {needed}, which in turn requires {name}"
                hint = "remove one of the two requirements"
            elif version is not None and not SpecifierSet(versions).contains(Version(version), prereleases=True):
                message = f"it requires {needed} {versions}; {version} is installed"
                hint = f"install a version of {needed} that fits"
            else:
                continue
            problems.append(Problem(message=message, hint=hint))
        if problems:
            yield name, problems
