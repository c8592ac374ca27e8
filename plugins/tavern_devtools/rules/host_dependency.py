"""The project depends on tavern-host."""

from __future__ import annotations

from collections.abc import Iterator

from tavern_devtools.rules.subject import Subject
from tavern_host.contracts.plugins import Problem


def check(subject: Subject) -> Iterator[Problem]:
    """Yield that the dependency is missing."""
    project = subject.project
    if project is None or "project" not in project.document or "dependencies" in project.texts("project", "dynamic"):
        return
    if not any("tavern-host" in one for one in project.texts("project", "dependencies")):
        message = "it does not depend on tavern-host, so pip installs it where it cannot run"
        yield Problem(message=message, file="pyproject.toml")
