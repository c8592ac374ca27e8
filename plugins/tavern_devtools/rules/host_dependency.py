"""The project depends on tavern-host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tavern_devtools.rules.subject import Subject
from tavern_host.contracts.plugins import Problem


def check(subject: Subject) -> Iterator[Problem]:
    """Yield that the dependency is missing."""
    project = (subject.project or {}).get("project")
    if not isinstance(project, dict) or "dependencies" in _listed(project.get("dynamic")):
        return
    if not any("tavern-host" in str(one) for one in _listed(project.get("dependencies"))):
        message = "it does not depend on tavern-host, so pip installs it where it cannot run"
        yield Problem(message=message, file="pyproject.toml")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
