"""The service `triggerManager`: the files of triggers, and which of them are on, on whose behalf."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import replace
from datetime import datetime

from pydantic import JsonValue

from tavern_agents.api.agents import AGENT_RUNTIME
from tavern_host import PluginContext, clock
from tavern_host.common.redaction import has_mask
from tavern_host.contracts.accounts import SettledWork, WorkFilter, is_to_settle, require_admitted
from tavern_host.contracts.calls import CallContext, new_id, system_call
from tavern_host.contracts.documents import read_model
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound
from tavern_host.contracts.events import AUDITED
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.settings import SETTINGS
from tavern_host.storage.databases import shared_database
from tavern_triggers import State, webhooks
from tavern_triggers.api.triggers import (
    EnabledTrigger,
    Firing,
    HostEvent,
    Schedule,
    Trigger,
    TriggerKind,
    TriggerManager,
    TriggerState,
    Webhook,
)
from tavern_triggers.files import check, config_of, one_of, path_of, write_trigger
from tavern_triggers.firing import Firings
from tavern_triggers.kinds import Kinds, TriggerFiles
from tavern_triggers.schedule import checked, coming
from tavern_triggers.store import TRIGGERS, KeptFiring, KeptTrigger, NewFiring, TriggerStore, micros, moment
from tavern_triggers.watching import DUE, Watcher
from tavern_workflows.api.workflows import WORKFLOW_MANAGER

MAX_HISTORY = 1000
"""How many firings are returned at once."""
_SHOWN = 3


class Triggers(TriggerManager):
    """The triggers of the project."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        folder = context.operator_dir / "triggers"
        shared = shared_database(context.services, "triggers", folder / TRIGGERS.file, TRIGGERS.migrations)
        self.store = TriggerStore(folder, context.log, shared)
        self.firings = Firings(context, self.store)
        self._files, self._kinds = TriggerFiles(context), Kinds(context)
        self.watcher = Watcher(context, self.store, self.firings, self._files, self._kinds)
        self._saving = asyncio.Lock()
        context.own(State).triggers = self

    async def close(self) -> None:
        """Leave what has not ended to the next host."""
        await self.store.close()

    # --- looking ----------------------------------------------------------------------------------

    async def kinds(self) -> list[TriggerKind]:
        """Return the kinds of triggers."""
        return [*(await self._kinds.now()).values()]

    async def list_triggers(self) -> list[TriggerState]:
        """Return all triggers, by id."""
        found, kept = await self._files.now(), await self.store.triggers()
        last, running = await self.store.latest()

        def states() -> list[TriggerState]:
            return [self._state(id, found[id], kept.get(id), last.get(id), running.get(id, 0)) for id in sorted(found)]

        return await asyncio.to_thread(states)

    async def get(self, trigger_id: str) -> TriggerState:
        """Return a trigger; see the interface."""
        found = one_of(await self._files.now(), trigger_id)
        last, running = await self.store.latest()
        kept = await self.store.get(trigger_id)
        return self._state(trigger_id, found, kept, last.get(trigger_id), running.get(trigger_id, 0))

    async def history(self, trigger_id: str | None = None, *, limit: int = 50) -> list[Firing]:
        """Return firings, the newest first."""
        if not 1 <= limit <= MAX_HISTORY:
            raise InvalidInput(f"the limit is from 1 to {MAX_HISTORY}, found {limit}")
        return await self.store.history(trigger_id, limit)

    async def times(self, schedule: Schedule, *, count: int = 3) -> list[datetime]:
        """Return the next times of a schedule."""
        now = clock.now()
        return coming(checked(schedule), now, now, min(max(count, 1), 100))

    def _state(
        self, id: str, found: Trigger | str, kept: KeptTrigger | None, last: KeptFiring | None, running: int
    ) -> TriggerState:
        about = {"id": id, "running": running, "last": None if last is None else last.shown}
        about["plugin"] = self._files.plugins.get(id, "")
        if isinstance(found, str):
            return TriggerState.model_validate({**about, "status": "broken", "reason": found})
        about["trigger"] = found
        if found.kind == "webhook":
            about["address"] = f"/api/hooks/{id}?projectId={self._context.project.id}"
        if kept is None:
            return TriggerState.model_validate({**about, "status": "off"})
        about |= {"by": str(kept.call.principal), "reason": kept.reason, "failures": kept.failures}
        if kept.is_on and found != kept.trigger:
            reason = f"the file is another than {about['by']} has enabled"
            return TriggerState.model_validate({**about, "status": "changed", "reason": reason})
        if kept.is_on and kept.due is not None:
            plan, due = Schedule.model_validate(kept.trigger.config), moment(kept.due)
            begun = moment(kept.begun)
            assert due is not None and begun is not None
            about["next"] = [due, *coming(plan, begun, due, _SHOWN - 1)]
        if kept.is_on:
            about["reason"] = about["reason"] or self.watcher.faults.get(id, "")
        return TriggerState.model_validate({**about, "status": "on" if kept.is_on else "off"})

    # --- changing ---------------------------------------------------------------------------------

    async def save(self, trigger_id: str, trigger: Trigger, *, call: CallContext | None = None) -> TriggerState:
        """Write a trigger's file; see the interface."""
        check(trigger, await self._kinds.now())
        if has_mask(document := trigger.to_json()):
            before = (await self._files.now()).get(trigger_id)
            stored = [before.to_json()] if isinstance(before, Trigger) else []
            restored = await self._context.services.get(SETTINGS).restored(document, stored)
            trigger = read_model(Trigger, restored, "the trigger")
        async with self._saving:
            await asyncio.to_thread(write_trigger, self._files.folder, trigger_id, trigger)
        self._record("trigger.saved", trigger_id, call, kind=trigger.kind)
        return await self.get(trigger_id)

    async def enable(
        self, trigger_id: str, *, secret: str = "", rotate: bool = False, call: CallContext | None = None
    ) -> EnabledTrigger:
        """Switch a trigger on; see the interface."""
        trigger = await self._usable(trigger_id)
        config = config_of(trigger) if ":" not in trigger.kind else None
        call = self._lasting(call or system_call(self._context.project.id), config)
        await require_admitted(self._context.services, call)
        before, now = await self.store.get(trigger_id), clock.now()
        is_new, kept_secret = False, ""
        if isinstance(config, Webhook):
            kept_secret = before.secret if before is not None else ""
            is_other = before is not None and before.trigger.config.get("auth") != trigger.config.get("auth")
            if secret or rotate or not kept_secret or is_other:
                is_new = not secret
                secret = webhooks.checked_secret(config.auth, secret) if secret else webhooks.new_secret(config.auth)
                kept_secret = await webhooks.sealed(self._context, secret)
        elif secret or rotate:
            raise InvalidInput(f"a trigger of kind {trigger.kind} has no secret; a webhook has one")
        due = None
        if isinstance(config, Schedule):
            following = coming(config, now, now, 1)
            if not following:
                raise InvalidInput("$.config.at: this time has passed")
            due = micros(following[0])
        await self.store.enable(KeptTrigger(trigger_id, trigger, call, begun=micros(now), due=due, secret=kept_secret))
        self._record("trigger.enabled", trigger_id, call, kind=trigger.kind)
        self.firings.tell(trigger_id)
        self.firings.has_changed.set()
        state = await self.get(trigger_id)
        return EnabledTrigger.model_validate({**dict(state), "secret": secret if is_new else ""})

    def _lasting(self, call: CallContext, config: object) -> CallContext:
        """Return the call with which a trigger fires from now on. Who lets events fire it that only those read who may
        read the audit log has to be one of them."""
        about = {"project": call.project, "admission": call.admission, "via": call.via}
        lasting = CallContext.model_validate({"principal": call.principal, **about})
        is_audited = isinstance(config, HostEvent) and any(
            one == config.type or (config.type.endswith("*") and one.startswith(config.type[:-1])) for one in AUDITED
        )
        if is_audited and lasting.admission is not None:
            asked = lasting.admission.model_copy(update={"access": "operate", "where": "/api/audit"})
            return lasting.model_copy(update={"admission": asked})
        return lasting

    async def disable(self, trigger_id: str, *, call: CallContext | None = None) -> TriggerState:
        """Switch a trigger off; see the interface."""
        one_of(await self._files.now(), trigger_id)
        if await self.store.switch_off(trigger_id, ""):
            self._record("trigger.disabled", trigger_id, call)
            self.firings.tell(trigger_id)
        return await self.get(trigger_id)

    async def delete(self, trigger_id: str, *, call: CallContext | None = None) -> None:
        """Delete a trigger; see the interface."""
        one_of(await self._files.now(), trigger_id)
        if (plugin := self._files.plugins.get(trigger_id)) is not None:
            hint = f"switch it off, or `tavern plugins disable {plugin}`"
            raise Conflict(f"the trigger {trigger_id!r} comes with the plugin {plugin} and cannot be deleted ({hint})")
        await asyncio.to_thread(functools.partial(path_of(self._files.folder, trigger_id).unlink, missing_ok=True))
        await self.store.delete(trigger_id)
        self._record("trigger.deleted", trigger_id, call)
        self.firings.tell(trigger_id)

    async def fire(
        self,
        trigger_id: str,
        payload: dict[str, JsonValue] | None = None,
        *,
        key: str | None = None,
        call: CallContext | None = None,
    ) -> Firing:
        """Fire a trigger now; see the interface."""
        trigger = await self._usable(trigger_id)
        call = call or system_call(self._context.project.id)
        self._record("trigger.fired", trigger_id, call)
        named = f"by {call.principal} {key}" if key else new_id("asked")
        return (await self.fired(KeptTrigger(trigger_id, trigger, call), named, payload or {})).shown

    async def fired(self, kept: KeptTrigger, key: str, payload: dict[str, JsonValue]) -> KeptFiring:
        """Return the firing of a trigger under a key once its run has begun, or it is clear that it waits or is
        skipped; of a key that fired before, the one of then."""
        [(firing, is_new)] = await self.store.fire(
            replace(kept, due=None), [NewFiring(key, payload, clock.microseconds())]
        )
        if is_new and not firing.status.is_final:
            self.firings.begin(firing)
            return await self.firings.begun(firing)
        return firing

    async def _usable(self, trigger_id: str) -> Trigger:
        """Return a trigger that can be used. Raises `NotFound`, also for what it starts, and `InvalidInput`."""
        found = one_of(await self._files.now(), trigger_id)
        if isinstance(found, str):
            raise InvalidInput(found)
        check(found, await self._kinds.now())
        await require_target(self._context, found)
        return found

    async def live(self, trigger_id: str) -> KeptTrigger:
        """Return a webhook that is on, as its file is. Raises `NotFound`."""
        kept = await self.store.get(trigger_id)
        found = (await self._files.now()).get(trigger_id)
        if kept is None or not kept.is_on or kept.trigger.kind != "webhook":
            raise NotFound("there is no webhook at this address")
        if found != kept.trigger:
            raise NotFound("there is no webhook at this address")
        return kept

    def _record(self, action: str, trigger_id: str, call: CallContext | None, **details: JsonValue) -> None:
        self._context.audit.record(action, subject=trigger_id, details=details, call=call)

    # --- whose work it is -------------------------------------------------------------------------

    async def end_work(self, which: WorkFilter) -> list[SettledWork]:
        """Switch off what somebody enabled who may not any more; skip what waits of who is stopped."""
        if which.kind == "tool":
            return []
        services, stopped, cancelled = self._context.services, 0, 0
        for kept in (await self.store.triggers()).values():
            if await is_to_settle(services, which, kept.call):
                if which.unless_admitted:
                    who = kept.call.admission.user if kept.call.admission is not None else kept.call.principal.id
                    reason = f"it was switched off: user:{who} may not start this any more, or not with that token"
                    stopped += await self.firings.switch_off(kept.id, reason) if kept.is_on else 0
                else:
                    cancelled += await self.store.skip_waiting(kept.id, "all work of this person was stopped")
        return [SettledWork(kind="triggers", stopped=stopped), SettledWork(kind="firings", cancelled=cancelled)]


async def require_target(context: PluginContext, trigger: Trigger) -> None:
    """Raise `NotFound` where the workflow or the agent that a trigger starts is not there, `InvalidInput` where the
    workflow would refuse every firing: for inputs that it has not, and those that what happens never gives."""
    if trigger.workflow is not None:
        slots = (await context.services.get(WORKFLOW_MANAGER).get(trigger.workflow)).workflow.interface_inputs
        for place, given in (("inputs", trigger.inputs), ("take", trigger.take)):
            for key in given:
                if key not in slots:
                    what = f"the workflow {trigger.workflow!r} has no input {key!r}{did_you_mean(key, slots)}"
                    raise InvalidInput(f"$.{place}.{key}: {what}")
        happened = {DUE} if trigger.kind == "schedule" else {*slots}
        if trigger.take:  # nothing else of what happened
            happened = set()
        for key, slot in slots.items():
            is_given = key in trigger.inputs or key in trigger.take or not happened.isdisjoint((key, slot.display_name))
            if slot.required and slot.default is None and not is_given:
                raise InvalidInput(f"$.inputs: the workflow {trigger.workflow!r} needs the input {key!r}")
    elif trigger.agent is not None:
        await context.services.get(AGENT_RUNTIME).get(trigger.agent)
