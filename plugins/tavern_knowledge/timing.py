"""When an entry may be called up by what was said before, by chance, and by the other entries of its group.

Nothing of it is stored: how an entry stands follows from the messages, so that it is right in every branch, and after
messages were edited.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Mapping

from tavern_knowledge.api.knowledge import ActivationCriteria, ActivationRequest, KnowledgeEntry

MAX_TURNS = 50
"""How many turns before the present one are looked at."""

Key = tuple[str, str]


class Standing(enum.Enum):
    """How an entry stands by time."""

    FREE = ""
    STICKY = "it stays"
    COOLING = "its cooldown is not over"
    DELAYED = "too few messages were said"


def standing_of(criteria: ActivationCriteria, count: int, called_at: Callable[[int], bool]) -> Standing:
    """Return how an entry stands after `count` messages. `called_at` says whether it was called up after so many.

    A turn has two messages: what a person says, and the answer.
    """
    if count < criteria.delay:
        return Standing.DELAYED
    if not criteria.sticky and not criteria.cooldown:
        return Standing.FREE
    stays_until = cools_until = 0
    for at in range(max(2 - count % 2, count - 2 * MAX_TURNS), count, 2):
        if at < stays_until or at < cools_until or at < criteria.delay or not called_at(at):
            continue
        stays_until = at + criteria.sticky
        cools_until = stays_until + criteria.cooldown
    if count < stays_until:
        return Standing.STICKY
    return Standing.COOLING if count < cools_until else Standing.FREE


def chance(seed: str, *parts: object) -> float:
    """Return a number from 0 to 1 that is the same for the same seed and parts."""
    digest = hashlib.sha256("\0".join((seed, *map(str, parts))).encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:7]) / (1 << 56)


def within_groups(
    called: Mapping[Key, tuple[KnowledgeEntry, list[str]]],
    scores: Mapping[Key, int],
    filled: set[str],
    request: ActivationRequest,
) -> dict[Key, str]:
    """Return which entries stay out, and why: of each group one comes in, none where one is in already."""
    lost: dict[Key, str] = {}
    names = dict.fromkeys(name for entry, _ in called.values() for name in entry.activation_criteria.group)
    for name in names:
        members = {
            key: entry.activation_criteria
            for key, (entry, _) in called.items()
            if name in entry.activation_criteria.group and key not in lost
        }
        if name in filled:
            lost |= dict.fromkeys(members, f"another entry of the group {name!r} is in")
            continue
        if len(members) < 2:
            continue
        if stay := [key for key in members if scores[key] == 0]:  # they were in before
            winners = stay
        else:
            best = max(scores[key] for key in members)
            left = [key for key, one in members.items() if not one.group_scoring or scores[key] == best]
            first = [key for key in left if members[key].group_override]
            by_priority = sorted(first, key=lambda key: (-called[key][0].usage_metadata.priority, key))
            winners = by_priority[:1] or [_drawn({key: members[key].group_weight for key in left}, name, request)]
        lost |= {key: f"another entry of the group {name!r} was chosen" for key in members if key not in winners}
    return lost


def _drawn(weights: Mapping[Key, float], name: str, request: ActivationRequest) -> Key:
    """Return one of the entries by chance, by their weights."""
    drawn = chance(request.seed, len(request.messages), "group", name) * sum(weights.values())
    for key in sorted(weights):
        drawn -= weights[key]
        if drawn < 0:
            return key
    return min(weights)
