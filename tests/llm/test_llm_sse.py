"""The parser of server-sent events: cut anywhere, same events."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tavern_llm.sse import SseEvent, SseParser


def events(*pieces: bytes) -> list[SseEvent]:
    parser = SseParser()
    found = [event for piece in pieces for event in parser.feed(piece)]
    return [*found, *parser.finish()]


def data(*pieces: bytes) -> list[str]:
    return [event.data for event in events(*pieces)]


def test_an_event_is_what_stands_before_an_empty_line() -> None:
    assert data(b"data: a\n\ndata: b\n\n") == ["a", "b"]


def test_lines_of_one_event_are_joined_by_line_feeds() -> None:
    assert data(b"data: a\ndata:b\n\n") == ["a\nb"]


def test_comments_and_unknown_fields_are_passed_over() -> None:
    assert data(b": keep-alive\n\nid: 7\nretry: 10\ndata: a\n\n: OPENROUTER PROCESSING\n\n") == ["a"]


def test_the_type_of_an_event_counts_for_that_event_only() -> None:
    found = events(b"event: error\ndata: a\n\ndata: b\n\n")
    assert found == [SseEvent("error", "a"), SseEvent("message", "b")]


def test_carriage_returns_end_lines_alone_and_with_line_feeds() -> None:
    assert data(b"data: a\r\rdata: b\r\n\r\ndata: c\n\n") == ["a", "b", "c"]


def test_a_line_end_cut_in_two_is_one_line_end() -> None:
    assert data(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == ["a\nb"]


def test_only_one_space_after_the_colon_is_dropped() -> None:
    assert data(b"data:  a \n\n") == [" a "]


def test_a_byte_order_mark_and_an_unfinished_last_event_are_no_obstacle() -> None:
    assert data(b"\xef\xbb\xbfdata: a\n\ndata: b") == ["a", "b"]


def test_bytes_that_are_not_utf8_become_replacement_marks() -> None:
    assert data(b"data: a\xffb\n\n") == ["a\ufffdb"]


STREAM = "event: x\r\ndata: 一 two\r\n\r\n: c\n\ndata: 三\rdata: 🙂\r\rdata: end\n\n".encode()


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_where_the_bytes_are_cut_makes_no_difference(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in itertools.pairwise(edges)]
    assert events(*pieces) == events(STREAM)


def test_a_long_line_that_arrives_byte_by_byte_takes_linear_time() -> None:
    parser = SseParser()
    for _ in range(300_000):
        parser.feed(b"x")
    assert parser.finish() == []
