"""Blocks that are not quite right: what is repaired, with which warning, and what is left alone."""

from __future__ import annotations

import pytest
from tam_reading import END, REQUEST, block, events_of, read


def test_a_missing_end_marker_at_the_end_of_the_text_is_repaired() -> None:
    reading = read(f"Well: {REQUEST}\ncommand:「始」t「末」\nx:「始」1「末」\n")
    assert reading.steps == [(1, "t", {"x": "1"})]
    assert reading.text == "Well: "
    assert reading.warnings == ["the block has no <|[END_TOOL]|>; it ends behind its last value"]


def test_text_behind_a_block_without_end_marker_stays_text() -> None:
    reading = read(f"{REQUEST}\ncommand:「始」t「末」\n\nThat should do.")
    assert reading.steps == [(1, "t", {})]
    assert reading.text == "\n\nThat should do."


def test_a_missing_end_marker_before_the_next_block_is_repaired() -> None:
    reading = read(f"{REQUEST}\ncommand:「始」a「末」\n" + block("command:「始」b「末」"))
    assert reading.steps == [(1, "a", {}), (1, "b", {})]
    assert reading.warnings == ["the block has no <|[END_TOOL]|>; it ends behind its last value"]


@pytest.mark.parametrize(
    ("broken", "steps"),
    [
        ("", []),
        ("\nnote:「始」1「末」", []),
        ("\ncommand:「始」t", [(1, "t", {})]),
        ("\ncommand:「始」t「末」", [(1, "t", {})]),
        ("\ncommand:「始」t「末」\nx:「始」1", [(1, "t", {"x": "1"})]),
        ("\ncommand:「始」t「末」\nx:「始ESCAPE:n」1", [(1, "t", {"x": "1"})]),
    ],
)
@pytest.mark.parametrize("before", ["\n<think>\n", " < THINK >", "<think a='b'>"])
def test_a_thought_behind_a_block_that_is_not_closed_is_not_searched(
    broken: str, steps: list[tuple[int, str, dict[str, str]]], before: str
) -> None:
    thought = before + block("command:「始」absurd「末」") + "</think>"
    reading = read(f"{REQUEST}{broken}{thought} so: {block('command:「始」b「末」')}")
    assert reading.steps == [*steps, (1, "b", {})]
    assert reading.text.endswith(f"{thought.strip()} so: ")


def test_a_fence_behind_a_block_that_is_not_closed_is_that_of_the_next() -> None:
    reading = read(f"{REQUEST}\ncommand:「始」a「末」\nAnd:\n```\n{block('command:「始」b「末」')}\n```\n")
    assert reading.steps == [(1, "a", {}), (1, "b", {})]
    assert reading.text == "\nAnd:\n\n"


def test_an_unclosed_value_ends_before_the_next_key() -> None:
    reading = read(block("command:「始」t", "x:「始」1", "", "y:「始」2「末」"))
    assert reading.steps == [(1, "t", {"x": "1", "y": "2"})]
    assert reading.warnings == [
        "the value of 'command' is not closed; it ends before the next key or marker",
        "the value of 'x' is not closed; it ends before the next key or marker",
    ]


def test_an_unclosed_value_ends_before_the_end_marker() -> None:
    for text in (
        block("command:「始」t「末」", "x:「始」a\nb"),
        block("command:「始」t「末」", "x:「始」a\nb") + " and more",
    ):
        reading = read(text)
        assert reading.arguments == {"x": "a\nb"}
        assert reading.warnings == ["the value of 'x' is not closed; it ends before the next key or marker"]
        assert reading.text == text.partition(END)[2]


def test_an_unclosed_value_ends_before_a_key_with_other_delimiters() -> None:
    reading = read(block("command:「始」t「末」", "x:「始」a", "y:»»»b«««", "z:「始ESCAPE」c"))
    assert reading.arguments == {"x": "a", "y": "b", "z": "c"}


