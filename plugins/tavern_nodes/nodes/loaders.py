"""Nodes that load presets, world books, character cards, conversations and rules from the project's `files/`.

Their results are used again until the file changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tavern_host import InvalidInput, NodeContext, NodeDefinition, NotFound, PluginContext, TavernError, node
from tavern_nodes.api.patterns import Allowance, within
from tavern_nodes.cards import read_card_file
from tavern_nodes.conversation import read_messages
from tavern_nodes.documents import decode, read_json, read_yaml
from tavern_nodes.files import read_inside, stamp_inside
from tavern_nodes.platform_slots import choices, slot
from tavern_nodes.presets import read_preset
from tavern_nodes.rules import Rule, read_rules
from tavern_nodes.values import kind_of, shorten
from tavern_nodes.worldbooks import read_book


def _loader(
    type: str,
    display_name: str,
    description: str,
    *,
    config: tuple[str, str, str],
    kinds: dict[str, str],
    placeholder: str,
    outputs: dict[str, Any],
) -> NodeDefinition:
    key, label, hint = config
    return NodeDefinition(
        type=type,
        namespace="core",
        category="Loaders",
        display_name=display_name,
        description=description,
        width=300,
        inputs={},
        outputs=outputs,
        config_schema={
            key: slot(
                "STRING",
                label,
                hint,
                required=True,
                categories=("ResourceId", "FilePath"),
                config={
                    "acceptedTypes": choices(*kinds, labels=tuple(kinds.values())),
                    "placeholder": placeholder,
                },
            )
        },
    )


def _stamp(key: str) -> Callable[..., Any]:
    """Return the `is_changed` of a loader whose configuration names the file under `key`.

    What cannot be read has a stamp too, so that the node is run and says why.
    """

    async def changed(inputs: dict[str, Any], config: dict[str, Any], context: PluginContext) -> list[Any]:
        path: Any = config.get(key)
        try:
            return [path, *await asyncio.to_thread(stamp_inside, context.project.folder("files"), path)]
        except TavernError as error:
            return [error.message]

    return changed


async def _load(
    context: NodeContext,
    path: Any,
    who: str,
    read: Callable[[bytes, str, str], Any],
    check: Callable[[Any, str, Allowance], Any] | None = None,
) -> Any:
    """Return `read(content, path, where)` of a file, done on a thread; `check` it where that may take long."""
    if not path:
        raise InvalidInput(f"{who}: no file is chosen; name one by its path in the project's files/ folder")

    def work() -> Any:
        try:
            data = read_inside(context.plugin.project.folder("files"), path)
        except (InvalidInput, NotFound) as error:
            raise type(error)(f"{who}: {error.message}") from None
        return read(data, path, f"{who}: {shorten(path)!r}")

    value = await asyncio.to_thread(work)
    if check is not None:
        await within(lambda allowance: check(value, f"{who}: {shorten(path)!r}", allowance), who)
    return value


def _json(data: bytes, name: str, where: str) -> Any:
    return read_json(decode(data, where), where)


def _json_or_yaml(data: bytes, name: str, where: str) -> Any:
    """A name that ends in `.json` says JSON, anything else YAML, of which JSON is nearly a part."""
    text = decode(data, where)
    return read_json(text, where) if name.lower().endswith(".json") else read_yaml(text, where)


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{where} must hold an object, not {kind_of(value)}")
    return value


PRESET_LOADER = _loader(
    "PresetLoader",
    "💾加载预设",
    "Loads a preset: the prompts that stand around a conversation.",
    config=("presetResource", "预设文件", "A JSON file in the project's files/ folder."),
    kinds={"json": "预设 (JSON)"},
    placeholder="选择一个预设文件...",
    outputs={"presetData": slot("OBJECT", "预设数据", "The preset.")},
)


@node(definition=PRESET_LOADER, is_changed=_stamp("presetResource"))
async def preset_loader(inputs: dict[str, Any], config: dict[str, Any], context: NodeContext) -> dict[str, Any]:
    """Load a preset as it is written, after a check. Raises `InvalidInput`, `NotFound`."""

    def read(data: bytes, name: str, where: str) -> dict[str, Any]:
        value = _object(_json(data, name, where), where)
        read_preset(value, where)
        return value

    return {"presetData": await _load(context, config.get("presetResource"), "PresetLoader", read)}


WORLD_BOOK_LOADER = _loader(
    "WorldBookLoader",
    "📚加载世界书",
    "Loads a world book: entries that a conversation calls up by their keys.",
    config=("worldBookResource", "世界书文件", "A JSON or YAML file in the project's files/ folder."),
    kinds={"json": "世界书 (JSON)", "yaml": "世界书 (YAML)"},
    placeholder="选择一个世界书文件...",
    outputs={"worldBookData": slot("OBJECT", "世界书数据", "The world book.")},
)


@node(definition=WORLD_BOOK_LOADER, is_changed=_stamp("worldBookResource"))
async def world_book_loader(inputs: dict[str, Any], config: dict[str, Any], context: NodeContext) -> dict[str, Any]:
    """Load a world book as it is written, after a check; a list of entries becomes an object with them.

    Raises `InvalidInput`, `NotFound`.
    """

    def read(data: bytes, name: str, where: str) -> dict[str, Any]:
        value = _json_or_yaml(data, name, where)
        return {"entries": value} if isinstance(value, list) else _object(value, where)

    path = config.get("worldBookResource")
    return {"worldBookData": await _load(context, path, "WorldBookLoader", read, read_book)}


CHARACTER_CARD_LOADER = _loader(
    "CharacterCardLoader",
    "👤加载角色卡",
    "Loads a character card, from JSON or from the picture that carries it.",
    config=("cardResource", "角色卡文件", "A JSON or PNG file in the project's files/ folder."),
    kinds={"json": "角色卡 (JSON)", "png": "角色卡 (PNG)"},
    placeholder="选择一个角色卡文件...",
    outputs={
        "characterData": slot(
            "OBJECT", "角色数据", "The card's fields, of any version, in one object.", categories=("CharacterProfile",)
        )
    },
)


@node(definition=CHARACTER_CARD_LOADER, is_changed=_stamp("cardResource"))
async def character_card_loader(inputs: dict[str, Any], config: dict[str, Any], context: NodeContext) -> dict[str, Any]:
    """Load a card of version 1, 2 or 3 as one flat object. Raises `InvalidInput`, `NotFound`."""

    def read(data: bytes, name: str, where: str) -> dict[str, Any]:
        return read_card_file(data, where)

    return {"characterData": await _load(context, config.get("cardResource"), "CharacterCardLoader", read)}


HISTORY_LOADER = _loader(
    "HistoryLoader",
    "📜加载历史",
    "Loads a conversation: a list of messages with role and content.",
    config=("historyResource", "历史文件", "A JSON file in the project's files/ folder."),
    kinds={"json": "历史 (JSON)"},
    placeholder="选择一个历史文件...",
    outputs={"historyMessages": slot("ARRAY", "历史消息", "The messages.", categories=("ChatHistory",))},
)


@node(definition=HISTORY_LOADER, is_changed=_stamp("historyResource"))
async def history_loader(inputs: dict[str, Any], config: dict[str, Any], context: NodeContext) -> dict[str, Any]:
    """Load messages: a list of them, or an object with such under `messages`. Raises `InvalidInput`, `NotFound`."""

    def read(data: bytes, name: str, where: str) -> list[Any]:
        value = _json(data, name, where)
        return read_messages(value["messages"] if isinstance(value, dict) and "messages" in value else value, where)

    return {"historyMessages": await _load(context, config.get("historyResource"), "HistoryLoader", read)}


REGEX_RULE_LOADER = _loader(
    "RegexRuleLoader",
    "⚙️加载正则规则",
    "Loads replacement rules with regular expressions, for ApplyRegex.",
    config=("ruleResource", "规则文件", "A JSON or YAML file in the project's files/ folder."),
    kinds={"json": "规则 (JSON)", "yaml": "规则 (YAML)"},
    placeholder="选择一个规则文件...",
    outputs={"regexRules": slot("ARRAY", "正则规则", "The rules.")},
)


@node(definition=REGEX_RULE_LOADER, is_changed=_stamp("ruleResource"))
async def regex_rule_loader(inputs: dict[str, Any], config: dict[str, Any], context: NodeContext) -> dict[str, Any]:
    """Load rules, each as `{name, pattern, replacement, flags, enabled}`, after a check of the patterns of those
    that are enabled. Raises `InvalidInput`, `NotFound`."""

    def read(data: bytes, name: str, where: str) -> list[Rule]:
        return read_rules(_json_or_yaml(data, name, where), where)

    def check(rules: list[Rule], where: str, allowance: Allowance) -> None:
        for rule in rules:
            if rule.enabled:
                rule.compiled(where, allowance)

    rules = await _load(context, config.get("ruleResource"), "RegexRuleLoader", read, check)
    return {"regexRules": [rule.to_json() for rule in rules]}
