"""Patterns of users: what JavaScript's regular expressions mean here, and that none of them holds up the host."""

from __future__ import annotations

import asyncio
import threading

import pytest
from helpers.repetition import Failures

from tavern_host import InvalidInput
from tavern_nodes.api.jsregex import MAX_PATTERN, PatternError, translate
from tavern_nodes.api.patterns import MAX_SEARCHED, Allowance, OutOfTime, compile_pattern, split_literal, within
from tavern_nodes.values import MAX_TEXT


def replaced(pattern: str, text: str, by: str = "!", flags: str = "g") -> str:
    compiled = compile_pattern(pattern, flags)
    return compiled.replaced(text, compiled.replacement(by), Allowance(10), "Node")


MEANINGS: list[tuple[str, str, str, str]] = [
    ("a", "", "aa", "!a"), ("a", "g", "aa", "!!"), ("A", "gi", "aa", "!!"), ("x*", "g", "abc", "!a!b!c!"),
    ("a*", "g", "baac", "!b!!c!"), ("a*?", "g", "baa", "!b!a!a!"), ("|a", "g", "ab", "!a!b!"),
    ("a??(b|)", "g", "aab", "!a!a!!"), (".", "g", "a\nb\u2028c", "!\n!\u2028!"), (".", "gs", "a\nb", "!!!"),
    ("^b$", "g", "a\nb", "a\nb"), ("^b$", "gm", "a\nb\rb", "a\n!\r!"), ("b$", "g", "ab\n", "ab\n"),
    (r"\d", "g", "1٣", "!٣"), (r"\w+", "g", "héllo", "!é!"), (r"\bw", "g", "中w", "中!"),
    (r"\B-", "g", "a-b --", "a-b !!"), (r"\s", "g", "a\u00a0\ufeffb\x1c", "a!!b\x1c"),
    (r"[\s\S]", "g", "a\n\x1c", "!!!"), (r"[^\s\S]", "g", "a\n", "a\n"), ("[^]", "g", "a\n", "!!"),
    ("a[]", "g", "a", "a"), (r"[\D]", "g", "1a", "1!"), (r"[\D5]", "g", "15a", "1!!"), (r"[^\D5]", "g", "15a", "!5a"),
    (r"[a\-z]", "g", "a-mz", "!!m!"), ("[a-]", "g", "a-b", "!!b"), (r"[\w-.]", "g", "a-._", "!!!!"),
    ("[[a]", "g", "[a]", "!!]"), ("[a&&b]", "g", "a&b", "!!!"), (r"[\b]", "g", "a\bb", "a!b"),
    (r"\/\-\.", "g", "/-.", "!"), (r"\u4e2d\x41\u{1F600}\uD83D\uDE00\t", "g", "中A😀😀\t", "!"),
    (r"\cJ\0", "g", "\n\0", "!"), (r"\p{Lu}\P{Lu}", "gu", "Ab", "!"), ("(a)|b", "g", "ab", "!!"),
    (r"(?:(a)|b)\1c", "g", "aac bc ac", "! ! ac"), (r"\1(a)", "g", "a", "!"),
    (r"(?<q>['\"]).*?\k<q>", "g", "'a' \"b\" 'c\"", "! ! 'c\""), ("(?<=a+)b(?!c)", "g", "aab aabc", "aa! aabc"),
    ("(?<!x)y", "g", "xy y", "xy !"), ("a{2}b{1,}c{0,1}", "g", "aabb aabc", "! !"), ("a{e}", "g", "a{e} ab", "! ab"),
    ("a{,2}", "g", "a{,2}", "!"), ("x{", "g", "x{", "!"), ("a+?", "g", "aa", "!!"), ("(?i)a", "g", "aA", "!!"),
    ("(?i:a)b", "g", "AB Ab", "AB !"), ("(?s:.).", "g", "\n\na", "\n!"), ("(?P<n>a)", "g", "a", "!"),
    ("#a b", "g", "#a b", "!"), ("ß", "gi", "ss", "ss"), ("😀", "g", "a😀", "a!"),
]  # fmt: skip


def test_a_pattern_means_what_it_does_in_javascript() -> None:
    found = [(pattern, flags, text, replaced(pattern, text, flags=flags)) for pattern, flags, text, _ in MEANINGS]
    assert found == MEANINGS


REPLACEMENTS: list[tuple[str, str]] = [
    ("[$1]", "[ann] says"), ("$2-$1", "bob-ann says"), ("$<first>", "ann says"), ("$&$&", "ann bobann bob says"),
    ("$$1", "$1 says"), ("<$`|$'>", "<| says> says"), ("$3 $0 $<x>", "$3 $0  says"), ("$12", "ann2 says"),
    (r"\1 \n", r"\1 \n says"),
]  # fmt: skip


