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
from tavern_host.contracts.toolcalls import ContentPart, ToolOutput
from tavern_host.storage.confined_fs import confined_folder, reason_of, replace_file, writing

FOLDER = "mcp"
"""Where in the project's files folder the files of servers are put, each server's in a folder of its own."""
_MOST = 16 << 20


class Kept:
    """Keeps what a server gave in the project. All of it blocks."""

    def __init__(self, project: Project, server: str) -> None:
        self._project = project
        self._server = server
        self._left = _MOST

    def output(self, content: list[Any], structured: JsonValue = None) -> ToolOutput:
        """Return contents of a result as a tool's output; `structured` is what the server says is the whole of it.

        Raises `OutputError` for bytes that are none, are too many or cannot be kept.
        """
        parts = [self._part(one) for one in content]
        if structured is None:
            texts = [part.text for part in parts if part.type == "text"]
            if len(texts) == len(parts):
                structured = "\n".join(text or "" for text in texts)
            else:
                structured = [part.model_dump(mode="json", exclude_none=True) for part in parts]
        return ToolOutput.trusted(structured=structured, content=parts)

    def _part(self, one: Any) -> ContentPart:
        if isinstance(one, types.TextContent | types.TextResourceContents):
            return ContentPart.trusted(type="text", text=one.text)
        if isinstance(one, types.EmbeddedResource):
            return self._part(one.resource)
        if isinstance(one, types.ImageContent | types.AudioContent):
            return self._file(one.data, one.mime_type)
        if isinstance(one, types.BlobResourceContents):
            return self._file(one.blob, one.mime_type)
        return ContentPart(type="data", data=one.model_dump(mode="json", by_alias=True, exclude_none=True))

    def _file(self, data: str, kind: str | None) -> ContentPart:
        try:
            content = base64.b64decode(data, validate=True)
        except ValueError:
            raise OutputError(f"the MCP server {self._server} gave something as base64 that is none") from None
        self._left -= len(content)
        if self._left < 0:
            raise OutputError(f"the MCP server {self._server} gave more than {_MOST >> 20} MiB of files")
        kind = kind if kind and mimetypes.guess_extension(kind) else "application/octet-stream"
        name = f"{sha256(content).hexdigest()[:32]}{mimetypes.guess_extension(kind) or ''}"
        try:
            files = self._project.folder("files")
            with confined_folder(files, (FOLDER, self._server), make=True) as folder, writing(folder, 5):
                replace_file(folder, name, content, overwrite=True)
        except OSError as error:
            raise OutputError(f"what the MCP server {self._server} gave cannot be kept: {reason_of(error)}") from None
        uri = f"{FOLDER}/{self._server}/{name}"
        is_image = kind.startswith("image/")
        return ContentPart(type="image" if is_image else "file", uri=uri, name=name, mime_type=kind, size=len(content))
