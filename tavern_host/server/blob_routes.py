"""Blobs over HTTP: `POST /api/blobs` takes one as a stream, `GET /api/blobs/{hash}` sends one, or ranges of it."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from tavern_host.contracts.blobs import BINARY, Blob
from tavern_host.host import Host
from tavern_host.server.bodies import parts_of
from tavern_host.server.gate import GATE
from tavern_host.server.routes import route
from tavern_host.server.served import host_of

_SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "audio/", "video/", "text/plain")
"""What a browser may show: none of it runs scripts on the operator's origin. Anything else is downloaded."""

SANDBOXED = "sandbox; default-src 'none'"
"""The policy of what is not the host's own: shown without scripts, and without the rights of whoever looks at it."""


async def blob_response(host: Host, blob: Blob, headers: Mapping[str, str]) -> web.StreamResponse:
    """Return the answer that streams a Blob, or what the request's `Range` asks for of it. Raises `NotFound`."""
    response = web.FileResponse(await host.blobs.path(blob), chunk_size=1 << 18, headers=headers)
    response.headers["Content-Type"] = blob.media_type
    response.headers["Content-Security-Policy"] = SANDBOXED
    if not blob.media_type.lower().startswith(_SHOWN):
        response.headers.setdefault("Content-Disposition", "attachment")
    return response


async def _send(request: web.Request) -> web.StreamResponse:
    """Stream a Blob: with `?mediaType=` as that, else as what it was put as."""
    host = host_of(request)
    blob = await host.blobs.get(request.match_info["hash"])
    blob = host.blobs.handle(blob.hash, request.query.get("mediaType", blob.media_type), blob.length)
    return await blob_response(host, blob, {"Cache-Control": "private, max-age=31536000, immutable"})


async def _take(request: web.Request) -> web.Response:
    """Keep the body as a Blob of the request's media type, and answer with its handle."""
    media_type = request.headers.get("Content-Type", BINARY)
    host = host_of(request)
    blob = await host.blobs.put(parts_of(request), media_type)
    at = f"{request.app[GATE].reach.base(request)}/api/projects/{host.project.id}/blobs/{blob.hash}"
    return web.json_response(blob.to_json(), status=201, headers={"Location": at})


ROUTES = (
    route("POST", "/api/blobs", _take, answer="tavern_host.contracts.blobs:Blob", status=201),
    route("GET", "/api/blobs/{hash}", _send, query="tavern_host.contracts.host_api:BlobQuery", content_type="*/*"),
)
