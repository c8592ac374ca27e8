"""Whatever the text and however it is cut: the same result, no exception, nothing lost, linear time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from helpers.repetition import Failures, repetitions
from hypothesis import given, settings
from hypothesis import strategies as st
from tam_reading import END, REQUEST, TAM_PIECES, block, calls_made, events_of, fed

from tavern_tam.action import ActionParser
from tavern_tam.block import Block
from tavern_tam.lexing import Source
from tavern_tam.parser import TamParser
from tavern_tam.plain import plain_call
from tavern_tam.steps import ParameterNames, steps_of
from tavern_tam.tool_call import ToolCallParser

TAG_PIECES = [
    *("<ACTION>", "</ACTION>", "<tool_id>", "</tool_id>", "x</tool_id>", "<ToolId>y</ToolId>", "<inputs>"),
    *("</inputs>", "</input>", "</param>", "<input/>", "<tool_call>", "</tool_call>", "<![CDATA[", "]]>", "]]"),
    *("<!--", "-->", "<think>", "</think>", "<", ">", "&lt;", "&#", "中文", "\x00", "\ud800", "word", "<action "),
    *("<input name='a'>", '<param name="b">', "<tool_call name='t'>", "a < b", "<b>", "/>", "'", '"', " ", "```\n"),
    *("\n```", "\n", REQUEST, "<ACTION><tool_id>q</tool_id>", "x" * 600, " " * 80, '{"name": "t"}', '{"'),
]
HALVES = [
    *(REQUEST, END),
    *(REQUEST[:n] for n in (1, 3, 9)),
    *(END[:n] for n in (2, 7)),
    *("始」", "\x1b[0m", "\x85", "\u2028"),
]


@pytest.mark.parametrize("parser", [TamParser, ActionParser, ToolCallParser])
@settings(max_examples=repetitions(60, 400))
@given(st.data())
def test_any_text_is_read_alike_at_any_cut(parser: Any, data: st.DataObject) -> None:
    pieces = st.sampled_from(TAM_PIECES if parser is TamParser else TAG_PIECES)
    text = data.draw(st.sampled_from(["", REQUEST, block("command:「始」t「末」", "a:「始」1「末」")])) + "".join(
        data.draw(
            st.lists(pieces, max_size=25) | st.lists(pieces | st.sampled_from(HALVES) | st.characters(codec=None))
        )
    )
    at_once = events_of([text], parser)
    assert events_of(text, parser) == at_once
    cuts = [0, *sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8))), len(text)]
    assert events_of([text[begin:end] for begin, end in pairwise(cuts)], parser) == at_once

    source, left, last = fed(text), fed(text), 0
    for event in at_once:
        assert event.kind in ("text", "call", "warning")
        if event.kind == "text":  # it is that of its place, and places do not go back
            end = event.offset + len(event.text)
            assert source[event.offset : end] == event.text
            assert event.offset >= last
            left, last = left[: event.offset] + "\0" * len(event.text) + left[end:], end
        elif event.kind == "call":
            assert source[event.offset] == "<"
            assert event.offset >= last
    assert all(gap.strip()[:1] in ("", "<", "`", "~") for gap in left.split("\0"))  # all but blocks and fences is text
    if not any(event.kind == "call" for event in at_once):
        assert "".join(event.text for event in at_once if event.kind == "text") == source


FILLERS = ["x", "漢", "\x00", "「", "」", "<", ">", "|", ">|", "\n", "`", "~", "𝔘", "\ud800", "<|[", ":「始」"]


def test_long_runs_of_anything_are_read() -> None:
    size = repetitions(10_000, 1_000_000)
    with Failures() as failures:
        for filler in FILLERS:
            with failures.row(filler):
                blob = filler * (size // len(filler))
                for text in (blob, f"<think>{blob}", f"{REQUEST}{blob}"):
                    found = events_of([text])
                    assert "".join(event.text for event in found if event.kind == "text") == fed(text)
                    assert events_of([text[i : i + 1000] for i in range(0, len(text), 1000)]) == found
                found = events_of([block("command:「始」t「末」", f"x:「始」{blob}「末」")])
                [call] = [event.call for event in found if event.call]
                assert call.arguments == {"x": fed(blob)} or (filler == ":「始」" and call.refused)


CALL = f"{REQUEST}\ncommand:「始」t「末」\n"
HARD: list[tuple[str, str, float, str]] = [
    # what a careless parser would read again and again: a text, what is repeated behind it with its number, how often
    # for each unit of the measure, and what stands at the end
    *((CALL, "k:「始」x\n", 1, ""), (REQUEST, "「始」", 1, ""), (REQUEST + "#", "「始」", 1, ""), ("", CALL, 1, "")),
    *(("", f"{CALL}<think>x</think>", 1, ""), ("", f"{REQUEST}\n<think></think>y", 1, ""), ("", REQUEST, 1, END)),
    *(("", f"{CALL}x:「始」<think>y</think>\n", 1, ""), ("", f"{CALL[:-2]}\na:»»»x\nb:>>>{END}y", 1, "")),
    *((f"{REQUEST}\nx:「始」", END, 1, ""), (CALL, "k{n}:「始ESCAPE:{n}」x\n", 1, "")),
    *((CALL, "k:「始ESCAPE:{half}」x\n", 1, ""), (CALL, "a:「始」\nb:»»»\nc:>>>\nd:「始ESCAPE」\n", 0.25, "")),
    *(("", "x", 20, ""), (f"{REQUEST}\nx:「始」", "x", 20, ""), (REQUEST, "x", 20, ":「始」1「末」"), ("", "<", 5, "")),
    *((f"{REQUEST}\nx:「始」", "<>", 3, ""), ("<think>", REQUEST, 1, ""), (REQUEST + "x", "\n", 20, "k:「始」1「末」")),
    *((REQUEST + "k:", " ", 20, "「始」1「末」"), ("", "```\n", 1, "")),
    *(
        ("```\n", f"{block('command:「始」t「末」')}\n", 0.25, ""),
        (REQUEST, "\ncommand{n}:「始」t「末」\na{n}:「始」x「末」", 1, END),
    ),
    (REQUEST, "\ncommand{n}:「始」t「末」\ncommon_p{n}:「始」x「末」", 0.25, END),
    (REQUEST, "\ncommand{n}:「始」t「末」\non_error:「始」stop「末」\nretry:「始」1「末」", 0.5, END),
]
OPEN = "<ACTION><tool_id>x</tool_id>"
UNFINISHED = [
    *(f"{OPEN}<inputs><input name='a'>", f"{OPEN}<input name='a'><![CDATA[", f"{OPEN}<!--"),
    *(f"{OPEN}<input name='a'></ACTION>", "<ACTION>", "<ACTION ", "<", "```\n"),
]


def repeated(row: tuple[str, str, float, str], count: int) -> str:
    begin, unit, often, end = row
    halves = [unit.replace("{n}", str(n)).replace("{half}", str(n % (count // 2))) for n in range(int(count * often))]
    return begin + "".join(halves) + end


def test_work_is_linear_in_the_text() -> None:
    rows: Any = [(TamParser, row, each) for row in HARD for each in (False, True)]
    rows += [(ActionParser, ("", unit, 5, "]]></ACTION>"), False) for unit in UNFINISHED]
    json = ('<tool_call>{"', "<tool_call>{", '<tool_call>{"</tool_call>"')
    rows += [(ToolCallParser, ("", unit, 5, "]]></ACTION>"), False) for unit in json]
    count = repetitions(16, 2_000)
    with Failures() as failures:
        for parser, row, each in rows:
            with failures.row((row, each)):
                large, small = (repeated(row, times) for times in (4 * count, count))
                work, base = (calls_made(events_of, text if each else [text], parser) for text in (large, small))
                assert work < 6 * base + 500


# --- the shortcut for blocks of one plain call gives what the block reader gives ----------------------

BODIES = st.lists(st.sampled_from([piece for piece in TAM_PIECES if piece != "\ud800"]), max_size=12).map("".join)
TOOLS = {"t": ["filePath", "a1"]}


@settings(max_examples=repetitions(150, 800))
@given(st.just("") | st.just("\ncommand:「始」t「末」"), BODIES, st.booleans())
def test_shortcut_and_block_reader_agree(begin: str, rest: str, known: bool) -> None:
    body, names = begin + rest, ParameterNames(TOOLS if known else {})
    call = plain_call(body, names, 7)
    if call is not None:
        block = Block(Source(data=body + END, base=100, final=True), REQUEST).read()
        steps = steps_of(block.pairs, names, 100, 7)
        assert [call] == steps.calls
        assert steps.warnings == block.warnings == []


def test_plain_block_takes_the_shortcut() -> None:
    body = "\n# why\ncommand:「始」 t 「末」\nFile-Path:「始」「a」 b「末」, z:「始」「末」\n# done\n"
    call = plain_call(body, ParameterNames(TOOLS), 0)
    assert call.arguments == {"filePath": "「a」 b", "z": ""}
    assert plain_call("command:「始」t", ParameterNames(TOOLS), 0) is None
    assert plain_call("nothing:", ParameterNames(TOOLS), 0) is None
