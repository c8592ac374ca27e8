"""Which entries a conversation brings into a prompt, and why: pure functions of the entries and the request.

- An entry is called up by a keyword, by a key group that holds, or by the condition `always`; groups that are
  `required` and all other conditions must hold besides. An entry without any of these is only found by searching.
- Keys are looked for in the last messages: as many as the entry's, its base's or the request's scan depth says. What
  `keys` says is a key that occurs. Where a base is recursive, keys are looked for in the entries that came in too.
- Of the entries that are called up, those stay out that time (see `timing`), chance (from the seed), their group, the
  session or the budget keeps out; those of higher priority are taken first, and one that does not fit leaves room for
  a smaller one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import JsonValue

from tavern_knowledge.api.knowledge import (
    Activation,
    ActivationRequest,
    ActiveEntry,
    BaseActivation,
    InactiveEntry,
    KeyGroup,
    KnowledgeEntry,
    TriggerCondition,
)
from tavern_knowledge.keys import Scanned, Searched, last_messages
from tavern_knowledge.timing import Standing, chance, standing_of, within_groups

MAX_USED = 10_000
MAX_ROUNDS = 20
"""How often entries may call up others that call up others."""
PLACEMENT = "placement:"
"""How the tag begins that says where a lorebook wants an entry."""

Find = Callable[[str, bool], Iterable[tuple[str, KnowledgeEntry]]]
"""Returns the enabled entries, each with its base, that a text in normal form may call up; of recursive bases alone."""


def activate(find: Find, bases: Mapping[str, BaseActivation], request: ActivationRequest) -> Activation:
    """Return which entries a conversation activates."""
    return _Activating(find, bases, request).done()


class _Activating:
    def __init__(self, find: Find, bases: Mapping[str, BaseActivation], request: ActivationRequest) -> None:
        self._find, self._bases, self._request = find, bases, request
        self._searched = Searched(last_messages(request.messages))
        self._used = dict.fromkeys(request.used)
        self._known: dict[tuple[str, str], KnowledgeEntry] = {}
        self._chosen: dict[tuple[str, str], tuple[KnowledgeEntry, list[str]]] = {}
        self._left_out: dict[tuple[str, str], str] = {}

    def done(self) -> Activation:
        """Return the entries, and those that stay out with their reasons."""
        self._learn(self._searched.text, False)
        added = self._round(0)
        for number in range(1, MAX_ROUNDS + 1):
            heard = [entry.content.value for entry in added if not entry.activation_criteria.prevent_recursion]
            is_waited_for = any(entry.activation_criteria.delay_until_recursion >= number for entry in self._waiting())
            if not any(base.recursive for base in self._bases.values()) or not (heard or is_waited_for):
                break
            self._learn(self._searched.hear(heard), True)
            added = self._round(number)
        return self._within_budget()

    def _learn(self, text: str, is_recursive: bool) -> None:
        for base, entry in self._find(text, is_recursive):
            self._known.setdefault((base, entry.id), entry)

    def _waiting(self) -> list[KnowledgeEntry]:
        return [entry for key, entry in self._known.items() if key not in self._chosen and key not in self._left_out]

    def _round(self, number: int) -> list[KnowledgeEntry]:
        """Choose among the entries that are not decided about yet; return those that came in."""
        called: dict[tuple[str, str], tuple[KnowledgeEntry, list[str]]] = {}
        scores: dict[tuple[str, str], int] = {}
        for key, entry in self._known.items():
            if key in self._chosen or key in self._left_out or self._is_out_of_turn(key[0], entry, number):
                continue
            reasons, obstacle, score = self._decided(key[0], entry, number > 0)
            if obstacle is not None and reasons:
                self._left_out[key] = obstacle
            elif reasons:
                called[key], scores[key] = (entry, reasons), score
        groups = {name for entry, _ in self._chosen.values() for name in entry.activation_criteria.group}
        for key, why in within_groups(called, scores, groups, self._request).items():
            self._left_out[key] = why
            del called[key]
        self._chosen |= called
        return [entry for entry, _ in called.values()]

    def _is_out_of_turn(self, base: str, entry: KnowledgeEntry, number: int) -> bool:
        criteria = entry.activation_criteria
        if number == 0:
            return criteria.delay_until_recursion > 0 and self._bases[base].recursive
        is_barred = criteria.exclude_recursion or not self._bases[base].recursive
        return is_barred or criteria.delay_until_recursion > number

    def _decided(self, base: str, entry: KnowledgeEntry, hears: bool) -> tuple[list[str], str | None, int]:
        """Return the reasons that call an entry up, why it stays out nevertheless, and how many of its keys occur."""
        depth = self._depth(base, entry)
        count = len(self._request.messages)

        def called_at(messages: int) -> bool:
            among = self._searched.up_to(messages, depth)
            return bool(_called_up(entry, among, self._request)[0]) and _may(entry, self._request.seed, messages, base)

        standing = standing_of(entry.activation_criteria, count, called_at)
        if standing is Standing.STICKY:
            return [f"it was called up within the last {entry.activation_criteria.sticky} messages"], None, 0
        among = self._searched.now(depth, hears)
        reasons, obstacle = _called_up(entry, among, self._request)
        if not reasons:
            return [], None, 0
        score = len(reasons)
        if standing is not Standing.FREE:
            return reasons, obstacle or standing.value, score
        return reasons, obstacle or self._obstacle(base, entry, reasons), score

    def _depth(self, base: str, entry: KnowledgeEntry) -> int:
        depths = (entry.activation_criteria.scan_depth, self._bases[base].scan_depth, self._request.scan_depth)
        return next(depth for depth in depths if depth is not None)

    def _obstacle(self, base: str, entry: KnowledgeEntry, reasons: list[str]) -> str | None:
        """Return why an entry that is called up stays out, or None."""
        if entry.usage_metadata.once_per_session and f"{base}/{entry.id}" in self._used:
            return "was in before in this session"
        probability = entry.activation_criteria.trigger_probability
        if probability < 1:
            drawn = chance(self._request.seed, len(self._request.messages), base, entry.id)
            if drawn >= probability:
                return f"chance {drawn:.3f} is not below {probability:g}"
            reasons.append(f"chance {drawn:.3f} is below {probability:g}")
        return None

    def _within_budget(self) -> Activation:
        active: list[ActiveEntry] = []
        left_out = [InactiveEntry(base=base, id=id, why=why) for (base, id), why in self._left_out.items()]
        budgets = {"": self._request.budget, **{id: base.token_budget for id, base in self._bases.items()}}
        spent = dict.fromkeys(budgets, 0)
        called = [_active(base, entry, why) for (base, _), (entry, why) in self._chosen.items()]
        once = {key for key, (entry, _) in self._chosen.items() if entry.usage_metadata.once_per_session}
        for made in sorted(called, key=lambda one: (-one.priority, one.base, one.id)):
            full = next((of for of in ("", made.base) if 0 < budgets[of] < spent[of] + made.tokens), None)
            if full is not None:
                why = f"needs {made.tokens} tokens, and {budgets[full] - spent[full]} of {budgets[full]} are left"
                left_out.append(InactiveEntry(base=made.base, id=made.id, why=why))
                continue
            for of in ("", made.base):
                spent[of] += made.tokens
            active.append(made)
            if (made.base, made.id) in once:
                self._used[f"{made.base}/{made.id}"] = None
        used = list(self._used)[-MAX_USED:]
        return Activation(entries=active, left_out=left_out, tokens=spent[""], used=used)


def _may(entry: KnowledgeEntry, seed: str, messages: int, base: str) -> bool:
    probability = entry.activation_criteria.trigger_probability
    return probability >= 1 or chance(seed, messages, base, entry.id) < probability


def estimate(text: str) -> int:
    """Return about how many tokens a text takes: four letters of Latin script, or one other character, are one."""
    other = sum(not character.isascii() for character in text)
    return -(-(len(text) - other) // 4) + other


# --- whether an entry is called up ----------------------------------------------------------------


def _called_up(entry: KnowledgeEntry, among: Scanned, request: ActivationRequest) -> tuple[list[str], str | None]:
    """Return the reasons that activate an entry, and the condition that it still lacks, or None."""
    criteria = entry.activation_criteria

    def place(key: str) -> str | None:
        return among.place(key, criteria)

    reasons = [f"keyword {key!r} in {found}" for key in criteria.keywords if (found := place(key)) is not None]
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


def _holds(group: KeyGroup, place: Callable[[str], str | None]) -> bool:
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


# --- what comes in ---------------------------------------------------------------------------------


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
