"""What an operator asks for: a path, the address of a wheel, or a name, which an index says more about.

Files are copied before they are hashed, and installed from the copy, so that what was checked is what is installed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shlex
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from pydantic import Field, StringConstraints, ValidationError

from tavern_host import PluginContext
from tavern_host.common.proxies import failed
from tavern_host.contracts.errors import Conflict, InvalidInput, Misconfigured, NotFound, ServiceUnavailable, describe
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.packages import Package
from tavern_host.contracts.plugins import MANIFEST, PermissionInfo
from tavern_host.contracts.wire import Model
from tavern_packages.installer import Wanted

MOST_INDEX = 20 << 20
MOST_WHEEL = 500 << 20
"""Bytes of an index and of a wheel."""
_PART = 1 << 20
_SECONDS = 300.0


class IndexEntry(Model):
    """One version of a plugin in an index. Its wheel is at a `url`, or at a `path` beside an index that is a file."""

    name: str
    version: str
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F]{64}$")]
    summary: str = ""
    url: str | None = None
    path: str | None = None


class Index(Model):
    """A list of plugins."""

    plugins: list[IndexEntry] = Field(default_factory=list)


Ask = Callable[[Mapping[str, list[PermissionInfo]]], Awaitable[bool]]


async def nobody(asked: Mapping[str, list[PermissionInfo]]) -> bool:
    """Return that nobody is there who could grant anything."""
    return False


@dataclass(frozen=True)
class Offer:
    """A version in the place of the one that is installed, with the permissions that it asks for and that are not
    granted, and those that it no longer asks for."""

    before: Package
    package: Package
    missing: Mapping[str, list[PermissionInfo]]
    dropped: list[str]

    def __str__(self) -> str:
        """Return how to accept it, and what changes then."""
        plugin, version = self.package.plugins[0], self.package.version
        command = f"tavern plugins upgrade {plugin} {shlex.quote(self.package.requested)}"
        command += " --grant" if self.missing else ""
        more = [permission.name for asked in self.missing.values() for permission in asked]
        changes = f"; it asks for {', '.join(more)} too" if more else ""
        changes += f"; it no longer asks for {', '.join(self.dropped)}" if self.dropped else ""
        there, was = self.before.distribution, self.before.version
        return f"{there} {was} is installed: `{command}` puts {version} in its place{changes}"


async def nobody_replaces(offer: Offer) -> bool:
    """Return that nobody is there who could say so."""
    return False


@dataclass(frozen=True)
class Options:
    """How a plugin is installed; `remote`: by a client, who may name no file of this machine. `ask` shows somebody what
    plugins ask for, by name, before anything of them is imported, and returns whether they grant it; `replace` shows
    what was to be installed where another version is, and returns whether it may take its place, with what it asks for.
    """

    grant: bool = False
    build: bool = False
    outside_index: bool = False
    remote: bool = False
    ask: Ask = nobody
    replace: Callable[[Offer], Awaitable[bool]] = nobody_replaces


@dataclass(frozen=True)
class Sources:
    """Finds what is asked for. `index` is the file or address of the operator's index, empty where there is none."""

    context: PluginContext
    index: str

    async def search(self, word: str) -> list[IndexEntry]:
        """Return the newest version of each plugin in the index with a word in its name or summary."""
        newest: dict[str, IndexEntry] = {}
        for entry in await self._read_index():
            known = newest.get(entry.name)
            if known is None or _version(entry) > _version(known):
                newest[entry.name] = entry
        found = (e for e in newest.values() if word.casefold() in f"{e.name}\n{e.summary}".casefold())
        return sorted(found, key=lambda entry: entry.name)

    async def find(self, text: str, work: Path, options: Options) -> Wanted:
        """Return the package that a text asks for; a file is in `work` then. Raises `InvalidInput`, `NotFound`,
        `Conflict` for a file of another hash, `ServiceUnavailable`."""
        if re.match(r"https?://", text):
            return await self._wheel(_without_secrets(text), text, work)
        try:
            asked = Requirement(text if not text.endswith(".whl") else "/")
        except InvalidRequirement:
            if not options.remote and ("/" in text or text.startswith((".", "~")) or text.endswith(".whl")):
                return await asyncio.to_thread(_at_path, text, work, options.build)
            what = "a plugin's name, perhaps with versions, the address of a wheel, or a path"
            raise InvalidInput(f"{text!r} is not {what}") from None
        if asked.url is not None or asked.marker is not None:
            raise InvalidInput(f"{text!r}: give the address of a wheel alone, or a name with versions alone")
        if not self.index or options.outside_index:
            return Wanted(text, str(asked), canonicalize_name(asked.name), build=options.build)
        entry = _newest(await self._read_index(), asked)
        wanted = await self._wheel(text, self._address(entry), work, entry.sha256.lower())
        return Wanted(text, wanted.argument, wanted.distribution, wanted.sha256, entry.name)

    async def _read_index(self) -> list[IndexEntry]:
        if not self.index:
            hint = "`tavern settings set extensions.tavern-packages.index FILE-OR-ADDRESS`"
            raise Misconfigured(f"there is no index of plugins: name one with {hint}")
        try:
            if is_remote(self.index):
                data = await self._download(self.index, MOST_INDEX)
            else:
                data = await asyncio.to_thread(lambda: Path(self.index).expanduser().read_bytes())
            entries = Index.model_validate(json.loads(data)).plugins
            for entry in entries:
                _version(entry)
        except (OSError, ValueError, RecursionError, ValidationError) as error:
            raise Misconfigured(f"the index {self.index} cannot be read: {describe(error)}") from None
        return entries

    def _address(self, entry: IndexEntry) -> str:
        """Return the path or address of a wheel; only an index that is a file may name a path."""
        remote = is_remote(self.index)
        if entry.path is not None and not remote:
            return str(Path(self.index).expanduser().absolute().parent / entry.path)
        address = urljoin(self.index if remote else "", entry.url or "")
        if entry.url is None or not is_remote(address):
            raise Misconfigured(f"the index {self.index} says no address of {entry.name} {entry.version}")
        return address

    async def _wheel(self, requested: str, address: str, work: Path, sha256: str | None = None) -> Wanted:
        """Put a wheel into `work`, and check its hash where one is known."""
        name = Path(unquote(urlsplit(address).path)).name if is_remote(address) else Path(address).name
        distribution, file = distribution_of(name), work / name
        if is_remote(address):
            await asyncio.to_thread(file.write_bytes, await self._download(address, MOST_WHEEL))
        else:
            await asyncio.to_thread(_copy, Path(address), file)
        found = await asyncio.to_thread(hash_of, file)
        if sha256 is not None and found != sha256:
            message = f"{address} is not the file that the index names: its SHA-256 is {found}, not {sha256}"
            raise Conflict(f"{message}; nothing was changed")
        return Wanted(requested, str(file), distribution, found)

    async def _download(self, address: str, most: int) -> bytes:
        import aiohttp

        data, shown = bytearray(), _without_secrets(address)
        try:
            timeout = aiohttp.ClientTimeout(total=_SECONDS)
            async with self.context.http.session().get(address, timeout=timeout) as answer:
                if answer.status != 200:
                    raise ServiceUnavailable(f"{shown} answers with {answer.status}; nothing was changed")
                async for part in answer.content.iter_chunked(_PART):
                    data += part
                    if len(data) > most:
                        raise InvalidInput(f"{shown} has more than {most >> 20} MiB; nothing was changed")
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            why = failed(self.context.http.proxy(address), error)
            raise ServiceUnavailable(f"{shown} cannot be read{why}; nothing was changed") from None
        return bytes(data)


