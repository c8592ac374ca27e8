"""Whole documents: texts, world files, lorebooks and character cards (V1, V2, V3; JSON, or a PNG that carries it), as a
base and back. What of a card is text becomes an entry each; the rest is kept in the base's header and written back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tavern_host.contracts.errors import InvalidInput
from tavern_knowledge.api.containers import carried_card, container_of, in_utf8
from tavern_knowledge.api.forms import MAX_JSON, form_of, recognise
from tavern_knowledge.api.knowledge import BaseHeader, ExportFormat, KnowledgeEntry, KnowledgeFile
from tavern_knowledge.api.pictures import with_cards
from tavern_knowledge.exchange.families import as_object, entries_in
from tavern_knowledge.exchange.lorebooks import KEPT, book_entries, entries_of, world_entries
from tavern_knowledge.exchange.texts import Piece, pieces_of, text_in
from tavern_knowledge.files import read_in_parts
from tavern_knowledge.index import Row, entry_of

_PARTS = 4
"""How deep the entries of a document stand: `data.character_book.entries[0]`."""

_V1 = ("name", "description", "personality", "scenario", "first_mes", "mes_example")
_V2_TEXTS = ("creator_notes", "system_prompt", "post_history_instructions")
_LISTS = ("alternate_greetings", "group_only_greetings")
_V2_OTHERS = ("alternate_greetings", "tags", "creator", "character_version", "extensions", "character_book")
_ASPECTS: dict[str, tuple[str, bool]] = {
    "description": ("character_profile_element", True),
    "personality": ("character_profile_element", True),
    "scenario": ("character_profile_element", True),
    "first_mes": ("dialogue_snippet", False),
    "mes_example": ("dialogue_snippet", False),
    "creator_notes": ("fact", False),
    "system_prompt": ("instruction", True),
    "post_history_instructions": ("instruction", True),
    "alternate_greetings": ("dialogue_snippet", False),
    "group_only_greetings": ("dialogue_snippet", False),
}
"""The texts of a card: the type of the entry that each becomes, and whether it always reaches a prompt."""
_BOOK_SETTINGS = (
    ("scan_depth", 100, "scan_depth", "scanDepth"),
    ("token_budget", 1 << 40, "token_budget", "tokenBudget"),
)
"""What a book says of all its entries: our name for it, how much it is at most, and theirs."""
_SPECS = {"card_v2": ("chara_card_v2", "2.0"), "card_v3": ("chara_card_v3", "3.0")}


@dataclass
class Imported:
    """What a document holds: a base, and the picture that it came in, without the card."""

    format: str
    header: BaseHeader
    entries: list[Row]
    unsupported: set[str] = field(default_factory=set)
    picture: bytes | None = None
    by_entry: dict[str, list[str]] = field(default_factory=dict)


def read(data: bytes, base: str) -> Imported:
    """Return the content of a document of any of the formats, as the base `base`. Raises `InvalidInput`."""
    if container_of(data) != "json":
        carried = carried_card(data, MAX_JSON)
        found = read(carried.text, base)
        found.picture = carried.picture if carried.media_type == "image/png" else None
        return found
    data = in_utf8(data)
    if (text := text_in(data)) is not None:
        return _text(text, base)
    if len(data) > MAX_JSON:
        raise InvalidInput(f"the document has more than {MAX_JSON >> 20} MiB of JSON")
    try:
        document = as_object(read_in_parts(data, _PARTS))
    except InvalidInput as error:
        form = recognise(data)
        if form is not None and form.kind == "chat":
            raise InvalidInput(f"the document is {form.label}; {form.command} takes it") from None
        raise InvalidInput(f"the document cannot be imported: {error.message}") from None
    form = form_of(document)
    if form is None and "kb_id" in document:
        raise InvalidInput("the document is a knowledge base of this program: put it into the folder knowledge/")
    if form is None:
        raise InvalidInput("the document is neither a lorebook nor a character card that is known here")
    if form.kind not in ("card", "book"):
        raise InvalidInput(f"the document is {form.label}; {form.command} takes it")
    inner = document.get("data")
    if form.family == "lorebook_v3":
        return _book("lorebook_v3", as_object(inner), base, *entries_in(as_object(inner), "character_book"))
    if form.kind == "book":
        kind, entries = entries_in(document, form.family)
        return _book("world_info" if form.family == "silly" else form.family, document, base, kind, entries)
    if not isinstance(inner, dict):
        return _card("card_v1", document, {}, base)
    about = {key: value for key, value in document.items() if key not in ("data", "spec", "spec_version")}
    return _card("card_v3" if document.get("spec") == "chara_card_v3" else "card_v2", inner, about, base)


def _text(text: str, base: str) -> Imported:
    pieces = pieces_of(text)
    title = next((piece.headings[0] for piece in pieces if piece.headings), base)
    entries = [_piece(number, piece, title) for number, piece in enumerate(pieces, 1)]
    return Imported("text", _header(base, title, None, {"format": "text"}), entries)


def _piece(number: int, piece: Piece, title: str) -> Row:
    entry = {
        "id": f"piece-{number:05}",
        "entry_type": "fact",
        "displayName": (" › ".join(piece.headings) or title)[:1000],
        "content": {"value": piece.text},
        "management_metadata": {"source": "imported_from:text"},
    }
    return Row.of(KnowledgeEntry.model_validate(entry))


def _book(format: str, book: dict[str, Any], base: str, kind: str, listed: Any) -> Imported:
    entries, by_entry = entries_of(listed or [], kind)
    about = {key: value for key, value in book.items() if key not in ("entries", "name", "description")}
    about = {key: value for key, value in about.items() if format != "risu" or key != "data"}
    activation = _activation(book)
    unsupported = {f"entries.{name}" for names in by_entry.values() for name in names}
    header = _header(
        base, book.get("name"), book.get("description"), {"format": format, "book": about}, activation=activation
    )
    return Imported(format, header, entries, unsupported, by_entry=by_entry)


def _activation(book: dict[str, Any]) -> dict[str, Any]:
    """Return how a book's entries are activated, as far as it says so properly."""
    found: dict[str, Any] = {}
    for ours, most, *theirs in _BOOK_SETTINGS:
        value = next((book[name] for name in theirs if book.get(name) is not None), None)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            found[ours] = min(value, most)
    if any(book.get(name) is True for name in ("recursive_scanning", "recursiveScanning", "recursive")):
        found["recursive"] = True
    return found


