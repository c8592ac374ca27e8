"""The progress of a run for a person: the states of its nodes, from its events and from the run itself.

Pure: it takes events, and returns lines or frames. `follow.py` subscribes to the events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from tavern_engine.cli.run_text import counted, duration, shortened, span_of, tally, word_of
from tavern_host import CommandOutput, clock
from tavern_host.contracts.executions import Run, RunStatus

FEW = 15
"""Up to how many nodes each has a row on a terminal."""

LINES = 50
"""Up to how many nodes each has lines of its own where there is no terminal."""

_RUNNING_ROWS, _FAILED_ROWS, _FAILED_LINES, _DETAIL = 8, 5, 10, 200

_FACES = {
    "waiting": ("·", "quiet"),
    "running": ("▸", "active"),
    "done": ("✓", "good"),
    "cached": ("✓", "good"),
    "given": ("✓", "good"),
    "bypassed": ("↷", "quiet"),
    "skipped": ("–", "quiet"),
    "failed": ("✗", "bad"),
    "interrupted": ("■", "bad"),
}
_DONE = frozenset({"done", "cached", "given", "bypassed", "skipped", "failed", "interrupted"})


@dataclass(slots=True)
class _Node:
    word: str = "waiting"
    began: float | None = None
    took: float | None = None
    detail: str = ""
    times: int = 0


class ProgressView:
    """The nodes of one run. `label` says what a node is called."""

    def __init__(self, run: Run, label: Callable[[str], str]) -> None:
        self._label = label
        self._name = run.workflow_name or run.workflow_id or "the workflow"
        self._began = clock.monotonic()
        self._status = run.status
        self._nodes: dict[str, _Node] = {}
        self._done = 0
        self._failed_lines = 0
        self.sync(run)

    @property
    def is_small(self) -> bool:
        """Whether each node may have lines of its own."""
        return len(self._nodes) <= LINES

    # --- what happens ---------------------------------------------------------------------------------

    def sync(self, run: Run) -> None:
        """Take over how the run stands, as after events that were lost."""
        self._status = run.status
        for node_id, state in run.nodes.items():
            node = self._nodes.setdefault(node_id, _Node())
            self._turn(node, word_of(state))
            node.took = span_of(state) if node.word in _DONE else None
            node.times = state.iterations or node.times
            if node.word == "running" and node.began is None:
                node.began = clock.monotonic()
            if state.error is not None:
                node.detail = state.error.message

    def see(self, type: str, payload: dict[str, JsonValue]) -> list[str]:
        """Take in an event of the run; return the lines that it is worth where there is no terminal."""
        if type == "EXECUTION_STATUS_UPDATE":
            self._status = RunStatus(str(payload.get("status")))
            return []
        if type == "NODE_CACHED":
            ids = payload.get("nodeIds")
            known = [i for i in ids if isinstance(i, str) and i in self._nodes] if isinstance(ids, list) else []
            lines = [self._ends(node_id, self._nodes[node_id], "cached") for node_id in known]
        else:
            lines = [self._see_node(type, payload)]
        return [line for line in lines if line is not None]

    def _see_node(self, type: str, payload: dict[str, JsonValue]) -> str | None:
        node_id = str(payload.get("nodeId", payload.get("sourceNodeId")))
        node = self._nodes.get(node_id)
        if node is None:
            return None
        if type == "NODE_EXECUTING":
            return self._begins(node_id, node)
        if type == "NODE_COMPLETE":
            word = next((word for word in ("given", "cached") if payload.get(word) is True), "done")
            return self._ends(node_id, node, word)
        if type == "NODE_BYPASSED":
            return self._ends(node_id, node, "bypassed")
        if type == "NODE_ERROR":
            details = payload.get("errorDetails")
            message = details.get("message") if isinstance(details, dict) else details
            return self._ends(node_id, node, "failed", str(message))
        if type == "NODE_PROGRESS":
            of, message = payload.get("max"), payload.get("message")
            node.detail = _number(payload.get("value")) + (f"/{_number(of)}" if of is not None else "")
            node.detail += f" {message}" if isinstance(message, str) else ""
        elif type == "NODE_YIELD":
            node.detail = (node.detail + text_chunk(payload))[-_DETAIL:]
        return None

    def _begins(self, node_id: str, node: _Node) -> str | None:
        self._turn(node, "running")
        node.began, node.took, node.detail = clock.monotonic(), None, ""
        node.times += 1
        return f"{self._label(node_id)} …" if self.is_small and node.times == 1 else None

    def _ends(self, node_id: str, node: _Node, word: str, detail: str = "") -> str | None:
        self._turn(node, word)
        node.took = clock.monotonic() - node.began if node.began is not None else None
        node.detail = detail
        if word == "failed":
            self._failed_lines += 1
            is_told = self.is_small or self._failed_lines <= _FAILED_LINES
            return f"{self._label(node_id)} failed: {detail}" if is_told else None
        return f"{self._label(node_id)} {word}" if self.is_small and node.times <= 1 else None

    def _turn(self, node: _Node, word: str) -> None:
        self._done += (word in _DONE) - (node.word in _DONE)
        node.word = word

    # --- what is shown --------------------------------------------------------------------------------

    def summary_line(self) -> str:
        """Return how far the run is, in one line."""
        running = sum(node.word == "running" for node in self._nodes.values())
        return f"{self._done:,} of {counted(len(self._nodes), 'node')} done, {running:,} running"

    def picture(self) -> CommandOutput:
        """Return how the run stands, for a terminal."""
        now = clock.monotonic()
        spent = duration(now - self._began)
        title = f"{self._name}: waiting for its turn" if self._status is RunStatus.QUEUED else f"{self._name} · {spent}"
        if len(self._nodes) <= FEW:
            shown = list(self._nodes.items())
            return self._output(title, shown, now)
        running = [(i, n) for i, n in self._nodes.items() if n.word == "running"]
        running.sort(key=lambda item: item[1].began or 0)
        return self._output(title, self._failed() + running[:_RUNNING_ROWS], now, len(running) - _RUNNING_ROWS)

    def last_picture(self, run: Run) -> CommandOutput:
        """Return how the run ended, for a terminal: all nodes of a small one, else those that failed."""
        self.sync(run)
        title = f"{self._name}: {run.status} after {duration(clock.monotonic() - self._began)} · {self.tally(run)}"
        shown = list(self._nodes.items()) if len(self._nodes) <= FEW else self._failed()
        return self._output(title, shown, clock.monotonic()).model_copy(update={"done": 0, "total": 0})

    def tally(self, run: Run) -> str:
        """Return how many nodes came to which end."""
        return tally(run.nodes.values())

    def _failed(self) -> list[tuple[str, _Node]]:
        return [item for item in self._nodes.items() if item[1].word == "failed"][-_FAILED_ROWS:]

    def _output(self, title: str, shown: list[tuple[str, _Node]], now: float, more: int = 0) -> CommandOutput:
        rows, tones = [], []
        for node_id, node in shown:
            mark, tone = _FACES[node.word]
            rows.append([mark, shortened(self._label(node_id), 60), self._time(node, now), _note(node)])
            tones.append(tone)
        if more > 0:
            rows.append(["", f"and {more:,} more", "", ""])
            tones.append("quiet")
        data: dict[str, Any] = {"title": title, "rows": rows, "tones": tones}
        return CommandOutput(kind="live", done=self._done, total=len(self._nodes), **data)

    def _time(self, node: _Node, now: float) -> str:
        if node.word == "running" and node.began is not None:
            return duration(now - node.began)
        return duration(node.took) if node.took is not None and node.word in ("done", "failed", "interrupted") else ""


def _note(node: _Node) -> str:
    times = f"{node.times}×" if node.times > 1 else ""
    word = node.word if node.word in ("cached", "given", "bypassed", "skipped", "interrupted") else ""
    detail = " ".join(node.detail.split())
    if node.word == "running" and len(detail) > 60:
        detail = f"…{detail[-60:]}"  # of a text that comes, its end
    return "  ".join(part for part in (times, word, detail) if part)


def _number(value: JsonValue) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def text_chunk(payload: dict[str, JsonValue]) -> str:
    """Return the text that a `NODE_YIELD` or `WORKFLOW_INTERFACE_YIELD` brings; nothing where that is no text."""
    content = payload.get("yieldedContent")
    if not isinstance(content, dict) or content.get("type") != "text_chunk":
        return ""
    text = content.get("content")
    return text if isinstance(text, str) else ""