def _at_path(text: str, work: Path, build: bool) -> Wanted:
    path = Path(text).expanduser().absolute()
    if path.is_dir() and (path / MANIFEST).is_file() and not (path / "pyproject.toml").is_file():
        raise InvalidInput(f"{path} is the folder of a plugin: copy it into the `plugins` folder of a project")
    if not path.exists():
        raise InvalidInput(f"there is no {path}")
    if path.suffix == ".whl":
        file = work / path.name
        distribution = distribution_of(path.name)
        _copy(path, file)
        return Wanted(text, str(file), distribution, hash_of(file))
    if not build:
        message = "is no wheel: building it runs its code before anybody has reviewed it"
        raise InvalidInput(f"{path} {message}; give its wheel, or --build")
    return Wanted(text, str(path), build=True)


def distribution_of(file: str) -> str:
    """Return which distribution a wheel is of, by its name. Raises `InvalidInput`."""
    try:
        return str(parse_wheel_filename(file)[0])
    except InvalidWheelFilename:
        raise InvalidInput(f"{file!r} is not the name of a wheel, such as acme-1.0-py3-none-any.whl") from None


def _copy(source: Path, target: Path) -> None:
    try:
        if source.stat().st_size > MOST_WHEEL:
            raise InvalidInput(f"{source} has more than {MOST_WHEEL >> 20} MiB")
        shutil.copyfile(source, target)
    except OSError as error:
        raise InvalidInput(f"{source} cannot be read: {error.strerror}") from None


def hash_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _without_secrets(address: str) -> str:
    """Return an address as it is kept: without a name and password, and without a query, which may be a token."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_remote(address: str) -> bool:
    return urlsplit(address).scheme in ("http", "https")


def _version(entry: IndexEntry) -> Version:
    try:
        return Version(entry.version)
    except InvalidVersion:
        raise ValueError(f"{entry.name}: {entry.version!r} is no version") from None


def _newest(entries: list[IndexEntry], asked: Requirement) -> IndexEntry:
    """Return the newest version that is asked for; a pre-release only where it is asked for. Raises `NotFound`."""
    name = canonicalize_name(asked.name)
    named = {entry.version: entry for entry in entries if canonicalize_name(entry.name) == name}
    if not named:
        near = did_you_mean(asked.name, {entry.name for entry in entries})
        raise NotFound(f"the index has no plugin {asked.name!r}{near} (with --outside-index it is not asked)")
    fitting = list(asked.specifier.filter(named))
    if not fitting:
        known = ", ".join(sorted(named, key=Version))
        raise NotFound(f"the index has no {asked.name}{asked.specifier}; it has {known}")
    return named[max(fitting, key=Version)]
