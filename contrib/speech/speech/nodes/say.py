"""The node: one request to the server, whose recording is kept as a Blob, so that the page and the chat play it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import aiohttp

from tavern_host import Blob, NodeContext, PluginContext, Slot, node
from tavern_host.clock import now
from tavern_host.contracts.errors import Misconfigured, ServiceUnavailable

SECONDS = aiohttp.ClientTimeout(total=300)
MOST_BYTES = 45_000_000
KINDS = {b"ID3": "audio/mpeg", b"\xff": "audio/mpeg", b"RIFF": "audio/wav", b"OggS": "audio/ogg", b"fLaC": "audio/flac"}
"""How the recordings begin that a browser plays."""


@node(category="Sounds", display_name="Say", cached=False)
async def say(
    context: NodeContext,
    text: Annotated[str, Slot("What to say.", multiline=True)],
    voice: Annotated[str, Slot("Who says it; the voice of the settings where it is empty.")] = "",
) -> Annotated[Blob, Slot("The recording.", key="recording")]:
    """Speaks a text."""
    plugin = context.plugin
    model = plugin.settings.get("model")
    voice = voice or plugin.settings.get("voice")
    wanted = {"input": text, "voice": voice, "response_format": "mp3", **({"model": model} if model else {})}
    recording = await _asked(plugin, wanted)
    media_type = next((kind for start, kind in KINDS.items() if recording.startswith(start)), None)
    if media_type is None:
        raise ServiceUnavailable("the server sent something that is no MP3, WAV, Ogg or FLAC")
    blob = await plugin.blobs.put(recording, media_type, holder=f"said {now().isoformat()}")
    for old in sorted(await plugin.blobs.holders())[: -int(plugin.settings.get("keep"))]:
        await plugin.blobs.release(old)
    return blob


async def _asked(plugin: PluginContext, request: dict[str, Any]) -> bytes:
    """Return the server's answer. Raises `Misconfigured`, `ServiceUnavailable` with the server's message."""
    address = str(plugin.settings.get("address") or "").rstrip("/")
    if not address.startswith(("http://", "https://")):
        raise Misconfigured("no server is set up: set speech.address, such as https://api.openai.com/v1")
    key = plugin.settings.get("key")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = bytearray()
    try:
        async with plugin.http.session().post(
            f"{address}/audio/speech", json=request, headers=headers, timeout=SECONDS, allow_redirects=False
        ) as answer:
            async for part in answer.content.iter_any():
                body += part
                if len(body) > MOST_BYTES:
                    raise ServiceUnavailable(f"the server sent more than {MOST_BYTES:,} bytes")
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ServiceUnavailable(f"the server cannot be reached: {error or 'no answer in time'}") from None
    if answer.status != 200:
        raise ServiceUnavailable(f"the server answered with {answer.status}: {_reason(bytes(body))}")
    return bytes(body)


def _reason(body: bytes) -> str:
    """Return the message of an error, as OpenAI's servers give it in JSON."""
    try:
        said = json.loads(body)["error"]
    except (LookupError, TypeError, ValueError):
        return "no reason"
    return str((said.get("message") if isinstance(said, dict) else said) or "no reason")[:500]
