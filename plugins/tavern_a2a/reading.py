"""Reads messages of both versions: texts, JSON and pictures."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from dataclasses import dataclass, field

from tavern_a2a.api.requests import Part, SendParams
from tavern_a2a.failures import INVALID_PARAMS, NO_PUSHES, WRONG_CONTENT, Refused
from tavern_host.context import PluginContext
from tavern_llm.api.llm import ChatImage

MOST_PICTURES = 16
"""As many as a message to an agent has."""
_TEXTS = frozenset({"text", "text/*", "text/plain", "text/markdown", "*/*", "*"})


@dataclass
class Said:
    """What a message says: its text, and its pictures as media type and base64, or at an address."""

    text: str = ""
    data: list[tuple[str, str]] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)

    @property
    def images(self) -> bool:
        """Whether there are pictures."""
        return bool(self.data or self.addresses)


def read_message(params: SendParams) -> Said:
    """Return a message's words. Raises `Refused` for parts that an agent does not take, and for an answer in another
    form than text."""
    options = params.configuration
    if options.push_notification_config is not None or options.task_push_notification_config is not None:
        raise Refused(NO_PUSHES, "push notifications are not supported; use SendStreamingMessage or GetTask")
    if options.accepted_output_modes and not _TEXTS.intersection(options.accepted_output_modes):
        modes = ", ".join(options.accepted_output_modes)
        raise Refused(WRONG_CONTENT, f"agents answer with text/plain, not {modes:.200}")
    said, texts = Said(), list[str]()
    for index, part in enumerate(params.message.parts):
        if (text := _text(part)) is not None:
            texts.append(text)
        else:
            _add_picture(said, part, f"message.parts[{index}]")
    if len(said.data) + len(said.addresses) > MOST_PICTURES:
        raise Refused(INVALID_PARAMS, f"message.parts: a message has at most {MOST_PICTURES} pictures")
    said.text = "\n\n".join(texts)
    if not said.text.strip():
        raise Refused(INVALID_PARAMS, "message.parts: a message needs a text")
    return said


async def kept_images(said: Said, context: PluginContext) -> list[ChatImage]:
    """Return the pictures as what an agent is given: Blobs, and addresses that its model's server fetches."""
    images = [ChatImage(url=address) for address in said.addresses]
    for kind, encoded in said.data:
        try:
            data = await asyncio.to_thread(b64decode, encoded, validate=True)
        except ValueError:
            raise Refused(INVALID_PARAMS, "message.parts: a picture is not base64") from None
        images.append(ChatImage(blob=await context.blobs.put(data, kind)))
    return images


def _text(part: Part) -> str | None:
    if part.text is not None:
        return part.text
    is_file = part.raw is not None or part.url is not None or part.file is not None
    return None if is_file else json.dumps(part.data, ensure_ascii=False)


def _add_picture(said: Said, part: Part, where: str) -> None:
    file = part.file
    kind = part.media_type if file is None else file.mime_type
    if not kind.startswith("image/"):
        raise Refused(WRONG_CONTENT, f"{where}: agents take texts, JSON and pictures, not {kind or 'files'!r:.100}")
    data, address = (part.raw, part.url) if file is None else (file.bytes, file.uri)
    if data is not None:
        said.data.append((kind, data))
    elif address is not None and address.startswith(("https://", "http://")):
        said.addresses.append(address)
    else:
        raise Refused(INVALID_PARAMS, f"{where}: expected the bytes of a picture, or its address over HTTP")
