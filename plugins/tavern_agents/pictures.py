"""Pictures of messages: Blobs, which a conversation holds until it is deleted."""

from __future__ import annotations

import asyncio
import base64
import binascii
import mimetypes
from collections.abc import Iterable, Sequence
from pathlib import Path

from tavern_agents.api.histories import HistoryExport
from tavern_host.context import PluginContext
from tavern_host.contracts.blobs import BINARY, Blob
from tavern_host.contracts.errors import InvalidInput
from tavern_llm.api.llm import MAX_IMAGE_BYTES, ChatImage, ChatMessage

MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
MAX_EXPORTED_BYTES = 10 << 20
"""How many bytes of pictures an exported conversation has at most: in Base64 it is then still a request's body."""


def _holder(history: str) -> str:
    return f"history:{history}"


def _blobs(messages: Iterable[ChatMessage]) -> dict[str, Blob]:
    return {image.blob.hash: image.blob for one in messages for image in one.images if image.blob is not None}


def check_pictures(images: Sequence[ChatImage]) -> None:
    """Raise `InvalidInput` for what is no picture, or a larger one than models are sent."""
    for image in images:
        if (image.blob is None) == (image.url is None):
            raise InvalidInput("a picture has either a blob or a url")
        if image.blob is None:
            continue
        if image.blob.media_type not in MEDIA_TYPES:
            raise InvalidInput(
                f"a picture of a message is one of {', '.join(MEDIA_TYPES)}, not {image.blob.media_type!r:.60}"
            )
        if image.blob.length > MAX_IMAGE_BYTES:
            raise InvalidInput(f"a picture of a message has at most {MAX_IMAGE_BYTES >> 20} MiB")


async def read_picture(context: PluginContext, path: Path) -> ChatImage:
    """Return a file of a person as a picture. Raises `InvalidInput` for what cannot be read, or is none by its name."""
    media_type = mimetypes.guess_type(path.name)[0] or BINARY

    def read() -> bytes:
        check_pictures([ChatImage(blob=Blob(hash="0" * 64, media_type=media_type, length=path.stat().st_size))])
        return path.read_bytes()

    try:
        content = await asyncio.to_thread(read)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    return ChatImage(blob=await context.blobs.put(content, media_type))


async def hold_pictures(context: PluginContext, history: str, messages: Iterable[ChatMessage]) -> None:
    """Keep the pictures of messages for a conversation. Raises `NotFound` for one that is not here."""
    if blobs := _blobs(messages):
        await context.blobs.hold(_holder(history), blobs.values())


async def release_pictures(context: PluginContext, history: str) -> None:
    """Let the pictures of a conversation go, which is no more."""
    await context.blobs.release(_holder(history))


async def with_pictures(context: PluginContext, exported: HistoryExport) -> HistoryExport:
    """Return an exported conversation with its pictures in Base64, the first `MAX_EXPORTED_BYTES` of them."""
    pictures: dict[str, str] = {}
    left = MAX_EXPORTED_BYTES
    for key, blob in _blobs(one.message for one in exported.messages).items():
        if blob.length > left or not context.blobs.has(blob):
            continue
        left -= blob.length
        pictures[key] = base64.b64encode(await context.blobs.read(blob)).decode()
    return exported.model_copy(update={"pictures": pictures})


async def keep_pictures(context: PluginContext, history: str, exported: HistoryExport) -> None:
    """Keep the pictures of a conversation that is imported; a message whose picture is not there stays as it is. Raises
    `InvalidInput` for one that is another than its message says."""
    for key, blob in _blobs(one.message for one in exported.messages).items():
        if (text := exported.pictures.get(key)) is not None:
            try:
                kept = await context.blobs.put(
                    base64.b64decode(text, validate=True), blob.media_type, holder=_holder(history)
                )
            except binascii.Error:
                raise InvalidInput(f"the picture {key[:12]}… is not Base64") from None
            if kept.hash != key:
                raise InvalidInput(f"the picture {key[:12]}… has other content than its hash says")
        elif context.blobs.has(blob):
            await context.blobs.hold(_holder(history), [blob])
