"""`tavern plugins index`: the entries of wheels in an index, as `sources` reads it."""

from __future__ import annotations

import asyncio
import json
import os
import zipfile
from collections.abc import AsyncIterator, Iterable
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import ValidationError

from tavern_host import CommandOutput, PluginContext
from tavern_host.contracts.errors import InvalidInput, Misconfigured, describe
from tavern_host.contracts.plugins import GROUP
from tavern_host.storage.files import write_atomic
from tavern_packages.sources import Index, IndexEntry, distribution_of, hash_of, is_remote


async def index(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Print or write the entries of wheels."""
    into, url = arguments["into"], str(arguments["url"] or "").rstrip("/")
    entries = await asyncio.to_thread(_indexed, arguments["wheels"], into, url)
    data = [_data(entry) for entry in entries]
    for entry in entries if into else ():
        yield CommandOutput(kind="message", text=f"{entry.name} {entry.version} is in {into}.")
    if not into:
        yield CommandOutput(kind="text", text=json.dumps({"plugins": data}, ensure_ascii=False, indent=2))
    yield CommandOutput(kind="result", data=data)


def _indexed(wheels: list[str], into: str | None, url: str) -> list[IndexEntry]:
    """Return the entries of wheels, which are written into an index if one is named."""
    if url and not is_remote(url):
        raise InvalidInput(f"{url!r} is no address, such as https://inn.example/wheels")
    folder = Path(into or "index.json").absolute().parent
    entries = [entry for wheel in wheels for entry in _entries(Path(wheel).absolute(), folder, url)]
    if into:
        _write(Path(into), entries)
    return entries


def _entries(wheel: Path, folder: Path, url: str) -> list[IndexEntry]:
    """Return the entries of the plugins in a wheel, for an index in this folder. Raises `InvalidInput`."""
    distribution_of(wheel.name)
    try:
        zipfile.ZipFile(wheel).close()
        (found,) = distributions(path=[str(wheel)])
        entries = [one for one in found.entry_points if one.group == GROUP]
        sha256 = hash_of(wheel)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"{wheel} is no wheel that can be read: {describe(error)}") from None
    if not entries:
        raise InvalidInput(f"{wheel} holds no plugin: it has no entry point in the group {GROUP}")
    path = Path(os.path.relpath(wheel, folder)).as_posix()
    place = {"url": f"{url}/{quote(wheel.name)}"} if url else {"path": path}
    (summary, *_) = found.metadata.get_all("Summary") or [""]
    row = {"version": found.version, "sha256": sha256, "summary": summary, **place}
    return [IndexEntry.model_validate({"name": one.name, **row}) for one in entries]


def _write(file: Path, entries: Iterable[IndexEntry]) -> None:
    """Put entries into an index, each in the place of one of its name and version. Raises `Misconfigured`."""
    try:
        before = Index.model_validate_json(file.read_bytes()).plugins if file.exists() else []
    except (OSError, ValidationError) as error:
        raise Misconfigured(f"the index {file} cannot be read: {describe(error)}") from None
    known = {(one.name, one.version): one for one in [*before, *entries]}
    text = json.dumps({"plugins": [_data(one) for one in known.values()]}, ensure_ascii=False, indent=2)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, f"{text}\n".encode())
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written: {error.strerror}") from None


def _data(entry: IndexEntry) -> dict[str, Any]:
    return {key: value for key, value in entry.to_json().items() if value is not None}
