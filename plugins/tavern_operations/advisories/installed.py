"""Which packages are installed: beside the host, for plugins, and in the environments of scripts. Blocking."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from email.parser import HeaderParser
from pathlib import Path

from importlib_metadata import distributions
from packaging.utils import canonicalize_name

from tavern_host import Folders, PluginContext
from tavern_host.contracts.packages import Packages

MAX_PACKAGES = 100_000
"""How many packages of npm are looked for in one environment."""


@dataclass(frozen=True)
class Installed:
    """A package in an environment."""

    ecosystem: str
    name: str
    version: str
    place: str

    @property
    def key(self) -> str:
        """The name as advisories are looked up by."""
        return canonicalize_name(self.name) if self.ecosystem == "PyPI" else self.name


def installed(context: PluginContext) -> list[Installed]:
    """Return all that is installed for a project, each once for each place."""
    found = [*_python(sys.path, "host")]
    folder = replace(Folders.of_user(), state=context.operator_dir.parents[3]).packages
    with suppress(OSError, ValueError):  # `tavern plugins list` says so
        for package in Packages.read(folder).packages.values():
            found += _python([str(folder / package.folder)], f"plugin {', '.join(package.plugins)}")
    apart = context.operator_dir.parents[1] / "isolation"
    folders = {"script": context.data_dir.with_name("tavern-scripts"), "plugin": apart}
    for kind, place in folders.items():
        for environment in sorted((place / "environments").glob("*/content")):
            named = f"{kind} environment {environment.parent.name[:12]}{_source(environment.parent)}"
            found += _python([str(environment / "site")], named)
            found += _node(environment / "node_modules", named)
    return list(dict.fromkeys(found))


def _python(path: Iterable[str], place: str) -> Iterator[Installed]:
    for distribution in distributions(path=list(path)):
        about = HeaderParser().parsestr(distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or "")
        if about["Name"] and about["Version"]:
            yield Installed("PyPI", about["Name"], about["Version"], place)


def _node(folder: Path, place: str) -> Iterator[Installed]:
    """Yield the packages in a folder `node_modules`, with those within others; links are not followed."""
    waiting, seen = [folder], 0
    while waiting and seen < MAX_PACKAGES:
        here = waiting.pop()
        for entry in sorted(here.iterdir()) if here.is_dir() else ():
            if entry.is_symlink() or not entry.is_dir() or entry.name.startswith("."):
                continue
            if entry.name.startswith("@"):
                waiting.append(entry)
                continue
            seen += 1
            waiting.append(entry / "node_modules")
            about = _json(entry / "package.json")
            name, version = about.get("name"), about.get("version")
            if isinstance(name, str) and isinstance(version, str):
                yield Installed("npm", name, version, place)


def _source(environment: Path) -> str:
    source = _json(environment / "record.json").get("source")
    return f" ({source})" if isinstance(source, str) else ""


def _json(file: Path) -> dict[str, object]:
    try:
        data = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
