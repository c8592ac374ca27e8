"""Which entries a conversation brings into a prompt, and why: pure functions of the entries and the request.

- An entry is called up by a keyword, by a key group that holds, or by the condition `always`; groups that are
  `required` and all other conditions must hold besides. An entry without any of these is only found by searching.
- Keys are looked for in the last messages: as many as the entry's scan depth, else the request's, says. Keys with
  Chinese, Japanese or Korean characters are found within words; others stand as words of their own, unless the entry
  says otherwise.
- Of the entries that are called up, those stay out that chance (from the seed), the session or the budget keeps out;
  those of higher priority are taken first, and one that does not fit leaves room for a smaller one.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from tavern_knowledge.api.knowledge import (
    Activation,
    ActivationRequest,
    ActiveEntry,
    InactiveEntry,
    KeyGroup,
    KnowledgeEntry,
    TriggerCondition,
)
from tavern_knowledge.words import is_cjk, normal

MAX_MESSAGES = 100
MAX_SCANNED = 200_000
"""How many characters of the last messages are searched for keys."""
MAX_USED = 10_000
PLACEMENT = "placement:"
"""How the tag begins that says where a lorebook wants an entry."""


@dataclass(frozen=True)
class _Message:
    """A message to be searched, and its number from 1."""

    number: int
    text: str
    normal: str


def scanned(messages: Sequence[str]) -> str:
    """Return all that keys are looked for in, in normal form."""
    return "\n".join(message.normal for message in _last(messages))


def activate(entries: Iterable[tuple[str, KnowledgeEntry]], request: ActivationRequest) -> Activation:
    """Return which of these entries, enabled ones with their bases, a conversation activates."""
    messages = _last(request.messages)
    used = dict.fromkeys(request.used)
    called: list[tuple[ActiveEntry, bool]] = []
    left_out: list[InactiveEntry] = []
    for base, entry in entries:
        reasons, obstacle = _called_up(entry, messages, request)
        if not reasons:
            continue
        obstacle = obstacle or _obstacle(base, entry, request, used, reasons)
        if obstacle is None:
            called.append((_active(base, entry, reasons), entry.usage_metadata.once_per_session))
        else:
            left_out.append(InactiveEntry(base=base, id=entry.id, why=obstacle))
    active: list[ActiveEntry] = []
    spent = 0
    for made, is_once in sorted(called, key=lambda one: (-one[0].priority, one[0].base, one[0].id)):
        if request.budget and spent + made.tokens > request.budget:
            why = f"needs {made.tokens} tokens, and {request.budget - spent} of {request.budget} are left"
            left_out.append(InactiveEntry(base=made.base, id=made.id, why=why))
            continue
        spent += made.tokens
        active.append(made)
        if is_once:
            used[f"{made.base}/{made.id}"] = None
    return Activation(entries=active, left_out=left_out, tokens=spent, used=list(used)[-MAX_USED:])


def estimate(text: str) -> int:
    """Return about how many tokens a text takes: four letters of Latin script, or one other character, are one."""
    other = sum(not character.isascii() for character in text)
    return -(-(len(text) - other) // 4) + other


# --- whether an entry is called up ----------------------------------------------------------------


def _called_up(
    entry: KnowledgeEntry, messages: Sequence[_Message], request: ActivationRequest
) -> tuple[list[str], str | None]:
    """Return the reasons that activate an entry, and the condition that it still lacks, or None."""
    criteria = entry.activation_criteria
    depth = request.scan_depth if criteria.scan_depth is None else criteria.scan_depth
    among = messages[len(messages) - depth :] if depth < len(messages) else messages

    def place(key: str) -> int | None:
        return next((message.number for message in reversed(among) if _occurs(key, message, entry)), None)

    reasons = [f"keyword {key!r} in message {found}" for key in criteria.keywords if (found := place(key)) is not None]
    enough = [group for group in criteria.key_groups if not group.required]
    reasons += [f"key group {_name(group)}" for group in enough if _holds(group, place)]
    others = [condition for condition in criteria.trigger_conditions if condition.type != "always"]
    reasons += ["always"] if len(others) < len(criteria.trigger_conditions) else []
    is_left_to_others = not criteria.keywords and not enough and len(others) == len(criteria.trigger_conditions)
    required = [group for group in criteria.key_groups if group.required]
    if not reasons and not (is_left_to_others and (others or required)):
        return [], None
    for group in required:
        if not _holds(group, place):
            return reasons, f"the required key group {_name(group)} does not hold"
        reasons.append(f"required key group {_name(group)}")
    for condition in others:
        problem = _unmet(condition, request.variables)
        if problem is not None:
            return reasons, problem
        reasons.append(f"condition on {condition.variable}")
    return reasons, None


def _last(messages: Sequence[str]) -> list[_Message]:
    """Return the messages that may be searched, the oldest first."""
    found: list[_Message] = []
    left = MAX_SCANNED
    for number in range(len(messages), max(0, len(messages) - MAX_MESSAGES), -1):
        if left <= 0:
            break
        text = messages[number - 1][-left:]
        left -= len(text)
        found.append(_Message(number, text, normal(text)))
    return found[::-1]


def _occurs(key: str, message: _Message, entry: KnowledgeEntry) -> bool:
    criteria = entry.activation_criteria
    text = message.text if criteria.case_sensitive else message.normal
    wanted = key.strip() if criteria.case_sensitive else normal(key.strip())
    if not wanted or wanted not in text:
        return False
    whole = criteria.whole_words
    return _stands_alone(wanted, text) if whole or (whole is None and not is_cjk(wanted)) else True


def _stands_alone(word: str, text: str) -> bool:
    """Return whether a word occurs with no letter or digit beside it; Chinese characters are none in this sense."""
    at = text.find(word)
    while at >= 0:
        before, after = text[at - 1 : at] if at else "", text[at + len(word) : at + len(word) + 1]
        if not _goes_on(before, word[0]) and not _goes_on(after, word[-1]):
            return True
        at = text.find(word, at + 1)
    return False


def _goes_on(beside: str, edge: str) -> bool:
    return (beside.isalnum() or beside == "_") and not is_cjk(beside) and (edge.isalnum() or edge == "_")


def _holds(group: KeyGroup, place: Callable[[str], int | None]) -> bool:
    found = [place(key) is not None for key in group.keys]
    holds = {"AND": all(found), "OR": any(found), "NOT": not any(found), "NOT_ALL": not all(found)}
    return bool(found) and holds[group.logic]


def _name(group: KeyGroup) -> str:
    keys = ", ".join(repr(key) for key in group.keys[:5])
    return f"{group.group_id or 'without a name'} ({group.logic} of {keys})"


def _contains(value: Any, part: Any) -> bool:
    return part in value if isinstance(value, list | dict) or isinstance(part, str) else False


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "equals": operator.eq,
    "not_equals": operator.ne,
    "greater_than": operator.gt,
    "greater_or_equal": operator.ge,
    "less_than": operator.lt,
    "less_or_equal": operator.le,
    "contains": _contains,
}


def _unmet(condition: TriggerCondition, variables: dict[str, JsonValue]) -> str | None:
    """Return why a condition does not hold, or None."""
    if condition.type != "variable_check":
        return f"the condition {condition.type!r} is not known here"
    if condition.variable not in variables:
        return f"the variable {condition.variable!r} is not given"
    compare = _OPERATORS.get(condition.operator)
    if compare is None:
        return f"the operator {condition.operator!r} is not known: {', '.join(_OPERATORS)}"
    try:
        holds = compare(variables[condition.variable], condition.value)
    except TypeError:
        holds = False
    return None if holds else f"the variable {condition.variable!r} is not such that {condition.operator} holds"


# --- whether it stays out -------------------------------------------------------------------------


def _obstacle(
    base: str, entry: KnowledgeEntry, request: ActivationRequest, used: dict[str, None], reasons: list[str]
) -> str | None:
    """Return why an entry that is called up stays out, or None."""
    if entry.usage_metadata.once_per_session and f"{base}/{entry.id}" in used:
        return "was in before in this session"
    probability = entry.activation_criteria.trigger_probability
    if probability < 1:
        drawn = _chance(request.seed, base, entry.id)
        if drawn >= probability:
            return f"chance {drawn:.3f} is not below {probability:g}"
        reasons.append(f"chance {drawn:.3f} is below {probability:g}")
    return None


def _chance(seed: str, base: str, id: str) -> float:
    """Return a number from 0 to 1 that is the same for the same seed and entry."""
    digest = hashlib.sha256("\0".join((seed, base, id)).encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:7]) / (1 << 56)


def _active(base: str, entry: KnowledgeEntry, reasons: list[str]) -> ActiveEntry:
    usage, tags = entry.usage_metadata, entry.management_metadata.tags
    prefix, suffix = (part.text if part.is_enabled else "" for part in (usage.prefix, usage.suffix))
    text = f"{prefix}{entry.content.value}{suffix}"
    return ActiveEntry(
        base=base,
        id=entry.id,
        name=entry.name,
        text=text,
        role=None if usage.role == "null" else usage.role,
        depth_offset=usage.depth_offset,
        placement=next((tag.removeprefix(PLACEMENT) for tag in tags if tag.startswith(PLACEMENT)), None),
        exclude_from_history=usage.exclude_from_history,
        priority=usage.priority,
        tokens=estimate(text),
        why=reasons,
    )
