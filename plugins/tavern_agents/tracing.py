"""Publishes the steps of one agent's work as `AGENT_TRACE` events; keeps no memory of them."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from tavern_host.context import Events
from tavern_host.contracts.agents import AgentTrace, TraceKind
from tavern_host.contracts.observations import cut_middle

EVENT = "AGENT_TRACE"

MAX_TEXT = 2_000
"""The longest text, in characters, in a trace; every open page receives it."""


class Tracer:
    """The voice of one run of one agent; `step` is the deliberation it is at."""

    def __init__(self, events: Events, agent_run_id: str, profile_id: str) -> None:
        self._events = events
        self._agent_run_id = agent_run_id
        self._profile_id = profile_id
        self.step = 0

    def say(self, kind: TraceKind, text: str, **data: JsonValue) -> None:
        """Publish one step; long texts are cut."""
        trace = AgentTrace(
            agent_run_id=self._agent_run_id,
            profile_id=self._profile_id,
            step=self.step,
            kind=kind,
            text=cut_middle(text, MAX_TEXT),
            data={key: _cut(value) for key, value in data.items()},
        )
        self._events.publish(EVENT, trace.to_json())


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return cut_middle(value, MAX_TEXT)
    if isinstance(value, list):
        return [_cut(item) for item in value]
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    return value
