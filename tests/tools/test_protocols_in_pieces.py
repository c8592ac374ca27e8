"""However a text arrives and whatever its blanks and thoughts are, each protocol finds the same calls in it."""

from __future__ import annotations

import random
import sys
from itertools import product

import pytest
from helpers.repetition import Failures, repetitions
from protocol_bench import called, events_of, first_party

BLANKS = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()]
CALLS = {
    "tam": "<|[REQUEST_TOOL]|>~#~c\ncommand:~「始」~t~「末」~a:「始」~1「末」\n~<|[END_TOOL]|>",
    "action": '<~ACTION~><tool_id~>~t~</tool_id~>~<inputs>~<input~name~=~"a"~>~1</input></~ACTION~>',
    "tool_call": '<tool_call~name~=~"t"~><param~name="a">1~</param>~</~tool_call~>',
    "JSON": '<tool_call~>~{"name": "t", "arguments": {"a": "</tool_call>"}}~</~tool_call~>',
}
FRAMES = ["{}", "~```json~\n~{}\n~```~\n", "<~think~x='1'~>~{}</~think~>{}", "<think>a<THINK~></think>{}</think~>{}"]
THOUGHTS = [
    "<think>{}</think>",
    "<thinking>{}</thinking>",
    "<Thinking type='x'\n>{}</ thinking >",
    '<think type="x">{}</think>',
    "<think/>{}</think>",
    "<think>a <think n=1>b</think> {}</think>",
    "<think>a <think/> {}</think>",
    "<thinking>a <think>b {}</thinking>",
    "<thinking>a</think> {}</thinking>",
    "<think>a</thinking> {}</think>",
    "<think\u3000x>{}</think\x85>",
    f"< THINK {'x' * 399}>{{}}</think>",
]

SETS = [first_party(), *([stage] for stage in first_party())]
"""All text protocols at once, and each alone."""


def plain(call: str) -> str:
    return call.replace("~", " ")


@pytest.mark.parametrize("name", CALLS)
def test_every_blank_reads_alike_at_any_cut(name: str) -> None:
    source = random.Random(name)
    with Failures() as failures:
        for blank, frame in product(BLANKS, FRAMES):
            text = frame.replace("{}", CALLS[name]).replace("~", blank)
            for stages in SETS:
                whole = events_of([text], stages)
                for _ in range(repetitions(2, 30)):
                    cuts = sorted(source.sample(range(len(text)), source.randint(1, 9)))
                    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
                    with failures.row(pieces):
                        assert events_of(pieces, stages) == whole
                with failures.row(text):
                    assert events_of(text, stages) == whole


@pytest.mark.parametrize("name", ["action", "tool_call", "JSON"])
def test_elements_are_calls_with_any_blank(name: str) -> None:
    assert [blank for blank in BLANKS if len(called(events_of([CALLS[name].replace("~", blank)]))) != 1] == []


@pytest.mark.parametrize("name", CALLS)
def test_nothing_in_a_thought_is_called(name: str) -> None:
    call = plain(CALLS[name])
    for thought in THOUGHTS:
        text = thought.replace("{}", call)
        assert [called(events_of([text], stages)) for stages in SETS] == [[]] * len(SETS), text
        assert len(called(events_of(text + call))) == 1, text