def _header(
    base: str,
    name: Any,
    description: Any,
    kept: dict[str, Any],
    activation: dict[str, Any] | None = None,
    **more: Any,
) -> BaseHeader:
    fields = {"kb_displayName": (name, 1_000), "kb_description": (description, 100_000)}
    texts = {key: value[:most] for key, (value, most) in fields.items() if isinstance(value, str) and value}
    extensions = {KEPT: kept, **({"activation": activation} if activation else {})}
    return BaseHeader.model_validate({"kb_id": base, **texts, **more, "kb_extensions": extensions})


def _card(format: str, data: dict[str, Any], top: dict[str, Any], base: str) -> Imported:
    name = data.get("name") if isinstance(data.get("name"), str) else base
    entries: list[Row] = []
    rest = dict(data)
    for aspect in _ASPECTS:
        value = data.get(aspect)
        texts = value if isinstance(value, list) else [value]
        if value is None or not all(isinstance(text, str) for text in texts):
            continue
        is_list = isinstance(value, list)
        rest[aspect] = [] if is_list else ""
        entries += [_aspect(aspect, n, text, str(name)) for n, text in enumerate(texts) if text or is_list]
    unsupported: set[str] = set()
    by_entry: dict[str, list[str]] = {}
    activation: Any = None
    book = rest.pop("character_book", None)
    kept: dict[str, Any] = {"format": format, "card": rest, "top": top}
    if isinstance(book, dict):
        found = _book("character_book", book, base, *entries_in(book, "character_book"))
        entries += found.entries
        activation, by_entry = found.header.kb_extensions.get("activation"), found.by_entry
        unsupported = {f"character_book.{one}" for one in found.unsupported}
        kept["book"] = {key: value for key, value in book.items() if key != "entries"}
    unsupported |= {name for name in ("assets", "extensions") if rest.get(name)}
    tags, creator = rest.get("tags"), rest.get("creator")
    more: dict[str, Any] = {"tags": [tag for tag in tags if isinstance(tag, str)]} if isinstance(tags, list) else {}
    more |= {"author": creator} if isinstance(creator, str) and creator else {}
    return Imported(
        format, _header(base, name, None, kept, activation, **more), entries, unsupported, by_entry=by_entry
    )


