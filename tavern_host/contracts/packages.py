"""The plugins that the operator installed for the host alone: what is kept of each.

Each is a distribution in a folder of its own, with what it depends on and the host's environment has not.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pydantic import Field

from tavern_host.contracts.plugins import PermissionInfo
from tavern_host.contracts.wire import Model

PACKAGES_FILE = "packages.json"
"""The file in the operator's folder of packages that says which versions are in use."""


class Package(Model):
    """One version of a distribution that holds plugins.

    `folder` is its own within the folder of packages; `requested` is what the operator asked for, `sha256` the hash of
    the file that it came in, where it came in one. `dependencies` are what is in its folder beside it, by name with the
    version. `previous` is the version that was in use before it, which is kept, and `previous_granted` which plugins
    had all that they asked for then, as PROJECT/PLUGIN.
    """

    distribution: str
    version: str
    plugins: list[str]
    folder: str
    requested: str
    installed_at: datetime
    sha256: str | None = None
    dependencies: dict[str, str] = Field(default_factory=dict)
    previous: Package | None = None
    previous_granted: list[str] = Field(default_factory=list)


class Packages(Model):
    """All that are in use, by normalized name of the distribution."""

    packages: dict[str, Package] = Field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Packages:
        """Return the record in the folder of packages; empty where it has no file. Raises `ValueError`, `OSError`."""
        file = folder / PACKAGES_FILE
        return cls.model_validate_json(file.read_bytes()) if file.exists() else cls()


class PackageChange(Model):
    """What came of installing, upgrading or uninstalling a package.

    `before` is the version that was there, `missing` what each of its plugins asks for of which not all is granted:
    what is new where the version before is in use, else all. Nothing of those was imported. Where it `failed` to load
    in a running host, for these reasons, and where `missing` keeps an upgrade from coming into use, nothing is
    `changed`. `running` says what became of it in the running hosts of the project.
    """

    package: Package
    before: str | None = None
    missing: dict[str, list[PermissionInfo]] = Field(default_factory=dict)
    changed: bool = True
    failed: list[str] = Field(default_factory=list)
    running: list[str] = Field(default_factory=list)

    @property
    def refusal(self) -> str | None:
        """Why nothing was changed though it was to be, or None."""
        names, version = ", ".join(self.package.plugins), self.package.version
        if self.failed:
            stays = f"{self.before} is in use again" if self.before is not None else "it is removed again"
            return f"{names} {version} could not be loaded, and {stays}: {'; '.join(self.failed)}"
        if self.missing and not self.changed:
            hint = f"`tavern plugins upgrade {self.package.plugins[0]} … --grant` grants it"
            asked = f"{names} {version} asks for more than is granted, and nothing was changed"
            return f"{asked}: {self.before} stays in use. {hint}"
        return None


class PackageRequest(Model):
    """What a client wants to be installed: a name, perhaps with versions (`acme>=2`), or the address of a wheel; for an
    upgrade by default the newest version. With `grant`, what it asks for is granted at once."""

    what: str | None = None
    grant: bool = False
    outside_index: bool = False
