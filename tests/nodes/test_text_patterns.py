"""Nodes that search text with patterns of users: what they find, and that no pattern keeps the host waiting."""

from __future__ import annotations

from typing import Any

import pytest
from node_bench import Nodes, Row, check_outputs, check_refusals

from tavern_host import InvalidInput

MATCHED = {
    "matched": True,
    "match": "2024-05",
    "position": 3,
    "groups": ["2024", "05", None],
    "named": {"year": "2024"},
}
UNMATCHED = {"matched": False, "match": "", "position": -1, "groups": [], "named": {}}
EXTRACTED: list[tuple[dict[str, Any], list[Any]]] = [
    ({"pattern": r"\w\d"}, ["a1", "b2", "C3"]),
    ({"pattern": r"(\w)\d", "group": "1"}, ["a", "b", "C"]),
    ({"pattern": r"(?<l>[a-z])\d", "group": "l"}, ["a", "b"]),
    ({"pattern": r"/c\d/i"}, ["C3"]),
    ({"pattern": r"(?:a(1)|b)\d?", "group": "1"}, ["1", None]),
    ({"pattern": r"\w", "limit": 2}, ["a", "1"]),
    ({"pattern": "x"}, []),
    ({"pattern": "q*"}, [""] * 9),
]
REPLACED = [
    *((r"(\w)(\d)", "$2$1", "1a 2b"), (r"/[A-Z]/gi", "<$&>", "<a>1 <b>2"), (r"/\d/", "", "a b2")),
    *((r"(?<n>\d)", "$<n>$<n>$$", "a11$ b22$"), ("x", "y", "a1 b2")),
]
TYPES = ["RegexMatch", "RegexExtract", "RegexReplace"]
CASES: list[Row] = [
    ("RegexMatch", {"text": "on 2024-05", "pattern": r"(?<year>\d+)-(\d+)(x)?"}, {}, MATCHED),
    ("RegexMatch", {"text": "a", "pattern": "b"}, {}, UNMATCHED),
    *(("RegexExtract", {"text": "a1 b2 C3", **inputs}, {}, {"matches": found, "count": len(found)})
        for inputs, found in EXTRACTED),
    *(("RegexReplace", {"text": "a1 b2", "pattern": pattern, "replacement": by}, {}, {"text": text})
        for pattern, by, text in REPLACED),
]  # fmt: skip
GROUP = {"text": "a", "pattern": "(?<n>a)"}
WRONG = [
    ("", "the pattern must not be empty"),
    ("(", "the pattern '(' is wrong: …"),
    ("/a/q", "the pattern 'a' is wr…"),
]
REFUSED: list[Row] = [
    *((type, {"text": "a", "pattern": pattern}, {}, message) for type in TYPES for pattern, message in WRONG),
    ("RegexExtract", {**GROUP, "group": "2"}, {}, "the pattern has 1 groups, so there is no 2"),
    ("RegexExtract", {**GROUP, "group": "x"}, {}, "the pattern has no group 'x'; its named groups: n"),
    ("RegexExtract", {**GROUP, "limit": -1}, {}, "limit must not be negative, it is -1"),
    ("RegexExtract", {"text": "a" * 3_000, "pattern": r"(?<=(a*))a", "group": "1"}, {}, "the result would have 4,…"),
]  # fmt: skip


async def test_patterns_match_extract_and_replace(nodes: Nodes) -> None:
    await check_outputs(nodes, CASES)


async def test_refusals_of_pattern_nodes_say_why(nodes: Nodes) -> None:
    await check_refusals(nodes, REFUSED)
    for type in TYPES:
        with pytest.raises(InvalidInput, match=f"^{type}: the text has 1,000,001 characters"):
            await nodes.run(type, {"text": "a" * 1_000_001, "pattern": "a"})


async def test_a_long_literal_of_one_letter_is_searched_at_once(nodes: Any) -> None:
    pattern = "x" * 10_000
    found = await nodes.run("RegexMatch", {"text": "x" * 10_000 + "y", "pattern": pattern})
    assert (found["matched"], found["match"]) == (True, pattern)
