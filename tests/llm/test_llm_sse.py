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


def test_events_are_what_stands_before_empty_lines() -> None:
    comments = b": keep-alive\n\nid: 7\nretry: 10\ndata: a\n\n: OPENROUTER PROCESSING\n\n"
    assert data(b"data: a\n\ndata: b\n\n") == ["a", "b"]
    assert data(b"data: a\ndata:b\n\n") == ["a\nb"]
    assert data(comments) == ["a"]
    assert data(b"data: a\r\rdata: b\r\n\r\ndata: c\n\n") == ["a", "b", "c"]
    assert data(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == ["a\nb"], "a line end cut in two is one"
    assert data(b"data:  a \n\n") == [" a "], "one space after the colon is dropped"
    assert data(b"\xef\xbb\xbfdata: a\n\ndata: b") == ["a", "b"], "a byte order mark, and an event that has no end"
    assert data(b"data: a\xffb\n\n") == ["a\ufffdb"]


def test_the_type_of_an_event_counts_for_that_event_only() -> None:
    found = events(b"event: error\ndata: a\n\ndata: b\n\n")
    assert found == [SseEvent("error", "a"), SseEvent("message", "b")]


STREAM = "event: x\r\ndata: 一 two\r\n\r\n: c\n\ndata: 三\rdata: 🙂\r\rdata: end\n\n".encode()


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_where_the_bytes_are_cut_makes_no_difference(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in itertools.pairwise(edges)]
    assert events(*pieces) == events(STREAM)


def test_a_long_line_that_arrives_byte_by_byte_takes_linear_time() -> None:
    parser = SseParser()
    for _ in range(100_000):
        parser.feed(b"x")
    assert parser.finish() == []
