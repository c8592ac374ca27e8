"""Nodes that give and take large bytes, as they are and as Blobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

from tavern_host import Blob, NodeContext, Slot, node


@node(cached=False)
def produce(size: int) -> bytes:
    """Give so many bytes."""
    return b"\x07" * size


class Both(TypedDict):
    """Bytes, and how many."""

    data: bytes
    size: int


@node()
async def produce_both(size: int, context: NodeContext) -> Both:
    """Give bytes and their number."""
    return {"data": b"\x07" * size, "size": size}


@node()
async def make(text: str, context: NodeContext) -> Blob:
    """Make a Blob."""
    return await context.blobs.put(text.encode(), "text/plain")


@node()
async def make_deep(text: str, context: NodeContext) -> dict[str, Any]:
    """Make a Blob that is deep in a value."""
    return {"all": [{"blob": await context.blobs.put(text.encode(), "text/plain")}]}


@node()
async def take(data: Blob, context: NodeContext) -> str:
    """Give what a Blob says of itself, and how it begins."""
    parts = [part async for part in context.blobs.open(data, 0, 4)]
    file = await context.blobs.path(data)
    return f"{data.media_type} {data.length} {b''.join(parts)!r} {file.stat().st_size}"


@node()
async def count(data: bytes) -> int:
    """Count bytes."""
    return len(data)


@node()
async def count_all(data: Annotated[list[bytes], Slot(multi=True)]) -> int:
    """Count bytes of several inputs."""
    return sum(map(len, data))


@node(isolated=True)
def count_apart(data: bytes) -> int:
    """Count bytes in another process."""
    return len(data)


@node(isolated=True)
def name_apart(data: Any) -> str:
    """Say what came to another process."""
    return type(data).__name__


@node()
async def pieces(data: bytes) -> AsyncIterator[int]:
    """Count bytes piece by piece."""
    for start in range(0, len(data), 1_000_000):
        yield len(data[start : start + 1_000_000])


@node(cached=False)
def long_text(size: int, text: str = "x") -> str:
    """Give a long text."""
    return text * size


@node(cached=False)
def long_list(size: int) -> list[int]:
    """Give a long list."""
    return list(range(size))
