"""Runs that are a part of their caller's work, carried out in its task: whom their messages reach, and what is kept.

They are accepted and concluded differently; how they are executed is the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from tavern_engine.run.active_run import ActiveRun
from tavern_engine.run.stream_messages import Message, Publish
from tavern_host.context import Events, Hooks
from tavern_host.contracts.executions import Run, RunStatus


def published_where_read(events: Events) -> Publish:
    """Return a function that publishes those messages that somebody hears."""

    def publish(messages: Iterable[Message]) -> None:
        if read := [message for message in messages if events.is_read(message[0])]:
            events.publish_all(read)

    return publish


def shows_no_nodes(active: ActiveRun, hooks: Hooks) -> bool:
    """Return whether nobody is given the nodes of a run whose execution has ended."""
    is_complete = active.interrupted is None and active.execution.error is None
    return is_complete and not hooks.implemented("tavern_after_execute")


def is_forgotten(active: ActiveRun, run: Run) -> bool:
    """Return whether an ended run leaves nothing behind: it completed, and gave nothing that is kept apart."""
    return run.status is RunStatus.COMPLETE and not active.blobs.has_any
