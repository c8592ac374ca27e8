"""The files of plugins' front ends."""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import re
from pathlib import Path

from aiohttp import web

from tavern_host.server.errors import error_response
from tavern_host.server.routes import route
from tavern_host.server.served import host_of

_FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable"}
_ASKED_ANEW = {"Cache-Control": "private, no-cache"}
_HASHED = re.compile(r"parts/.*-[\w-]{8}\.\w+")
"""Files of first-party front ends whose names have a hash of what is in them."""


async def plugin_file(request: web.Request) -> web.StreamResponse:
    """Serve a file of a loaded plugin's front end, and no bytes but those that it had when the plugin was loaded: those
    that were reviewed. Under `@HASH/` nothing of another version is served, so that a browser may keep it."""
    name, path = request.match_info["name"], request.match_info["path"]
    missing = web.HTTPNotFound(text=f"the plugin {name!r} serves no file {path!r}")
    files = host_of(request).frontend_files(name)
    version, slash, inner = path.partition("/") if path.startswith("@") else ("", "", path)
    if files is None or (version and version + slash != files.version):
        raise missing
    file = _of_first_party(files.folder, inner) if files.hashes is None else files.folder / inner
    reviewed = files.hashes.get(inner) if files.hashes is not None else None
    if file is None or not (files.hashes is None or (reviewed and file.is_file())):
        raise missing
    if reviewed is None:
        return web.FileResponse(file, headers=_FOR_EVER if version or _HASHED.fullmatch(inner) else _ASKED_ANEW)
    content = await asyncio.to_thread(file.read_bytes)
    if hashlib.sha256(content).digest() != reviewed:
        hint = f"`tavern plugins reload {name}`, and grant it again if it then waits for a review"
        message = f"{inner!r} of {name} was changed since it was reviewed and loaded; {hint}"
        return error_response(403, "not_reviewed", message)
    kind, encoding = mimetypes.guess_type(inner)
    content_type = kind if kind is not None and encoding is None else "application/octet-stream"
    return web.Response(body=content, content_type=content_type, headers=_FOR_EVER if version else None)


def _of_first_party(folder: Path, path: str) -> Path | None:
    """Return a file of a plugin that came with the host: nothing outside of the folder, nothing hidden."""
    if "\0" in path or any(part.startswith(".") for part in path.split("/")):
        return None
    try:
        file = (folder / path).resolve()
        return file if file.is_relative_to(folder) and file.is_file() else None
    except (OSError, RuntimeError, UnicodeError):  # too long a name, links in a circle, no text
        return None


ROUTES = (route("GET", "/plugins/{name}/{path:.+}", plugin_file, content_type="*/*"),)
