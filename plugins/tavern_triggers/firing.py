"""Carries out firings: starts the run of a workflow or an agent, once for each, waits for its end, and keeps that.

A firing is kept before it begins, and its run has an idempotency key: whichever line the host ends at, the next one
finds the run that was begun, or begins it.
"""

from __future__ import annotations

import asyncio
import json

from pydantic import JsonValue

from tavern_agents.api.agents import AGENT_RUNTIME, AgentRequest
from tavern_engine.api.executions import EXECUTION_ENGINE
from tavern_host import PluginContext, clock
from tavern_host.contracts.accounts import is_admitted
from tavern_host.contracts.errors import NotFound, TavernError
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_triggers.api.triggers import Firing, FiringStatus, Trigger
from tavern_triggers.files import inputs_of
from tavern_triggers.store import AT_ONCE, KeptFiring, TriggerStore
from tavern_workflows.api.workflows import WORKFLOW_MANAGER

EVENT = "TRIGGER_UPDATE"
"""Published when a firing begins and ends, and when a trigger is switched on or off."""

_PATIENCE = 600.0
"""Seconds for which a firing is tried again that the host has no room for."""
_AGAIN = 5.0
"""Seconds until then, where the error says nothing."""
_LOOK = 0.3
"""Seconds between two looks at a firing that waits."""
_SHOWN = 20_000
"""Characters of a payload that an agent reads."""


