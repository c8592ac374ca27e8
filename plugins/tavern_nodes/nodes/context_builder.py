"""`ContextBuilder`: makes the messages for a language model; the rules are in `prompts`, `worldbooks`, `presets`."""

from __future__ import annotations

from typing import Any

from tavern_host import NodeDefinition, node
from tavern_nodes.api.patterns import within
from tavern_nodes.conversation import read_messages
from tavern_nodes.platform_slots import slot
from tavern_nodes.prompts import build_messages

CONTEXT_BUILDER = NodeDefinition(
    type="ContextBuilder",
    namespace="core",
    category="Processors",
    display_name="🧱上下文构建器",
    description="Makes the messages for a language model of a preset, a world book, a character and a conversation.",
    width=350,
    inputs={
        "presetData": slot("OBJECT", "预设数据", "Which prompts stand where; from PresetLoader.", required=False),
        "worldBookData": slot(
            "OBJECT", "世界书数据", "What the conversation may call up; from WorldBookLoader.", required=False
        ),
        "characterData": slot(
            "OBJECT",
            "角色数据",
            "Whom the model plays; from CharacterCardLoader.",
            required=False,
            categories=("CharacterProfile",),
        ),
        "historyMessages": slot(
            "ARRAY",
            "历史消息",
            "The conversation so far; from HistoryLoader.",
            required=False,
            categories=("ChatHistory",),
        ),
    },
    outputs={
        "finalMessages": slot(
            "ARRAY", "最终消息", "The messages, each with role and content.", categories=("ChatHistory",)
        )
    },
)


@node(definition=CONTEXT_BUILDER)
async def context_builder(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Build the messages on a thread, since a world book may hold many keys. Raises `InvalidInput`."""
    who = "ContextBuilder"
    history = read_messages(inputs.get("historyMessages"), f"{who}: historyMessages")
    preset, world, character = (inputs.get(key) for key in ("presetData", "worldBookData", "characterData"))
    messages = await within(lambda allowance: build_messages(preset, world, character, history, allowance, who), who)
    return {"finalMessages": messages}
