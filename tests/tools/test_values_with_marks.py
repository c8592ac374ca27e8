"""A value that holds the marks of its protocol is read as it was written, or nothing of it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.repetition import repetitions
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_bench import first_party

from tavern_tools.api.protocols import ParseEvent, ParserOptions
from tavern_tools.api.toolcalls import ToolCallRequest, take_call
from tavern_tools.protocols.pipeline import Pipeline

NAMES = {"save": ["path", "text"], "delete": ["path"]}
OPTIONS = ParserOptions(parameters=NAMES, closed=NAMES)

BEGIN = "<|[REQUEST_TOOL]|>\ncommand:「始」save「末」\npath:「始」a「末」\n"
WRITERS: dict[str, Callable[[str], str]] = {
    "tam": lambda v: f"{BEGIN}text:「始」{v}「末」\n<|[END_TOOL]|>",
    "tam, cut": lambda v: f"{BEGIN}text:「始」{v}「末」\n",
    "action": lambda v: (
        f'<ACTION><tool_id>save</tool_id><inputs><input name="path">a</input><input name="text">{v}</input>'
        "</inputs></ACTION>"
    ),
    "tool_call": lambda v: (
        f'<tool_call name="save"><param name="path">a</param><param name="text">{v}</param></tool_call>'
    ),
    "json, element": lambda v: (
        f'<tool_call>{{"name": "save", "arguments": {{"path": "a", "text": "{v}"}}}}</tool_call>'
    ),
    "json": lambda v: f'TOOL_CALL: {{"name": "save", "arguments": {{"path": "a", "text": "{v}"}}}}',
}
"""How a model that does not mind the marks writes the call `save(path="a", text=v)`."""

PIECES = {
    "tam": [
        "「始」",
        "「末」",
        "「末」\n",
        "\nnote:「始」",
        "\n# c\n",
        "<|[END_TOOL]|>",
        "「末」<|[END_TOOL]|>",
        "x",
        "\n",
    ],
    "action": ["</input>", '<input name="note">', "<input>", "</inputs>", "</ACTION>", "<b>", "x", "\n"],
    "tool_call": ["</param>", '<param name="note">', "</tool_call>", "<b>", "x", "\n"],
    "json": ["</tool_call>", '"', '", "note": "', "}", '"}}', "{", ",", ":", "x", " "],
}
"""What copied text may hold; openings of blocks are not among it, since one that closes a block and opens another
perfectly is like two calls."""


def read(text: str, size: int) -> list[ToolCallRequest]:
    pipeline = Pipeline(first_party(OPTIONS))
    calls: list[ToolCallRequest] = []
    events: list[ParseEvent] = []
    for begin in range(0, len(text), size):
        events += pipeline.feed(text[begin : begin + size])
    for event in [*events, *pipeline.finish()]:
        if event.call is not None:
            take_call(calls, event.call)
    return calls


@pytest.mark.parametrize("protocol", WRITERS)
@settings(max_examples=repetitions(150, 3000), derandomize=True)
@given(data=st.data())
def test_a_value_is_read_as_it_was_written_or_not_at_all(protocol: str, data: Any) -> None:
    pieces = data.draw(st.lists(st.sampled_from(PIECES[protocol.partition(",")[0]]), max_size=7))
    value = "".join(pieces)
    whole, streamed = (read(WRITERS[protocol](value), size) for size in (1 << 20, 1))
    assert whole == streamed
    for call in whole:
        if not call.refused and not call.repairs:  # elements are trimmed
            assert call.tool_id == "save"
            assert {name: text.strip() for name, text in call.arguments.items()} == {"path": "a", "text": value.strip()}
            assert protocol.startswith(("action", "tool_call")) or call.arguments["text"] == value


COPIED = {
    "tam": "x「末」\nnote:「始」y",
    "action": 'x</input><input name="note">y',
    "tool_call": 'x</param><param name="note">y',
    "json": 'x", "note": "y',
}


@pytest.mark.parametrize("protocol", COPIED)
def test_what_gives_a_tool_an_argument_that_it_does_not_take_is_refused_with_all_behind_it(protocol: str) -> None:
    behind = WRITERS[protocol]("z").replace("save", "delete")
    for size in (1 << 20, 1):
        first, second = read(f"{WRITERS[protocol](COPIED[protocol])}\n{behind}", size)
        assert first.refused is not None and "'note' is no parameter of save (it has path, text)" in first.refused
        assert (second.tool_id, second.refused is not None, first.arguments) == ("delete", True, {})
