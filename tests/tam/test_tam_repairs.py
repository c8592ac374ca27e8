"""Blocks that are not quite right: what is repaired, with which warning, and what is left alone."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures
from tam_reading import REQUEST, block, events_of, read, told

NO_END = "the block has no <|[END_TOOL]|>; it ends behind its last value"
HOLDS_PAIRS = (
    "the value of 'x' holds pairs of its own delimiters; it was read as a whole, up to the delimiter that closes it"
)
SAME = "'X' is given twice, with the same value"
FENCE = "the code fence within the block is ignored: '```'"
COPIED = "filePath:「始」other.md「末」"
A, B, T = ("command:「始」a「末」", "command:「始」b「末」", "command:「始」t「末」")


def unclosed(key: str) -> str:
    return f"the value of '{key}' is not closed; it ends before the next key or marker"


ROWS: list[tuple[Any, ...]] = [
    # what is written, the steps, the text that is left, the warnings (or how they begin; None where they do not matter)
    (f"Well: {REQUEST}\n{T}\nx:「始」1「末」\n", [(1, "t", {"x": "1"})], "Well: ", [NO_END]),
    (f"{REQUEST}\n{T}\n\nThat should do.", [(1, "t", {})], "\n\nThat should do.", [NO_END]),
    (f"{REQUEST}\n{A}\n{block(B)}", [(1, "a", {}), (1, "b", {})], "", [NO_END]),
    (f"{REQUEST}\n{A}\nAnd:\n```\n{block(B)}\n```\n", [(1, "a", {}), (1, "b", {})], "\nAnd:\n\n", [NO_END]),
    (block("command:「始」t", "x:「始」1", ""), [(1, "t", {"x": "1"})], "", [unclosed("command"), unclosed("x")]),
    (block(T, "x:「始」a\nb"), [(1, "t", {"x": "a\nb"})], "", [unclosed("x")]),
    (block(T, "x:「始」a\nb") + " and more", [(1, "t", {"x": "a\nb"})], " and more", [unclosed("x")]),
    (
        f"{block(A)}{REQUEST}\ncommand:「始」b",
        [(1, "a", {})],
        f"{REQUEST}\ncommand:「始」b",
        ["the text ends inside the "],
    ),
    # a value ends at the delimiter that belongs to its own
    (block(T, "x:「始」a 「始」b「末」 c「末」"), [(1, "t", {"x": "a 「始」b「末」 c"})], "", [HOLDS_PAIRS]),
    (block(T, f"x:「始」{block(A)}\n{COPIED}「末」"), [(1, "t", {"x": f"{block(A)}\n{COPIED}"})], "", [HOLDS_PAIRS]),
    (block(T, "x:»»»a »»»b««« c«««"), [(1, "t", {"x": "a »»»b««« c"})], "", [HOLDS_PAIRS]),
    (block(T, f"x:「始ESCAPE:n」a「末」\n{COPIED}「末ESCAPE:n」"), [(1, "t", {"x": f"a「末」\n{COPIED}"})], "", []),
    (
        block(T, "x:「始」1「末」", "X:「始」1「末」"),
        [(1, "t", {"x": "1"})],
        "",
        ["'X' is given twice, with the same value"],
    ),
    (block("```tam", T, "```"), [(1, "t", {})], "", [FENCE.replace("'```'", "'```tam'"), FENCE]),
    (f"I write a `{REQUEST}` block:\n{block(T)}", [(1, "t", {})], f"I write a `{REQUEST}` block:\n", None),
    (block(T, f"{'k' * 64}:「始」1「末」"), [(1, "t", {"k" * 64: "1"})], "", []),
]
TWICE = "'filePath' is given twice, with different values"
REFUSED: list[tuple[str, str]] = [
    # what is written, why no call is made of it
    (f"{REQUEST}\n{T}\npath:「始」/home", "the text ends inside the value of 'path', which is cut off"),
    (block(T, "x:「始」a「末」 b「末」"), "「末」 stands outside of a value"),
    (block(T, "x:「始」a「末」 # b「末」"), "「末」 stands outside of a value"),
    (block(T, "x:「始」a 「始」b「末」"), "the text ends inside the value of 'x', which is not closed"),
    (f"{block(A, 'x:「始」1')} so {block(B)}", "the text ends inside the value of 'x', which is not closed"),
    (f"{block(A, 'x:「始ESCAPE:1」1')}{block(B)}", "the text ends inside the value of 'x', which is not closed"),
    (block(T, "x:「始」a", "y:»»»b«««"), "the text ends inside the value of 'x', which is not closed"),
    (block(T, "filePath:「始」a「末」", f"x:「始」b「末」\n{COPIED}"), TWICE),
    (block(T, f"x:「始」b「末」\n{COPIED}\n「末」", "filePath:「始」a「末」"), "「末」 stands outside of a value"),
    (
        f"{REQUEST}\n{T}\nx:「始」use 「始」y「末」「末」 and more.",
        "it has no <|[END_TOOL]|>, and what stands behind its last",
    ),
    (block("Here it is", T), "not understood: 'Here it is'"),
    (block(T, "x = 3", "y:「始」2「末」"), "not understood: 'x = 3'"),
    (block(T, f"{'k' * 65}:「始」1「末」"), f"not understood: '{'k' * 60}…'"),
    (block(A, B), "'command' is given twice; number the commands of a chain"),
    (block("command1:「始」a「末」", "command2:「始」 「末」"), "'command2' names no tool"),
    (f"So: {block('x:「始」1「末」')}.", "a block without a command"),
]


def test_what_leaves_open_what_is_meant_is_refused_and_says_how_to_write_it() -> None:
    with Failures() as failures:
        for written, problem in REFUSED:
            with failures.row(written):
                reading = read(written)
                assert reading.calls == []
                assert told(reading, problem), reading.warnings
                assert reading.warnings[0].endswith("; nothing in the block is called")
                [refused] = reading.refused
                assert refused.refused is not None
                assert refused.refused.startswith(reading.warnings[0])
                assert "between 「始ESCAPE:x」 and 「末ESCAPE:x」" in refused.refused
                assert refused.tool_id in ("t", "a", "(unnamed)")


def test_a_repaired_call_says_what_was_repaired() -> None:
    [call] = read(block(T, "x:「始」a 「始」b「末」 c「末」")).calls
    assert call.repairs == [HOLDS_PAIRS]
    first, second = read(block("command1:「始」a「末」", "command2:「始」b「末」", "x:「始」1")).calls
    assert (first.repairs, second.repairs) == ([unclosed("x"), "'x' names no step and is taken for step 2"], [])


def test_broken_blocks_are_repaired_or_stay_text() -> None:
    with Failures() as failures:
        for written, steps, text, warnings in ROWS:
            with failures.row(written):
                reading = read(written)
                assert (reading.steps, reading.text) == (steps, written if text is None else text)
                assert warnings is None or told(reading, *warnings), reading.warnings


def test_thoughts_behind_an_unclosed_block_are_skipped() -> None:
    called: list[tuple[str, list[str]]] = [
        *(("", ["b"]), ("\nnote:「始」1「末」\n", ["b"]), ("\ncommand:「始」t", []), (f"\n{T}\n", ["t", "b"])),
        *((f"\n{T}\nx:「始」1", []), (f"\n{T}\nx:「始ESCAPE:n」1", [])),
    ]
    with Failures() as failures:
        for before in ("\n<think>\n", " < THINK >", "<think a='b'>"):
            thought = before + block("command:「始」absurd「末」") + "</think>"
            for broken, tools in called:
                with failures.row(f"{broken}{before}"):
                    reading = read(f"{REQUEST}{broken}{thought} so: {block(B)}")
                    assert [call.tool_id for call in reading.calls] == tools
                    assert not tools or reading.text.endswith(f"{thought.strip()} so: ")


def test_a_warning_says_where() -> None:
    text = "ab" + block(T, "```", "x:「始」1")
    offsets = {event.text: event.offset for event in events_of([text]) if event.kind == "warning"}
    assert offsets == {FENCE: text.index("```"), unclosed("x"): text.index("1\n")}
