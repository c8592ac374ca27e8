"""Presets: which prompts stand around a conversation, in which order and role.

Reads the form of SillyTavern's chat-completion presets (`prompts`, `prompt_order`), or a plain one with
`system_prompt` and `post_history_instructions`. Fills in nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tavern_host import InvalidInput
from tavern_nodes.values import kind_of

MAX_PROMPTS = 1000

MAIN, AFTER_HISTORY = "main", "jailbreak"
"""The prompts that a character card may put its own in the place of."""

HISTORY = "chatHistory"
MARKERS = (
    "worldInfoBefore",
    "personaDescription",
    "charDescription",
    "charPersonality",
    "scenario",
    "worldInfoAfter",
    "dialogueExamples",
    HISTORY,
)
"""The places that are filled from the character, the world book and the conversation, in their usual order."""

DEFAULT_DEPTH = 4
_ROLES = ("system", "user", "assistant")
_DEFAULT_MAIN = "Write {{char}}'s next reply in a conversation between {{char}} and {{user}}."
_DEFAULT_CHARACTER = 100001
"""The number under which SillyTavern keeps the order of prompts that all characters share."""


@dataclass(frozen=True)
class Prompt:
    """A prompt or a marker. With a `depth` it stands that many messages before the end of the conversation."""

    identifier: str
    content: str = ""
    role: str = "system"
    depth: int | None = None
    replaceable: bool = True


@dataclass(frozen=True)
class Preset:
    """Prompts in their order, the name and description of whom the user plays, formats with a macro each, and what the
    chance of macros comes from, at this point of the conversation and through all of it."""

    prompts: tuple[Prompt, ...]
    user: str = "User"
    persona: str = ""
    personality_format: str = "{{personality}}"
    scenario_format: str = "{{scenario}}"
    world_format: str = "{0}"
    macro_seed: str = ""
    macro_chat: str = ""


def read_preset(value: Any, where: str) -> Preset:
    """Return the preset that data holds; of nothing the usual one. Raises `InvalidInput` naming the field."""
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: a preset is an object, not {kind_of(value)}")
    prompts = _prompts(value, where) if value.get("prompts") is not None else _plain_prompts(value, where)
    if all(prompt.identifier != HISTORY for prompt in prompts):
        prompts = [*prompts, Prompt(HISTORY)]
    return Preset(
        prompts=tuple(prompts),
        user=_text(value, "user_name", where) or "User",
        persona=_text(value, "persona_description", where) or _text(value, "persona", where),
        personality_format=_text(value, "personality_format", where) or "{{personality}}",
        scenario_format=_text(value, "scenario_format", where) or "{{scenario}}",
        world_format=_text(value, "wi_format", where) or "{0}",
        macro_seed=_text(value, "macro_seed", where),
        macro_chat=_text(value, "macro_chat", where),
    )


def _plain_prompts(value: dict[str, Any], where: str) -> list[Prompt]:
    main = _text(value, "system_prompt", where) or _DEFAULT_MAIN
    after = _text(value, "post_history_instructions", where)
    return [Prompt(MAIN, main), *map(Prompt, MARKERS), Prompt(AFTER_HISTORY, after)]


def _prompts(value: dict[str, Any], where: str) -> list[Prompt]:
    entries = value["prompts"]
    if not isinstance(entries, list) or not all(isinstance(prompt, dict) for prompt in entries):
        raise InvalidInput(f"{where}.prompts: expected a list of objects")
    if len(entries) > MAX_PROMPTS:
        raise InvalidInput(f"{where}.prompts: {len(entries):,} are too many; at most {MAX_PROMPTS:,} are possible")
    known: dict[str, Prompt] = {}
    enabled: dict[str, bool] = {}
    for index, prompt in enumerate(entries):
        place = f"{where}.prompts[{index}]"
        read = _prompt(prompt, place)
        known[read.identifier] = read
        enabled[read.identifier] = prompt.get("enabled") is not False
    order = _order(value.get("prompt_order"), f"{where}.prompt_order")
    if order is None:
        order = enabled
    return [known.get(key, Prompt(key)) for key, on in order.items() if on and (key in known or key in MARKERS)]


def _prompt(value: dict[str, Any], where: str) -> Prompt:
    role = value.get("role") or "system"
    if role not in _ROLES:
        raise InvalidInput(f"{where}.role: expected one of {', '.join(_ROLES)}")
    depth = value.get("injection_depth", DEFAULT_DEPTH) if value.get("injection_position") == 1 else None
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int)):
        raise InvalidInput(f"{where}.injection_depth: expected a whole number, not {kind_of(depth)}")
    return Prompt(
        identifier=_text(value, "identifier", where) or _text(value, "name", where) or where,
        content=_text(value, "content", where),
        role=role,
        depth=None if depth is None else max(0, depth),
        replaceable=value.get("forbid_overrides") is not True,
    )


def _order(value: Any, where: str) -> dict[str, bool] | None:
    """Return which prompts come, in which order, from `[{identifier, enabled}]` or a list of such by character."""
    if not value:
        return None
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidInput(f"{where}: expected a list of objects")
    if "order" in value[0]:
        shared = next((item for item in value if item.get("character_id") == _DEFAULT_CHARACTER), value[-1])
        return _order(shared.get("order"), f"{where}.order")
    return {str(item.get("identifier")): item.get("enabled") is not False for item in value}


def _text(value: dict[str, Any], key: str, where: str) -> str:
    found = value.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise InvalidInput(f"{where}.{key}: expected text, not {kind_of(found)}")
    return found
