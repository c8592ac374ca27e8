"""Text around blocks: what is released when, thoughts, code fences, and that nothing is lost."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures
from tam_reading import END, REQUEST, block, events_of, read

from tavern_tam.parser import TamParser
from tavern_tools.api.protocols import ParserOptions

CALL = block("command:「始」t「末」")


def released(*pieces: str) -> list[str]:
    """Return the text that is out after each piece, and `call` for a call."""
    parser = TamParser(ParserOptions())
    return ["".join(event.text or event.kind for event in parser.feed(piece)) for piece in pieces]


def test_text_and_calls_are_released_as_soon_as_possible() -> None:
    pieces = ["Hello ", "wor", "ld <", "b>bold", "< |[REQ", "UEST]", "."]
    assert released(*pieces) == ["Hello ", "wor", "ld ", "<b>bold", "", "< |[REQUEST]", "."]
    assert released(f"a{CALL}"[:-1], ">", "b", f"one{CALL}two{CALL}") == ["a", "call", "b", "onecalltwocall"]
    assert released("a\n", "``", "`py\n", "x") == ["a\n", "", "", "```py\nx"]


NO_COMMAND = "a block without a command; nothing in the block is called"
ALONE: Any = [
    # texts that hold no call and come back as they are, with the warnings
    (REQUEST, NO_COMMAND),
    *(("",), ("a <|[REQUEST_TOO",), ("a </thi",), (f"a {END} b",)),
    (f"a<think>{CALL}", "a thought is never closed; no calls were looked for in it"),
    (f"```\n{block()}\n```\n", NO_COMMAND),
]
AROUND: Any = [
    # what stands before and behind a call and is text
    *((f"<{tag}>maybe {CALL}</{tag}>", "") for tag in ("think", "THINK", " think ")),
    *(("```\n", "\nmore\n```\n"), ("```\ncode\n", "\n```\n"), ("```\n", "\n~~~\n"), ("````\n", "\n```\n")),
    *(("```\n", "\n```python\n"), ("```\n", ""), ("see ```\n", "\n```\n"), ("", "\n```\ncode\n```\n")),
    ("```py\ncode\n```\n", "\n```\ncode\n```\n"),
]


def test_what_is_no_call_stays_text() -> None:
    with Failures() as failures:
        for text, *warnings in ALONE:
            with failures.row(text):
                reading = read(text)
                assert (reading.text, reading.calls, reading.warnings) == (text, [], warnings)
        for before, after in AROUND:
            with failures.row((before, after)):
                reading = read(before + CALL + after)
                assert (reading.text, reading.steps) == (before + after, [(1, "t", {})])


def test_fences_around_blocks_belong_to_neither() -> None:
    with Failures() as failures:
        for fence in ("```", "```tam", "~~~", "````text "):
            with failures.row(fence):
                mark = fence.rstrip("tamex ")
                reading = read(f"before\n{fence}\n{CALL}\n{mark}\nafter")
                assert (reading.text, reading.steps) == ("before\n\nafter", [(1, "t", {})])
                assert read(f"{fence}\n{CALL}\n{mark}").text == ""
    several = read(f"```\n{CALL}\n\n{CALL}\n```\n")
    assert (len(several.calls), several.text) == (2, "\n")


def test_events_come_in_the_order_of_the_text() -> None:
    events = events_of([f"before\n```\n{CALL}\n\n{CALL}\nmore\n```\n"])
    offsets = [event.offset for event in events]
    assert [event.kind for event in events] == ["text", "call", "text", "call", "text"]
    assert offsets == sorted(offsets, key=lambda offset: offset or 0)


def test_values_hold_thoughts_and_no_lone_surrogates() -> None:
    assert read(block("command:「始」t「末」", "x:「始」<think>「末」")).arguments == {"x": "<think>"}
    assert read("a\ud800b").text == "a\ufffdb"
    halves = block("command:「始」t「末」", "x\udfff:「始」\ud83d\ude00「末」")
    assert read(halves).arguments == {"x\ufffd": "\ufffd\ufffd"}
