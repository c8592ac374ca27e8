"""Finds the database of advisories that the operator named, and compares what is installed with it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tavern_host import PluginContext
from tavern_host.common.proxies import failed
from tavern_host.contracts.errors import Misconfigured, ServiceUnavailable
from tavern_operations.advisories.database import MAX_FILE, Comparison, compare
from tavern_operations.advisories.installed import Installed, installed
from tavern_operations.api.advisories import Advisory

_PART = 1 << 20
_SECONDS = 900.0
_SETTING = "extensions.tavern-operations.advisoryDatabase"


async def compared(context: PluginContext, named: str = "") -> Comparison:
    """Return the installed packages compared with a database, by default that of the settings. Raises `Misconfigured`,
    `ServiceUnavailable`."""
    named = named or str(context.settings.get("advisoryDatabase", "") or "").strip()
    if not named:
        hint = f"name one with --database, or for always by `tavern settings set {_SETTING} FILE-OR-ADDRESS`"
        raise Misconfigured(f"there is no database of advisories: {hint}")
    return await compared_with(context, named, await asyncio.to_thread(installed, context))


async def compared_with(context: PluginContext, named: str, packages: Collection[Installed]) -> Comparison:
    """Return packages compared with a database. Raises `Misconfigured`, `ServiceUnavailable`."""
    if urlsplit(named).scheme not in ("http", "https"):
        return await asyncio.to_thread(compare, Path(named), packages)
    with tempfile.TemporaryDirectory(prefix="tavern-advisories-") as folder:
        name = Path(urlsplit(named).path).name or "advisories.json"
        file = Path(folder, name)
        await _download(context, named, file)
        return await asyncio.to_thread(compare, file, packages)


async def about(context: PluginContext, named: str, packages: Mapping[str, str], place: str) -> list[Advisory]:
    """Return the advisories about Python packages; see `api.advisories`."""
    wanted = [Installed("PyPI", name, version, place) for name, version in packages.items()]
    return (await compared_with(context, named, wanted)).found


async def _download(context: PluginContext, address: str, file: Path) -> None:
    import aiohttp

    size = 0
    try:
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        async with context.http.session().get(address, timeout=timeout) as answer:
            if answer.status != 200:
                raise ServiceUnavailable(f"{_shown(address)} answers with {answer.status}; nothing was compared")
            with file.open("wb") as opened:
                async for part in answer.content.iter_chunked(_PART):
                    size += len(part)
                    if size > MAX_FILE:
                        raise Misconfigured(f"{_shown(address)} has more than {MAX_FILE >> 20} MiB")
                    await asyncio.to_thread(opened.write, part)
    except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
        why = failed(context.http.proxy(address), error)
        raise ServiceUnavailable(f"{_shown(address)} cannot be read{why}; nothing was compared") from None


def _shown(address: str) -> str:
    """Return an address without what may be secret in it."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
