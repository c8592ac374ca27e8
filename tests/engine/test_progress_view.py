"""What a person who watches a run is shown, from its events."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain
from typing import Any

from helpers.held_time import HeldClock

from tavern_engine.cli.progress_view import LINES, ProgressView
from tavern_engine.cli.stream_text import StreamTexts
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import NodeState, Run, RunStatus


def run_of(*nodes: str, status: RunStatus = RunStatus.RUNNING, **states: NodeState) -> Run:
    waiting = {node: NodeState(status=RunStatus.QUEUED) for node in nodes}
    return Run(
        id="run_1", status=status, workflow_name="Work", submitted_at=datetime.now(UTC), nodes={**waiting, **states}
    )


def board_of(run: Run) -> ProgressView:
    return ProgressView(run, lambda node_id: f"{node_id} (Type)")


def test_a_small_run_has_a_row_for_each_node(held_clock: HeldClock) -> None:
    view = board_of(run_of("a", "b", "c"))
    view.see("NODE_EXECUTING", {"nodeId": "a"})
    held_clock.advance(1.5)
    view.see("NODE_COMPLETE", {"nodeId": "a"})
    view.see("NODE_EXECUTING", {"nodeId": "b"})
    held_clock.advance(0.5)

    shown = view.picture()

    assert (shown.kind, shown.title, shown.done, shown.total) == ("live", "Work · 2.0 s", 1, 3)
    assert shown.rows == [["✓", "a (Type)", "1.5 s", ""], ["▸", "b (Type)", "500 ms", ""], ["·", "c (Type)", "", ""]]
    assert shown.tones == ["good", "active", "quiet"]


def test_each_event_of_a_small_run_is_worth_a_line() -> None:
    view = board_of(run_of("a", "b", "c", "d"))
    events: list[tuple[str, dict[str, Any], list[str]]] = [
        ("NODE_EXECUTING", {"nodeId": "a"}, ["a (Type) …"]),
        ("NODE_COMPLETE", {"nodeId": "a", "output": {}}, ["a (Type) done"]),
        ("NODE_CACHED", {"nodeIds": ["b", "unknown"]}, ["b (Type) cached"]),
        ("NODE_COMPLETE", {"nodeId": "b", "output": {}, "cached": True}, ["b (Type) cached"]),
        ("NODE_BYPASSED", {"nodeId": "c", "pseudoOutputs": {}}, ["c (Type) bypassed"]),
        ("NODE_ERROR", {"nodeId": "d", "errorDetails": {"message": "no luck"}}, ["d (Type) failed: no luck"]),
        ("NODE_COMPLETE", {"nodeId": "__WORKFLOW_INTERFACE_OUTPUTS__", "output": {}}, []),
        ("NODE_YIELD", {"sourceNodeId": "a", "yieldedContent": "?"}, []),
    ]
    assert [(type, payload, view.see(type, payload)) for type, payload, _ in events] == events


def test_a_node_in_a_loop_has_its_lines_once_and_counts_its_times() -> None:
    view = board_of(run_of("a"))

    lines = [view.see(type, {"nodeId": "a"}) for _ in range(100) for type in ("NODE_EXECUTING", "NODE_COMPLETE")]

    assert list(chain(*lines)) == ["a (Type) …", "a (Type) done"]
    assert view.picture().rows == [["✓", "a (Type)", "0 ms", "100×"]]


def test_a_large_run_has_rows_for_those_that_run_and_those_that_failed(held_clock: HeldClock) -> None:
    ids = [f"n{place}" for place in range(5000)]
    view = board_of(run_of(*ids))
    for node_id in ids[:100]:
        held_clock.advance(1)
        view.see("NODE_EXECUTING", {"nodeId": node_id})
    for node_id in ids[:20]:
        view.see("NODE_ERROR", {"nodeId": node_id, "errorDetails": {"message": "no"}})

    shown = view.picture()

    assert (shown.done, shown.total) == (20, 5000)
    assert [row[1].split()[0] for row in shown.rows[:-1]] == [*ids[15:20], *ids[20:28]]
    assert shown.rows[-1] == ["", "and 72 more", "", ""]
    assert view.summary_line() == "20 of 5,000 nodes done, 80 running"


def test_a_large_run_says_few_lines() -> None:
    ids = [f"n{place}" for place in range(LINES + 1)]
    view = board_of(run_of(*ids))

    begun = [view.see("NODE_EXECUTING", {"nodeId": node_id}) for node_id in ids]
    failed = [view.see("NODE_ERROR", {"nodeId": node_id, "errorDetails": {"message": "no"}}) for node_id in ids]

    assert list(chain(*begun)) == []
    assert list(chain(*failed)) == [f"n{place} (Type) failed: no" for place in range(10)]


def test_what_a_node_says_while_it_runs_is_beside_it() -> None:
    view = board_of(run_of("a", "b"))
    for node_id in "ab":
        view.see("NODE_EXECUTING", {"nodeId": node_id})
    view.see("NODE_PROGRESS", {"nodeId": "b", "value": 3, "max": 10})
    for word in ("Once ", "upon\na ", "time"):
        view.see("NODE_YIELD", {"sourceNodeId": "a", "yieldedContent": {"type": "text_chunk", "content": word}})

    assert [row[3] for row in view.picture().rows] == ["Once upon a time", "3/10"]

    view.see("NODE_PROGRESS", {"nodeId": "b", "value": 2.5, "max": 10.0, "message": "reading"})
    assert view.picture().rows[1][3] == "2.5/10 reading"


def test_after_lost_events_the_run_itself_says_how_it_stands(held_clock: HeldClock) -> None:
    view = board_of(run_of("a", "b", "c"))
    failed = NodeState(status=RunStatus.ERROR, started=1, finished=3, error=ErrorInfo(code="x", message="no"))
    view.see("NODE_EXECUTING", {"nodeId": "c"})
    held_clock.advance(4)

    view.sync(run_of("b", a=failed, c=NodeState(status=RunStatus.RUNNING)))

    rows = [["✗", "a (Type)", "2.0 s", "no"], ["·", "b (Type)", "", ""], ["▸", "c (Type)", "4.0 s", ""]]
    assert view.picture().rows == rows


def test_the_last_picture_tells_how_the_run_ended(held_clock: HeldClock) -> None:
    view = board_of(run_of("a"))
    held_clock.advance(3)
    cached = NodeState(status=RunStatus.COMPLETE, started=1, finished=1, cached=True)

    shown = view.last_picture(run_of(status=RunStatus.COMPLETE, a=cached))

    assert shown.title == "Work: complete after 3.0 s · 1 node: 1 cached"
    assert (shown.rows, shown.total) == ([["✓", "a (Type)", "", "cached"]], 0)


def test_texts_that_come_at_once_are_shown_one_after_the_other() -> None:
    texts = StreamTexts(str.upper)
    pieces = [("a", "one ", False), ("b", "1 ", False), ("a", "two", True), ("b", "2", False), ("c", "x", True)]
    shown = []
    for key, text, is_last in [*pieces, ("b", "", True)]:
        texts.add(key, text, is_last=is_last)
        shown.append(texts.take())

    assert shown == ["A: one ", "", "two\nB: 1 ", "2", "", "\nC: x"]
    assert [texts.text(key) for key in "abcd"] == ["one two", "1 2", "x", None]
