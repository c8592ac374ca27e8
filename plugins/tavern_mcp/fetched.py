"""Which package a program fetches and runs: `npx -y NAME`, `uvx NAME` and the like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FETCHERS = {"npx": "npm", "bunx": "npm", "uvx": "pypi", "pipx": "pypi"}
"""The programs that fetch a package each time, and from where."""

_NAMES_PACKAGE = {"npm": ("-p", "--package"), "pypi": ("--from", "--spec")}
"""Options of programs that fetch packages which say the package; what is called then is one of its programs."""

_WITHOUT_VALUE = ("-y", "--yes", "-q", "--quiet", "--bun", "--isolated", "--refresh", "--no-cache", "--prefer-online")
"""Their options that change nothing about which package and program it is."""


def packaged(command: str, words: Sequence[str]) -> dict[str, Any] | None:
    """Return `npx -y NAME …`, `uvx NAME …` and the like as a server that is named by its package; None for what is
    nothing of that kind."""
    registry = FETCHERS.get(command.rpartition("/")[2])
    if registry is None:
        return None
    rest = [*words]
    if rest[:1] == ["run"]:
        del rest[0]
    package = None
    while rest and rest[0].startswith("-"):
        option, _, value = rest.pop(0).partition("=")
        if option in _NAMES_PACKAGE[registry] and package is None:
            package = value or (rest.pop(0) if rest else None)
        elif option not in _WITHOUT_VALUE:  # what follows could be its value, and no package
            return None
    if not rest:
        return None
    program = rest.pop(0)
    name, at, version = (package or program)[1:].partition("@")
    name = (package or program)[:1] + name
    if at and version not in ("", "latest"):
        name += f"@{version}" if registry == "npm" else f"=={version}"
    return {registry: name, "args": rest, **({"command": program} if package else {})}
