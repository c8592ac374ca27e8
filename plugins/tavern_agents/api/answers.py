"""What routes for agents and conversations take and answer with, beside the models of the service."""

from __future__ import annotations

from pydantic import Field

from tavern_host.contracts.wire import Model


class AgentRunQuery(Model):
    """Which runs of agents: `statuses` are one or several with commas between them."""

    profile_id: str | None = None
    conversation_id: str | None = None
    statuses: str | None = None
    limit: int | None = Field(default=None, ge=1, le=1000)
    offset: int | None = Field(default=None, ge=0)


class MemoryQuery(Model):
    """The conversation, and where in it."""

    conversation_id: str
    branch: str | None = None
    leaf: str | None = None


class AfterQuery(Model):
    """Only what has a higher number."""

    after: int = Field(default=0, ge=0)


class BranchQuery(Model):
    """Which messages: a branch, those that lead to a `leaf`, the `last` so many."""

    branch: str | None = None
    leaf: str | None = None
    last: int | None = Field(default=None, ge=0, le=999_999_999)


class OfQuery(Model):
    """Right behind which message; without it, the first ones."""

    of: str | None = None


class IdQuery(Model):
    """The id under which it is kept."""

    id: str | None = None
