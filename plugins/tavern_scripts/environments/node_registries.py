"""Where this machine takes JavaScript packages from: what the environment and npm's files say, as a file for npm.

Reads the operator's own files only, and never one of a project.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tavern_scripts.environments.addresses import Reached, without_credentials
from tavern_scripts.environments.public_indexes import node_registry

SYSTEM_FILES = (Path("/usr/etc/npmrc"), Path("/etc/npmrc"), Path("/usr/local/etc/npmrc"))
"""npm's files for everybody, by how it was installed."""

_SECRET = re.compile(r"//\S+:(_authToken|_auth|_password|username)")
_TAKEN = re.compile(r"registry|@[a-z0-9~-][a-z0-9._~-]*:registry|strict-ssl|replace-registry-host")
_VARIABLE = re.compile(r"(?<!\\)\$\{([^${}?]+)\??\}")


@dataclass
class NodeRegistries:
    """Settings of registries, as npm has them."""

    settings: dict[str, str] = field(default_factory=dict)
    certificates: str | None = None

    @property
    def registries(self) -> list[str]:
        """The registries, the default one first."""
        scoped = [value for name, value in self.settings.items() if name.endswith(":registry")]
        default = self.settings.get("registry") or node_registry()
        return [default, *scoped] if default else scoped

    def hosts(self) -> set[str]:
        """Return the hosts at which a lock may say that packages lie."""
        public = node_registry()  # npm asks the configured one for what lies there
        addresses = [*self.registries, *([public] if public else [])]
        return {urlsplit(address).netloc.rpartition("@")[2].lower() for address in addresses}

    def reached(self) -> Reached:
        """Return the addresses and secrets that an installation needs."""
        reached = Reached()
        for address in self.registries:
            if address.startswith(("http://", "https://")):
                reached.add(address)
        reached.secrets.update((value, None) for name, value in self.settings.items() if _SECRET.fullmatch(name))
        return reached

    def file(self) -> str:
        """Return the settings as a file for npm, which may hold secrets."""
        return "".join(f"{name}={value}\n" for name, value in self.settings.items())

    def identity(self) -> list[str]:
        """Return the parts that distinguish these settings from others, without secrets."""
        return sorted(
            f"{name}={without_credentials(value)}"
            for name, value in self.settings.items()
            if not _SECRET.fullmatch(name)
        )


def node_registries(environment: Mapping[str, str]) -> NodeRegistries:
    """Return the settings of this machine."""
    home = Path(environment.get("HOME") or Path.home())
    variables = {name.lower(): value for name, value in environment.items() if name.lower().startswith("npm_config_")}
    user = Path(variables.get("npm_config_userconfig") or home / ".npmrc")
    configured = variables.get("npm_config_globalconfig")
    system = [Path(configured)] if configured else SYSTEM_FILES
    found = NodeRegistries()
    for file in (*system, user):
        for name, value in _lines(file, environment):
            _take(found, name, value)
    for variable, value in variables.items():
        name = variable.removeprefix("npm_config_")
        _take(found, name if name.startswith("//") else name.replace("_", "-"), value)
    found.certificates = (
        found.certificates or environment.get("NODE_EXTRA_CA_CERTS") or environment.get("SSL_CERT_FILE")
    )
    return found


def _take(found: NodeRegistries, name: str, value: str) -> None:
    if name == "cafile":
        found.certificates = value
    elif "\n" not in value and (_TAKEN.fullmatch(name) or _SECRET.fullmatch(name)):
        found.settings[name] = value


def _lines(file: Path, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return []
    result = []
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if not separator or name.lstrip().startswith(("#", ";", "[")):
            continue
        value = value.strip().strip("\"'")
        expanded = _VARIABLE.sub(lambda match: environment.get(match[1], match[0]), value)
        result.append((name.strip(), expanded))
    return result
