"""What a server gave, as a tool's output: texts as they are; pictures, sound and other bytes as the project's files."""

from __future__ import annotations

import base64
import mimetypes
from hashlib import sha256
from typing import Any

import mcp_types as types
from pydantic import JsonValue

from tavern_host.context import Project
from tavern_host.contracts.errors import OutputError
from tavern_host.storage.confined_fs import confined_folder, reason_of, replace_file
from tavern_tools.api.toolcalls import ContentPart, ToolOutput

FOLDER = "mcp"
"""Where in the project's files folder the files of servers are put, each server's in a folder of its own."""


def output_of(content: list[Any], structured: JsonValue, project: Project, server: str) -> ToolOutput:
    """Return contents of a server's result as a tool's output; `structured` is what it says is the whole of it, if
    anything. Blocking. Raises `OutputError` for bytes that are none or cannot be kept."""
    parts = [_part(one, project, server) for one in content]
    if structured is None:
        texts = [part.text for part in parts if part.type == "text"]
        if len(texts) == len(parts):
            structured = "\n".join(text or "" for text in texts)
        else:
            structured = [part.model_dump(mode="json", exclude_none=True) for part in parts]
    return ToolOutput.construct(structured=structured, content=parts)


def _part(one: Any, project: Project, server: str) -> ContentPart:
    if isinstance(one, types.TextContent | types.TextResourceContents):
        return ContentPart.construct(type="text", text=one.text)
    if isinstance(one, types.EmbeddedResource):
        return _part(one.resource, project, server)
    if isinstance(one, types.ImageContent | types.AudioContent):
        return _file(one.data, one.mime_type, project, server)
    if isinstance(one, types.BlobResourceContents):
        return _file(one.blob, one.mime_type, project, server)
    return ContentPart(type="data", data=one.model_dump(mode="json", by_alias=True, exclude_none=True))


def _file(data: str, kind: str | None, project: Project, server: str) -> ContentPart:
    """Keep bytes in the project: those of a message, which has a limit already."""
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        raise OutputError(f"the MCP server {server} gave something as base64 that is none") from None
    kind = kind if kind and mimetypes.guess_extension(kind) else "application/octet-stream"
    name = f"{sha256(content).hexdigest()[:32]}{mimetypes.guess_extension(kind) or ''}"
    try:
        with confined_folder(project.folder("files"), (FOLDER, server), make=True) as folder, folder.locked(5):
            replace_file(folder, name, content, overwrite=True)
    except OSError as error:
        raise OutputError(f"what the MCP server {server} gave cannot be kept: {reason_of(error)}") from None
    is_image = kind.startswith("image/")
    uri = f"{FOLDER}/{server}/{name}"
    return ContentPart(type="image" if is_image else "file", uri=uri, name=name, mime_type=kind, size=len(content))
