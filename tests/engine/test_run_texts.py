"""How runs are put into words: times, values, and what each node did when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tavern_engine.cli.run_text import ROWS, duration, point_in_time, shortened, tally, timeline
from tavern_engine.run_query import run_filter
from tavern_host.contracts.errors import ErrorInfo, InvalidInput
from tavern_host.contracts.executions import NodeState, Run, RunStatus

NOW = datetime(2026, 5, 20, 12, 0, tzinfo=UTC)


def run_of(**nodes: NodeState) -> Run:
    return Run(id="run_1", status=RunStatus.COMPLETE, submitted_at=NOW, nodes=nodes)


def done(started: float, finished: float, **more: object) -> NodeState:
    return NodeState(status=RunStatus.COMPLETE, started=started, finished=finished, **more)  # type: ignore[arg-type]


def test_a_time_span_is_told_in_the_unit_that_suits_it() -> None:
    texts = {-1: "0 ms", 0: "0 ms", 0.0124: "12 ms", 0.9996: "1.0 s", 3.44: "3.4 s", 59.95: "1 min 0 s"}
    texts |= {59.97: "1 min 0 s", 125: "2 min 5 s", 3599.6: "1 h 0 min", 4205: "1 h 10 min"}
    assert {seconds: duration(seconds) for seconds in texts} == texts


def test_a_time_is_so_long_ago_or_an_iso_date() -> None:
    zone = timezone(timedelta(hours=2))
    times = {
        "2d": NOW - timedelta(days=2),
        "1.5h": NOW - timedelta(minutes=90),
        " 30m ": NOW - timedelta(minutes=30),
        "2026-05-01": datetime(2026, 4, 30, 22, 0, tzinfo=UTC),
        "2026-05-01T10:00:00Z": datetime(2026, 5, 1, 10, 0, tzinfo=UTC),
        "2026-05-01 10:00:00-01:00": datetime(2026, 5, 1, 11, 0, tzinfo=UTC),
    }
    assert {text: point_in_time(text, now=NOW, zone=zone) for text in times} == times
    for text in ("", "yesterday", "2", "2y", "-2d", "999999w", "2026-13-01", "0001-01-01", "２d\n"):
        with pytest.raises(InvalidInput, match="is no time: write 2d, 3h, 30m, or a date such as 2026-01-31"):
            point_in_time(text, now=NOW, zone=zone)


def test_the_timeline_has_the_nodes_in_the_order_in_which_they_began() -> None:
    failed = NodeState(
        status=RunStatus.ERROR, started=1.0, finished=2.0, attempts=3, error=ErrorInfo(code="x", message="no\nluck")
    )
    rows, left_out = timeline(
        run_of(
            never=NodeState(status=RunStatus.SKIPPED), late=failed, loop=done(0.5, 1.5, iterations=4), first=done(0, 1)
        )
    )

    assert left_out == 0
    assert rows == [
        ["first", "done", "+0 ms", "1.0 s", "━" * 12, ""],
        ["loop", "done", "+500 ms", "1.0 s", " " * 6 + "━" * 12, "4 iterations"],
        ["late", "failed", "+1.0 s", "1.0 s", " " * 12 + "━" * 12, "3 attempts, no luck"],
        ["never", "skipped", "", "", "", ""],
    ]


def test_the_timeline_of_a_large_run_has_those_that_failed_and_those_that_took_longest() -> None:
    nodes = {f"n{place}": done(place, place + 0.1) for place in range(5000)}
    nodes["slow"] = done(10, 400)
    nodes["bad"] = NodeState(status=RunStatus.ERROR, started=3, finished=3, error=ErrorInfo(code="x", message="no"))

    rows, left_out = timeline(run_of(**nodes))

    assert (len(rows), left_out) == (ROWS, 5002 - ROWS)
    assert [row[0] for row in rows if not row[0].startswith("n")] == ["bad", "slow"]


def test_a_run_of_no_length_has_a_timeline() -> None:
    rows, _ = timeline(run_of(a=done(0, 0), b=NodeState(status=RunStatus.RUNNING, started=0)))

    assert [row[:4] for row in rows] == [["a", "done", "+0 ms", "0 ms"], ["b", "running", "+0 ms", ""]]


def test_the_tally_counts_what_nodes_came_to() -> None:
    states = [done(0, 1), done(0, 1), done(0, 0, cached=True), done(0, 0, bypassed=True)]
    states += [NodeState(status=status) for status in (RunStatus.SKIPPED, RunStatus.ERROR, RunStatus.QUEUED)]

    assert tally(states) == "7 nodes: 2 done, 1 cached, 1 bypassed, 1 failed, 1 skipped, 1 waiting"
    assert tally([done(0, 1)]) == "1 node: 1 done"
    assert tally([]) == "no nodes"


def test_a_long_text_becomes_one_short_line() -> None:
    assert shortened("a\n b\tc", 10) == "a b c"
    assert shortened("x" * 1_000_000, 5) == "xxxx…"
    assert shortened(" " * 1000 + "end", 5) == "…"


def test_a_query_that_cannot_be_is_refused() -> None:
    for query, message in [
        ({"status": "eror"}, r"status: there is no status 'eror' \(did you mean error\?\)"),
        ({"status": "xyz"}, "status: there is no status 'xyz'; there are queued, running, "),
        ({"limit": "0"}, "limit: input should be greater than or equal to 1, got '0'"),
        ({"limit": "many"}, "limit: input should be a valid integer, .*, got 'many'"),
        ({"offset": "-1"}, "offset: input should be greater than or equal to 0, got '-1'"),
        ({"since": "soon"}, "since: 'soon' is no time"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            run_filter(query)
