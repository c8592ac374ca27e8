"""The shortcut for blocks of one plain call gives what the block reader gives."""

from __future__ import annotations

from helpers.repetition import repetitions
from hypothesis import given, settings
from hypothesis import strategies as st
from tam_reading import END, REQUEST, TAM_PIECES

from tavern_tam.block import Block
from tavern_tam.lexing import Source
from tavern_tam.plain import plain_call
from tavern_tam.steps import ParameterNames, steps_of

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
