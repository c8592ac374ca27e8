"""Hands what became of a patch from the deliberation to the command that asked for it."""

from __future__ import annotations

from typing import Any

from tavern_assistant.deliberation.outcome import Outcome
from tavern_host import PluginContext

_STATE = "assistant.outcomes"
_MOST = 100
"""How many outcomes wait for somebody at most; those that nobody takes are forgotten, the oldest first."""


def hand_over(context: PluginContext, world: dict[str, Any], outcome: Outcome) -> None:
    """Keep an outcome for whoever waits for it."""
    outcomes: dict[str, Outcome] = context.state.setdefault(_STATE, {})
    outcomes[str(world.get("conversationId"))] = outcome
    while len(outcomes) > _MOST:
        del outcomes[next(iter(outcomes))]


def taken(context: PluginContext, conversation: str) -> Outcome:
    """Return what became of the request of a conversation, and forget it."""
    outcomes: dict[str, Outcome] = context.state.setdefault(_STATE, {})
    return outcomes.pop(conversation, Outcome(is_done=True, response={}))
