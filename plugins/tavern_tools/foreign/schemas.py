"""Schemas of an API's description as JSON Schemas that stand for themselves: what is referred to within the description
comes along, what lies outside of it is never fetched."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

MOST_BYTES = 64 << 10
"""How large the schema of one tool is at most; a part that would be larger is left open."""
_LOCAL = re.compile(r"#(/.*)?")
_DEPTH = 60
_ODD = ("discriminator", "xml", "externalDocs", "$schema", "$id", "id", "$anchor", "$dynamicRef", "$dynamicAnchor")
"""Keywords that mean nothing to a tool, or that would give a schema an address."""
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_PLAIN = ("string", "integer", "number", "boolean", "array", "object", "null")


def size_of(value: Any, most: int) -> int:
    """Return about how many characters a JSON value has; of one with more than `most`, some number above that."""
    size, waiting = 0, [value]
    while waiting and size <= most:
        one = waiting.pop()
        if isinstance(one, dict):
            size += sum(len(key) + 4 for key in one) + 2
            waiting += one.values()
        elif isinstance(one, list):
            size += 2
            waiting += one[: most + 1]
        else:
            size += len(one) + 2 if isinstance(one, str) else 6
    return size


class Schemas:
    """Reads the schemas of one document. `outside` are references that lead out of it or nowhere."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self.outside: set[str] = set()

    def target(self, reference: Any) -> Any:
        """Return the value that a reference within the document leads to; None for one that leads out of it or
        nowhere."""
        found: Any = self._document
        if not isinstance(reference, str) or _LOCAL.fullmatch(reference) is None:
            self.outside.add(str(reference)[:200])
            return None
        for part in reference[2:].split("/") if reference != "#" else ():
            part = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and part in found:
                found = found[part]
            elif isinstance(found, list) and part.isdecimal() and len(part) < 6 and int(part) < len(found):
                found = found[int(part)]
            else:
                self.outside.add(reference[:200])
                return None
        return found

    def resolved(self, value: Any) -> dict[str, Any]:
        """Return an object, or what it refers to; an empty one where that leads nowhere or in a circle."""
        for _ in range(20):
            if not isinstance(value, dict):
                return {}
            if "$ref" not in value:
                return value
            value = self.target(value["$ref"])
        return {}

    def schema(self, value: Any, definitions: dict[str, Any]) -> dict[str, Any]:
        """Return a schema; what it refers to is added to `definitions`, by name."""
        return _Reader(self, definitions).read(value, 0)


class _Reader:
    def __init__(self, schemas: Schemas, definitions: dict[str, Any]) -> None:
        self._schemas, self._definitions, self._left = schemas, definitions, 2 * MOST_BYTES

    def read(self, value: Any, depth: int) -> dict[str, Any]:
        if not isinstance(value, dict) or depth > _DEPTH or self._left < 0:
            return {"not": {}} if value is False else {}
        if "$ref" in value:
            return self._reference(value["$ref"], depth)
        made = {key: one for key, one in value.items() if key not in _ODD and not key.startswith("x-")}
        inner = (*_NAMED, *_LISTS, *_SINGLE)
        own = {key: () if key in inner else one for key, one in made.items()}
        self._left -= size_of(own, MOST_BYTES) + sum(
            len(one) for key, one in made.items() if key in inner and isinstance(one, dict | list)
        )
        for key in _NAMED:
            if isinstance(made.get(key), dict):
                made[key] = {name: self.read(one, depth + 1) for name, one in made[key].items()}
        for key in _LISTS:
            if isinstance(made.get(key), list):
                made[key] = [self.read(one, depth + 1) for one in made[key]]
        for key in _SINGLE:
            if isinstance(made.get(key), dict):
                made[key] = self.read(made[key], depth + 1)
        return _as_2020(made)

    def _reference(self, reference: Any, depth: int) -> dict[str, Any]:
        target = self._schemas.target(reference)
        if target is None:
            return {}
        name = re.sub(r"[^\w.-]+", "_", str(reference).rpartition("/")[2])[:100] or "root"
        same = str(reference)
        while name in self._definitions and self._definitions[name].get("$comment") != same:
            name += "_2"
        if name not in self._definitions:
            self._definitions[name] = {"$comment": same}  # one that refers to itself finds it
            self._definitions[name] = {**self.read(target, depth + 1), "$comment": same}
        return {"$ref": f"#/$defs/{name}"}


def _as_2020(made: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of OpenAPI 3.0, which is nearly one of JSON Schema, as the draft of 2020-12 writes it."""
    kind = made.get("type")
    if isinstance(kind, str) and kind not in _PLAIN:
        made.pop("type")
        made |= {"type": "string"} if kind == "file" else {}
    if made.pop("nullable", None) is True and isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
        if isinstance(made.get("enum"), list) and None not in made["enum"]:
            made["enum"] = [*made["enum"], None]
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(made.get(exclusive), bool):
            is_open = made.pop(exclusive)
            if is_open and bound in made:
                made[exclusive] = made.pop(bound)
    if "example" in made:
        made.setdefault("examples", [made.pop("example")])
    if not isinstance(made.get("required", []), list):
        made.pop("required")
    if not isinstance(made.get("examples", []), list):
        made.pop("examples")
    return made
