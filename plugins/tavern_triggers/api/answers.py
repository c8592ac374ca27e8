"""What routes for triggers take and answer with, beside the models of the service."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, JsonValue

from tavern_host.contracts.wire import Model
from tavern_triggers.api.triggers import FiringStatus


class FiringQuery(Model):
    """How many firings are asked for, the newest first."""

    limit: int = Field(default=50, ge=1, le=1000)


class HookAnswer(Model):
    """What a webhook is answered with: the firing, its run once that has begun, and the outputs of one that was waited
    for; of an agent its `text`."""

    firing_id: str
    status: FiringStatus
    run_id: str | None = None
    reason: str = ""
    outputs: dict[str, JsonValue] = Field(default_factory=dict)


class Times(Model):
    """The next times of a schedule."""

    times: list[datetime]
