"""The project and the manifest have one version."""

from __future__ import annotations

from collections.abc import Iterator

from tavern_devtools.rules.subject import Subject
from tavern_host.contracts.plugins import Problem


def check(subject: Subject) -> Iterator[Problem]:
    """Yield where the versions differ; one that is worked out while the project is built is not known."""
    version = subject.project.table("project").get("version") if subject.project is not None else None
    if version not in (None, subject.info.version):
        message = f"the project's version is {version}, the manifest's {subject.info.version}"
        yield Problem(message=message, hint="give both the same version", file="pyproject.toml")
