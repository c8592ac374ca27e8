"""The manifest and its options say what they are."""

from __future__ import annotations

from collections.abc import Iterator

from tavern_devtools.rules.subject import Subject
from tavern_host.contracts.plugins import MANIFEST, Problem


def check(subject: Subject) -> Iterator[Problem]:
    """Yield what has no description."""
    file = f"{subject.folder.name}/{MANIFEST}"
    if not subject.info.description:
        yield Problem(message="the manifest has no description; it is what operators read first", file=file)
    for option in subject.info.config_options or ():
        if isinstance(option, dict) and not option.get("description"):
            yield Problem(message=f"the option {option.get('key')} has no description", file=file)
