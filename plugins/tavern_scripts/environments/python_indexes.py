"""Where this machine takes Python packages from: what the environment, uv and pip say, as settings for uv.

Reads the operator's own files only, and never one of a project. pip's settings count where uv has none of its own.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tavern_scripts.environments.addresses import Reached, folder_of, without_credentials, words
from tavern_scripts.environments.public_indexes import python_index

SYSTEM_FILES = (Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"), Path(sys.prefix) / "pip.conf")
"""pip's files for everybody, the weakest first."""

_NAMED = re.compile(r"\A[A-Za-z0-9._-]+=")
"""uv's name for an index, before its address."""


@dataclass
class PythonIndexes:
    """Settings of package indexes. `default` None: the public one; `more` come before it, as uv has it."""

    default: str | None = None
    more: list[str] = field(default_factory=list)
    find_links: list[str] = field(default_factory=list)
    no_index: bool = False
    strategy: str | None = None
    insecure: list[str] = field(default_factory=list)
    certificates: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing says where packages come from."""
        return not (self.default or self.more or self.find_links or self.no_index)

    def reached(self) -> Reached:
        """Return the addresses and secrets that an installation needs."""
        reached = Reached()
        if not self.no_index:
            for address in filter(None, (self.default or python_index()[0], *self.more)):
                reached.add(_NAMED.sub("", address))
        for address in self.find_links:
            reached.add(address, is_index=False)
        return reached

    def variables(self) -> dict[str, str]:
        """Return the settings as variables of uv."""
        result = {"UV_NO_CONFIG": "1", "UV_KEYRING_PROVIDER": "disabled"}
        if not self.no_index:  # uv has no variable for that, see `jobs.py`
            if index := self.default or python_index()[0]:
                result["UV_DEFAULT_INDEX"] = index
            if self.more:
                result["UV_INDEX"] = " ".join(self.more)
        if self.find_links:
            result["UV_FIND_LINKS"] = ",".join(self.find_links)
        if self.strategy:
            result["UV_INDEX_STRATEGY"] = self.strategy
        if self.insecure:
            result["UV_INSECURE_HOST"] = " ".join(self.insecure)
        return result

    def identity(self) -> list[str]:
        """Return the parts that distinguish these settings from others, without secrets."""
        entries = [self.default or python_index()[0] or "", *self.more, "", *self.find_links]
        return [*map(without_credentials, entries), str(self.no_index), self.strategy or ""]


def python_indexes(environment: Mapping[str, str]) -> PythonIndexes:
    """Return the settings of this machine."""
    indexes = _of_uv(environment)
    if indexes.is_empty:
        of_pip = _of_pip(environment)
        of_pip.strategy, of_pip.insecure = indexes.strategy, [*indexes.insecure, *of_pip.insecure]
        of_pip.certificates = indexes.certificates or of_pip.certificates
        indexes = of_pip
    indexes.certificates = indexes.certificates or environment.get("REQUESTS_CA_BUNDLE")
    indexes.find_links = [str(folder_of(entry) or entry) for entry in indexes.find_links]
    return indexes


def _of_uv(environment: Mapping[str, str]) -> PythonIndexes:
    found = PythonIndexes(certificates=environment.get("SSL_CERT_FILE"))
    config = Path(environment.get("XDG_CONFIG_HOME") or _home(environment) / ".config") / "uv" / "uv.toml"
    for file in (Path("/etc/uv/uv.toml"), config, *map(Path, words(environment.get("UV_CONFIG_FILE", ""))[:1])):
        _take_uv(found, _read_toml(file))
    variables = {
        "default": environment.get("UV_DEFAULT_INDEX") or environment.get("UV_INDEX_URL"),
        "strategy": environment.get("UV_INDEX_STRATEGY"),
    }
    for name, value in variables.items():
        if value:
            setattr(found, name, value)
    for variable, target in (
        ("UV_INDEX", found.more),
        ("UV_EXTRA_INDEX_URL", found.more),
        ("UV_FIND_LINKS", found.find_links),
        ("UV_INSECURE_HOST", found.insecure),
    ):
        target += [entry for entry in words(environment.get(variable, "")) if entry not in target]
    found.no_index = found.no_index or _is_yes(environment.get("UV_NO_INDEX"))
    return found


def _take_uv(found: PythonIndexes, table: dict[str, Any]) -> None:
    pip = table.get("pip", {})
    for part in (table, pip if isinstance(pip, dict) else {}):
        if isinstance(part.get("index-url"), str):
            found.default = part["index-url"]
        found.more += _texts(part.get("extra-index-url"))
        found.find_links += _texts(part.get("find-links"))
        found.insecure += _texts(part.get("allow-insecure-host"))
        found.no_index = found.no_index or part.get("no-index") is True
        if isinstance(part.get("index-strategy"), str):
            found.strategy = part["index-strategy"]
        for index in part.get("index", []) if isinstance(part.get("index"), list) else []:
            if not isinstance(index, dict) or not isinstance(index.get("url"), str) or index.get("explicit"):
                continue
            if index.get("default"):
                found.default = index["url"]
            else:
                found.more.append(index["url"])


def _of_pip(environment: Mapping[str, str]) -> PythonIndexes:
    settings: dict[str, str] = {}
    for file in _pip_files(environment):
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeError, configparser.Error):
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                settings.update((name.replace("_", "-"), value) for name, value in parser.items(section))
    for name in ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert"):
        value = environment.get("PIP_" + name.upper().replace("-", "_"))
        if value:
            settings[name] = value
    return PythonIndexes(
        default=settings.get("index-url", "").strip() or None,
        more=words(settings.get("extra-index-url", "")),
        find_links=words(settings.get("find-links", "")),
        no_index=_is_yes(settings.get("no-index")),
        insecure=words(settings.get("trusted-host", "")),
        certificates=settings.get("cert"),
    )


def _pip_files(environment: Mapping[str, str]) -> Iterable[Path]:
    home = _home(environment)
    file = environment.get("PIP_CONFIG_FILE")
    if file == os.devnull:
        return []
    *system, environments_own = SYSTEM_FILES or (Path(os.devnull),)
    files = [*system, home / ".pip" / "pip.conf"]
    files += [Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf", environments_own]
    return [*files, Path(file)] if file else files


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError):
        return {}


def _texts(value: object) -> list[str]:
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME") or Path.home())


def _is_yes(text: str | None) -> bool:
    return (text or "").strip().lower() in ("1", "true", "yes", "on", "t", "y")