def test_a_replacement_brings_in_groups() -> None:
    pattern = r"(?<first>\w+) (\w+)"
    assert [(by, replaced(pattern, "ann bob says", by, flags="")) for by, _ in REPLACEMENTS] == REPLACEMENTS


PROBLEMS: list[tuple[str, str]] = [
    ("(", "a group is opened with ( and not closed"), ("a)", "a ) closes nothing (at character 2)"),
    ("[a", "the [ at character 1 is not closed"), ("*a", "there is nothing to repeat (at character 1)"),
    ("a**", "there is nothing to repeat (at character 3)"), ("a++", "there is nothing to repeat (at character 3)"),
    ("a\\", "it ends in a single backslash"), ("[z-a]", "a range is out of order (at character 5)"),
    ("a{3,2}", "the numbers in braces are out of order (at character 2)"),
    ("a{99999}", "a number in braces is over 65,535 (at character 2)"),
    (r"\2(a)", r"\2 refers to a group that is not there (at character 1)"),
    (r"\k<x>", r"\k must be followed by the <name> of a group (at character 2)"),
    (r"(?<a>.)(?<a>.)", "two groups have the name 'a' (at character 8)"),
    ("(?R)", "'(?R' opens no known kind of group (at character 1)"),
    ("(?>a)", "'(?>' opens no known kind of group (at character 1)"),
    ("(?|a)", "'(?|' opens no known kind of group (at character 1)"), (r"\A", r"\A means nothing (at character 1)"),
    (r"\p", r"\p must be followed by a {property} (at character 3)"),
    (r"\u{110000}", "there is no such character (at character 11)"),
    ("(" * 51 + ")" * 51, "groups lie more than 50 deep in each other (at character 51)"),
    ("a" * (MAX_PATTERN + 1), "it has 10,001 characters; at most 10,000 are possible"),
]  # fmt: skip


def test_what_is_no_pattern_is_told_with_its_place() -> None:
    with Failures() as failures:
        for pattern, problem in PROBLEMS:
            with failures.row(pattern):
                with pytest.raises(PatternError) as caught:
                    translate(pattern)
                assert str(caught.value) == problem
    with pytest.raises(PatternError, match="unknown property"):
        compile_pattern(r"\p{Nonsense}")
    with pytest.raises(PatternError, match="the flag 'x' is not known; there is d, g, i, m, s, u, v"):
        compile_pattern("a", "gx")


def test_slashes_mark_a_pattern_with_its_flags() -> None:
    literals = {"/a/gi": ("a", "gi"), "/a\\/b/": ("a\\/b", ""), "/a/b/g": ("a/b", "g"), "a/b": None, "//": None}
    assert {text: split_literal(text) for text in literals} == literals


async def test_whoever_is_cancelled_does_not_wait_for_the_search() -> None:
    entered, released = threading.Event(), threading.Event()

    def work(left: Allowance) -> None:
        entered.set()
        released.wait(60)

    waiting = asyncio.create_task(within(work, "Node", 3600))
    await asyncio.to_thread(entered.wait, 60)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not released.is_set()
    released.set()


def test_searches_and_results_are_bounded() -> None:
    pattern = compile_pattern("a", "g")
    with pytest.raises(OutOfTime):  # many small matches use up the allowance too
        pattern.replaced("a" * MAX_SEARCHED, pattern.replacement("b"), Allowance(0.01), "Node")
    with pytest.raises(
        InvalidInput, match=r"^Node: the text has 1,000,001 characters; patterns search at most 1,000,000"
    ):
        replaced("a", "b" * (MAX_SEARCHED + 1))
    with pytest.raises(InvalidInput, match=f"at most {MAX_TEXT:,} are possible"):
        replaced("a", "a" * 10_000, "$`$'")


def test_a_pattern_of_the_greatest_size_compiles() -> None:
    """Compiling cannot be interrupted, so the limits of a pattern must keep it short; this test would not end."""
    largest = ["(?:a|" * 50 + "b" + ")" * 50, "|".join(f"{n:05d}" for n in range(1600)), "[a-zé-ü]" * 1200]
    largest += ["((((a{1,999}){1,999}){1,999}){1,999}){1,999}", r"\b" * 2400, "(a)?" * 2400]
    for pattern in largest:
        assert compile_pattern(pattern, "gi").source == pattern
