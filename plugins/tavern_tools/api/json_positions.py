"""Where the values of a JSON text stand: line and column of each place that is asked for, and of keys given twice."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from tavern_host.contracts.documents import without_comments
from tavern_host.contracts.wire import Path as Location

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)

Mark = tuple[int, int]
"""Line and column, from 1."""


class _Wanted:
    """A tree of the places that are asked for."""

    def __init__(self) -> None:
        self.inner: dict[str | int, _Wanted] = {}

    def add(self, location: Location) -> None:
        node = self
        for part in location:
            node = node.inner.setdefault(part, _Wanted())


class JsonText:
    """A text that is known to be JSON."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]

    @classmethod
    def of(cls, data: bytes) -> JsonText:
        """Return the text of a file that `read_document` takes."""
        return cls(without_comments(data.decode("utf-8-sig", "surrogatepass")))

    def marks(self, locations: Iterable[Location]) -> dict[Location, Mark]:
        """Return where these values stand, a member of an object by its key; those that are not there are left out."""
        wanted = _Wanted()
        for location in locations:
            wanted.add(location)
        return self._scan(wanted)[0]

    def repeated_keys(self) -> list[tuple[Location, Mark]]:
        """Return the keys that stand more than once in one object, each with the place where it does so again."""
        repeated = False

        def pairs(members: list[tuple[str, Any]]) -> None:
            nonlocal repeated
            repeated = repeated or len(members) != len(dict(members))

        json.loads(self._text, object_pairs_hook=pairs)
        return self._scan(_Wanted())[1] if repeated else []

    def _scan(self, wanted: _Wanted) -> tuple[dict[Location, Mark], list[tuple[Location, Mark]]]:
        found: dict[Location, Mark] = {(): (1, 1)}
        repeated: list[tuple[Location, Mark]] = []
        path: list[str | int] = []
        branches: list[_Wanted | None] = [wanted]
        seen: list[set[str] | None] = []
        at_key = False

        def enter(part: str | int, offset: int) -> None:
            path[-1] = part
            above = branches[-2]
            branch = above.inner.get(part) if above is not None else None
            branches[-1] = branch
            if branch is not None:
                found.setdefault(tuple(path), self._mark(offset))

        for match in _TOKEN.finditer(self._text):
            token = match[0]
            if token in ("}", "]"):
                seen.pop(), path.pop(), branches.pop()
                at_key = False
                continue
            if token == ",":
                at_key = seen[-1] is not None
                if not at_key:
                    path[-1] = int(path[-1]) + 1
                continue
            if token == ":":
                at_key = False
                continue
            if at_key:
                keys = seen[-1]
                key = json.loads(token)
                if keys is not None and key in keys:
                    repeated.append(((*path[:-1], key), self._mark(match.start())))
                elif keys is not None:
                    keys.add(key)
                enter(key, match.start())
                continue
            if seen and seen[-1] is None:
                enter(path[-1], match.start())
            if token in ("{", "["):
                seen.append(set() if token == "{" else None)
                path.append(0)
                branches.append(None)
                at_key = token == "{"
        return found, repeated

    def _mark(self, offset: int) -> Mark:
        line = bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1


def nearest(marks: dict[Location, Mark], location: Location) -> Mark:
    """Return the mark of a place, or of what is nearest around it."""
    while location not in marks:
        location = location[:-1]
    return marks[location]
