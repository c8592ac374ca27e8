"""Character cards: finds them in files of the versions 1 to 3 and gives them one shape.

The formats are the community's Character Card V2 and V3 specifications; version 1 has the six text fields alone.
"""

from __future__ import annotations

from typing import Any

from tavern_host import InvalidInput
from tavern_knowledge.api.containers import carried_card, container_of
from tavern_nodes.documents import decode, read_json
from tavern_nodes.values import MAX_TEXT, kind_of

TEXT_FIELDS = ("name", "description", "personality", "scenario", "first_mes", "mes_example")
"""What every version has."""

LATER_TEXT_FIELDS = ("creator_notes", "system_prompt", "post_history_instructions", "creator", "character_version")
LIST_FIELDS = ("alternate_greetings", "tags")


def read_card_file(data: bytes, where: str) -> dict[str, Any]:
    """Return the card in the bytes of a file, JSON or one that carries it. Raises `InvalidInput` beginning with
    `where`."""
    if container_of(data) != "json":
        try:
            text = carried_card(data, MAX_TEXT).text
        except InvalidInput as error:
            raise InvalidInput(f"{where}: {error.message}") from None
        return read_card(read_json(decode(text, where), f"{where}: the card in the picture"), where)
    return read_card(read_json(decode(data, where), where), where)


def read_card(value: Any, where: str) -> dict[str, Any]:
    """Return a card of any version as one flat object: all fields of version 2, then what else it holds.

    `spec` and `spec_version` say where it came from. Raises `InvalidInput`.
    """
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: a character card is an object, not {kind_of(value)}")
    inner = value.get("data")
    data = inner if isinstance(inner, dict) else value
    if not isinstance(data.get("name"), str) or not any(key in data for key in TEXT_FIELDS[1:]):
        raise InvalidInput(f"{where}: this is no character card; it has no name, description or other field of one")
    card: dict[str, Any] = {}
    for key in (*TEXT_FIELDS, *LATER_TEXT_FIELDS):
        card[key] = "" if data.get(key) is None else data[key]
        if not isinstance(card[key], str):
            raise InvalidInput(f"{where}: the card's {key} must be text, not {kind_of(card[key])}")
    for key in LIST_FIELDS:
        card[key] = data.get(key) or []
        if not isinstance(card[key], list) or not all(isinstance(item, str) for item in card[key]):
            raise InvalidInput(f"{where}: the card's {key} must be a list of texts")
    card |= {key: item for key, item in data.items() if key not in card}
    card["spec"] = str(value.get("spec") or data.get("spec") or "chara_card_v1")
    card["spec_version"] = str(value.get("spec_version") or data.get("spec_version") or "1.0")
    return card
