"""The files of plugins' front ends."""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes

from aiohttp import web

from tavern_host.server.errors import error_response
from tavern_host.server.routes import route
from tavern_host.server.served import host_of


async def plugin_file(request: web.Request) -> web.StreamResponse:
    """Serve a file of a loaded plugin's front end; nothing outside of that folder, nothing hidden, and of a folder that
    was reviewed, nothing that is not as it was then."""
    name, path = request.match_info["name"], request.match_info["path"]
    folder = host_of(request).frontend_folder(name)
    missing = web.HTTPNotFound(text=f"the plugin {name!r} serves no file {path!r}")
    if folder is None or "\0" in path or any(part.startswith(".") for part in path.split("/")):
        raise missing
    try:
        root = folder.resolve()
        file = (root / path).resolve()
        found = file.is_relative_to(root) and file.is_file()
    except (OSError, RuntimeError, UnicodeError):  # too long a name, links in a circle, no text
        found = False
    if not found:
        raise missing
    reviewed = host_of(request).frontend_review(name)
    if reviewed is None:
        return web.FileResponse(file)
    content = await asyncio.to_thread(file.read_bytes)
    if reviewed.get(file) != hashlib.sha256(content).digest():
        message = f"{path!r} of {name} was changed after it was reviewed; look at the plugin and grant it again"
        return error_response(403, "not_reviewed", message)
    kind, encoding = mimetypes.guess_type(file.name)
    return web.Response(body=content, content_type="application/octet-stream" if encoding else kind)


ROUTES = (route("GET", "/plugins/{name}/{path:.+}", plugin_file, content_type="*/*"),)
