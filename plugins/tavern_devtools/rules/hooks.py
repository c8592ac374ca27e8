"""The plugin can be imported, and what it registers fits what the host and its manifest say."""

from __future__ import annotations

from collections.abc import Iterator

from tavern_devtools.rules.manifest import is_of_manifest
from tavern_devtools.rules.subject import Subject
from tavern_host.contracts.plugins import Problem


def check(subject: Subject) -> Iterator[Problem]:
    """Yield what the host finds wrong once it has imported the plugin."""
    if subject.was_imported:
        yield from (one for one in subject.info.problems if not is_of_manifest(one))
