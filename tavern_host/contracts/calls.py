"""On whose behalf, within which run and until when something is called."""

from __future__ import annotations

import hashlib
import itertools
import os
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Literal

from pydantic import Field

from tavern_host import clock
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.wire import Model

MAX_DEPTH = 16
"""How deeply calls may nest: a tool that runs a workflow that calls a tool …"""


def new_id(prefix: str) -> str:
    """Return a fresh identifier such as `run_5f0c…`: a prefix and 96 random bits."""
    return f"{prefix}_{os.urandom(12).hex()}"


_BITS, _NUMBERS = os.urandom(6).hex(), itertools.count()


def numbered_id(prefix: str) -> str:
    """Return a fresh identifier for what may be guessed: a prefix, random bits, the process, which may be a fork, and a
    number. Who knows one knows those that follow, so a context has none: it lets a plugin act in another's name."""
    return f"{prefix}_{_BITS}{os.getpid():x}{next(_NUMBERS):010x}"


class Principal(Model):
    """Who acts: a person, an agent, a plugin, or the host itself."""

    kind: Literal["user", "agent", "plugin", "system"]
    id: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"


class Admission(Model):
    """The request of a user by which something was begun, with which `session` or token, and what it needed: the
    `access` to `where`, see `Identity.may`. Whether that still holds, the service `accounts` says."""

    user: str
    session: str
    access: Literal["public", "read", "create", "operate"]
    where: str
    at: datetime


COMMANDED: ContextVar[Admission | None] = ContextVar("the request that a command is carried out for", default=None)


class CallContext(Model):
    """The frozen context of one acting call. The host issues it: until the call is over, a plugin passes on the one
    that it was given, or a child of it; otherwise it acts as `plugin:NAME`.

    `deadline` is an absolute time (UTC) after which the caller is settled whether or not the callee
    answers; `depth` counts nested calls, at most 16; `trace_id` is shared by all calls that one request
    caused, `parent_id` is the `id` of the call that made this one. `via` is the third-party plugin that passed it on
    last, whatever the plugin says. `idempotency_key` lets what it submits (a run, an agent's run) begin once, however
    often it is submitted; calls made within it do not have it. `agent_run_id` is the run of the agent on
    whose behalf it is made, however deep, `admission` the request of a user that caused it; none for what the operator
    or the host does.
    """

    principal: Principal
    id: str = Field(default_factory=lambda: new_id("call"))
    project: str | None = None
    run_id: str | None = None
    agent_run_id: str | None = None
    admission: Admission | None = None
    trace_id: str = Field(default_factory=lambda: numbered_id("trace"))
    parent_id: str | None = None
    deadline: datetime | None = None
    depth: int = 0
    idempotency_key: str | None = None
    via: str | None = None

    def child(
        self,
        *,
        principal: Principal | None = None,
        run_id: str | None = None,
        agent_run_id: str | None = None,
        timeout: float | None = None,
    ) -> CallContext:
        """Return the context for a call made within this one.

        The smaller deadline wins; `timeout` is in seconds from now. Raises `InvalidInput` past a depth
        of 16, which is how endless mutual recursion ends.
        """
        if self.depth + 1 > MAX_DEPTH:
            raise InvalidInput(
                f"calls are nested {MAX_DEPTH} deep already; something calls itself without end",
                depth=self.depth,
            )
        deadline = self.deadline
        if timeout is not None:
            limit = clock.now() + timedelta(seconds=timeout)
            deadline = limit if deadline is None else min(deadline, limit)
        return CallContext.construct(
            id=new_id("call"),
            principal=principal or self.principal,
            project=self.project,
            run_id=run_id or self.run_id,
            agent_run_id=agent_run_id or self.agent_run_id,
            admission=self.admission,
            trace_id=self.trace_id,
            parent_id=self.id,
            deadline=deadline,
            depth=self.depth + 1,
            via=self.via,
        )

    def id_of(self, prefix: str) -> str:
        """Return the id of what this call begins: a fresh one, or, with an `idempotency_key`, the one that the same
        caller gets for that key each time, so that who begins it again finds the first."""
        if self.idempotency_key is None:
            return new_id(prefix)
        said = "\n".join((self.project or "", str(self.principal), self.via or "", self.idempotency_key))
        return f"{prefix}_{hashlib.sha256(said.encode()).hexdigest()[:24]}"

    def remaining(self) -> float | None:
        """Return the seconds left until the deadline, never below 0, or None without a deadline."""
        if self.deadline is None:
            return None
        return max(0.0, (self.deadline - clock.now()).total_seconds())


def system_call(project: str | None = None) -> CallContext:
    """Return a context for what the host does by itself."""
    return CallContext(principal=Principal(kind="system", id="host"), project=project)


def operator_call(project: str | None = None) -> CallContext:
    """Return a context for what the operator does, such as by a command; one that a user lets the server carry out has
    the rights of the operator, for as long as that user may ask for it."""
    return CallContext(principal=Principal(kind="user", id="operator"), project=project, admission=COMMANDED.get())
