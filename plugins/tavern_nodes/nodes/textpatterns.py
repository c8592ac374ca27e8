"""Nodes that search text with patterns of users, within a time that always ends (see `patterns`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypedDict, TypeVar

from tavern_host import InvalidInput, Slot, node
from tavern_nodes.api.jsregex import PatternError
from tavern_nodes.api.patterns import UserPattern, compile_pattern, split_literal, within
from tavern_nodes.values import MAX_ITEMS, MAX_TEXT, bounded, shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    from tavern_nodes.api.patterns import Allowance

T = TypeVar("T")

TextIn = Annotated[str, Slot("The text to look in.", multiline=True)]
PatternIn = Annotated[
    str, Slot("A regular expression as JavaScript has it: a plain one, or /pattern/flags such as /colou?r/i.")
]


class PatternMatch(TypedDict):
    """The outputs of `RegexMatch`."""

    matched: Annotated[bool, Slot("Whether the pattern matches somewhere.")]
    match: Annotated[str, Slot("The text that matched first; empty where none did.")]
    position: Annotated[int, Slot("Where that is, counted from 0; -1 where nothing matched.")]
    groups: Annotated[list[Any], Slot("What its groups matched; null for one that took no part.")]
    named: Annotated[dict[str, Any], Slot("What its named groups matched, by name.")]


class PatternMatches(TypedDict):
    """The outputs of `RegexExtract`."""

    matches: Annotated[list[Any], Slot("The texts that matched, in order.")]
    count: Annotated[int, Slot("How many there are.")]


@node(category="Text", display_name="Match pattern")
async def regex_match(text: TextIn, pattern: PatternIn) -> PatternMatch:
    """Look for the first place in a text that a pattern matches."""

    def work(found: UserPattern, allowance: Allowance) -> PatternMatch:
        for match in found.matches(text, allowance, "RegexMatch"):
            return {
                "matched": True,
                "match": match[0],
                "position": match.start(),
                "groups": list(match.groups()),
                "named": dict(match.groupdict()),
            }
        return {"matched": False, "match": "", "position": -1, "groups": [], "named": {}}

    return await _search(work, pattern, "RegexMatch")


@node(category="Text", display_name="Extract by pattern")
async def regex_extract(
    text: TextIn,
    pattern: PatternIn,
    group: Annotated[str, Slot("What to take of each match: the number of a group, its name, or 0 for all.")] = "0",
    limit: Annotated[int, Slot("How many to take at most; 0 takes all.", min=0)] = 0,
) -> PatternMatches:
    """List what a pattern matches in a text, all matches with or without the flag g."""
    if limit < 0:
        raise InvalidInput(f"RegexExtract: limit must not be negative, it is {limit}")

    def work(found: UserPattern, allowance: Allowance) -> PatternMatches:
        wanted = _group(found, group.strip() or "0")
        texts: list[str | None] = []
        size = 0
        for match in found.matches(text, allowance, "RegexExtract"):
            texts.append(match[wanted])
            size += len(texts[-1] or "")
            bounded(size, MAX_TEXT, "RegexExtract", "characters")
            bounded(len(texts), MAX_ITEMS, "RegexExtract", "matches")
            if len(texts) == limit:
                break
        return {"matches": texts, "count": len(texts)}

    return await _search(work, pattern, "RegexExtract")


@node(category="Text", display_name="Replace by pattern")
async def regex_replace(
    text: TextIn,
    pattern: PatternIn,
    replacement: Annotated[str, Slot("What to put in its place; $1 and $<name> are groups, $& is all of it.")] = "",
) -> Annotated[str, Slot("The text.", key="text")]:
    """Replace what a pattern matches: every match if the pattern is plain or has the flag g, else the first."""
    every = split_literal(pattern) is None

    def work(found: UserPattern, allowance: Allowance) -> str:
        return found.replaced(text, found.replacement(replacement), allowance, "RegexReplace")

    return await _search(work, pattern, "RegexReplace", "g" if every else "")


async def _search(work: Callable[[UserPattern, Allowance], T], pattern: str, who: str, flags: str = "") -> T:
    """Compile a pattern and do the work with it, on a thread and within the time. Raises `InvalidInput`."""

    def whole(allowance: Allowance) -> T:
        source, options = split_literal(pattern) or (pattern, flags)
        if not source:
            raise InvalidInput(f"{who}: the pattern must not be empty")
        try:
            found = compile_pattern(source, options)
        except PatternError as problem:
            raise InvalidInput(f"{who}: the pattern {shorten(source)!r} is wrong: {problem}") from None
        return work(found, allowance)

    return await within(whole, who)


def _group(pattern: UserPattern, name: str) -> int | str:
    if name.isascii() and name.isdigit() and len(name) < 6:
        if int(name) <= pattern.compiled.groups:
            return int(name)
        raise InvalidInput(f"RegexExtract: the pattern has {pattern.compiled.groups} groups, so there is no {name}")
    if name in pattern.compiled.groupindex:
        return name
    names = ", ".join(pattern.compiled.groupindex) or "none"
    raise InvalidInput(f"RegexExtract: the pattern has no group {shorten(name)!r}; its named groups: {names}")
