"""One text read by several protocols at once."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from protocol_bench import (
    Bangs,
    Braces,
    Crashing,
    called,
    events_of,
    first_party,
    parse,
    small,
    text_of,
    warnings_of,
)

from tavern_host.contracts.protocols import ParseEvent
from tavern_tools.protocols.pipeline import Pipeline

Written = Callable[[str, str], str]


def cdata(text: str) -> str:
    return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>"


def tam(tool: str, value: str = "", name: str = "v") -> str:
    return f"<|[REQUEST_TOOL]|>\ncommand:「始」{tool}「末」\n{name}:「始」{value}「末」\n<|[END_TOOL]|>"


def action(tool: str, value: str = "") -> str:
    return f"<ACTION><tool_id>{tool}</tool_id><inputs><input name='v'>{cdata(value)}</input></inputs></ACTION>"


def tool_call(tool: str, value: str = "") -> str:
    return f"<tool_call name='{tool}'><param name='v'>{cdata(value)}</param></tool_call>"


def test_calls_come_in_the_order_of_the_text_and_blocks_are_numbered_over_all_of_it() -> None:
    text = f"1 {action('a')} 2 {tam('b')}{tool_call('c')} 3 {action('d')}{tam('e')}\n4"
    events = parse(text)
    assert called(events) == [
        ("action", "a", 0),
        ("tam", "b", 1),
        ("tool_call", "c", 2),
        ("action", "d", 3),
        ("tam", "e", 4),
    ]
    assert text_of(events) == "1  2  3 \n4"


def test_the_steps_of_a_chain_share_a_block() -> None:
    chain = "<|[REQUEST_TOOL]|>command1:「始」b「末」command2:「始」c「末」<|[END_TOOL]|>"
    assert called(parse(f"{action('a')}{chain}{chain}")) == [
        ("action", "a", 0),
        ("tam", "b", 1),
        ("tam", "c", 1),
        ("tam", "b", 2),
        ("tam", "c", 2),
    ]


def test_offsets_are_those_of_the_whole_text() -> None:
    text = f"中 {action('a')}<|[REQUEST_TOOL]|>oops {tam('b')}"
    events = parse(text)
    assert [event.offset for event in events if event.kind == "call"] == [2, text.rindex("<|[REQUEST_TOOL]|>")]


@pytest.mark.parametrize("outer", [tam, action, tool_call])
@pytest.mark.parametrize("inner", [tam, action, tool_call])
def test_what_is_inside_a_block_is_not_searched_by_other_protocols(outer: Written, inner: Written) -> None:
    value = inner("hidden", "x") if outer is not inner else "plain"
    if outer is tam:
        value = value.replace("「", "(").replace("」", ")")
    events = parse(f"Say: {outer('real', value)} Bye.")
    assert [tool for _, tool, _ in called(events)] == ["real"]
    assert text_of(events) == "Say:  Bye."
    (call,) = (event.call for event in events if event.call is not None)
    assert call.arguments == {"v": value}


def test_what_is_inside_a_refused_block_is_not_searched_either() -> None:
    text = f"<ACTION><inputs><input name='v'><![CDATA[{tam('hidden')}]]></input></inputs></ACTION> {tam('real')}"
    events = parse(text)
    assert [tool for _, tool, _ in called(events)] == ["real"]
    assert "hidden" in text_of(events)
    assert warnings_of(events) == ["action: it names no tool; nothing is called"]


def test_text_before_a_refused_block_is_searched() -> None:
    refused = "<|[REQUEST_TOOL]|>a:「始」「始ESCAPE:1」<|[END_TOOL]|>「末」<|[END_TOOL]|>"
    assert called(parse(f"{refused} {action('a')} <|[REQUEST_TOOL]|><|[END_TOOL]|>")) == [("action", "a", 0)]


def test_what_only_looks_like_a_block_is_searched_by_the_others() -> None:
    events = parse(f"Write <ACTION> or <tool_call> and {tam('a')}")
    assert called(events) == [("tam", "a", 0)]
    assert text_of(events) == "Write <ACTION> or <tool_call> and "


@pytest.mark.parametrize(
    "broken",
    [
        "<|[REQUEST_TOOL]|>\n",
        "<|[REQUEST_TOOL]|>\ncommand:「始」a「末」\n",
        "<|[REQUEST_TOOL]|>\ncommand:「始」a「末」\nv:「始」1",
        "<ACTION><tool_id>a</tool_id><inputs>",
        "<ACTION><tool_id>a</tool_id><inputs><input name='v'>1</input>",
        "<tool_call name='a'><param name='v'>1</param>",
    ],
)
@pytest.mark.parametrize("written", [tam, action, tool_call])
def test_a_thought_behind_a_call_that_is_not_closed_is_not_searched(broken: str, written: Written) -> None:
    events = parse(f"{broken}<think>\n{written('absurd')}</think>")
    assert "absurd" not in [tool for _, tool, _ in called(events)]
    assert text_of(events).endswith("</think>")


def test_fences_around_calls_are_dropped_for_every_protocol() -> None:
    events = parse(f"```xml\n{action('a')}\n```\n~~~\n{tam('b')}\n~~~\n```\n{tool_call('c')}\n```")
    assert [tool for _, tool, _ in called(events)] == ["a", "b", "c"]
    assert text_of(events).strip() == ""


def test_text_is_released_as_soon_as_nobody_can_need_it() -> None:
    pipeline = Pipeline(first_party())
    assert [event.text for event in pipeline.feed("Hello <")] == ["Hello "]
    assert [event.text for event in pipeline.feed("b>bold")] == ["<b>bold"]
    assert [event.text for event in pipeline.feed("</b> <|[REQ")] == ["</b> "]
    assert [event.text for event in pipeline.feed("UIRE]")] == ["<|[REQUIRE]"]
    assert [event.kind for event in pipeline.feed(f"{action('a')}")] == ["call"]
    assert [event.text for event in pipeline.feed(" and <think>hm")] == [" and <think>hm"]


# --- protocols of plugins ----------------------------------------------------------------------------


def test_a_protocol_without_openings_gets_what_the_others_left() -> None:
    events = events_of([f"!one {action('a', '!no !no')} !two "], [small("bangs", Bangs), *first_party()])
    assert called(events) == [("bangs", "one", 0), ("action", "a", 1), ("bangs", "two", 2)]
    assert text_of(events) == ""


def test_the_protocol_whose_opening_comes_first_has_the_block() -> None:
    stages = [*first_party(), small("braces", Braces, "{{")]
    assert called(parse("{{<ACTION>}}<ACTION><tool_id>{{x}}</tool_id></ACTION>", stages)) == [
        ("braces", "<ACTION>", 0),
        ("action", "{{x}}", 1),
    ]


def test_of_two_protocols_with_one_opening_the_first_is_asked_first() -> None:
    stages = [small("one", Braces, "{{"), small("two", Braces, "{{")]
    assert called(parse("{{a}} {{b", stages)) == [("one", "a", 0)]


@pytest.mark.parametrize("length", [1, 7, 100])
def test_a_parser_that_raises_costs_its_own_findings_only(length: int) -> None:
    text = "{{a}} {{crash}} <tool_call name='b'/> {{c}}"
    pieces = [text[begin : begin + length] for begin in range(0, len(text), length)]
    events = events_of(pieces, [*first_party(), small("braces", Crashing, "{{")])
    assert called(events) == [("braces", "a", 0), ("tool_call", "b", 1)]
    assert text_of(events) == " {{crash}}  {{c}}"
    assert warnings_of(events) == ["braces: its parser failed: SystemExit: out"]


def test_a_parser_without_openings_that_raises_gives_its_text_back() -> None:
    events = events_of(["a !crash b", " c"], [small("bangs", Bangs)])
    assert text_of(events) == "a !crash b c"
    assert warnings_of(events) == ["bangs: its parser failed: RuntimeError: I give up"]


class Wrong:
    """Answers with what no parser may; which, says the word behind the opening."""

    def feed(self, text: str) -> list[ParseEvent]:
        if "none" in text:
            return None  # type: ignore[return-value]
        if "text" in text:
            return [text]  # type: ignore[list-item]
        return [ParseEvent(kind="text", text=text * 2, offset=0)]

    def finish(self) -> list[ParseEvent]:
        return []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{{none", "returned NoneType, expected a list of ParseEvent"),
        ("{{text", "returned a list with str, expected a list of ParseEvent"),
        ("{{more", "returned text up to character 12 of 6"),
    ],
)
def test_a_parser_that_answers_wrongly_has_failed(text: str, reason: str) -> None:
    events = events_of([text], [small("wrong", Wrong, "{{")])
    assert text_of(events) == text
    assert warnings_of(events) == [f"wrong: its parser failed: PluginFailure: {reason}"]


# --- whatever the text -------------------------------------------------------------------------------

PARTS = [
    *(
        "<|[REQUEST_TOOL]|>",
        "<|[END_TOOL]|>",
        "command:「始」t「末」",
        "\na:「始」v「末」\n",
        "a:「始」",
        "「末」",
        "「始ESCAPE:1」",
    ),
    *("「末ESCAPE:1」", "# c\n", "<ACTION>", "</ACTION>", "<tool_id>x</tool_id>", "<inputs>", "</inputs>", "</input>"),
    *("<input name='a'>", '<param name="b">', "</param>", "<![CDATA[", "]]>", "<tool_call name='t'>", "<tool_call>"),
    *(
        "</tool_call>",
        "<ToolId>y</ToolId>",
        "<think>",
        "</think>",
        "```\n",
        "\n```",
        "```xml\n",
        "\n",
        " ",
        "text",
        "<",
    ),
    *("a < b", "&lt;", "x" * 70, "<b>", "<!--", "-->", "中", "\x00", "{{", "}}", "{{w}}", "word"),
    *(action("q"), tam("r"), tool_call("s"), "<|[REQ", "<tool"),
]


@pytest.mark.parametrize("seed", range(10))
def test_the_result_does_not_depend_on_how_the_text_is_cut(seed: int) -> None:
    source = random.Random(seed)
    stages = [*first_party(), small("braces", Braces, "{{")]
    for _ in range(60):
        text = "".join(source.choice(PARTS) for _ in range(source.randint(1, 25)))
        whole = parse(text, stages)
        cuts = sorted(source.randint(0, len(text)) for _ in range(5))
        assert events_of([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)], stages) == whole
        if not called(whole):
            assert text_of(whole) == text
        blocks = [block for _, _, block in called(whole)]
        assert blocks == sorted(blocks)
        assert set(blocks) == set(range(len(set(blocks))))
