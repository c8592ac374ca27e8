"""Encodes the rows of a run into batches, many at a time, and outputs by themselves.

Never refuses a row: one with a value that has no codec is kept without its outputs.
"""

from __future__ import annotations

import hashlib
import json
import struct
import time
import zlib
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from tavern_engine.journal.batch_rows import COMPLETE, HEADER, MAGIC, Batch, Note, Outputs, Rows
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.storage.values import MAX_VALUES, encode_loose

LARGE = 64 * 1024
"""A value of more bytes than this is stored by itself."""

FRAME_ROWS = 250
"""How many rows a frame has at most: encoding one does not release the interpreter."""

SLICE = 0.002
"""How many seconds frames are encoded before the interpreter is released."""

BATCH_BYTES = 8 * 2**20
"""About how many bytes, large values among them, are encoded before they are written."""

MAX_DEPTH = 200
"""How deeply a value may be nested."""

_PLAIN = frozenset({type(None), bool, int, float, str, dict, list})
_INT = 1 << 63

_compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode


@dataclass
class _Parts:
    """What of a frame's values is not plain JSON: where each is in the frame's data, or its hash."""

    places: list[list[Any]] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    size: int = 0
    large: dict[str, bytes] = field(default_factory=dict)
    large_size: int = 0
    lacking: list[str] = field(default_factory=list)

    def add(self, row: int, slot: str, kind: str, content: bytes) -> None:
        """Keep a value here, or apart where it is large."""
        if len(content) > LARGE:
            name = hashlib.sha256(content).hexdigest()
            if name not in self.large:
                self.large[name] = content
                self.large_size += len(content)
            self.places.append([row, slot, kind, name, len(content)])
            return
        self.places.append([row, slot, kind, self.size, len(content)])
        self.data.append(content)
        self.size += len(content)


def encode_rows(rows: Rows, first: int = 0) -> Batch:
    """Encode rows from `first` on, in order, until they are many bytes or none is left; never raises.

    A row with a value that has no codec is kept without outputs.
    """
    frames: list[bytes] = []
    large: dict[str, bytes] = {}
    lacking: list[str] = []
    size, done = 0, first
    slice_end = time.perf_counter() + SLICE
    while done < len(rows) and size < BATCH_BYTES:
        frame, count, parts = _frame(rows.part(done, FRAME_ROWS), BATCH_BYTES - size)
        frames.append(frame)
        large |= parts.large
        lacking += parts.lacking
        size += len(frame) + parts.large_size
        done += count
        if time.perf_counter() > slice_end:
            time.sleep(0)  # releases the interpreter to the event loop
            slice_end = time.perf_counter() + SLICE
    return Batch(b"".join(frames), done - first, large, tuple(lacking))


