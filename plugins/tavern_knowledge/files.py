"""Base files: `knowledge/ID.json`, read entry by entry and written atomically. Blocking: for the store's thread."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tavern_host.contracts.documents import MAX_DOCUMENT, json_path, json_type, mistakes, wire_json, without_comments
from tavern_host.contracts.errors import InvalidInput, TavernError
from tavern_host.contracts.wire import MAX_LEVELS
from tavern_host.storage.confined_fs import confined_folder, open_file, reason_of, replace_file, stat_file
from tavern_host.storage.content_files import hash_of
from tavern_knowledge.api.knowledge import BaseHeader, KnowledgeEntry
from tavern_knowledge.index import Row

SUFFIX, PICTURE = ".json", ".png"
MAX_BASES = 500
MAX_ENTRIES = 50_000
MAX_ENTRY = 1 << 20
"""How many bytes of JSON an entry may have."""

_ID = re.compile(r"[^\W_][\w.\- ]{0,99}")
_LOCK_SECONDS = 10.0
_MAX_TOLD = 10
_SPACE = re.compile(r"[ \t\r\n]*")


def is_id(base: str) -> bool:
    """Return whether a base may have this id."""
    return _ID.fullmatch(base) is not None


def check_id(base: str) -> str:
    """Return the id of a base. Raises `InvalidInput` for what is no name of a file."""
    if not is_id(base) or base.endswith((".", " ")):
        raise InvalidInput(
            f"a base cannot have the id {base!r:.110}: it is the name of a file, letters, digits, spaces and . _ -,"
            " at most 100 characters, the first a letter or digit"
        )
    return base


class BaseFolder:
    """The folder `knowledge` of a project. Nothing is read or written through a link."""

    is_shared = False

    def __init__(self, path: Path) -> None:
        self._path = path

    async def look(self) -> None:
        """Look where bases are, if that has changed."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Keep others that share the files, but not the index, from writing within the block."""
        return nullcontext()

    def stamps(self) -> dict[str, str]:
        """Return how each base's file is now, by id: equal only as long as nobody writes it."""
        found: dict[str, str] = {}
        with suppress(FileNotFoundError, NotADirectoryError), confined_folder(self._path, []) as folder:
            with folder.scan() as entries:
                every = [entry.name for entry in entries]
            names = (name for name in every if name.endswith(SUFFIX) and is_id(name.removesuffix(SUFFIX)))
            for name in sorted(names)[:MAX_BASES]:
                if (about := stat_file(folder, name)) is not None:
                    found[name.removesuffix(SUFFIX)] = _stamp(about)
        return found

    def read(self, base: str) -> tuple[bytes, str]:
        """Return a file's content, of one that is too large a byte too many, and its stamp. Raises `InvalidInput`,
        `FileNotFoundError`."""
        name = f"{base}{SUFFIX}"
        try:
            with confined_folder(self._path, []) as folder, os.fdopen(open_file(folder, name), "rb") as file:
                stamp = _stamp(os.fstat(file.fileno()))
                return file.read(MAX_DOCUMENT + 1), stamp
        except FileNotFoundError:
            raise
        except OSError as error:
            raise InvalidInput(f"it cannot be read: {reason_of(error)}") from None

    def write(self, base: str, header: str, bodies: Iterable[str]) -> tuple[str, str]:
        """Replace a base's file; return its stamp and hash. Readers find the old content or the new, also after a
        crash. Raises `InvalidInput` for more than fits."""
        name, data = f"{base}{SUFFIX}", document_of(base, header, bodies)
        with confined_folder(self._path, [], make=True) as folder, folder.locked(_LOCK_SECONDS):
            replace_file(folder, name, data, overwrite=True)
            return _stamp(folder.stat(name)), hash_of(data)

    def remove(self, base: str) -> None:
        """Remove a base's file and the picture beside it, those that are there."""
        with suppress(FileNotFoundError), confined_folder(self._path, []) as folder, folder.locked(_LOCK_SECONDS):
            for suffix in (PICTURE, SUFFIX):
                with suppress(FileNotFoundError):
                    folder.unlink(f"{base}{suffix}")
            folder.sync()

    def picture(self, base: str) -> bytes | None:
        """Return the picture beside a base, or None where there is none that can be read."""
        with suppress(OSError), confined_folder(self._path, []) as folder:
            with os.fdopen(open_file(folder, f"{base}{PICTURE}"), "rb") as file:
                data = file.read(MAX_DOCUMENT + 1)
            return data if len(data) <= MAX_DOCUMENT else None
        return None

    def write_picture(self, base: str, picture: bytes) -> None:
        """Replace the picture beside a base."""
        with confined_folder(self._path, [], make=True) as folder, folder.locked(_LOCK_SECONDS):
            replace_file(folder, f"{base}{PICTURE}", picture, overwrite=True)


def _stamp(about: os.stat_result) -> str:
    return f"{about.st_mtime_ns}-{about.st_size}-{about.st_ino}-{about.st_ctime_ns}"


def document_of(base: str, header: str, bodies: Iterable[str]) -> bytes:
    """Return the file of a base: an entry on each line, so that a change is a line. Raises `InvalidInput` for more than
    fits."""
    about = json.loads(header)
    lines = [f"  {json.dumps(key, ensure_ascii=False)}: {json.dumps(about[key], ensure_ascii=False)}," for key in about]
    entries = ",\n".join(f"    {body}" for body in bodies)
    tail = f'  "entries": [\n{entries}\n  ]\n' if entries else '  "entries": []\n'
    data = "\n".join(["{", *lines, f"{tail}}}\n"]).encode("utf-8", "replace")
    if len(data) > MAX_DOCUMENT:
        raise InvalidInput(f"the base {base!r} would have more than {MAX_DOCUMENT >> 20} MiB")
    return data


