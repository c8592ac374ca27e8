"""Looks for what fires triggers, in a host that serves: times, events, ended runs, changed files, plugins' kinds."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, cast

from pydantic import JsonValue

from tavern_engine.api.executions import EXECUTION_ENGINE, RunFilter
from tavern_host import PluginContext, clock
from tavern_host.contracts.errors import NotFound, TavernError, describe
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.executions import Run, RunStatus
from tavern_host.storage.file_watch import WatchedFiles, file_stamps
from tavern_triggers import schedule
from tavern_triggers.api.kinds import TriggerSignals
from tavern_triggers.api.triggers import (
    ChangedFile,
    FinishedRun,
    FiringStatus,
    HostEvent,
    Schedule,
)
from tavern_triggers.files import config_of, matches
from tavern_triggers.firing import Firings
from tavern_triggers.kinds import Kinds, TriggerFiles
from tavern_triggers.store import KeptTrigger, NewFiring, TriggerStore, micros, moment

LATE = timedelta(seconds=60)
"""A time that is further past than this was missed: no host served the project then."""

DUE = "dueAt"
"""All that a schedule's payload has: when it was to fire."""

_EVERY = 1.0
"""Seconds between two looks, at most."""
_ENDED = "EXECUTION_STATUS_UPDATE"
_CARRIER = "tavern-postgres"
"""The plugin that publishes events of other hosts here; there they fire what they fire."""
_MOST_FILES = 10_000
_CATCH_UP = timedelta(days=1)
"""How far it is looked back for runs that ended while no host served the project."""
_POLL_SECONDS = 60.0


def due_firings(kept: KeptTrigger, now: datetime) -> tuple[list[NewFiring], int | None]:
    """Return the firings of a trigger whose time has come, and when the next one is due."""
    plan, missed = cast(Schedule, config_of(kept.trigger)), kept.trigger.missed
    begun, first = _at(kept.begun), _at(kept.due or 0)
    dues = schedule.due_times(plan, begun, first, now)
    made = {"skip": [due for due in dues if now - due <= LATE], "once": dues[-1:], "all": dues[-schedule.MOST :]}[
        missed
    ]
    firings = [NewFiring(f"due {due.isoformat()}", {DUE: due.isoformat()}, micros(due)) for due in made]
    if left := [due for due in dues if due not in made]:
        count = f"{len(left)}" if len(dues) <= schedule.MOST else f"more than {schedule.MOST - 1}"
        until = f" to {left[-1]:%Y-%m-%d %H:%M}" if len(left) > 1 else ""
        reason = f"no host served the project: {count} due from {left[0]:%Y-%m-%d %H:%M}{until} UTC, missed: {missed}"
        about = NewFiring(
            f"missed {left[-1].isoformat()}", {}, micros(left[-1]), status=FiringStatus.MISSED, reason=reason
        )
        firings.insert(0, about)
    following = schedule.coming(plan, begun, now, 1)
    return firings, micros(following[0]) if following else None


@dataclass(frozen=True)
class _Seen:
    """The files that a trigger is about, with their stamps, as they are since a moment; quiet where it has fired for
    all of them."""

    files: dict[str, list[int]]
    since: float
    revision: int
    is_quiet: bool


