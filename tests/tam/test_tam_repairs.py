"""Blocks that are not quite right: what is repaired, with which warning, and what is left alone."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures
from tam_reading import END, REQUEST, block, events_of, read, told

NO_END = "the block has no <|[END_TOOL]|>; it ends behind its last value"
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
        *(block(T, "x:「始」a", "y:»»»b«««", "z:「始ESCAPE」c"), [(1, "t", {"x": "a", "y": "b", "z": "c"})], ""),
        [unclosed("x"), unclosed("z")],
    ),
    (f"{block(A, 'x:「始」1')} so {block(B)}", [(1, "a", {"x": "1"}), (1, "b", {})], " so ", [unclosed("x")]),
    (f"{block(A, 'x:「始ESCAPE:1」1')}{block(B)}", [(1, "a", {"x": "1"}), (1, "b", {})], "", [unclosed("x")]),
    (
        *(f"{REQUEST}\n{T}\npath:「始」/home", [], None),
        ["the text ends inside the value of 'path'; nothing in the block is called"],
    ),
    (
        f"{block(A)}{REQUEST}\ncommand:「始」b",
        [(1, "a", {})],
        f"{REQUEST}\ncommand:「始」b",
        ["the text ends inside the "],
    ),
    (f"So: {block('x:「始」1「末」')}.", [], None, ["a block without a command; nothing in the block is called"]),
    (block("command1:「始」a「末」", "command2:「始」 「末」"), [], None, ["'command2' names no tool; nothing "]),
    (block(A, B), [], None, ["'command' is given twice; number the commands of a chain; nothing in "]),
    (f"I write a `{REQUEST}` block:\n{block(T)}", [(1, "t", {})], f"I write a `{REQUEST}` block:\n", None),
    (
        *(block("Here it is", T, "# fine", "x = 3", "「始」lost「末」", "y:「始」2「末」"), [(1, "t", {"y": "2"})], ""),
        ["not understood and ignored: 'Here it is'", "not understood and ignored: 'x = 3 「始」lost「末」'"],
    ),
    (block(T, f"{'k' * 64}:「始」1「末」"), [(1, "t", {"k" * 64: "1"})], "", []),
    (block(T, f"{'k' * 65}:「始」1「末」"), [(1, "t", {})], "", None),
    (
        *(
            block(T, "a:»»»x", f"k:「始」y\n{END}w「末」"),
            [(1, "t", {"a": "x", "k": f"y\n{END}w"})],
            "",
            [unclosed("a")],
        ),
    ),
]


def test_broken_blocks_are_repaired_or_stay_text() -> None:
    with Failures() as failures:
        for written, steps, text, warnings in ROWS:
            with failures.row(written):
                reading = read(written)
                assert (reading.steps, reading.text) == (steps, written if text is None else text)
                assert warnings is None or told(reading, *warnings), reading.warnings


def test_thoughts_behind_an_unclosed_block_are_skipped() -> None:
    called: list[tuple[str, dict[str, str] | None]] = [
        *(("", None), ("\nnote:「始」1「末」", None), ("\ncommand:「始」t", {}), (f"\n{T}", {})),
        *((f"\n{T}\nx:「始」1", {"x": "1"}), (f"\n{T}\nx:「始ESCAPE:n」1", {"x": "1"})),
    ]
    with Failures() as failures:
        for before in ("\n<think>\n", " < THINK >", "<think a='b'>"):
            thought = before + block("command:「始」absurd「末」") + "</think>"
            for broken, arguments in called:
                with failures.row(f"{broken}{before}"):
                    reading = read(f"{REQUEST}{broken}{thought} so: {block(B)}")
                    assert reading.steps == [*([(1, "t", arguments)] if arguments is not None else []), (1, "b", {})]
                    assert reading.text.endswith(f"{thought.strip()} so: ")


def test_a_warning_says_where() -> None:
    text = "ab" + block(T, "?", "x:「始」1\ny:「始」2「末」")
    offsets = {event.text: event.offset for event in events_of([text]) if event.kind == "warning"}
    assert offsets == {"not understood and ignored: '?'": text.index("?"), unclosed("x"): text.index("1\ny")}
