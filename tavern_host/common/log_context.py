"""What the work of a task is about, for the lines that it logs: the run, the principal, the request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

LOGGED: ContextVar[Mapping[str, str]] = ContextVar("what is logged beside each line", default={})  # noqa: B039  # replaced, never changed
"""The fields of each line of a task from now on."""


def log_context() -> Mapping[str, str]:
    """Return the fields logged with each line of this task, such as `run` and `principal`, in the order of setting."""
    return LOGGED.get()


@contextmanager
def logged_with(**values: str) -> Iterator[None]:
    """Log these beside each line within the block, and in the tasks that are begun there."""
    token = LOGGED.set({**LOGGED.get(), **values})
    try:
        yield
    finally:
        LOGGED.reset(token)