# --- reading what anybody may have written --------------------------------------------------------


def parse(data: bytes, base: str) -> tuple[str, list[Row]]:
    """Return the header of a file as JSON, and its entries in order. Raises `InvalidInput` with every mistake and its
    place, at most ten of them.

    Entries are decoded one by one, so that a large file keeps nobody waiting.
    """
    if len(data) > MAX_DOCUMENT:
        raise InvalidInput(f"it is larger than {MAX_DOCUMENT >> 20} MiB")
    reader = _Reader(data)
    header = {reader.key(): reader.value(1) for _ in reader.each("{", "}")}
    reader.end()
    entries = header.pop("entries", [])
    if not isinstance(entries, list):
        raise InvalidInput(f"$.entries: expected an array, got {json_type(entries)}")
    problems: list[str] = []
    header.setdefault("kb_id", base)
    try:
        header = wire_json(header, "it")
        BaseHeader.model_validate(header).access  # noqa: B018 (it may be wrong as well)
    except ValidationError as error:
        problems += [f"{json_path(*place)}: {text}" for place, text in mistakes(error)]
    rows: dict[str, Row] = {}
    for index, value in enumerate(entries):
        if index >= MAX_ENTRIES:
            problems.append(f"$.entries: there are more than {MAX_ENTRIES:,}")
        if len(problems) >= _MAX_TOLD:
            break
        try:
            row = _checked(value)
        except InvalidInput as error:
            problems.append(f"$.entries[{index}]: {error.message}")
            continue
        if row.id in rows:
            problems.append(f"$.entries[{index}].id: {row.id!r} is the id of another entry as well")
        rows[row.id] = row
    if problems:
        raise InvalidInput("; ".join(problems[:_MAX_TOLD]))
    return json.dumps(header, ensure_ascii=False), list(rows.values())


def _checked(value: Any) -> Row:
    """Return the row of an entry in a document. Raises `InvalidInput`."""
    value = wire_json(value, "the entry")
    body = json.dumps(value, ensure_ascii=False)
    if len(body) > MAX_ENTRY:
        raise InvalidInput(f"it has more than {MAX_ENTRY >> 20} MiB of JSON")
    try:
        entry = KnowledgeEntry.model_validate(value)
    except ValidationError as error:
        raise InvalidInput("; ".join(f"{json_path(*place)}: {text}" for place, text in mistakes(error))) from None
    if not entry.id.strip():
        raise InvalidInput("$.id: it has none")
    return Row.of_body(entry.id, body)


def read_in_parts(data: bytes, levels: int) -> Any:
    """Return the JSON value that `data` holds, which may have comments; objects and arrays are decoded one by one as
    deep as `levels`: the decoder lets no other thread work meanwhile. Raises `InvalidInput`."""
    reader = _Reader(data)
    found = reader.value(levels)
    reader.end()
    return wire_json(found, "it")


class _Reader:
    """Reads a JSON text part by part; `at` is the place that it has come to."""

    def __init__(self, data: bytes) -> None:
        try:
            self.text = without_comments(data.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise InvalidInput(f"it is not UTF-8 text (byte {error.start})") from None
        self._decode = json.JSONDecoder().raw_decode
        self.at = 0

    def each(self, opening: str, closing: str) -> Iterator[None]:
        """Stop before each part of an object or array, for the caller to read it."""
        self.expect(opening)
        if self.next() != closing:
            yield
            while self.next() == ",":
                self.at += 1
                self.next()
                yield
        self.expect(closing)

    def key(self) -> str:
        """Return the key that begins here."""
        if self.next() != '"':
            raise self.wrong("expected a key")
        key = self.value()
        self.expect(":")
        return str(key)

    def value(self, levels: int = 0) -> Any:
        """Return the value that begins here, decoded in parts as deep as `levels`."""
        opening = self.next() if levels else ""
        if opening == "{":
            return {self.key(): self.value(levels - 1) for _ in self.each("{", "}")}
        if opening == "[":
            return [self.value(levels - 1) for _ in self.each("[", "]")]
        self.next()
        try:
            value, self.at = self._decode(self.text, self.at)
        except json.JSONDecodeError as error:
            self.at = error.pos
            raise self.wrong(error.msg) from None
        except RecursionError:
            raise self.wrong(f"it is nested more than {MAX_LEVELS} levels deep") from None
        except ValueError as error:
            raise self.wrong(str(error)) from None
        return value

    def next(self) -> str:
        """Go past white space, and return the character there."""
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def end(self) -> None:
        """Raise `InvalidInput` unless the text ends here."""
        if self.next():
            raise self.wrong("expected the end")

    def expect(self, character: str) -> None:
        """Go past a character that must be here."""
        if self.next() != character:
            raise self.wrong(f"expected {character!r}")
        self.at += 1

    def wrong(self, reason: str) -> TavernError:
        """Return the error that the text is wrong here."""
        line, column = self.text.count("\n", 0, self.at) + 1, self.at - self.text.rfind("\n", 0, self.at)
        return InvalidInput(f"it is not JSON: line {line}, column {column}: {reason}")