def test_an_end_marker_ends_an_unclosed_value_if_another_block_comes_first() -> None:
    reading = read(block("command:「始」a「末」", "x:「始」1") + " so " + block("command:「始」b「末」"))
    assert reading.steps == [(1, "a", {"x": "1"}), (1, "b", {})]
    assert reading.text == " so "


def test_an_unclosed_escaped_value_does_not_swallow_the_blocks_behind_it() -> None:
    reading = read(block("command:「始」a「末」", "x:「始ESCAPE:1」1") + block("command:「始」b「末」"))
    assert reading.steps == [(1, "a", {"x": "1"}), (1, "b", {})]


def test_a_text_cut_short_inside_a_value_calls_nothing() -> None:
    text = f"{REQUEST}\ncommand:「始」files.delete「末」\npath:「始」/home"
    reading = read(text)
    assert reading.calls == []
    assert reading.text == text
    assert reading.warnings == ["the text ends inside the value of 'path'; nothing in the block is called"]


def test_a_block_cut_short_does_not_take_the_blocks_before_it_along() -> None:
    reading = read(block("command:「始」a「末」") + f"{REQUEST}\ncommand:「始」b")
    assert reading.steps == [(1, "a", {})]
    assert reading.text == f"{REQUEST}\ncommand:「始」b"


def test_a_block_without_a_command_is_text() -> None:
    text = "So: " + block("x:「始」1「末」") + "."
    reading = read(text)
    assert reading.calls == []
    assert reading.text == text
    assert reading.warnings == ["a block without a command; nothing in the block is called"]


def test_a_block_with_an_empty_command_is_text() -> None:
    text = block("command1:「始」a「末」", "command2:「始」 「末」")
    reading = read(text)
    assert (reading.calls, reading.text) == ([], text)
    assert reading.warnings == ["'command2' names no tool; nothing in the block is called"]


def test_a_command_given_twice_calls_nothing() -> None:
    text = block("command:「始」a「末」", "command:「始」b「末」")
    reading = read(text)
    assert (reading.calls, reading.text) == ([], text)
    assert "given twice" in reading.warnings[0]


def test_a_markers_name_in_prose_does_not_hide_the_block_behind_it() -> None:
    prose = f"I write a `{REQUEST}` block:\n"
    reading = read(prose + block("command:「始」t「末」"))
    assert reading.steps == [(1, "t", {})]
    assert reading.text == prose


def test_what_is_not_understood_in_a_block_is_named() -> None:
    text = block("Here it is", "command:「始」t「末」", "# fine", "x = 3", "「始」lost「末」", "y:「始」2「末」")
    reading = read(text)
    assert reading.steps == [(1, "t", {"y": "2"})]
    assert reading.warnings == [
        "not understood and ignored: 'Here it is'",
        "not understood and ignored: 'x = 3 「始」lost「末」'",
    ]


def test_a_key_of_more_than_64_characters_is_none() -> None:
    assert read(block("command:「始」t「末」", f"{'k' * 64}:「始」1「末」")).arguments == {"k" * 64: "1"}
    assert read(block("command:「始」t「末」", f"{'k' * 65}:「始」1「末」")).arguments == {}


def test_a_warning_says_where() -> None:
    text = "ab" + block("command:「始」t「末」", "?", "x:「始」1\ny:「始」2「末」")
    offsets = {event.text: event.offset for event in events_of([text]) if event.kind == "warning"}
    assert offsets == {
        "not understood and ignored: '?'": text.index("?"),
        "the value of 'x' is not closed; it ends before the next key or marker": text.index("1\ny"),
    }


def test_closed_value_keeps_markers_after_an_unclosed_one() -> None:
    value = f"y\n{END}w"
    reading = read(block("command:「始」t「末」", "a:»»»x", "b:「始」1「末」", f"k:「始」{value}「末」"))
    assert reading.arguments == {"a": "x", "b": "1", "k": value}
    assert len(reading.warnings) == 1
