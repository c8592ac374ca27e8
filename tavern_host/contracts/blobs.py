"""`Blob`: the handle of immutable bytes that are kept apart, by the hash of their content.

A value that is large travels as its handle; `PluginContext.blobs` makes one, and opens it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationError

from tavern_host.contracts.wire import Model

BINARY = "application/octet-stream"
"""The media type of bytes of which nothing more is known."""


class Blob(Model):
    """Bytes that are kept apart: the SHA-256 of their content in hex, their media type (RFC 9110 §8.3.1), and how many
    they are. In JSON `{"type": "blob", "hash": "…", "mediaType": "…", "length": 12}`."""

    type: Literal["blob"] = "blob"
    hash: str = Field(pattern=r"^[0-9a-f]{64}$", strict=True)
    media_type: str = Field(
        default=BINARY,
        max_length=255,
        pattern=r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+( *; *[A-Za-z0-9!#$&^_.+-]+=[A-Za-z0-9!#$&^_.+-]+)*$",
    )
    length: int = Field(ge=0, le=2**63 - 1, strict=True)

    @classmethod
    def of(cls, value: Any) -> Blob | None:
        """Return the handle that a value is, itself or as JSON; None for any other value."""
        if isinstance(value, Blob):
            return value
        if not isinstance(value, dict) or value.get("type") != "blob":
            return None
        try:
            return cls.model_validate(value)
        except ValidationError:
            return None
