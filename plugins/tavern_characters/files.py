"""The folder `characters` of a project: a character's card as JSON, its picture, and the archive in which it came."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tavern_characters.cards import Card
from tavern_host.contracts.documents import read_document_bytes, read_json, revision_of
from tavern_host.contracts.errors import InvalidInput, NotFound, ServiceUnavailable
from tavern_host.contracts.names import did_you_mean
from tavern_host.storage.files import write_atomic
from tavern_knowledge.api.forms import MAX_JSON

MAX_CHARACTERS = 2_000
PICTURES = {"image/png": ".png", "image/webp": ".webp", "image/jpeg": ".jpg"}
ARCHIVE = ".charx"
_OTHERS = (*PICTURES.values(), ARCHIVE)


@dataclass(frozen=True)
class CharacterFolder:
    """The characters of a project. Its methods look at files: call them on a thread."""

    root: Path

    @property
    def _folder(self) -> Path:
        return self.root / "characters"

    def ids(self) -> list[str]:
        """Return the characters that there are."""
        return sorted(path.stem for path in self._folder.glob("*.json") if path.is_file())[:MAX_CHARACTERS]

    def stamp(self, character: str) -> object:
        """Return a stamp that differs once a file of a character does."""
        found = []
        for suffix in (".json", *_OTHERS):
            with suppress(OSError):
                about = (self._folder / f"{character}{suffix}").stat()
                found.append((suffix, about.st_mtime_ns, about.st_size))
        return found

    def card(self, character: str) -> Card:
        """Return a character's card. Raises `NotFound`, `InvalidInput` for a file that is no card."""
        path = self._path(character, ".json")
        if not path.is_file():
            hint = did_you_mean(character, self.ids())
            raise NotFound(f"there is no character {character!r:.100}{hint}", character=character[:200])
        return read_card(read_document_bytes(path), f"characters/{path.name}")

    def file(self, character: str, suffix: str) -> bytes | None:
        """Return another file of a character, None where there is none."""
        path = self._path(character, suffix)
        return read_document_bytes(path) if path.is_file() else None

    def picture(self, character: str) -> tuple[str, bytes] | None:
        """Return the media type of a character's picture, and the picture."""
        for kind, suffix in PICTURES.items():
            if (found := self.file(character, suffix)) is not None:
                return kind, found
        return None

    def picture_type(self, character: str) -> str | None:
        """Return the media type of a character's picture; None where it has none."""
        return next((kind for kind, suffix in PICTURES.items() if self._path(character, suffix).is_file()), None)

    def revision(self, character: str, card: Card) -> str:
        """Return a stamp that differs once a character's card or its picture does."""
        picture = self.picture(character)
        return revision_of([card.document, picture and [picture[0], hashlib.sha256(picture[1]).hexdigest()]])

    def save(self, character: str, card: Card, others: dict[str, bytes], replaced: Collection[str] = _OTHERS) -> None:
        """Write a character's card and its other files, by their suffixes; those `replaced` that it had before go."""
        try:
            self._folder.mkdir(exist_ok=True)
            for suffix in replaced:
                path = self._path(character, suffix)
                if suffix in others:
                    write_atomic(path, others[suffix])
                else:
                    path.unlink(missing_ok=True)
            write_atomic(self._path(character, ".json"), dumped(card.document) + b"\n")
        except OSError as error:
            raise ServiceUnavailable(f"{self._folder} cannot be written: {error.strerror or error}") from error

    def remove(self, character: str) -> None:
        """Remove the files of a character."""
        for suffix in (".json", *_OTHERS):
            self._path(character, suffix).unlink(missing_ok=True)

    def _path(self, character: str, suffix: str) -> Path:
        """Return a file of a character. Raises `InvalidInput` for an id that is no name of a file, or where the file
        leads out of the project."""
        bad = (
            not character
            or character.startswith(".")
            or any(c in '<>:"/\\|?*@' or not c.isprintable() for c in character)
        )
        if bad or any(c.isspace() for c in character) or len(character.encode("utf-8", "replace")) > 200:
            raise InvalidInput(f"{character!r:.100} cannot be the id of a character: it is the name of a file")
        path = self._folder / f"{character}{suffix}"
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise InvalidInput(f"characters/{path.name} leads out of the project")
        return path


def read_card(text: bytes, where: str) -> Card:
    """Return the card of a JSON text. Raises `InvalidInput` beginning with `where`."""
    if len(text) > MAX_JSON:
        raise InvalidInput(f"{where}: a card has at most {MAX_JSON >> 20} MiB of JSON")
    try:
        document = read_json(text.decode("utf-8-sig"), where)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{where} is not UTF-8 text (byte {error.start})") from None
    if not isinstance(document, dict):
        raise InvalidInput(f"{where}: a character card is an object")
    return Card.of(document, where)


def dumped(document: object) -> bytes:
    """Return a document as JSON text."""
    return json.dumps(document, ensure_ascii=False, indent=2).encode()