def _aspect(aspect: str, number: int, text: str, name: str) -> Row:
    kind, always = _ASPECTS[aspect]
    is_list = aspect in _LISTS
    entry = {
        "id": f"card-{aspect}-{number}" if is_list else f"card-{aspect}",
        "entry_type": kind,
        "displayName": f"{name}: {aspect}"[:1000],
        "content": {"value": text},
        "activation_criteria": {"trigger_conditions": [{"type": "always"}]} if always else {},
        "usage_metadata": {"priority": 1000, "role": "system"},
        "management_metadata": {
            "tags": [f"character_data:{name}", f"aspect:{aspect}"],
            "source": "imported_from:sillytavern:card",
        },
    }
    return Row.of(KnowledgeEntry.model_validate(entry))


# --- and back -------------------------------------------------------------------------------------


def write(
    base: str, header: BaseHeader, entries: Sequence[Row], format: ExportFormat, picture: bytes | None
) -> KnowledgeFile:
    """Return a base as a document, and the names of what it cannot hold."""
    about = as_object(header.kb_extensions.get(KEPT))
    if format == "png":
        v2, lost = _as_card(header, entries, about, "card_v2")
        v3, _ = _as_card(header, entries, about, "card_v3")
        content = with_cards(picture, {"chara": _dumped(v2), "ccv3": _dumped(v3)})
        lost -= {name for name in lost if name in v3["data"]}
        return KnowledgeFile(name=f"{base}.png", media_type="image/png", content=content, unsupported=sorted(lost))
    document: dict[str, Any]
    if format in ("card_v1", "card_v2", "card_v3"):
        document, lost = _as_card(header, entries, about, format)
    else:
        listed: Any
        listed, lost = (world_entries if format == "world_info" else book_entries)(entries)
        named = {"name": header.display_name} if header.display_name else {}
        named |= {"description": header.description} if header.description else {}
        document = {**as_object(about.get("book")), **named, "entries": listed}
        if format == "lorebook_v3":
            document = {"spec": "lorebook_v3", "data": {"extensions": {}, **document}}
    return KnowledgeFile(
        name=f"{base}.json", media_type="application/json", content=_dumped(document), unsupported=sorted(lost)
    )


def _dumped(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, indent=2).encode("utf-8", "replace")


def _as_card(
    header: BaseHeader, entries: Sequence[Row], about: dict[str, Any], format: str
) -> tuple[dict[str, Any], set[str]]:
    data: dict[str, Any] = dict.fromkeys((*_V1, *_V2_TEXTS), "")
    data |= {"alternate_greetings": [], "tags": list(header.tags), "creator": header.author or ""}
    data |= {"character_version": header.kb_version, "extensions": {}}
    data |= as_object(about.get("card"))
    data |= {"name": header.display_name or header.kb_id, "tags": list(header.tags)}
    others = []
    for row in entries:
        entry = entry_of(row)
        aspects = [tag.partition(":")[2] for tag in entry.management_metadata.tags if tag.startswith("aspect:")]
        aspect = aspects[0] if aspects else ""
        if aspect not in _ASPECTS:
            others.append(row)
        elif isinstance(data.get(aspect), list) or aspect in _LISTS:
            data[aspect] = [*(data.get(aspect) or []), entry.content.value]
        else:
            data[aspect] = entry.content.value
    book, lost = book_entries(others)
    if others or "book" in about:
        data["character_book"] = {"extensions": {}, **as_object(about.get("book")), "entries": book}
    known = _V1 if format == "card_v1" else (*_V1, *_V2_TEXTS, *_V2_OTHERS)
    if format == "card_v3":
        data.setdefault("group_only_greetings", [])
    elif format == "card_v2" or about.get("format") != "card_v1":
        lost = lost | {key for key, value in data.items() if key not in known and value not in (None, "", [], {})}
        data = {key: value for key, value in data.items() if key in known}
    if format == "card_v1":
        return data, lost
    above = {key: data.get(key, value) for key, value in as_object(about.get("top")).items()}
    spec, version = _SPECS[format]
    return {**above, "spec": spec, "spec_version": version, "data": data}, lost