class Watcher:
    """What one host looks at."""

    def __init__(
        self, context: PluginContext, store: TriggerStore, firings: Firings, files: TriggerFiles, kinds: Kinds
    ) -> None:
        self._context, self._store, self._firings = context, store, firings
        self._files, self._kinds = files, kinds
        self._revision: tuple[int, int] | None = None
        self._on: dict[str, KeptTrigger] = {}
        self._live: dict[str, KeptTrigger] = {}
        self._hearing: asyncio.Task[None] | None = None
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._polled: dict[str, float] = {}
        self.faults: dict[str, str] = {}
        """Why triggers that are on could not look the last time, by id."""
        self._changes = WatchedFiles("")
        self._seen: dict[str, _Seen] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        told = ""
        while not self._context.is_stopping():
            self._firings.has_changed.clear()
            try:
                await self.look()
                told = ""
            except TavernError as error:
                if error.message != told:
                    self._context.log.error("triggers cannot be looked after: %s", error.message)
                told = error.message
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._firings.has_changed.wait(), self._pause())

    def _pause(self) -> float:
        """Return the seconds until something is due, at most those between two looks."""
        dues = [kept.due for kept in self._on.values() if kept.due is not None]
        now = clock.microseconds()
        return min([_EVERY, *(max(0.001, (due - now) / 1e6) for due in dues if due > now)])

    async def look(self) -> None:
        """Fire what is due, look for what has happened, and carry out what waits."""
        if (revision := await self._store.revision()) != self._revision:
            kept = await self._store.triggers()
            self._on = {id: one for id, one in kept.items() if one.is_on}
            self._seen = {id: seen for id, seen in self._seen.items() if id in self._on}
            self._revision = revision
            await self._hear()
        if self._on and not self._context.is_draining():
            await self._kinds.now()
            found = await self._files.now()
            self._live = {id: kept for id, kept in self._on.items() if kept.trigger == found.get(id)}
            await self._fire_due()
            self._poll()
        await self._firings.look()

    async def _fire_due(self) -> None:
        async def fire(kept: KeptTrigger) -> None:
            firings, due = await asyncio.to_thread(due_firings, kept, clock.now())
            await self._store.fire(kept, firings, due=due)

        seen = set[tuple[str, int | None]]()
        while due := [one for one in await self._store.due(clock.microseconds()) if one.id in self._live]:
            if seen.issuperset((one.id, one.due) for one in due):
                break  # another host has them, or they cannot be kept
            seen |= {(one.id, one.due) for one in due}
            await asyncio.gather(*map(fire, due))
            await self._firings.look()
        self._on |= {id: kept for id, kept in (await self._store.triggers()).items() if kept.is_on} if seen else {}

    # --- events and ended runs --------------------------------------------------------------------

    async def _hear(self) -> None:
        """Subscribe to what the triggers that are on wait for, and to nothing else."""
        if self._hearing is not None:
            self._hearing.cancel()
            self._hearing = None
        configs = [config_of(kept.trigger) for kept in self._on.values() if kept.trigger.kind in ("event", "run")]
        types = {one.type if isinstance(one, HostEvent) else _ENDED for one in configs}
        if types:
            self._hearing = self._context.tasks.spawn(self._heard(types), name="hear events that fire triggers")

    async def _heard(self, types: set[str]) -> None:
        subscription = self._context.events.subscribe(*types)
        for kept in self._on.values():
            await self._catch_up(kept)
        async for event in subscription:
            try:
                await self._event(event)
            except TavernError as error:
                self._context.log.error("an event may not have fired its trigger: %s", error.message)

    async def _event(self, event: Event | Gap) -> None:
        if isinstance(event, Gap):
            self._context.log.warning("%d events came too fast to fire triggers", event.last - event.first + 1)
            for kept in self._live.values():
                await self._catch_up(kept)
            return
        run = None
        run_id, status = event.payload.get("promptId"), event.payload.get("status")
        is_end = event.type == _ENDED and status in ("complete", "error", "interrupted")
        for kept in [*self._live.values()]:
            config = config_of(kept.trigger) if kept.trigger.kind in ("event", "run") else None
            if isinstance(config, FinishedRun) and is_end:
                run = run or await self._run(run_id)
                if run is not None and _is_meant(config, run):
                    await self._fire(kept, ended_firing(run))
            elif isinstance(config, HostEvent) and self._is_heard(config, event):
                run = run or await self._run(run_id)
                payload: dict[str, JsonValue] = {"type": event.type, "payload": event.payload}
                key, at = f"{self._store.host} {event.seq}", micros(event.time)
                await self._fire(kept, NewFiring(key, payload, at, follows=True, depth=_depth(run)))

    def _is_heard(self, config: HostEvent, event: Event) -> bool:
        is_here = event.plugin not in (_CARRIER, self._context.plugin)
        return is_here and fnmatchcase(event.type, config.type) and matches(config.where, event.payload)

    async def _catch_up(self, kept: KeptTrigger) -> None:
        """Fire a trigger for runs that ended while no host heard of it; those that fired it do not again."""
        if kept.trigger.kind != "run" or kept.trigger.missed == "skip":
            return
        config, since = cast(FinishedRun, config_of(kept.trigger)), max(_at(kept.begun), clock.now() - _CATCH_UP)
        statuses = [RunStatus(status) for status in config.statuses]
        asked = RunFilter(statuses=statuses, workflow_id=config.workflow, limit=schedule.MOST)
        ended = await self._context.services.get(EXECUTION_ENGINE).history(asked)
        ids = [one.id for one in ended if one.finished_at is not None and one.finished_at > since]
        for run_id in reversed(ids[:1] if kept.trigger.missed == "once" else ids):
            if (run := await self._run(run_id)) is not None and _is_meant(config, run):
                await self._fire(kept, ended_firing(run))

    async def _run(self, run_id: JsonValue) -> Run | None:
        with contextlib.suppress(NotFound):
            return await self._context.services.get(EXECUTION_ENGINE).get(str(run_id)) if run_id else None
        return None

    async def _fire(self, kept: KeptTrigger, firing: NewFiring, cursor: str | None = None) -> None:
        await self._store.fire(kept, [firing], cursor=cursor)
        self._firings.has_changed.set()

    # --- files and plugins' kinds -----------------------------------------------------------------

    def _poll(self) -> None:
        """Look at what has to be looked at, each in a task of its own: one that hangs delays no other."""
        now = clock.monotonic()
        for kept in self._live.values():
            kind = self._kinds.known.get(kept.trigger.kind)
            look: Callable[[KeptTrigger], Any] = (
                self._look_at_files if kept.trigger.kind == "file" else self._ask_plugin
            )
            seconds = _EVERY if kept.trigger.kind == "file" else kind.info.seconds if kind is not None else None
            if seconds is None or kept.id in self._polls or now - self._polled.get(kept.id, -1e9) < seconds:
                continue
            self._polled[kept.id] = now
            self._polls[kept.id] = self._context.tasks.spawn(self._polling(look, kept), name=f"look for {kept.id}")

    async def _polling(self, look: Callable[[KeptTrigger], Any], kept: KeptTrigger) -> None:
        try:
            if (current := await self._store.watch(kept.id)) is not None and current.is_on:
                async with asyncio.timeout(_POLL_SECONDS):
                    await look(current)
            self.faults.pop(kept.id, None)
        except TimeoutError:
            self._failed(kept.id, f"found nothing within {_POLL_SECONDS:g} s")
        except Exception as error:  # a plugin's code may raise anything
            self._failed(kept.id, f"cannot look: {describe(error)}")
        finally:
            del self._polls[kept.id]

    def _failed(self, id: str, fault: str) -> None:
        if self.faults.get(id) != fault:
            self._context.log.warning("the trigger %s %s", id, fault)
        self.faults[id] = fault

    async def _look_at_files(self, kept: KeptTrigger) -> None:
        config, folder = cast(ChangedFile, config_of(kept.trigger)), self._context.project.folder("files")
        revision, seen = await self._changes.revision(str(folder)), self._seen.get(kept.id)
        if seen is not None and seen.is_quiet and seen.revision == revision:
            return
        files, now = await asyncio.to_thread(_stamps, str(folder), config.pattern), clock.monotonic()
        before = json.loads(kept.cursor) if kept.cursor else None
        is_first = before is None or (seen is None and kept.trigger.missed == "skip")
        if (
            not is_first
            and files != before
            and (seen is None or seen.files != files or now - seen.since < config.seconds)
        ):
            since = seen.since if seen is not None and seen.files == files else now
            self._seen[kept.id] = _Seen(files, since, revision, is_quiet=False)
            return
        changed = [] if is_first or before is None else [path for path in files if files[path] != before.get(path)]
        at = clock.microseconds()
        firings = [NewFiring(f"{self._store.host} {at}", {"files": [*changed]}, at, follows=True)] if changed else []
        if files != before:
            await self._store.fire(kept, firings, cursor=json.dumps(files))
            self._firings.has_changed.set()
        self._seen[kept.id] = _Seen(files, now, revision, is_quiet=True)

    async def _ask_plugin(self, kept: KeptTrigger) -> None:
        kind = self._kinds.known[kept.trigger.kind]
        found = TriggerSignals.model_validate(
            await kind.result.call(kind.info.handler, kept.trigger.config, kept.cursor)
        )
        now = clock.microseconds()
        firings = [NewFiring(f"{kept.trigger.kind} {one.key}", one.payload, now, follows=True) for one in found.signals]
        if firings or found.cursor != kept.cursor:
            await self._store.fire(kept, firings, cursor=found.cursor)
            self._firings.has_changed.set()


