"""Text around blocks: what is released when, thoughts, code fences, and that nothing is lost."""

from __future__ import annotations

import pytest
from tam_reading import END, REQUEST, block, events_of, read

from tavern_host.contracts.protocols import ParserOptions
from tavern_tam.parser import TamParser

CALL = block("command:「始」t「末」")


def released(*pieces: str) -> list[str]:
    """Return the text that is out after each piece."""
    parser = TamParser(ParserOptions())
    return ["".join(event.text for event in parser.feed(piece)) for piece in pieces]


def test_text_is_released_as_soon_as_it_can_be_no_marker() -> None:
    assert released("Hello ", "wor", "ld <", "b>bold", "< |[REQ", "UEST]", ".") == [
        "Hello ",
        "wor",
        "ld ",
        "<b>bold",
        "",
        "< |[REQUEST]",
        ".",
    ]


def test_a_call_comes_with_the_last_character_of_its_block() -> None:
    parser = TamParser(ParserOptions())
    before = [event for character in f"a{CALL}"[:-1] for event in parser.feed(character)]
    assert [event.kind for event in before] == ["text"]
    assert [event.kind for event in parser.feed(">")] == ["call"]
    assert [event.text for event in parser.feed("b")] == ["b"]


def test_text_and_calls_come_in_order() -> None:
    parser = TamParser(ParserOptions())
    events = [*parser.feed(f"one{CALL}two{CALL}"), *parser.finish()]
    assert [event.text or event.kind for event in events] == ["one", "call", "two", "call"]


def test_a_cut_marker_at_the_end_is_text() -> None:
    assert read("a <|[REQUEST_TOO").text == "a <|[REQUEST_TOO"
    assert read("a </thi").text == "a </thi"


def test_an_end_marker_without_a_block_is_text() -> None:
    assert read(f"a {END} b").text == f"a {END} b"


@pytest.mark.parametrize("tag", ["think", "THINK", " think "])
def test_thoughts_are_released_and_never_searched(tag: str) -> None:
    thought = f"<{tag}>maybe {CALL}</{tag}>"
    reading = read(thought + CALL)
    assert reading.text == thought
    assert reading.steps == [(1, "t", {})]


def test_a_thought_that_is_never_closed_calls_nothing() -> None:
    reading = read(f"a<think>{CALL}")
    assert reading.calls == []
    assert reading.text == f"a<think>{CALL}"
    assert reading.warnings == ["a thought is never closed; no calls were looked for in it"]


def test_a_thought_in_a_value_is_content() -> None:
    assert read(block("command:「始」t「末」", "x:「始」<think>「末」")).arguments == {"x": "<think>"}


@pytest.mark.parametrize("fence", ["```", "```tam", "~~~", "````text "])
def test_a_code_fence_around_a_block_belongs_to_neither_text_nor_call(fence: str) -> None:
    mark = fence.rstrip("tamex ")
    reading = read(f"before\n{fence}\n{CALL}\n{mark}\nafter")
    assert reading.text == "before\n\nafter"
    assert reading.steps == [(1, "t", {})]
    assert read(f"{fence}\n{CALL}\n{mark}").text == ""


def test_a_code_fence_may_enclose_several_blocks() -> None:
    reading = read(f"```\n{CALL}\n\n{CALL}\n```\n")
    assert len(reading.calls) == 2
    assert reading.text == "\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("```\n", "\nmore\n```\n"),
        ("```\ncode\n", "\n```\n"),
        ("```\n", "\n~~~\n"),
        ("````\n", "\n```\n"),
        ("```\n", "\n```python\n"),
        ("```\n", ""),
        ("see ```\n", "\n```\n"),
        ("```py\ncode\n```\n", "\n```\ncode\n```\n"),
        ("", "\n```\ncode\n```\n"),
    ],
)
def test_a_fence_that_encloses_anything_else_stays_text(before: str, after: str) -> None:
    reading = read(before + CALL + after)
    assert reading.text == before + after
    assert reading.steps == [(1, "t", {})]


def test_events_come_in_the_order_of_the_text() -> None:
    events = events_of([f"before\n```\n{CALL}\n\n{CALL}\nmore\n```\n"])
    offsets = [event.offset for event in events]
    assert [event.kind for event in events] == ["text", "call", "text", "call", "text"]
    assert offsets == sorted(offsets, key=lambda offset: offset or 0)


def test_a_fence_around_a_block_that_calls_nothing_stays_text() -> None:
    text = "```\n" + block("x:「始」1「末」") + "\n```\n"
    assert read(text).text == text


def test_a_fence_line_is_released_once_no_block_follows() -> None:
    assert released("a\n", "``", "`py\n", "x") == ["a\n", "", "", "```py\nx"]


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    assert read("a\ud800b").text == "a\ufffdb"
    assert read(block("command:「始」t「末」", "x\udfff:「始」\ud83d\ude00「末」")).arguments == {
        "x\ufffd": "\ufffd\ufffd"
    }


def test_nothing_is_something_to_read() -> None:
    assert read("") == read(" ".strip())
    assert read("").text == ""
    assert read(REQUEST).text == REQUEST
