"""Formats runs for people: times, values, and a timeline of nodes. Pure; prints nothing itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo

from pydantic import JsonValue

from tavern_engine.api.executions import RunSummary
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.executions import NodeState, Run, RunStatus

ROWS = 60
"""How many nodes of a run are listed; of a larger run those that matter most."""

BAR = 24
"""How wide, in letters, the time of a run is drawn."""

_AGO = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def duration(seconds: float) -> str:
    """Return a time span in the unit that suits it: `12 ms`, `3.4 s`, `2 min 5 s`, `1 h 10 min`."""
    if seconds < 0.9995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def moment(when: datetime | None, zone: tzinfo | None = None) -> str:
    """Return a time as the clock on the wall shows it."""
    return when.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S") if when is not None else ""


def point_in_time(text: str, *, now: datetime, zone: tzinfo | None = None) -> datetime:
    """Return the time that `2d` (so long ago; `s m h d w`) or an ISO date or time means; without a zone, in `zone`.

    Raises `InvalidInput`.
    """
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago:
            return now - timedelta(seconds=float(ago[1]) * _UNITS[ago[2]])
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo is not None else found.replace(tzinfo=zone)).astimezone(UTC)
    except (OverflowError, ValueError):
        raise InvalidInput(f"{text!r:.60} is no time: write 2d, 3h, 30m, or a date such as 2026-01-31") from None


def took(run: Run | RunSummary) -> str:
    """Return how long a run took, from its start to its end; nothing for one that has not ended."""
    if run.started_at is None or run.finished_at is None:
        return ""
    return duration((run.finished_at - run.started_at).total_seconds())


def value_text(value: JsonValue) -> str:
    """Return a value as it is shown: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def shortened(text: str, length: int) -> str:
    """Return a text as one line of at most so many letters."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length and len(text) <= 4 * length else line[: length - 1] + "…"


def counted(number: int, one: str, several: str | None = None) -> str:
    """Return `1 node`, `2,000 nodes`."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def tally(states: Iterable[NodeState]) -> str:
    """Return how many nodes came to which end: `5 nodes: 3 done, 1 cached, 1 failed`."""
    words: dict[str, int] = {}
    for state in states:
        words[word_of(state)] = words.get(word_of(state), 0) + 1
    order = ("done", "given", "cached", "bypassed", "failed", "interrupted", "skipped", "running", "waiting")
    parts = [f"{words[word]:,} {word}" for word in order if word in words]
    return f"{counted(sum(words.values()), 'node')}: {', '.join(parts)}" if parts else "no nodes"


def word_of(state: NodeState) -> str:
    """Return the word for how a node stands."""
    if state.status is RunStatus.COMPLETE:
        return "bypassed" if state.bypassed else "given" if state.given else "cached" if state.cached else "done"
    return {
        RunStatus.QUEUED: "waiting",
        RunStatus.RUNNING: "running",
        RunStatus.ERROR: "failed",
        RunStatus.INTERRUPTED: "interrupted",
        RunStatus.SKIPPED: "skipped",
    }[state.status]


def timeline(run: Run) -> tuple[list[list[str]], int]:
    """Return a row for each node in the order in which they began, and how many were left out.

    Columns: node, how it ended, when it began, how long it took, the same as a bar, and what else there is to say.
    Of a run of more than `ROWS` nodes, those that failed and those that took longest.
    """
    nodes = sorted(run.nodes.items(), key=_when)
    end = max((s.finished or s.started or 0 for _, s in nodes), default=0)
    shown = nodes if len(nodes) <= ROWS else _telling(nodes)
    return [_row(node_id, state, end) for node_id, state in shown], len(nodes) - len(shown)


def _telling(nodes: Sequence[tuple[str, NodeState]]) -> list[tuple[str, NodeState]]:
    """Return the nodes that matter most, in the order in which they came."""

    def weight(place: int) -> tuple[bool, float]:
        state = nodes[place][1]
        return state.error is not None, span_of(state) or 0

    best = sorted(range(len(nodes)), key=weight, reverse=True)[:ROWS]
    return [nodes[place] for place in sorted(best)]


def _when(item: tuple[str, NodeState]) -> tuple[bool, float, float]:
    state = item[1]
    started = state.started if state.started is not None else state.finished
    return started is None, started or 0, state.finished or 0


def span_of(state: NodeState) -> float | None:
    """Return how many seconds a node ran; None for one that did not begin or has not ended."""
    if state.started is None or state.finished is None:
        return None
    return max(0.0, state.finished - state.started)


def _row(node_id: str, state: NodeState, end: float) -> list[str]:
    notes = [*repetitions(state), *work_of(state)]
    if state.error is not None:
        notes.append(shortened(state.error.message, 160))
    return [node_id, word_of(state), *times_of(state), _bar(state, end), ", ".join(notes)]


def times_of(state: NodeState) -> tuple[str, str]:
    """Return when a node began, after the run did, and how long it took; nothing for what is not known."""
    span = span_of(state)
    began = f"+{duration(state.started)}" if state.started is not None else ""
    return began, duration(span) if span is not None else ""


def repetitions(state: NodeState) -> list[str]:
    """Return how often a node ran and was tried, where it is worth a word."""
    notes = [] if state.iterations is None else [counted(state.iterations, "iteration")]
    return [*notes, counted(state.attempts, "attempt")] if state.attempts > 1 else notes


def work_of(state: NodeState) -> list[str]:
    """Return a line on a node's work on the cluster: its worker, and the bytes in and out; empty without any."""
    work = state.remote
    return [] if work is None else [f"at {work.worker}, took {work.received:,} B, gave {work.given:,} B"]


def _bar(state: NodeState, end: float) -> str:
    """Return the time of a node within the time of the run: blanks before, a bar while it ran."""
    if state.started is None or end <= 0:
        return ""
    finished = end if state.finished is None else min(state.finished, end)
    first = min(int(state.started / end * BAR), BAR - 1)
    last = max(first + 1, round(finished / end * BAR))
    return (" " * first + "━" * (min(last, BAR) - first)).rstrip()
