"""The node: one request to the server, whose picture is kept as a Blob, so that the page and the chat show it."""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any

import aiohttp

from tavern_host import Blob, NodeContext, PluginContext, Slot, node
from tavern_host.clock import now
from tavern_host.contracts.errors import Misconfigured, ServiceUnavailable

SECONDS = aiohttp.ClientTimeout(total=300)
MOST_BYTES = 45_000_000
KINDS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp", b"GIF8": "image/gif"}
"""How the pictures begin that a browser shows."""


@node(category="Pictures", display_name="Draw", cached=False)
async def draw(
    context: NodeContext,
    prompt: Annotated[str, Slot("What to draw.", multiline=True)],
    size: Annotated[str, Slot("Width and height, such as 1024x1024; the server's own where it is empty.")] = "",
) -> Annotated[Blob, Slot("The picture.", key="picture")]:
    """Draws a picture of a description."""
    plugin = context.plugin
    model = plugin.settings.get("model")
    wanted = {"prompt": prompt, "n": 1, **({"model": model} if model else {}), **({"size": size} if size else {})}
    answer = await _asked(plugin, {**wanted, **plugin.settings.get("parameters")})
    try:
        item = answer["data"][0]
        if "b64_json" not in item and "url" in item:
            hint = 'set image-generation.parameters to {"response_format": "b64_json"}'
            raise Misconfigured(f"the server sent the address of a picture instead of the picture: {hint}")
        picture = base64.b64decode(item["b64_json"], validate=True)
    except (LookupError, TypeError, ValueError):
        raise ServiceUnavailable("the answer of the server has no picture in data[0].b64_json") from None
    media_type = next((kind for start, kind in KINDS.items() if picture.startswith(start)), None)
    if media_type is None:
        raise ServiceUnavailable("the server sent something that is no PNG, JPEG, WebP or GIF")
    blob = await plugin.blobs.put(picture, media_type, holder=f"drawn {now().isoformat()}")
    for old in sorted(await plugin.blobs.holders())[: -int(plugin.settings.get("keep"))]:
        await plugin.blobs.release(old)
    return blob


async def _asked(plugin: PluginContext, request: dict[str, Any]) -> Any:
    """Return the server's answer. Raises `Misconfigured`, `ServiceUnavailable` with what the server says is wrong."""
    address = str(plugin.settings.get("address") or "").rstrip("/")
    if not address.startswith(("http://", "https://")):
        raise Misconfigured("no server is set up: set image-generation.address, such as https://api.openai.com/v1")
    key = plugin.settings.get("key")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = bytearray()
    try:
        async with plugin.http.session().post(
            f"{address}/images/generations", json=request, headers=headers, timeout=SECONDS, allow_redirects=False
        ) as answer:
            async for part in answer.content.iter_any():
                body += part
                if len(body) > MOST_BYTES:
                    raise ServiceUnavailable(f"the server sent more than {MOST_BYTES:,} bytes")
        read = json.loads(body) if body else None
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ServiceUnavailable(f"the server cannot be reached: {error or 'no answer in time'}") from None
    except ValueError:
        read = None
    if answer.status != 200:
        said = read.get("error") if isinstance(read, dict) else None
        message = said.get("message") if isinstance(said, dict) else said
        raise ServiceUnavailable(f"the server answered with {answer.status}: {str(message or 'no reason')[:500]}")
    return read