class Firings:
    """The firings that this host carries out."""

    def __init__(self, context: PluginContext, store: TriggerStore) -> None:
        self._context = context
        self._store = store
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._begun: dict[str, asyncio.Event] = {}
        self._blocked: set[str] = set()
        self.has_changed = asyncio.Event()
        """Set where there may be something to carry out."""

    async def look(self) -> None:
        """Carry out what waits, in its order; take up what hosts that are gone have left."""
        if self._context.is_draining():
            return
        blocked, now = set[str](), clock.microseconds()
        found = await self._store.take_up(self._tasks)
        if len(found) == AT_ONCE:
            self.has_changed.set()  # there may be more
        for firing in found:
            is_running = firing.status is FiringStatus.RUNNING
            if is_running or (firing.again <= now and firing.source not in blocked | self._blocked):
                self.begin(firing)
                blocked |= {firing.source} if firing.trigger and firing.trigger.overlap == "queue" else set()
        self._blocked.clear()

    def begin(self, firing: KeptFiring) -> asyncio.Task[None]:
        """Return the task that carries out a firing of this host."""
        if firing.id not in self._tasks:
            task = self._context.tasks.spawn(self._carry_out(firing), name=f"firing of {firing.source}", finish=True)
            self._tasks[firing.id] = task
            task.add_done_callback(lambda _: self._done(firing.id))
        return self._tasks[firing.id]

    def _done(self, firing_id: str) -> None:
        self._tasks.pop(firing_id, None)
        self._begun.pop(firing_id, None)
        self.has_changed.set()

    async def _carry_out(self, firing: KeptFiring) -> None:
        """Begin a firing, or leave it waiting; what keeps it from being kept is looked at again."""
        try:
            begun = await self._store.begin(firing)
            if begun is None or begun.trigger is None or begun.status is not FiringStatus.RUNNING:
                if begun is not None and begun.status is FiringStatus.WAITING:
                    self._blocked.add(firing.source)  # until another has ended, or is looked at a second later
                elif begun is not None:
                    self.tell(firing.source, begun)
                return
            if not await is_admitted(self._context.services, firing.call):
                await self.end_rights(firing)
                return
            try:
                run_id = await self._start(begun, begun.trigger)
            except TavernError as error:
                await self._failed(begun, error)
                return
            await self._store.started(begun, run_id)
            if (event := self._begun.get(firing.id)) is not None:
                event.set()
            self.tell(firing.source, begun)
            reason = await self._ended(begun.trigger, run_id)
            if reason is None and self._context.is_stopping():
                return  # the next host has the run, and the firing with it
            await self._end(begun, FiringStatus.ERROR if reason else FiringStatus.COMPLETE, reason or "")
        except TavernError as error:
            self._context.log.error("the firing %s of %s waits: %s", firing.id, firing.source, error.message)

    async def _start(self, firing: KeptFiring, trigger: Trigger) -> str:
        """Start what a trigger starts, or find what was started for this firing; return the id of the run."""
        call = firing.call.model_copy(update={"idempotency_key": firing.id})
        services, payload = self._context.services, firing.payload or {}
        if trigger.agent is not None:
            happened = (
                f"\n\n```json\n{json.dumps(payload, ensure_ascii=False, indent=1)[:_SHOWN]}\n```" if payload else ""
            )
            request = AgentRequest(profile_id=trigger.agent, message=trigger.message + happened)
            return (await services.get(AGENT_RUNTIME).start(request, call=call)).id
        assert trigger.workflow is not None
        workflow = (await services.get(WORKFLOW_MANAGER).get(trigger.workflow)).workflow
        inputs = inputs_of(trigger, payload, workflow.interface_inputs)
        about: dict[str, JsonValue] = {"id": firing.source, "firing": firing.id, "depth": firing.depth}
        run = RunRequest(workflow_id=trigger.workflow, inputs=inputs, metadata={"trigger": about})
        return await services.get(EXECUTION_ENGINE).submit(run, call=call)

    async def _ended(self, trigger: Trigger, run_id: str) -> str | None:
        """Return why a run failed when it has ended; None where it did not."""
        if trigger.agent is not None:
            reply = await self._context.services.get(AGENT_RUNTIME).wait(run_id)
            return None if reply.outcome == "reply" else f"{reply.outcome}: {reply.error or 'it ended without a reply'}"
        try:
            run = await self._context.services.get(EXECUTION_ENGINE).wait(run_id)
        except NotFound:
            return "its run was deleted before its end was seen"
        if run.status is RunStatus.COMPLETE:
            return None
        return run.error.message if run.error is not None else run.status.value

    async def _failed(self, firing: KeptFiring, error: TavernError) -> None:
        """Let a firing that could not begin wait, where the host has no room; end it for any other reason."""
        waited = (clock.microseconds() - firing.due) / 1e6
        if error.info.retryable and waited < _PATIENCE:
            pause = error.info.details.get("retry_after")
            seconds = float(pause) if isinstance(pause, int | float) else _AGAIN
            await self._store.put_back(firing, clock.microseconds() + int(seconds * 1e6))
        else:
            await self._end(firing, FiringStatus.ERROR, error.message)

    async def end_rights(self, firing: KeptFiring) -> None:
        """End a firing, and switch its trigger off, where who it is made for may not any more."""
        admission = firing.call.admission
        reason = f"user:{admission.user if admission else ''} may not start this any more, or not with that token"
        await self._end(firing, FiringStatus.SKIPPED, reason)
        kept = await self._store.get(firing.source)
        if kept is not None and kept.is_on and kept.call.admission == admission:
            await self.switch_off(firing.source, f"it was switched off: {reason}")

    async def _end(self, firing: KeptFiring, status: FiringStatus, reason: str) -> None:
        failures = await self._store.end(firing, status, reason)
        most = firing.trigger.max_failures if firing.trigger is not None else 0
        self.tell(firing.source, firing, status=status.value, reason=reason)
        if status is FiringStatus.ERROR and 0 < most <= failures:
            why = f"it was switched off after {failures} failures in a row, the last: {reason}"
            await self.switch_off(firing.source, why[:1000])

    async def switch_off(self, trigger_id: str, reason: str) -> bool:
        """Switch a trigger off by the host's own decision; False where it was off."""
        if not await self._store.switch_off(trigger_id, reason):
            return False
        self._context.log.warning("the trigger %s: %s", trigger_id, reason)
        self._context.audit.record("trigger.stopped", subject=trigger_id, details={"reason": reason})
        self.tell(trigger_id)
        return True

    def tell(self, trigger_id: str, firing: KeptFiring | None = None, **about: JsonValue) -> None:
        """Publish that a trigger, or a firing, has changed."""
        said = {} if firing is None else {"firingId": firing.id, "status": firing.status.value}
        self._context.events.publish(EVENT, {"triggerId": trigger_id, **said, **about})

    async def begun(self, firing: KeptFiring) -> KeptFiring:
        """Return a firing once its run has begun, or it is clear that it waits, is skipped or has failed."""
        task, begun = self.begin(firing), self._begun.setdefault(firing.id, asyncio.Event())
        waiting = asyncio.ensure_future(begun.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return await self._store.firing(firing.id) or firing

    async def settled(self, firing: KeptFiring, seconds: float) -> KeptFiring:
        """Return a firing when it has ended, or as it stands after so many seconds."""
        if (task := self._tasks.get(firing.id)) is not None:
            await asyncio.wait([task], timeout=seconds)
        return await self._store.firing(firing.id) or firing

    async def outcome(self, firing_id: str) -> Firing:
        """Return a firing of this host when it has ended, also after it has waited. Raises `NotFound`."""
        while True:
            firing = await self._store.firing(firing_id)
            if firing is None:
                raise NotFound(f"there is no firing {firing_id!r} any more")
            if firing.status.is_final:
                return firing.shown
            await asyncio.wait([self.begin(firing)])
            await asyncio.sleep(_LOOK)  # where it waits for others

    async def outputs(self, run_id: str, trigger: Trigger) -> dict[str, JsonValue]:
        """Return the result of a run that has ended: the outputs of a workflow, the `text` of an agent."""
        if trigger.agent is not None:
            return {"text": (await self._context.services.get(AGENT_RUNTIME).wait(run_id)).text}
        return (await self._context.services.get(EXECUTION_ENGINE).get(run_id)).outputs
