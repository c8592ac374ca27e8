"""What the parts of this plugin share while it is loaded."""

from __future__ import annotations

from cachetools import LRUCache

from tavern_assistant.deliberation.outcome import Outcome
from tavern_assistant.patches.documents import DocumentPatches
from tavern_host import PluginContext

_MOST = 100
"""How many outcomes wait for somebody at most; those that nobody takes are forgotten, the oldest first."""


class State:
    """The patches of documents, and what became of requests, by conversation, until those who wait for it take it."""

    def __init__(self, context: PluginContext) -> None:
        self.documents = DocumentPatches(context)
        self.outcomes: LRUCache[str, Outcome] = LRUCache(_MOST)
