"""Whatever the text and however it is cut: the same result, no exception, nothing lost, linear time."""

from __future__ import annotations

from helpers.repetition import Failures, repetitions
from hypothesis import given, settings
from hypothesis import strategies as st
from tam_reading import END, REQUEST, block, calls_made, events_of

PIECES = [
    *(REQUEST, END, "「始」", "「末」", "「始ESCAPE」", "「末ESCAPE」", "「始ESCAPE:a」", "「末ESCAPE:a」"),
    *("»»»", "«««", ">>>", "<<<", "\n", "\n", "\r\n", "command:", "\nk:", ":", "#", " ", "x", "1", "「", "»", "<"),
    *(
        "command:「始」t「末」",
        "\ncommand1:「始」t「末」",
        "\na_1:「始」x「末」",
        "\nk:「始」",
        "\nk:»»»",
        "\nk:「始ESCAPE」",
    ),
    *("「末」\n" + END, "\n# c\n", "on_error_1:「始」continue「末」", "<think>", "</think>"),
    *("```\n", "\n```\n", "```py\n", "~~~", "`", "\ud800", block("command:「始」t「末」", "a:「始」1「末」")),
]
texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=40).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=40).map(lambda pieces: REQUEST + "".join(pieces)),
    st.text(),
)


@settings(max_examples=repetitions(60, 400))
@given(texts, st.data())
def test_the_result_does_not_depend_on_how_the_text_is_cut(text: str, data: st.DataObject) -> None:
    at_once = events_of([text])
    assert events_of(text) == at_once
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert events_of(pieces) == at_once


@settings(max_examples=repetitions(60, 400))
@given(texts)
def test_a_text_without_calls_comes_back_whole(text: str) -> None:
    events = events_of([text])
    if not any(event.kind == "call" for event in events):
        found = "".join(event.text for event in events if event.kind == "text")
        assert found == text.replace("\ud800", "\ufffd")


@settings(max_examples=repetitions(60, 400))
@given(texts)
def test_text_is_returned_from_where_it_stands_and_all_but_blocks_and_fences_is(text: str) -> None:
    fed = text.replace("\ud800", "\ufffd")
    left, last = fed, 0
    for event in events_of([text]):
        if event.kind == "text":
            assert event.offset is not None
            end = event.offset + len(event.text)
            assert fed[event.offset : end] == event.text
            left = left[: event.offset] + "\0" * len(event.text) + left[end:]
        elif event.kind == "call":
            assert event.offset is not None
            assert event.offset >= last
            assert fed[event.offset] == "<"
            last = event.offset
    for gap in left.split("\0"):
        assert gap.strip()[:1] in ("", "<", "`", "~")


noise = st.lists(
    st.one_of(
        st.sampled_from(
            [REQUEST, END, *(REQUEST[:n] for n in (1, 3, 9)), *(END[:n] for n in (2, 7)), "「始」", "「末」", "「"]
        ),
        st.sampled_from(
            [
                "始」",
                "末",
                "ESCAPE",
                "command:「始」t「末」",
                "\x00",
                "\x1b[0m",
                "\x85",
                "\u2028",
                "\ufeff",
                "漢字",
                "\ud83d",
            ]
        ),
        st.characters(),
    ),
    max_size=60,
).map("".join)


@settings(max_examples=repetitions(50, 300))
@given(noise)
def test_no_mixture_of_halves_and_control_characters_is_too_strange(text: str) -> None:
    assert events_of(text) == events_of([text])


FILLERS = ["x", "漢", "\x00", "「", "」", "<", ">", "|", ">|", "\n", "`", "~", "𝔘", "\ud800", "<|[", ":「始」"]


