"""Stores how one run of an agent stands. What could not be stored goes with the next write, and an end is tried again
until it is stored: else the run would hold its conversation for ever."""

from __future__ import annotations

from typing import Any

from tavern_agents.api.agents import AgentRun, AgentStatus
from tavern_agents.replay.recorder import Recorder
from tavern_agents.rows import Kept
from tavern_agents.store import AgentStore, Progress
from tavern_agents.tracing import Tracer
from tavern_host import clock
from tavern_host.context import PluginContext
from tavern_host.contracts.errors import TavernError
from tavern_host.storage.retried_writes import until_written
from tavern_tools.api.toolcalls import ToolResult

NOT_BEGUN = "It did not begin, since the store failed, or its caller left, while it was stored"


class RunWriter:
    """Stores one run: with each write the steps of `trace` and the deliberations of `recorder` since the last one."""

    def __init__(
        self, context: PluginContext, store: AgentStore, trace: Tracer | None = None, recorder: Recorder | None = None
    ) -> None:
        self._context = context
        self._store = store
        self._trace = trace
        self._recorder = recorder or Recorder()
        self.unstored: dict[tuple[int, int], ToolResult] = {}
        """Results of calls, by message and place, that go with the next write."""

    async def write(self, run: AgentRun, added: dict[str, Any]) -> tuple[list[Kept], bool]:
        """Store how a run stands, with what is `added`; return the messages as they are kept, and whether it continues
        since something was said to it. Raises `TavernError`; for an end only where something cannot be kept at all."""
        recorded = self._recorder.unwritten()
        steps = [] if self._trace is None else self._trace.unwritten()
        results = {**self.unstored, **added.get("results", {})}
        progress = Progress(run=run, steps=steps, recorded=recorded, **{**added, "results": results})
        try:
            if run.status.is_final:
                kept = await until_written(lambda: self._store.write(progress), self._tell, self._context.is_stopping)
            else:
                kept = await self._store.write(progress)
        except TavernError:
            if self._trace is not None:
                self._trace.put_back(steps)
            self._recorder.put_back(*recorded)
            raise
        self.unstored = {place: one for place, one in self.unstored.items() if place not in results}
        return kept, progress.has_mail

    async def give_up(self, run: AgentRun, reason: str, status: AgentStatus = AgentStatus.ERROR) -> None:
        """Store, however often it takes, that nobody works on a run any more."""
        await self.write(run.model_copy(update={"status": status, "reason": reason, "finished_at": clock.now()}), {})

    def _tell(self, error: TavernError) -> None:
        self._context.log.error("the end of a run could not be written, and is tried again: %s", error.message)
