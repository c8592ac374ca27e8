"""What the work of a task is about, for the lines that it logs: the run, the principal, the request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_about: ContextVar[Mapping[str, str]] = ContextVar("what is logged beside each line", default={})  # noqa: B039  # replaced, never changed


def log_context() -> Mapping[str, str]:
    """Return the fields logged with each line of this task, such as `run` and `principal`, in the order of setting."""
    return _about.get()


@contextmanager
def logged_with(**values: str) -> Iterator[None]:
    """Log these beside each line within the block, and in the tasks that are begun there."""
    token = _about.set({**_about.get(), **values})
    try:
        yield
    finally:
        _about.reset(token)


def also_log(**values: str) -> None:
    """Log these beside each line of this task from now on, to the end of the block of `logged_with` that it is in."""
    _about.set({**_about.get(), **values})


def log_only(**values: str) -> None:
    """As `also_log`, and nothing that was set before."""
    _about.set(values)
