"""Reads files of other programs: JSON, lines of JSON, YAML, and JSON texts in pictures and archives of characters, all
of them bounded. Reaches nothing but the file, and makes nothing but plain values of it."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from binascii import Error as Base64Error
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from mimetypes import guess_type
from pathlib import Path
from typing import Any

from tavern_host.contracts.documents import read_document_bytes, wire_json, without_comments
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.wire import MAX_LEVELS
from tavern_importers.api.importers import MAP_FILE, MAX_FILE, FileForm, ForeignFile
from tavern_knowledge.api.containers import carried_card, container_of
from tavern_knowledge.api.pictures import SIGNATURE

MAX_YAML = 4 << 20
MAX_VALUES = 500_000
"""How many values a YAML file may have, those of aliases each time."""
MAX_CHUNKS = 100_000
MAX_TEXTS = 50
"""How many texts of a picture are looked at."""
_JSON_NAME = re.compile(r"\.jsonl?$", re.IGNORECASE)
_TEXT_NAME = re.compile(r"\.(md|markdown|txt|html?)$", re.IGNORECASE)
_YAML_NAME = re.compile(r"\.ya?ml$", re.IGNORECASE)


@dataclass(frozen=True)
class ReadFile:
    """What a file holds: a JSON value, of lines the first; of a picture its JSON texts by keyword, None for what is no
    JSON."""

    form: FileForm
    value: Any = None


def read_foreign(file: ForeignFile) -> ReadFile:
    """Return the content of a file. Raises `InvalidInput` with the place of what cannot be read. Takes its time: call
    it in a thread."""
    data = file.content
    container = container_of(data)
    if container == "png":
        return ReadFile("png", dict(_texts(data)))
    if container != "json":
        return ReadFile(container, _carried(data))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            with suppress(UnicodeDecodeError):
                return _of_text(file.name, data.decode("utf-16"))
        if b"\0" in data[:1000]:
            return ReadFile("other")
        raise InvalidInput(f"{file.name} is not UTF-8 text (byte {error.start})") from None
    return _of_text(file.name, text)


def read_map(root: Path) -> dict[str, Any]:
    """Return the entries of the project's `import-map.yaml` for other programs' parts; none where there is none. Raises
    `InvalidInput`. Blocking."""
    try:
        content = read_document_bytes(root / MAP_FILE)
    except NotFound:
        return {}
    found = read_foreign(ForeignFile(name=MAP_FILE, content=content)).value
    if not isinstance(found, dict | None):
        raise InvalidInput(f"{MAP_FILE} holds no object")
    return found or {}


def _of_text(name: str, text: str) -> ReadFile:
    if "\0" in text[:1000]:
        return ReadFile("other")
    stripped = text.lstrip()
    if (stripped[:1] in ("{", "[", "/") or _JSON_NAME.search(name)) and not _YAML_NAME.search(name):
        try:
            form, value = _json(text, name)
            return ReadFile(form, wire_json(value, name))
        except InvalidInput:
            if not _TEXT_NAME.search(name):
                raise
            return ReadFile("text", text)
    if _YAML_NAME.search(name):
        return ReadFile("yaml", wire_json(_yaml(text, name), name))
    kind = guess_type(name)[0] or "text/plain"
    return ReadFile("text", text) if kind.startswith("text/") else ReadFile("other")  # such as a picture without one


def _json(text: str, name: str) -> tuple[FileForm, Any]:
    try:
        return "json", json.loads(without_comments(text) if text.lstrip()[:1] == "/" else text)
    except json.JSONDecodeError as error:
        first, _, rest = text.lstrip().partition("\n")
        if error.msg == "Extra data" and rest.lstrip()[:1] == "{":
            with suppress(ValueError):
                return "jsonl", json.loads(first)
        raise InvalidInput(f"{name} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (RecursionError, ValueError):
        raise InvalidInput(f"{name} is nested more than {MAX_LEVELS} levels deep, or has endless numbers") from None


# --- YAML -------------------------------------------------------------------------------------------------


def _yaml(text: str, name: str) -> Any:
    import yaml

    from tavern_host.storage.yaml_nodes import compose

    if len(text) > MAX_YAML:
        raise InvalidInput(f"{name} has more than {MAX_YAML >> 20} MiB of YAML; write it as JSON")
    try:
        root = compose(text)
        return None if root is None else _Values(name).of(root, 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise InvalidInput(f"{name} is not YAML: {where}{error.problem or error.context}") from None
    except RecursionError:
        raise InvalidInput(f"{name} is nested more than {MAX_LEVELS} levels deep") from None
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidInput(f"{name} is not YAML: {str(error)[:200]}") from None


class _Values:
    """Makes plain values of the nodes of a YAML file. What an alias stands for counts each time, so that few lines do
    not become millions of values."""

    def __init__(self, name: str) -> None:
        from yaml.constructor import SafeConstructor

        self._name, self._left, self._scalars = name, MAX_VALUES, SafeConstructor()

    def of(self, node: Any, level: int) -> Any:
        """Return the value of a node. Raises `InvalidInput`."""
        self._left -= 1
        if self._left < 0 or level > MAX_LEVELS:
            raise InvalidInput(f"{self._name} holds too much: its aliases repeat or contain themselves")
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if node.id == "sequence":
            return [self.of(child, level + 1) for child in node.value]
        if node.id == "mapping":
            return self._mapping(node, level)
        if kind in ("null", "bool", "int", "float"):
            return self._scalars.construct_object(node)
        return node.value

    def _mapping(self, node: Any, level: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, value in node.value:
            inner = self.of(value, level + 1)
            if key.tag.endswith(":merge"):
                for one in inner if isinstance(inner, list) else [inner]:
                    merged = {**(one if isinstance(one, dict) else {}), **merged}
            elif key.id == "scalar":
                found[key.value] = inner  # as it is written: `200:` of a response is the text 200
            else:
                raise InvalidInput(f"{self._name}: line {key.start_mark.line + 1}: a key must be a text")
        return {**merged, **found}


# --- pictures ---------------------------------------------------------------------------------------------


def _texts(data: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the texts of a PNG picture (PNG §11.3.3) by keyword, in small letters: JSON, which may be in Base64."""
    left = MAX_FILE
    for kind, content in islice(_chunks(data), MAX_TEXTS):
        keyword, _, rest = content.partition(b"\0")
        if kind == b"zTXt":
            rest = _unpacked(rest[1:], left)
        elif kind == b"iTXt":
            packed, (*_, rest) = rest[:1] == b"\x01", rest[2:].split(b"\0", 2)
            rest = _unpacked(rest, left) if packed else rest
        left -= len(rest)
        if left < 0:
            return
        yield keyword.decode("latin-1").lower()[:79], _json_in(rest)


def _carried(data: bytes) -> dict[str, Any]:
    """Return the card that a picture of another kind, or an archive, carries, as a PNG picture has it."""
    with suppress(InvalidInput):
        return {"chara": _json_in(carried_card(data, MAX_FILE).text)}
    return {}


def _json_in(text: bytes) -> Any:
    if text.lstrip()[:1] not in (b"{", b"["):
        try:
            text = base64.b64decode(text, validate=True)
        except (Base64Error, ValueError):
            return None
    try:
        return wire_json(json.loads(text.decode("utf-8", "strict")), "a text in the picture")
    except (ValueError, RecursionError, InvalidInput):
        return None


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    for _ in range(MAX_CHUNKS):
        if at + 12 > len(data):
            return
        (length,) = struct.unpack_from(">I", data, at)
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if kind == b"IEND" or len(content) < length:
            return
        if kind in (b"tEXt", b"zTXt", b"iTXt"):
            yield kind, content
        at += 12 + length


def _unpacked(data: bytes, most: int) -> bytes:
    """Return a compressed text; one that is damaged is empty, and of one that is too large there is too much."""
    try:
        return zlib.decompressobj().decompress(data, most + 1)
    except zlib.error:
        return b""
