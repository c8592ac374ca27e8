"""The host can use the plugin by its manifest."""

from __future__ import annotations

from collections.abc import Iterator

from tavern_devtools.rules.subject import Subject
from tavern_host.contracts.plugins import MANIFEST, Problem


def check(subject: Subject) -> Iterator[Problem]:
    """Yield what the host finds wrong before it imports anything."""
    yield from (one for one in subject.info.problems if not subject.was_imported or is_of_manifest(one))


def is_of_manifest(problem: Problem) -> bool:
    """Return whether a problem is in the manifest."""
    return (problem.file or "").endswith(MANIFEST)
