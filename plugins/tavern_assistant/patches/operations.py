"""Operations of JSON Patch (RFC 6902) as they are given, and applying them to a document by the library `jsonpatch`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from tavern_assistant.api.assistant import MAX_OPERATIONS, PatchProblem
from tavern_host.contracts.documents import json_type
from tavern_host.contracts.names import suggest
from tavern_host.contracts.wire import MAX_LEVELS, WireError, wire_value

Parts = tuple[str, ...]
"""The reference tokens of a JSON pointer (RFC 6901), unescaped."""

INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
"""A place in a list."""
_VALUED = frozenset({"add", "replace", "test"})
_FROM = frozenset({"move", "copy"})
_NAMES = sorted({*_VALUED, *_FROM, "remove"})
MAX_PATH = 2000
MAX_PROBLEMS = 100
"""After how many problems the rest of a patch is not looked at."""
MAX_COPIED = 2**20
"""How much a patch may copy and move, in characters of JSON: a value that is copied into itself doubles."""
_SHOWN = 120
"""How many characters of a value a message shows."""


@dataclass(eq=False)
class Refused(Exception):
    """Why an operation cannot be applied: a code, a message and a hint; `path` is where in its value."""

    code: str
    message: str
    hint: str = ""
    path: str | None = None

    def problem(self, index: int, path: str) -> PatchProblem:
        """Return it as the problem of an operation."""
        where = path if self.path is None else f"{path}/{self.path}"
        return PatchProblem(index=index, path=where[:MAX_PATH], code=self.code, message=self.message, hint=self.hint)


@dataclass(frozen=True)
class Operation:
    """One operation: `path` and `source` (its `from`) as tokens."""

    index: int
    name: str
    path: Parts
    value: JsonValue = None
    source: Parts = ()

    def to_json(self) -> dict[str, JsonValue]:
        """Return the operation as RFC 6902 writes it."""
        written: dict[str, JsonValue] = {"op": self.name, "path": pointer(self.path)}
        if self.name in _VALUED:
            written["value"] = self.value
        if self.name in _FROM:
            written["from"] = pointer(self.source)
        return written


def pointer(parts: Sequence[str | int]) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def shown(value: JsonValue, most: int = _SHOWN) -> str:
    """Return a value as a message shows it."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]}…"


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; true is not 1, while 1.0 is."""
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


class Copies:
    """Adds up what a patch copies and moves. Raises `Refused` where it is too much, or too deep."""

    def __init__(self) -> None:
        self._left = MAX_COPIED

    def add(self, value: JsonValue) -> None:
        """Count a value."""
        try:
            self._left -= len(json.dumps(wire_value(value), ensure_ascii=False))
        except WireError:
            self._left = -1
        if self._left < 0:
            raise Refused("too_large", "the patch copies or moves too much", "copy and move smaller parts")


def read_operations(items: Sequence[JsonValue]) -> tuple[list[Operation], list[PatchProblem]]:
    """Return the operations that have the form of one, and why the others have not."""
    if len(items) > MAX_OPERATIONS:
        message = f"a patch has at most {MAX_OPERATIONS:,} operations, this one has {len(items):,}"
        return [], [PatchProblem(code="too_many", message=message, hint="apply it in parts")]
    found: list[Operation] = []
    problems: list[PatchProblem] = []
    for index, item in enumerate(items):
        try:
            found.append(_operation(index, wire_value(item)))
        except WireError as error:
            problems.append(PatchProblem(index=index, code="not_json", message=f"the operation: {error}"[:500]))
        except Refused as refused:
            path = item.get("path") if isinstance(item, dict) else ""
            problems.append(refused.problem(index, path if isinstance(path, str) else ""))
    return found, problems


def _operation(index: int, item: JsonValue) -> Operation:
    if not isinstance(item, dict):
        hint = 'write {"op": …, "path": …, "value": …}'
        raise Refused("not_an_operation", f"an operation is an object, this is {json_type(item)}", hint)
    name = item.get("op")
    if not isinstance(name, str) or name not in _NAMES:
        near = suggest(name, _NAMES) if isinstance(name, str) else None
        hint = near or f"the operations are {', '.join(_NAMES)}"
        raise Refused("unknown_operation", f"there is no operation {shown(name)}", hint)
    for key in ("value",) if name in _VALUED else ("from",) if name in _FROM else ():
        if key not in item:
            raise Refused("missing_member", f"the operation {name} needs `{key}`", f"add `{key}` to it")
    path = _parts(item.get("path"), "path")
    source = _parts(item.get("from"), "from") if name in _FROM else ()
    if name == "move" and len(source) < len(path) and path[: len(source)] == source:
        raise Refused("move_into_itself", "a value cannot be moved into itself", "use copy, or another path")
    return Operation(index, name, path, item.get("value"), source)


def _parts(text: JsonValue, member: str) -> Parts:
    import jsonpatch

    if not isinstance(text, str):
        raise Refused("bad_path", f"`{member}` must be a text, a JSON pointer such as /nodes/0", "")
    if len(text) > MAX_PATH or text.count("/") > MAX_LEVELS:
        raise Refused("bad_path", f"`{member}` has at most {MAX_PATH:,} characters and {MAX_LEVELS} parts")
    try:
        return tuple(jsonpatch.path_split(text))
    except jsonpatch.JsonPointerException as error:
        hint = "a JSON pointer begins with /; in it ~ is written ~0 and / in a name ~1"
        raise Refused("bad_path", f"`{member}` is no JSON pointer: {error}", hint) from None


def apply_in_place(document: JsonValue, operation: Operation, copies: Copies) -> Any:
    """Apply one operation to a document, which it changes, and return the document. Raises `Refused`."""
    import jsonpatch

    is_test = operation.name == "test"
    path = operation.path if is_test or operation.name in ("remove", "replace") else operation.path[:-1]
    there, code = document, "test_failed" if is_test else "no_such_place"
    for parts in (operation.source, path):
        there, found = _walk(document, parts)
        if len(found) < len(parts):
            message = f"{operation.name} cannot be applied: there is no {pointer(parts)}"
            raise Refused(code, message, _what_is_there(document, operation))
    if is_test:
        if not same(there, operation.value):
            hint = "read the document again and make a new patch"
            raise Refused(code, f"the value is {shown(there)}, not {shown(operation.value)}", hint)
        return document
    if operation.name in _FROM:
        copies.add(_walk(document, operation.source)[0])
    try:
        return jsonpatch.JsonPatch([operation.to_json()]).apply(document, in_place=True)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):  # their texts may hold the whole document
        message = f"{operation.name} cannot be applied at {pointer(operation.path)}"
        raise Refused(code, message, _what_is_there(document, operation)) from None


def _walk(document: JsonValue, parts: Parts) -> tuple[JsonValue, Parts]:
    """Return the value at a path, or the last one on the way there, and the part of the path that leads to it."""
    for place, part in enumerate(parts):
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list) and INDEX.fullmatch(part) and int(part) < len(document):
            document = document[int(part)]
        else:
            return document, parts[:place]
    return document, parts


def _what_is_there(document: JsonValue, operation: Operation) -> str:
    """Say what there is in the place of what an operation names."""
    for parts in (operation.source, operation.path):
        there, found = _walk(document, parts)
        if len(found) == len(parts):
            continue
        where = f"at {pointer(found)}" if found else "in the document"
        if isinstance(there, dict):
            if len(found) == len(parts) - 1 and operation.name == "replace":
                return f"nothing is set there yet; use add. {_keys(where, there, parts[len(found)])}"
            return _keys(where, there, parts[len(found)])
        if isinstance(there, list):
            return f"{where} is a list of {len(there)}; its last index is {len(there) - 1}, and - is its end"
        return f"{where} is {json_type(there)}"
    return ""


def _keys(where: str, there: dict[str, JsonValue], wanted: str) -> str:
    near = suggest(wanted, there)
    return near or (f"{where} there are: {', '.join(list(there)[:20])}" if there else f"{where} there is nothing")


def apply_plain(document: JsonValue, items: Sequence[JsonValue]) -> tuple[Any, list[PatchProblem]]:
    """Return a copy of a document with a patch applied; with problems, the document itself."""
    operations, problems = read_operations(items)
    if problems:
        return document, problems
    copied, copies = json.loads(json.dumps(document)), Copies()
    for operation in operations:
        try:
            copied = apply_in_place(copied, operation, copies)
        except Refused as refused:  # what follows is made for what this one would have done
            return document, [refused.problem(operation.index, pointer(operation.path))]
    return copied, []
