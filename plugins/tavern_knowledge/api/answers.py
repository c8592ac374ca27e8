"""What routes for knowledge bases take and answer with, beside the models of the service."""

from __future__ import annotations

from tavern_host.contracts.wire import Model


class ReplaceQuery(Model):
    """Whether one that is there is replaced."""

    replace: bool = False


class RevisionQuery(Model):
    """The revision that it must have."""

    revision: str | None = None
