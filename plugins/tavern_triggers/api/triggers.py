"""Triggers: what starts a workflow or an agent, when, and on whose behalf; and the service `triggerManager`."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads, reads_content
from tavern_host.contracts.wire import Model

ID = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
"""What an id of a trigger is: the name of its file without `.json`."""


class Trigger(Model):
    """A file `triggers/ID.json`. It starts either a workflow or an agent when what its `kind` says happens, set up by
    `config`.

    What happened is the firing's payload, JSON. A workflow gets `inputs`, then what of the payload is named in `take`
    (by the input's key, a JSON Pointer of RFC 6901), and without `take` each key of the payload that is one of its
    inputs. An agent gets `message`, and the payload as JSON below it.

    `missed` is what is made up for when no host served the project: nothing, the last, or all, 100 at most. `overlap`
    is what a firing does while another of the same trigger runs: it is skipped, waits, or runs beside it,
    `maxConcurrent` at most. After `maxFailures` in a row the trigger is switched off; 0 is never.
    """

    name: str = Field(min_length=1, max_length=200)
    description: str = Field(default="", max_length=2000)
    kind: str = Field(min_length=1, max_length=100)
    config: dict[str, JsonValue] = Field(default_factory=dict)
    workflow: str | None = Field(default=None, min_length=1, max_length=500)
    agent: str | None = Field(default=None, min_length=1, max_length=200)
    inputs: dict[str, JsonValue] = Field(default_factory=dict)
    take: dict[str, str] = Field(default_factory=dict)
    message: str = Field(default="", max_length=20_000)
    missed: Literal["skip", "once", "all"] = "once"
    overlap: Literal["skip", "queue", "parallel"] = "skip"
    max_concurrent: int = Field(default=10, ge=1, le=100)
    max_failures: int = Field(default=5, ge=0, le=1000)

    @model_validator(mode="after")
    def _starts_one_thing(self) -> Self:
        if (self.workflow is None) == (self.agent is None):
            raise ValueError("give either a workflow or an agent")
        if self.agent is not None and not self.message.strip():
            raise ValueError("give the agent a message")
        return self


class Schedule(Model):
    """The `config` of kind `schedule`: one of `cron`, five fields as Debian's cron reads them, in a `timeZone` of the
    IANA database; `everySeconds`, counted from when it was enabled; and `at`, a moment with its offset."""

    cron: str | None = Field(default=None, max_length=200)
    time_zone: str = Field(default="UTC", max_length=100)
    every_seconds: int | None = Field(default=None, ge=5, le=366 * 86_400)
    at: datetime | None = None


class Webhook(Model):
    """The `config` of kind `webhook`. `auth` is how a sender shows that it may: by a secret at the end of the address,
    a signature of Standard Webhooks 1.0.0, or GitHub's `X-Hub-Signature-256`. It is answered at once (202), or with the
    `result` (200) where that is there within so many `seconds`."""

    auth: Literal["path", "standard", "github"] = "path"
    answer: Literal["accepted", "result"] = "accepted"
    seconds: float = Field(default=30, gt=0, le=110)


class ChangedFile(Model):
    """The `config` of kind `file`: which files below `files/` (`*` stands for any text, slashes too), and for how many
    seconds nothing must have changed before it fires once for all that did."""

    pattern: str = Field(default="*", min_length=1, max_length=500)
    seconds: float = Field(default=2, ge=1, le=3600)


class HostEvent(Model):
    """The `config` of kind `event`: the type of event (`*` at its end stands for any text), and which values are to
    stand in its payload, by JSON Pointer."""

    type: str = Field(pattern=r"^[^\s*]{2,100}\*?$")
    where: dict[str, JsonValue] = Field(default_factory=dict)


class FinishedRun(Model):
    """The `config` of kind `run`: the workflow whose runs are meant, all without one, and how they ended."""

    workflow: str | None = Field(default=None, max_length=500)
    statuses: list[Literal["complete", "error", "interrupted"]] = Field(default=["complete"], min_length=1)


class TriggerKind(Model):
    """A kind of trigger: one of the host's own, or a plugin's."""

    name: str
    description: str = ""
    config_schema: dict[str, JsonValue] = Field(default_factory=dict)
    plugin: str = ""


class FiringStatus(enum.StrEnum):
    """How a firing stands."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETE = "complete"
    ERROR = "error"
    SKIPPED = "skipped"
    MISSED = "missed"

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen."""
        return self not in (FiringStatus.WAITING, FiringStatus.RUNNING)


class Firing(Model):
    """One firing of a trigger. `dueAt` is when it was to be, `startedAt` when its run began, `runId` the run of the
    workflow or of the agent; `reason` says why it failed, was skipped or missed; `by` on whose behalf it is made."""

    id: str
    trigger_id: str
    status: FiringStatus
    due_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    run_id: str | None = None
    reason: str = ""
    by: str = ""


class TriggerState(Model):
    """A trigger as it stands. It is `on`, with why it could not look the last time as the `reason`; `off`, for a reason
    if there is one; `changed` where the file is another than was enabled, which keeps it from firing; or `broken`, with
    what is wrong as the reason.

    `by` is whose behalf it fires on: who enabled it. `next` are up to three times to come, of a schedule; `address` is
    that of a webhook, without its secret; `running` counts firings that have not ended. `plugin` is the one that it
    comes with; one that was saved is the project's own.
    """

    id: str
    status: Literal["on", "off", "changed", "broken"]
    trigger: Trigger | None = None
    reason: str = ""
    by: str = ""
    failures: int = 0
    running: int = 0
    next: list[datetime] = Field(default_factory=list)
    last: Firing | None = None
    address: str = ""
    plugin: str = ""


class EnabledTrigger(TriggerState):
    """A trigger that was enabled. `secret` is that of a webhook that has a new one: it is shown this once."""

    secret: str = ""


_READ = "Read triggers, when they fired and why they failed."
_MANAGE = "Write triggers, switch them on and off, and fire them, on behalf of the caller."


class TriggerManager(ServiceInterface, name="triggerManager", version=1):
    """The project's triggers. Their files come with the project; whether one is on, and on whose behalf it fires, is
    the operator's state: a trigger that arrives is off."""

    @reads
    async def kinds(self) -> list[TriggerKind]:
        """Return the kinds of triggers, those of plugins after the host's own."""

    @reads_content("triggerManager:read", _READ)
    async def list_triggers(self) -> list[TriggerState]:
        """Return all triggers by id, those with broken files among them."""

    @reads_content("triggerManager:read", _READ)
    async def get(self, trigger_id: str) -> TriggerState:
        """Return a trigger. Raises `NotFound`."""

    @reads_content("triggerManager:read", _READ)
    async def history(self, trigger_id: str | None = None, *, limit: int = 50) -> list[Firing]:
        """Return firings of a trigger, or of all, the newest first. Of each trigger about the last 100 are kept."""

    @reads_content("triggerManager:read", _READ)
    async def times(self, schedule: Schedule, *, count: int = 3) -> list[datetime]:
        """Return the next times of a schedule that begins now, 100 at most. Raises `InvalidInput`."""

    @acts("triggerManager:manage", _MANAGE)
    async def save(self, trigger_id: str, trigger: Trigger, *, call: CallContext | None = None) -> TriggerState:
        """Write a trigger's file. One that was on is `changed` then, until it is enabled. Raises `InvalidInput`."""

    @acts("triggerManager:manage", _MANAGE)
    async def enable(
        self, trigger_id: str, *, secret: str = "", rotate: bool = False, call: CallContext | None = None
    ) -> EnabledTrigger:
        """Switch a trigger on as its file is now, on behalf of the caller, whose rights it needs from then on. A
        webhook gets a secret where it has none, or where it is to `rotate`; or the one that is given.

        Raises `NotFound`, `InvalidInput` for a file that cannot be used, `Forbidden` where the caller may not.
        """

    @acts("triggerManager:manage", _MANAGE)
    async def disable(self, trigger_id: str, *, call: CallContext | None = None) -> TriggerState:
        """Switch a trigger off; firings that wait are skipped, those that run are left. Raises `NotFound`."""

    @acts("triggerManager:manage", _MANAGE)
    async def delete(self, trigger_id: str, *, call: CallContext | None = None) -> None:
        """Delete a trigger with its history. Raises `NotFound`, `Conflict` for one that comes with a plugin."""

    @acts("triggerManager:manage", _MANAGE)
    async def fire(
        self,
        trigger_id: str,
        payload: dict[str, JsonValue] | None = None,
        *,
        key: str | None = None,
        call: CallContext | None = None,
    ) -> Firing:
        """Fire a trigger now, on or off, on behalf of the caller, with what is said to have happened. A `key` fires it
        once: given again, it returns the first firing. Raises `NotFound`, `InvalidInput` for a broken file."""


TRIGGER_MANAGER = ServiceKey(TriggerManager)
