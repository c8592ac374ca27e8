"""The host can use the plugin by its manifest."""

from __future__ import annotations

from collections.abc import Iterator

from tavern_devtools.rules.subject import Subject
from tavern_host.contracts.plugins import Problem


def check(subject: Subject) -> Iterator[Problem]:
    """Yield what the host finds wrong before it imports anything."""
    if not subject.was_imported:
        yield from subject.info.problems
