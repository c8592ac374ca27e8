"""Written calls are read back as the same calls."""

from __future__ import annotations

import re
from typing import Any

import pytest
from helpers.repetition import Failures, repetitions
from hypothesis import given, settings
from hypothesis import strategies as st
from tam_reading import END, TAM_PIECES, block, read

from tavern_tam.writer import write_tam
from tavern_tools.api.toolcalls import ToolCallRequest


def call(tool_id: str = "t", index: int = 1, **more: object) -> ToolCallRequest:
    """Return a call as TAM gives it."""
    return ToolCallRequest.model_validate({"tool_id": tool_id, "index": index, "protocol": "tam", **more})


def test_a_chain_is_written_with_numbers() -> None:
    calls = [
        call("a", 1, arguments={"file_path": "x", "n": 3}, request_id="r", on_error="continue"),
        call("b", 2, request_id="r"),
    ]
    assert write_tam(calls) == block(
        *(
            "request_id:「始」r「末」",
            "command_1:「始」a「末」",
            "on_error_1:「始」continue「末」",
            "file_path_1:「始」x「末」",
        ),
        *("n_1:「始」3「末」", "type_hint_n_1:「始」json「末」", "command_2:「始」b「末」"),
    )
    assert read(write_tam(calls)).calls == calls


ESCAPED: Any = [
    # a value, and the word that its delimiters need, if any
    *(
        ("「quoted」 <|[x]|> «««", None),
        (block("x:「始」a「末」"), ""),
        ("「末", ""),
        (END.lower(), ""),
        ("「末ESCAPE:1」", ""),
    ),
    *(
        ("「末escape」", ":1"),
        ("\nx:「始ESCAPE」", ":1"),
        ("「始ESCAPE」「末ESCAPE:1」「末escape:02」「末ESCAPE:x」", ":3"),
    ),
    ("「末ESCAPE」" + "".join(f"「末ESCAPE:{'9' * n}」" for n in (32, 5000)), ":1"),
]


def test_values_with_markers_are_escaped() -> None:
    with Failures() as failures:
        for value, nonce in ESCAPED:
            with failures.row(value[:40]):
                text = write_tam([call(arguments={"x": value})])
                escape = "" if nonce is None else f"ESCAPE{nonce}"
                assert f"x_1:「始{escape}」{value}「末{escape}」\n" in text
                reading = read(text)
                assert (reading.arguments, reading.warnings) == ({"x": value}, [])


def test_blocks_and_variables_are_read_back() -> None:
    variables = {"dir": "/「末」", "common_dir": "/「末」"}
    common = [call("a", 1, arguments={"dir": "/「末」"}, variables=variables)]
    common += [call("b", 2, arguments={"DIR": "@{dir}/x"}, variables=variables)]
    several = [call("a", 1), call("b", 2, retry=3), call("c", 1, block=1, request_id="r")]
    for calls, text in ((common, ""), (several, "\n")):
        reading = read(write_tam(calls))
        assert (reading.calls, reading.text, reading.warnings) == (calls, text, [])


words = st.text() | st.lists(st.sampled_from([piece for piece in TAM_PIECES if piece != "\ud800"])).map("".join)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = words | st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
OWN_WORDS = ["comment", "request_id", "command", "Command", "on_error", "retry", "retry2", "type_hint_a", "common_a"]
KNOWN = [
    *["filePath", "file_path", "a", "x1", "utf8", "data[0]", "标题", "_a"],
    *OWN_WORDS,
    *(f"argument_{word}" for word in OWN_WORDS),
]
names = st.sampled_from(KNOWN) | st.from_regex(r"[a-z$@]\w{0,10}[a-z0-9]", fullmatch=True)
ids = st.text(min_size=1).filter(lambda text: text == text.strip())


@st.composite
def chains(draw: st.DrawFn) -> list[ToolCallRequest]:
    """Draw the calls of one or two blocks that TAM can say."""
    several = st.lists(names, max_size=4, unique_by=lambda n: re.sub(r"[_\s-]", "", n).casefold())
    calls = []
    for number in range(draw(st.integers(1, 2))):
        request_id = draw(st.none() | ids)
        common = draw(st.dictionaries(st.sampled_from(["dir", "标题", "out file"]), words, max_size=2))
        variables = {**common, **{f"common_{name}": value for name, value in common.items()}}
        for index in sorted(draw(st.sets(st.integers(0, 30), min_size=1, max_size=3))):
            arguments = {**{name: draw(values) for name in draw(several)}, **common}
            more = {"on_error": draw(st.sampled_from(["stop", "continue"])), "retry": draw(st.integers(0, 10))}
            about = {"block": number, "arguments": arguments, "variables": variables, "request_id": request_id}
            calls.append(call(draw(ids), index, **about, **more))
    return calls


@settings(max_examples=repetitions(40, 200))
@given(chains())
def test_what_is_written_is_read_back(calls: list[ToolCallRequest]) -> None:
    reading = read(write_tam(calls))
    assert (reading.calls, reading.text.strip(), reading.warnings) == (calls, "", [])


REFUSED: Any = [
    ([], "at least one call"),
    ([call(index=1), call(index=1)], r"indexes of their own, not \[1, 1\]"),
    ([call(index=-1)], "indexes of their own"),
    ([call(index=1, request_id="a"), call(index=2)], "share one request id"),
    ([call(" t")], "a tool id in TAM is neither empty nor has blanks around it"),
    ([call("t", request_id="")], "a request id in TAM"),
    ([call(arguments={"a_b": "", "ab": ""})], "cannot distinguish the arguments 'a_b' and 'ab'"),
    ([call(arguments={"n": 2**64})], "t: the argument 'n' cannot be written in TAM"),
    ([call(variables={"a": "x", "common_a": "x"})], "the variables of the calls in a TAM block"),
    ([call(variables={"a": "x"}, arguments={"a": "x"})], "the variables of the calls in a TAM block"),
    *(
        ([call(arguments={name: ""})], re.escape(f"t: an argument {name!r} cannot be written in TAM"))
        for name in ["", "_", "a:b", "a\nb", "#a", "-a", "a_", "x" * 63]
    ),
]


def test_what_tam_cannot_say_is_refused() -> None:
    with Failures() as failures:
        for calls, complaint in REFUSED:
            with failures.row(complaint), pytest.raises(ValueError, match=complaint):
                write_tam(calls)
