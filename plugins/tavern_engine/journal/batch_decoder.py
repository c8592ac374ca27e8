"""Rows of the bytes of batches: what is torn or damaged is left out and reported, the rest is read."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tavern_engine.journal.batch_rows import COMPLETE, HEADER, MAGIC, NodeRow, Stored
from tavern_engine.run.json_values import JSON, TEXT, large
from tavern_host.contracts.blobs import BINARY
from tavern_host.contracts.errors import ErrorInfo, TavernError
from tavern_host.contracts.executions import RemoteWork
from tavern_host.storage.values import decode_loose


def decode_rows(batches: Sequence[bytes], warn: Callable[[str], None]) -> list[NodeRow]:
    """Return the rows of batches, in order. What is torn or of an unknown kind is left out, and reported to `warn`."""
    rows: list[NodeRow] = []
    for number, batch in enumerate(batches):
        for body, head_length, problem in _frames(batch):
            if problem is None:
                try:
                    rows += _rows(body, head_length)
                    continue
                except (ValueError, TypeError, LookupError, AttributeError, RecursionError, struct.error) as error:
                    problem = f"cannot be read ({type(error).__name__})"
            warn(f"batch {number + 1} of {len(batches)} {problem}: the nodes in it count as not run")
    return rows


def _frames(batch: bytes) -> Iterator[tuple[bytes, int, str | None]]:
    """Yield the body of each frame and how long its head is, or what is wrong with the rest."""
    place = 0
    while place < len(batch):
        magic = batch[place : place + len(MAGIC)]
        if not MAGIC.startswith(magic):
            is_ours = magic.startswith(MAGIC[:3])
            yield b"", 0, "was written by another version of the program" if is_ours else "is of an unknown kind"
            return
        if len(batch) - place < HEADER.size:
            yield b"", 0, "is cut off"
            return
        _, checksum, length, head_length = HEADER.unpack_from(batch, place)
        place += HEADER.size
        body = batch[place : place + length]
        if len(body) < length:
            yield b"", 0, "is cut off"
            return
        yield body, head_length, None if zlib.crc32(body) == checksum else "is damaged"
        place += length


def _rows(body: bytes, head_length: int) -> list[NodeRow]:
    ids, lengths, outputs, notes, apart = json.loads(body[:head_length])
    count = len(ids)
    times = struct.unpack_from(f"<{2 * count}d", body, head_length)
    place = head_length + 16 * count
    signatures: list[bytes | None] = []
    for length in lengths if isinstance(lengths, list) else [lengths] * count:
        signatures.append(None if length < 0 else body[place : place + length])
        place += max(length, 0)
    lacking: dict[int, str] = {}
    for index, slot, kind, where, size in apart:
        if kind == "none":
            lacking[index] = where
        elif isinstance(where, str):
            outputs[index][slot] = Stored(where, kind, size)
        else:
            outputs[index][slot] = decode_value(body[place + where : place + where + size], kind)
    columns = zip(ids, signatures, times[:count], times[count:], outputs, strict=True)
    rows = [NodeRow(id, signature, COMPLETE, began, ended, kept) for id, signature, began, ended, kept in columns]
    for row, (status, error, attempts, iteration, *more) in notes.items():
        info = None if error is None else ErrorInfo.model_validate(error)
        work = RemoteWork.model_validate(more[0]) if more else None
        note = {"status": status, "error": info, "attempts": attempts, "iteration": iteration, "remote": work}
        rows[int(row)] = replace(rows[int(row)], **note)
    for row, reason in lacking.items():
        rows[row] = replace(rows[row], lacking=reason)
    return rows


def decode_value(content: bytes, kind: str) -> Any:
    """Return a value that is not plain JSON, or was large. Raises `ValueError` for an unknown kind, and whatever
    content brings that is not what it was."""
    if kind == "bytes":
        return content
    if kind == "text":
        return content.decode("utf-8", "surrogatepass")
    if kind == "json":
        return json.loads(content)
    if kind == "loose":
        return decode_loose(content, [])
    raise ValueError(f"no kind {kind!r}")


async def fetched(
    row: NodeRow, content: Callable[[str], Awaitable[bytes]], most: int | None = None
) -> dict[str, Any] | None:
    """Return all outputs of a row, the large ones read with `content` (`RunStore.content`), with placeholders for those
    of more than `most` bytes; None where it has none.

    Raises `NotFound` where one is not kept any more, `TavernError` where it cannot be read.
    """
    if row.outputs is None:
        return None
    outputs = dict(row.outputs)
    for slot, value in outputs.items():
        if isinstance(value, Stored) and most is not None and value.size > most:
            outputs[slot] = large({"text": TEXT, "bytes": BINARY}.get(value.kind, JSON), value.size)
        elif isinstance(value, Stored):
            try:
                outputs[slot] = decode_value(await content(value.hash), value.kind)
            except (ValueError, RecursionError, LookupError) as error:
                raise TavernError(f"node {row.node_id}, output {slot}: it cannot be read back: {error}") from None
    return outputs
