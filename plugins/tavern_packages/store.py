"""The operator's folder of packages: a file that says which versions are in use, and a folder for each version."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from tavern_host.contracts.errors import Conflict, Misconfigured, NotFound, describe
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.packages import PACKAGES_FILE, Package, Packages
from tavern_host.storage.files import locked, make_folder, write_atomic


class PackageStore:
    """The packages of one operator. Blocking."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> dict[str, Package]:
        """Return the packages in use, by normalized name of the distribution. Raises `Misconfigured`."""
        try:
            return dict(Packages.read(self.folder).packages)
        except (OSError, ValueError) as error:
            file = self.folder / PACKAGES_FILE
            raise Misconfigured(f"{file} cannot be read: {describe(error)}; remove it and install again") from None

    def find(self, name: str) -> Package:
        """Return the package of a plugin, or of a distribution of this name. Raises `NotFound`."""
        known = self.read()
        by_plugin = {plugin: package for package in known.values() for plugin in package.plugins}
        found = by_plugin.get(name) or known.get(canonicalize_name(name))
        if found is None:
            near = did_you_mean(name, by_plugin)
            raise NotFound(f"no plugin {name!r} was installed with `tavern plugins install`{near}")
        return found

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Keep other processes from changing anything while the block runs. Raises `Conflict`."""
        lock = locked(self.folder / ".lock", 0)
        try:
            lock.__enter__()
        except TimeoutError as error:
            who = str(error.strerror).partition(" has held")[0]
            raise Conflict(f"the plugins are being changed by {who}: try again when it has ended") from None
        except OSError as error:
            raise Misconfigured(f"{self.folder} cannot be written: {error.strerror}") from None
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    def write(self, packages: Mapping[str, Package]) -> None:
        """Say what is in use from now on."""
        self.write_to(self.folder, packages)

    @staticmethod
    def write_to(folder: Path, packages: Mapping[str, Package]) -> None:
        """Say what is in use in a folder of packages, be it one made to try it. Raises `Misconfigured`."""
        data = json.dumps(Packages(packages=dict(packages)).to_json(), indent=2)
        try:
            write_atomic(folder / PACKAGES_FILE, data.encode(), mode=0o600)
        except OSError as error:
            raise Misconfigured(f"{folder / PACKAGES_FILE} cannot be written: {error.strerror}") from None

    def new_folder(self, distribution: str) -> Path:
        """Make a folder for a version of a distribution."""
        folder = self.folder / canonicalize_name(distribution) / secrets.token_hex(8)
        make_folder(folder)
        return folder

    def remove(self, folder: Path) -> None:
        """Remove the folder of a version."""
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # there are other versions
            folder.parent.rmdir()

    def remove_unused(self) -> None:
        """Remove the folders of versions that are neither in use nor the ones before, and those that a kill left
        unfinished."""
        known = self.read().values()
        kept = [*known, *(package.previous for package in known if package.previous is not None)]
        used = {self.folder / package.folder for package in kept}
        for place in self.folder.glob("*/*"):
            if place not in used and place.is_dir() and not place.is_symlink():
                self.remove(place)