def _frame(rows: Rows, room: int) -> tuple[bytes, int, _Parts]:
    """Return a frame of rows, of how many, and what is not in it."""
    parts = _Parts()
    try:
        outputs = _plain_outputs(rows.column(4))
        if outputs is None:
            shown = _mixed_outputs(rows, parts, room)
            rows, outputs = rows.part(0, len(shown)), f"[{','.join(shown)}]"
        return _assembled(rows, outputs, parts), len(rows), parts
    except Exception as error:  # a value may do anything while it is looked at
        if len(rows) > 1:
            return _frame(rows.part(0, len(rows) // 2), room)
        parts = _Parts()
        reason = f"node {rows.fields[0]}: its result cannot be encoded ({type(error).__name__})"
        return _assembled(_bare(*rows.fields), f"[{_without(0, reason, parts)}]", parts), 1, parts


def _bare(node_id: Any, signature: Any, started: Any, finished: Any, outputs: Any, note: Note | None) -> Rows:
    """Return the parts that can be stored of a row that cannot be encoded."""
    times = [float(each) if isinstance(each, int | float) else 0.0 for each in (started, finished)]
    known, status = signature if isinstance(signature, bytes) else None, note.status if note is not None else COMPLETE
    return Rows([str(node_id), known, *times, None, Note(str(status))])


def _plain_outputs(outputs: list[Outputs]) -> str | None:
    """Return the outputs of all rows for the head, or None where a value is not plain, or may be large."""
    shown = _json(outputs) if _is_plain(outputs) else None
    return None if shown is None or _may_be_large(shown) else shown


def _is_plain(values: list[Any]) -> bool:
    """Return whether values come back from JSON as they are, infinite numbers apart.

    They are of its own types exactly, with texts as keys, whole numbers of 64 bits, and neither endless nor too
    deep. Looks at one level after the other, at all values of it at once.
    """
    left = MAX_VALUES
    for _ in range(MAX_DEPTH):
        kinds = set(map(type, values))
        if not kinds <= _PLAIN:
            return False
        if int in kinds:
            numbers = values if len(kinds) == 1 else [value for value in values if type(value) is int]
            if min(numbers) < -_INT or max(numbers) >= _INT:
                return False
        dicts = [value for value in values if type(value) is dict] if dict in kinds else []
        lists = [value for value in values if type(value) is list] if list in kinds else []
        if not dicts and not lists:
            return True
        values = [*chain.from_iterable(map(dict.values, dicts)), *chain.from_iterable(lists)]
        left -= len(values)
        if left < 0 or not set(map(type, chain.from_iterable(dicts))) <= {str}:
            return False
    return False


def _mixed_outputs(rows: Rows, parts: _Parts, room: int) -> list[str]:
    """Return the outputs of rows for the head, each value by itself, until there is no room left."""
    shown: list[str] = []
    for index, (node_id, outputs) in enumerate(zip(rows.column(0), rows.column(4), strict=True)):
        shown.append("null" if outputs is None else _mixed(index, node_id, outputs, parts))
        room -= len(shown[-1])
        if room < parts.size + parts.large_size:
            break
    return shown


def _mixed(index: int, node_id: str, outputs: dict[str, Any], parts: _Parts) -> str:
    """Return those outputs of a row as JSON that are plain and small; the others go to `parts`."""
    try:
        shown, apart = split(outputs)
    except Uncoded as error:
        return _without(index, f"node {node_id}{error}", parts)
    for slot, kind, content in apart:
        parts.add(index, slot, kind, content)
    return shown


class Uncoded(ValueError):
    """An output has no codec: which one, and why."""


def split(outputs: dict[str, Any]) -> tuple[str, list[tuple[str, str, bytes]]]:
    """Return outputs as JSON, with null for those that are not plain and small; and these by themselves: slot, kind and
    content. Raises `Uncoded`."""
    shown: list[str] = []
    apart: list[tuple[str, str, bytes]] = []
    for slot, value in outputs.items():
        if type(slot) is not str:
            raise Uncoded(f": an output is named by a {type(slot).__name__}, not a text")
        kind, content, kept = _content(value)
        if kept:
            raise Uncoded(f", output {slot}: {_unfit(kept[0])}")
        if not isinstance(content, str) or kind != "json" or _may_be_large(content):
            apart.append((slot, kind, content if isinstance(content, bytes) else _bytes(content)))
            content = "null"
        shown.append(f"{_compact(slot)}:{content}")
    return f"{{{','.join(shown)}}}", apart


def _content(value: Any) -> tuple[str, str | bytes, list[Any]]:
    """Return the kind of content that a value becomes, that content, and the values in it without a codec."""
    if type(value) is bytes:
        return "bytes", value, []
    if type(value) is str and _may_be_large(value):
        return "text", value, []
    if _is_plain([value]) and (text := _json(value)) is not None:
        return "json", text, []
    return "loose", *encode_loose(value)


def _may_be_large(content: str | bytes) -> bool:
    return len(content) * 4 > LARGE


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # a lone surrogate comes back as it was


def _without(index: int, reason: str, parts: _Parts) -> str:
    """Keep a row without its outputs."""
    parts.lacking.append(reason)
    parts.places.append([index, "", "none", reason, 0])
    return "null"


def _json(value: Any) -> str | None:
    try:
        return _compact(value)
    except (ValueError, RecursionError):  # NaN; deeper than the stack
        return None


def _unfit(value: Any) -> str:
    """Say why a value has no codec."""
    kind = type(value)
    if kind is float:
        return f"the number {value} has no codec"
    if kind is int:
        return "a whole number of more than 64 bits has no codec"
    if kind in (dict, list, tuple):
        return f"a {kind.__name__} that is too large, too deep or has keys that are no texts has no codec"
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"a value of type {name} has no codec"


def _assembled(rows: Rows, outputs: str, parts: _Parts) -> bytes:
    ids, signatures, started, finished, _, notes = map(rows.column, range(Rows.WIDTH))
    said = {index: _note(note) for index, note in enumerate(notes) if note is not None}
    lengths = [-1 if signature is None else len(signature) for signature in signatures]
    known = lengths if len({*lengths}) > 1 else lengths[0]
    about = ",".join([_compact(ids), _compact(known), outputs, _compact(said), _compact(parts.places)])
    head = _bytes(f"[{about}]")
    times = struct.pack(f"<{2 * len(rows)}d", *started, *finished)
    body = b"".join([head, times, *filter(None, signatures), *parts.data])
    return HEADER.pack(MAGIC, zlib.crc32(body), len(body), len(head)) + body


def _note(note: Note) -> list[Any]:
    shown = [note.status, note.error and _error(note.error), note.attempts, note.iteration]
    return shown if note.remote is None else [*shown, note.remote.to_json()]


def _error(error: ErrorInfo) -> dict[str, Any]:
    form = error.to_json()
    try:
        _compact(form)
    except (TypeError, ValueError, RecursionError):  # its details may hold what is not JSON
        form["details"] = {}
    return form
