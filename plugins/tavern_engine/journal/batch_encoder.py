"""Encodes the rows of a run into batches, many at a time, and values by themselves.

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
from math import isfinite
from typing import Any

from tavern_engine.journal.batch_format import HEADER, MAGIC, PACKED
from tavern_engine.journal.batch_rows import COMPLETE, Batch, Note, Outputs, Rows
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
_SHORT = frozenset({type(None), bool, int, float})
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
        outputs = _plain_outputs(rows.outputs, parts)
        if outputs is None:
            outputs, count = _mixed_outputs(rows, parts, room)
            rows = rows.part(0, count)
        return _assembled(rows, outputs, parts), len(rows), parts
    except Exception as error:  # a value may do anything while it is looked at
        if len(rows) > 1:
            return _frame(rows.part(0, len(rows) // 2), room)
        parts = _Parts()
        reason = f"node {rows.ids[0]}: its result cannot be encoded ({type(error).__name__})"
        return _assembled(_bare(rows), f'"o":[{_without(0, reason, parts)}]', parts), 1, parts


def _bare(row: Rows) -> Rows:
    """Return what can be kept of a single row that cannot be encoded."""
    found = Rows()
    signature = row.signatures[0] if isinstance(row.signatures[0], bytes) else None
    start, end = [float(each) if isinstance(each, int | float) else 0.0 for each in (row.started[0], row.finished[0])]
    status = row.notes[0].status if row.notes else COMPLETE
    found.add([str(row.ids[0])], [signature], [start], [end], [None], Note(str(status)))
    return found


def _plain_outputs(outputs: list[Outputs], parts: _Parts) -> str | None:
    """Return the outputs of all rows for the head, by column, or None where a value is not plain, or may be large."""
    without: list[int] = []
    kinds = set(map(type, outputs))
    if kinds != {dict}:
        if not kinds <= {dict, type(None)}:
            return None
        without = [row for row, each in enumerate(outputs) if each is None]
    given: list[dict[str, Any]] = [each or {} for each in outputs] if without else outputs  # type: ignore[assignment]
    names = list(map(tuple, given))
    forms = {form: place for place, form in enumerate(dict.fromkeys(names))}
    if not set(map(type, chain.from_iterable(forms))) <= {str}:
        return None
    values = list(chain.from_iterable(map(dict.values, given)))
    shown = _plain_values(values, parts)
    if shown is None:
        return None
    head = [f'"k":{_compact(list(forms))},"v":{shown}']
    if len(forms) > 1:
        head.append(f'"w":{_compact(list(map(forms.__getitem__, names)))}')
    if without:
        head.append(f'"z":{_compact(without)}')
    return ",".join(head)


def _plain_values(values: list[Any], parts: _Parts) -> str | None:
    """Return values for the head, or None where one is not plain, or may be large."""
    kinds = set(map(type, values))
    if len(kinds) == 1 and (form := PACKED.get(*kinds)) is not None:
        if form == "d" and not all(map(isfinite, values)):
            return None
        try:
            parts.data.append(struct.pack(f"<{len(values)}{form}", *values))
        except struct.error:  # an integer of more than 64 bits
            return None
        return f'"{form}"'
    if str in kinds and max([len(value) for value in values if type(value) is str]) * 4 > LARGE:
        return None
    if not _is_plain(values):
        return None
    shown = _json(values)
    if shown is None or len(shown) * 4 <= LARGE or (dict not in kinds and list not in kinds):
        return shown
    # No value is larger than all of them.
    return shown if len(shown.encode("utf-8", "surrogatepass")) <= LARGE else None


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
            numbers = [value for value in values if type(value) is int]
            if min(numbers) < -_INT or max(numbers) >= _INT:
                return False
        if dict not in kinds and list not in kinds:
            return True
        below: list[Any] = []
        keys: set[type] = set()
        for value in values:
            if type(value) is dict:
                keys.update(map(type, value))
                below.extend(value.values())
            elif type(value) is list:
                below.extend(value)
        left -= len(below)
        if not keys <= {str} or left < 0:
            return False
        values = below
    return False


def _mixed_outputs(rows: Rows, parts: _Parts, room: int) -> tuple[str, int]:
    """Return the outputs of rows for the head, each value by itself, and of how many rows until there is no room
    left."""
    shown: list[str] = []
    size = 0
    for index, (node_id, outputs) in enumerate(zip(rows.ids, rows.outputs, strict=True)):
        if outputs is None:
            shown.append("null")
            continue
        found = _mixed(index, node_id, outputs, parts)
        shown.append(found)
        size += len(found)
        if size + parts.size + parts.large_size > room:
            break
    return f'"o":[{",".join(shown)}]', len(shown)


def _mixed(index: int, node_id: str, outputs: dict[str, Any], parts: _Parts) -> str:
    """Return those outputs of a row as JSON that are plain and small; the others go to `parts`."""
    here = []
    found: list[tuple[str, str, bytes]] = []
    for slot, value in outputs.items():
        kind = type(value)
        if type(slot) is not str:
            return _without(index, f"node {node_id}: an output is named by a {type(slot).__name__}, not a text", parts)
        if kind is bytes:
            found.append((slot, "bytes", value))
        elif kind is str and len(value) * 4 > LARGE:
            found.append((slot, "text", value.encode("utf-8", "surrogatepass")))
        elif kind in _SHORT or kind is str:
            if not _is_short(value):
                return _without(index, f"node {node_id}, output {slot}: {_unfit(value)}", parts)
            here.append(f"{_compact(slot)}:{_compact(value)}")
        elif _is_plain([value]) and (text := _json(value)) is not None:
            if len(text) * 4 > LARGE:
                found.append((slot, "json", text.encode("utf-8", "surrogatepass")))
            else:
                here.append(f"{_compact(slot)}:{text}")
        else:
            content, kept = encode_loose(value)
            if kept:
                return _without(index, f"node {node_id}, output {slot}: {_unfit(kept[0])}", parts)
            found.append((slot, "loose", content))
    for slot, kind_of, content in found:
        parts.add(index, slot, kind_of, content)
    return f"{{{','.join(here)}}}"


def encode_value(value: Any) -> tuple[str, bytes] | None:
    """Return what kind of content a value by itself becomes, and that; None where it has no codec."""
    if type(value) is bytes:
        return "bytes", value
    if type(value) is str:
        return "text", value.encode("utf-8", "surrogatepass")
    if _is_plain([value]) and (text := _json(value)) is not None:
        return "json", text.encode("utf-8", "surrogatepass")
    content, kept = encode_loose(value)
    return None if kept else ("loose", content)


def _without(index: int, reason: str, parts: _Parts) -> str:
    """Keep a row without its outputs."""
    parts.lacking.append(reason)
    parts.places.append([index, "", "none", reason, 0])
    return "null"


def _is_short(value: Any) -> bool:
    return (type(value) is not int or -_INT <= value < _INT) and (type(value) is not float or value - value == 0)


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
    head = [f'"n":{len(rows)},"i":{_compact(rows.ids)},{outputs}']
    if rows.notes:
        notes = {row: _note(note) for row, note in rows.notes.items()}
        head.append(f'"m":{_compact(notes)}')
    if parts.places:
        head.append(f'"x":{_compact(parts.places)}')
    lengths = {None if signature is None else len(signature) for signature in rows.signatures}
    joined = b""
    if len(lengths) == 1 and None not in lengths:
        head.append(f'"g":{lengths.pop()}')
        joined = b"".join(rows.signatures)  # type: ignore[arg-type]  # none of them is None
    elif lengths != {None}:
        head.append(f'"g":{_compact([None if s is None else s.hex() for s in rows.signatures])}')
    shown = f"{{{','.join(head)}}}".encode("utf-8", "surrogatepass")  # a lone surrogate comes back as it was
    times = struct.pack(f"<{2 * len(rows)}d", *rows.started, *rows.finished)
    body = b"".join([shown, times, joined, *parts.data])
    return HEADER.pack(MAGIC, zlib.crc32(body), len(body), len(shown)) + body


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


# --- decoding -----------------------------------------------------------------------------------------
