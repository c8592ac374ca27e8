"""The steps of an agent's work: published as `AGENT_TRACE` while they happen, and handed to the store.

Nodes of a deliberation find the tracer of the agent that they work for by their call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from tavern_agents import State
from tavern_agents.api.agents import AgentTrace, TraceKind
from tavern_host import clock
from tavern_host.context import NodeContext, PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_tools.api.observations import cut_middle
from tavern_tools.api.toolcalls import ToolRule

EVENT = "AGENT_TRACE"

MAX_TEXT = 2_000
"""The longest text, in characters, in a trace; every open page receives it."""


_MOST_RUNS = 256
"""Of how many runs by hand the steps are counted, those that did something last."""


class Tracer:
    """The steps of one run of one agent; `step` is the deliberation it is at, `seq` the last number given,
    `allowed` are the patterns of the tools that the agent may call, `path` the agents that called each other, down to
    this one."""

    def __init__(
        self,
        context: PluginContext,
        agent_run_id: str,
        profile_id: str,
        conversation_id: str,
        seq: int = 0,
        allowed: Sequence[str] = (),
        began: datetime | None = None,
        above: Sequence[str] = (),
        is_of_run: bool = False,
    ) -> None:
        self._context = context
        self.is_of_run = is_of_run
        """Whether this is a workflow's run that no agent deliberates by: what its nodes do is published, not kept."""
        self._about = {"agent_run_id": agent_run_id, "profile_id": profile_id, "conversation_id": conversation_id}
        self.agent_run_id = agent_run_id
        self.profile_id = profile_id
        self.conversation_id = conversation_id
        self.consent: list[ToolRule] = []
        """Names the calls that wait for a person."""
        self.path = [*above, profile_id]
        self.allowed = list(allowed)
        self.shown: list[str] | None = None
        """Those of the tools that the model is shown; None as long as that is all."""
        since = 0.0 if began is None else (clock.now() - began).total_seconds()
        self._began = clock.monotonic() - since
        self._unwritten: list[AgentTrace] = []
        self._seq = seq
        self.step = 0
        self._iteration: int | None = None
        self._has_asked = False
        self.nodes_speak = True
        """Whether the nodes of a deliberation say what the agent says while it comes; else its interface does."""

    def begin_step(self) -> None:
        """Begin a deliberation, or the next iteration of a loop in one."""
        self.step += 1
        self._iteration, self._has_asked = 0, False
        self.say("thinking", f"Step {self.step}: thinking")

    def reach(self, iteration: int | None) -> None:
        """Note that a node of an agent runs, in an iteration of a loop, from 0, or in none: each is a step."""
        if self.step == 0 or (iteration is not None and iteration != self._iteration):
            self.begin_step()
            self._iteration = iteration or 0

    def ask(self, iteration: int | None) -> None:
        """Note that a model is asked: once in each step."""
        self.reach(iteration)
        if self._has_asked:
            self.begin_step()
            self._iteration = iteration or 0
        self._has_asked = True

    def say(self, kind: TraceKind, text: str, **data: JsonValue) -> None:
        """Publish one step, to be kept with the run; long texts are cut."""
        self._seq += 1
        text, data = _cut(text), _cut(data)
        at = round(clock.monotonic() - self._began, 3)
        trace = AgentTrace.construct(
            **self._about, step=self.step, seq=self._seq, at=at, kind=kind, text=text, data=data
        )
        if not self.is_of_run:
            self._unwritten.append(trace)
        self._context.events.publish_all([(EVENT, trace.to_json())])

    def fragment(self, text: str, **data: JsonValue) -> None:
        """Publish a piece of what the agent says while it comes; it is not kept."""
        trace = AgentTrace.construct(**self._about, step=self.step, kind="fragment", text=text, data=data)
        self._context.events.publish_all([(EVENT, trace.to_json())])

    def unwritten(self) -> list[AgentTrace]:
        """Return the steps that were not yet returned, to be kept."""
        steps, self._unwritten = self._unwritten, []
        return steps

    def put_back(self, steps: Sequence[AgentTrace]) -> None:
        """Take back steps that could not be kept."""
        self._unwritten = [*steps, *self._unwritten]

    @contextmanager
    def following(self, call: CallContext) -> Iterator[None]:
        """Let what works for this call, or for one made by it, find this tracer meanwhile."""
        tracers = self._context.own(State).tracers
        tracers[call.id] = self
        try:
            yield
        finally:
            del tracers[call.id]


def tracer_of(context: PluginContext, call: CallContext) -> Tracer | None:
    """Return the tracer of the agent whose deliberation the call belongs to."""
    tracers = context.own(State).tracers
    return tracers.get(call.id) or tracers.get(call.parent_id or "")


def tracer_for(node: NodeContext) -> Tracer:
    """Return the tracer of the agent whose deliberation a node belongs to, or else that of the node's run; the node has
    reached its step."""
    found = tracer_of(node.plugin, node.call) or _of_run(node.plugin, node.run_id)
    found.reach(node.iteration)
    return found


def asks_model(context: PluginContext, call: CallContext, iteration: int | None) -> None:
    """Note that a node of a run asks a model."""
    found = tracer_of(context, call)
    if found is None and call.run_id is not None:
        found = _of_run(context, call.run_id)
    if found is not None:
        found.ask(iteration)


def _of_run(context: PluginContext, run_id: str) -> Tracer:
    runs = context.own(State).runs
    if (found := runs.pop(run_id, None)) is None:
        found = Tracer(context, run_id, "", "", is_of_run=True)
    runs[run_id] = found
    if len(runs) > _MOST_RUNS:
        del runs[next(iter(runs))]
    return found


def agent_of(context: PluginContext, call: CallContext) -> Tracer | None:
    """Return the tracer of the agent at work that makes a call, itself or however deep in its work; None where none
    does."""
    if call.principal.kind != "agent":
        return None
    about = call.agent_run_id, call.principal.id
    return next((t for t in context.own(State).tracers.values() if (t.agent_run_id, t.profile_id) == about), None)


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else cut_middle(value, MAX_TEXT)
    if isinstance(value, list):
        return [_cut(item) for item in value]
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    return value
