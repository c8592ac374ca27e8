"""The project has tests."""

from __future__ import annotations

from collections.abc import Iterator

from tavern_devtools.rules.subject import Subject
from tavern_host.contracts.plugins import Problem


def check(subject: Subject) -> Iterator[Problem]:
    """Yield that there are none."""
    project = subject.project
    if project is not None and not any((project.root / folder).is_dir() for folder in ("tests", "test")):
        yield Problem(message="it has no tests", hint="see docs/testing.md for fixtures")
