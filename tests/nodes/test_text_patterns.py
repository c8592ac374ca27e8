"""Nodes that search text with patterns of users: what they find, and that no pattern keeps the host waiting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tavern_host import InvalidInput


async def test_the_first_match_is_told_with_its_groups(nodes: Any) -> None:
    outputs = await nodes.run("RegexMatch", {"text": "on 2024-05", "pattern": r"(?<year>\d+)-(\d+)(x)?"})
    assert outputs == {
        "matched": True,
        "match": "2024-05",
        "position": 3,
        "groups": ["2024", "05", None],
        "named": {"year": "2024"},
    }


async def test_no_match_is_no_error(nodes: Any) -> None:
    outputs = await nodes.run("RegexMatch", {"text": "a", "pattern": "b"})
    assert outputs == {"matched": False, "match": "", "position": -1, "groups": [], "named": {}}


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"pattern": r"\w\d"}, ["a1", "b2", "C3"]),
        ({"pattern": r"(\w)\d", "group": "1"}, ["a", "b", "C"]),
        ({"pattern": r"(?<l>[a-z])\d", "group": "l"}, ["a", "b"]),
        ({"pattern": r"/c\d/i"}, ["C3"]),
        ({"pattern": r"(?:a(1)|b)\d?", "group": "1"}, ["1", None]),
        ({"pattern": r"\w", "limit": 2}, ["a", "1"]),
        ({"pattern": "x"}, []),
        ({"pattern": "q*"}, [""] * 9),
    ],
)
async def test_all_matches_are_listed(nodes: Any, inputs: dict[str, Any], expected: list[Any]) -> None:
    outputs = await nodes.run("RegexExtract", {"text": "a1 b2 C3", **inputs})
    assert outputs == {"matches": expected, "count": len(expected)}


@pytest.mark.parametrize(
    ("pattern", "replacement", "expected"),
    [
        (r"(\w)(\d)", "$2$1", "1a 2b"),
        (r"/[A-Z]/gi", "<$&>", "<a>1 <b>2"),
        (r"/\d/", "", "a b2"),
        (r"(?<n>\d)", "$<n>$<n>$$", "a11$ b22$"),
        ("x", "y", "a1 b2"),
    ],
)
async def test_matches_are_replaced(nodes: Any, pattern: str, replacement: str, expected: str) -> None:
    inputs = {"text": "a1 b2", "pattern": pattern, "replacement": replacement}
    assert await nodes.run("RegexReplace", inputs) == {"text": expected}


@pytest.mark.parametrize("type", ["RegexMatch", "RegexExtract", "RegexReplace"])
@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("", "the pattern must not be empty"),
        ("(", "the pattern '(' is wrong: "),
        ("/a/q", "the pattern 'a' is wrong: "),
    ],
)
async def test_a_wrong_pattern_is_told(nodes: Any, type: str, pattern: str, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await nodes.run(type, {"text": "a", "pattern": pattern})
    assert refused.value.message.startswith(f"{type}: {message}")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"group": "2"}, "RegexExtract: the pattern has 1 groups, so there is no 2"),
        ({"group": "x"}, "RegexExtract: the pattern has no group 'x'; its named groups: n"),
        ({"limit": -1}, "RegexExtract: limit must not be negative, it is -1"),
    ],
)
async def test_a_group_that_is_not_there_is_told(nodes: Any, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await nodes.run("RegexExtract", {"text": "a", "pattern": "(?<n>a)", **inputs})
    assert refused.value.message == message


@pytest.mark.timeout(60)
async def test_endless_patterns_end_while_the_host_runs(nodes: Any) -> None:
    inputs = {"text": "a" * 5_000 + "!", "pattern": "(a|aa)+(a|aa)+(a|aa)+$"}
    types = ["RegexMatch", "RegexExtract", "RegexReplace"]
    turns = 0
    searches = asyncio.gather(*(nodes.run(type, inputs) for type in types), return_exceptions=True)
    while not searches.done():
        await asyncio.sleep(0.01)
        turns += 1
    for type, error in zip(types, await searches, strict=True):
        assert isinstance(error, InvalidInput)
        assert error.message.startswith(f"{type}: the patterns took longer than 2 s on this text")
    assert turns > 5


@pytest.mark.parametrize("type", ["RegexMatch", "RegexExtract", "RegexReplace"])
async def test_a_text_that_is_too_long_is_not_searched(nodes: Any, type: str) -> None:
    with pytest.raises(InvalidInput, match="1,000,000"):
        await nodes.run(type, {"text": "a" * 1_000_001, "pattern": "a"})


async def test_matches_that_are_too_much_together_are_refused(nodes: Any) -> None:
    inputs = {"text": "a" * 3_000, "pattern": r"(?<=(a*))a", "group": "1"}
    with pytest.raises(InvalidInput, match=r"^RegexExtract: the result would have 4,[0-9,]+ characters"):
        await nodes.run("RegexExtract", inputs)


async def test_a_long_literal_of_one_letter_is_searched_at_once(nodes: Any) -> None:
    pattern = "x" * 10_000
    found = await nodes.run("RegexMatch", {"text": "x" * 10_000 + "y", "pattern": pattern})
    assert (found["matched"], found["match"]) == (True, pattern)