def ended_firing(run: Run) -> NewFiring:
    """Return the triggers that a run's end fires."""
    error = run.error.message if run.error is not None else None
    about = {"runId": run.id, "workflow": run.workflow_id, "status": run.status.value, "error": error}
    outputs = run.outputs if len(json.dumps(run.outputs, default=str)) < 64 * 1024 else {}
    at = micros(run.finished_at or clock.now())
    return NewFiring(f"{run.id} {run.status.value} {run.attempt}", {**about, "outputs": outputs}, at, depth=_depth(run))


def _depth(run: Run | None) -> int:
    """Return how many firings one follows that a run has caused."""
    about = run.metadata.get("trigger") if run is not None else None
    depth = about.get("depth") if isinstance(about, dict) else None
    return depth + 1 if isinstance(depth, int) else 0


def _is_meant(config: FinishedRun, run: Run) -> bool:
    is_stored = run.workflow_id is not None and config.workflow in (None, run.workflow_id)
    return is_stored and run.status.value in config.statuses


def _stamps(folder: str, pattern: str) -> dict[str, list[int]]:
    found = {
        path[len(folder) + 1 :]: [changed, size] for path, changed, size, _ in file_stamps(folder, "")[:_MOST_FILES]
    }
    return {path: stamp for path, stamp in found.items() if fnmatchcase(path, pattern)}


def _at(at: int) -> datetime:
    found = moment(at)
    assert found is not None
    return found
