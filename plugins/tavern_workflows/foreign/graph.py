"""What all programs' graphs have: nodes with values, links between slots, notes. Readers fill it, from whatever
form."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tavern_host.contracts.errors import InvalidInput

MAX_NODES = 5_000
MAX_LINKS = 50_000
MAX_TEXT = 100_000
"""How many characters a note has at most."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}")
_SPACE = re.compile(r"[\s/]+")
RESERVED = frozenset({"__proto__", "constructor", "prototype"})
"""Keys that are no keys like others in the page's language."""


@dataclass
class ForeignNode:
    """A node of another program. `key` is what its links name it by. `inputs` and `outputs` are its slots, by name,
    with their types; `values` what is written in it. `parent` is the key of the node that it lies in."""

    key: str
    type: str
    title: str = ""
    position: tuple[float, float] | None = None
    values: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    parent: str | None = None
    bypassed: bool = False


@dataclass(frozen=True)
class ForeignLink:
    """A link from an output of a node to an input of another."""

    source: str
    output: str
    target: str
    input: str


@dataclass(frozen=True)
class ForeignNote:
    """A note, or with a size a frame around nodes."""

    text: str
    position: tuple[float, float] | None = None
    size: tuple[float, float] | None = None


@dataclass
class ForeignGraph:
    """A graph of a program; `without_effect` says in sentences what of it has no counterpart here. `spread` is how much
    farther apart its nodes stand here, where they are larger."""

    program: str
    namespace: str
    name: str = ""
    description: str = ""
    spread: float = 1.0
    nodes: list[ForeignNode] = field(default_factory=list)
    links: list[ForeignLink] = field(default_factory=list)
    notes: list[ForeignNote] = field(default_factory=list)
    without_effect: list[str] = field(default_factory=list)


def text_of(value: Any, most: int = 500) -> str:
    """Return a text as it stands; what is none is empty."""
    return value[:most] if isinstance(value, str) else ""


def key_of(value: Any) -> str:
    """Return the name of a node: a text, or a number."""
    is_key = isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
    return str(value)[:200] if is_key else ""


def object_in(value: Any) -> dict[str, Any]:
    """Return an object as it stands; what is none is empty."""
    return value if isinstance(value, dict) else {}


def objects_in(value: Any, what: str = "nodes", most: int = MAX_NODES) -> list[dict[str, Any]]:
    """Return the objects of a list, without what is none. Raises `InvalidInput` where there are too many."""
    if not isinstance(value, list):
        return []
    if len(value) > most:
        raise InvalidInput(f"the graph has {len(value):,} {what}; at most {most:,} are imported")
    return [one for one in value if isinstance(one, dict)]


def pair_of(value: Any, keys: tuple[str, str] = ("x", "y")) -> tuple[float, float] | None:
    """Return two numbers, from a list or from an object with these keys."""
    if isinstance(value, dict):
        value = [value.get(key, value.get(str(index))) for index, key in enumerate(keys)]
    if not isinstance(value, list) or len(value) < 2:
        return None
    found = [float(one) for one in value[:2] if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(found) < 2 or any(abs(one) > 1e7 for one in found):
        return None
    return found[0], found[1]


def slot_key(name: Any, taken: Iterable[str] = ()) -> str:
    """Return the key of a slot: its name without spaces, with a number where that is taken."""
    base = _SPACE.sub("_", text_of(name, 100).strip()) or "slot"
    base = f"{base}_" if base in RESERVED else base
    known, key, number = set(taken), base, 2
    while key in known:
        key, number = f"{base}_{number}", number + 1
    return key


def ids_of(nodes: Iterable[ForeignNode]) -> dict[str, str]:
    """Return an id for each node by its key: the key itself where it can be one, else a number."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    number = 0
    for node in nodes:
        wanted = node.key if _ID.fullmatch(node.key) and node.key not in RESERVED else ""
        while not wanted or wanted in taken:
            number += 1
            wanted = f"n{number}"
        found[node.key] = wanted
        taken.add(wanted)
    return found
