"""What routes for scenes take and answer with, beside the models of the service."""

from __future__ import annotations

from tavern_host.contracts.wire import Model


class Woken(Model):
    """The agents that an event woke."""

    woken: list[str]