def test_long_runs_of_anything_are_read() -> None:
    size = repetitions(10_000, 1_000_000)
    with Failures() as failures:
        for filler in FILLERS:
            with failures.row(filler):
                blob = filler * (size // len(filler))
                whole = blob.replace("\ud800", "\ufffd")
                for text in (blob, f"<think>{blob}", f"{REQUEST}{blob}"):
                    found = events_of([text])
                    returned = "".join(event.text for event in found if event.kind == "text")
                    assert returned == text.replace("\ud800", "\ufffd")
                    assert events_of([text[i : i + 1000] for i in range(0, len(text), 1000)]) == found
                found = events_of([block("command:「始」t「末」", f"x:「始」{blob}「末」")])
                assert [event.call.arguments for event in found if event.call] == [{"x": whole}]


def hard_texts(count: int) -> dict[str, str]:
    """Return texts that a careless parser would read again and again."""
    command = "\ncommand:「始」t「末」\n"
    return {
        "openings without closers": f"{REQUEST}{command}" + "k:「始」x\n" * count,
        "openings without keys": REQUEST + "「始」" * count,
        "openings in a comment": REQUEST + "#" + "「始」" * count,
        "unclosed blocks": (REQUEST + command) * count,
        "unclosed blocks with thoughts behind them": f"{REQUEST}{command}<think>x</think>" * count,
        "blocks that call nothing with thoughts in them": f"{REQUEST}\n<think></think>y" * count,
        "unclosed values with thoughts in them": f"{REQUEST}{command}x:「始」<think>y</think>\n" * count,
        "unclosed blocks with unclosed values": f"{REQUEST}\ncommand:「始」t\na:»»»x\nb:>>>{END}y" * count,
        "request markers": REQUEST * count + END,
        "end markers in a value": f"{REQUEST}\nx:「始」" + END * count,
        "escapes that are never closed": f"{REQUEST}{command}"
        + "".join(f"k{n}:「始ESCAPE:{n}」x\n" for n in range(count)),
        "escapes that are opened twice": f"{REQUEST}{command}"
        + "".join(f"k:「始ESCAPE:{n % (count // 2)}」x\n" for n in range(count)),
        "four kinds of unclosed values": f"{REQUEST}{command}"
        + "a:「始」\nb:»»»\nc:>>>\nd:「始ESCAPE」\n" * (count // 4),
        "an endless word": "x" * count * 20,
        "an endless word in a value": f"{REQUEST}\nx:「始」" + "x" * count * 20,
        "an endless word as a key": REQUEST + "x" * count * 20 + ":「始」1「末」",
        "angle brackets": "<" * count * 5,
        "angle brackets in a value": f"{REQUEST}\nx:「始」" + "<>" * count * 3,
        "a thought that is never closed": "<think>" + REQUEST * count,
        "empty lines in a block": REQUEST + "x" + "\n" * count * 20 + "k:「始」1「末」",
        "blanks before an opening": REQUEST + "k:" + " " * count * 20 + "「始」1「末」",
        "fences": "```\n" * count,
        "blocks in one fence": "```\n" + (block("command:「始」t「末」") + "\n") * (count // 4),
        "steps": REQUEST + "".join(f"\ncommand{n}:「始」t「末」\na{n}:「始」x「末」" for n in range(count)) + END,
        "common parameters of many steps": REQUEST
        + "".join(f"\ncommand{n}:「始」t「末」\ncommon_p{n}:「始」x「末」" for n in range(count // 4))
        + END,
        "options for all steps": REQUEST
        + "".join(
            f"\ncommand{n}:「始」t「末」\non_error:「始」stop「末」\nretry:「始」1「末」" for n in range(count // 2)
        )
        + END,
    }


def test_work_is_linear_in_the_text() -> None:
    count = repetitions(32, 2_000)
    with Failures() as failures:
        for name, text in hard_texts(4 * count).items():
            small = hard_texts(count)[name]
            for piece in (len(text), 1):
                with failures.row(f"{name}, {piece} at a time"):
                    work, base = (calls_made(events_of, _pieces(t, piece)) for t in (text, small))
                    assert work < 6 * base + 500


def _pieces(text: str, length: int) -> list[str]:
    return [text[i : i + length] for i in range(0, len(text), length)]
