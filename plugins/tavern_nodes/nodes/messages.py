"""Nodes that make lists of chat messages; on edges these are JSON text."""

from __future__ import annotations

from typing import Any

from tavern_host import InvalidInput, NodeDefinition, node
from tavern_nodes.conversation import check_role, message, read_messages, write_messages
from tavern_nodes.platform_slots import choices, slot
from tavern_nodes.values import as_text, kind_of

_HISTORY_TURNS = range(1, 5)
_HISTORY_CATEGORIES = ("ChatHistory", "Json")
_COUNTS = {1: "first", 2: "second", 3: "third", 4: "fourth"}


def _history_inputs() -> dict[str, Any]:
    found = {}
    for turn in _HISTORY_TURNS:
        found[f"role{turn}"] = slot(
            "STRING",
            f"角色 {turn}",
            f"Who says the {_COUNTS[turn]} message.",
            required=False,
            categories=("ComboOption",),
            config={"suggestions": choices("user", "assistant", "system")},
        )
        found[f"content{turn}"] = slot(
            "STRING",
            f"内容 {turn}",
            f"What the {_COUNTS[turn]} message says; where it is empty there is none.",
            required=False,
            config={"multiline": True},
        )
    return found


HISTORY = NodeDefinition(
    type="History",
    namespace="core",
    category="TEST-LLM",
    display_name="🦉历史记录",
    description="Makes a conversation of up to four messages.",
    inputs=_history_inputs(),
    outputs={"history": slot("STRING", "历史记录", "The conversation as JSON text.", categories=_HISTORY_CATEGORIES)},
)


@node(definition=HISTORY)
def history(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, str]:
    """Make messages of what has content; one without a role is the user's. Raises `InvalidInput`."""
    messages = []
    for turn in _HISTORY_TURNS:
        content = as_text(inputs.get(f"content{turn}"), f"History: content{turn}")
        if content:
            role = check_role(inputs.get(f"role{turn}") or "user", f"History: role{turn}")
            messages.append(message(role, content))
    return {"history": write_messages(messages, "History")}


MERGE_HISTORY = NodeDefinition(
    type="MergeHistory",
    namespace="core",
    category="TEST-LLM",
    display_name="🦉合并历史记录",
    description="Puts up to four conversations one after another.",
    inputs={
        f"history{turn}": slot(
            "STRING",
            f"历史记录 {turn}",
            f"The {_COUNTS[turn]} conversation, as JSON text.",
            required=False,
            categories=_HISTORY_CATEGORIES,
        )
        for turn in _HISTORY_TURNS
    },
    outputs={"history": slot("STRING", "合并历史记录", "All messages, as JSON text.", categories=_HISTORY_CATEGORIES)},
)


@node(definition=MERGE_HISTORY)
def merge_history(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, str]:
    """Put the messages of all histories into one. Raises `InvalidInput` naming input and message."""
    keys = [f"history{turn}" for turn in _HISTORY_TURNS]
    found = [item for key in keys for item in read_messages(inputs.get(key), f"MergeHistory: {key}")]
    return {"history": write_messages(found, "MergeHistory")}


CREATE_MESSAGE = NodeDefinition(
    type="CreateMessage",
    namespace="core",
    category="LLM",
    display_name="💬创建消息",
    description="Makes one message of a conversation.",
    width=300,
    inputs={
        "role": slot(
            "STRING",
            "角色",
            "Who says it.",
            required=True,
            categories=("ComboOption",),
            config={"default": "user", "suggestions": choices("system", "user", "assistant")},
        ),
        "content": slot(
            "STRING",
            "内容",
            "What the message says.",
            required=True,
            categories=("UiBlock", "CanPreview"),
            config={"default": "", "multiline": True, "placeholder": "请输入消息内容..."},
        ),
    },
    outputs={
        "messages": slot(
            "STRING", "消息", "A list of the one message, as JSON text.", categories=("Json", "ChatHistory")
        )
    },
)


@node(definition=CREATE_MESSAGE)
def create_message(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, str]:
    """Make a list of one message. Raises `InvalidInput`."""
    role = check_role(inputs.get("role", "user"), "CreateMessage: role")
    content = inputs.get("content", "")
    if not isinstance(content, str):
        raise InvalidInput(f"CreateMessage: content must be text, not {kind_of(content)}")
    return {"messages": write_messages([message(role, content)], "CreateMessage")}


MERGE_MESSAGES = NodeDefinition(
    type="MergeMessages",
    namespace="core",
    category="LLM",
    display_name="🤝合并消息",
    description="Makes one conversation of messages and lists of messages, in the order of their connections.",
    width=200,
    inputs={
        "message_inputs": slot(
            "STRING",
            "消息输入",
            "Messages or lists of messages, as JSON text.",
            required=True,
            multi=True,
            categories=("Json", "ChatMessage", "ChatHistory"),
        )
    },
    outputs={"messages": slot("STRING", "消息列表", "All messages, as JSON text.", categories=("Json", "ChatHistory"))},
)


@node(definition=MERGE_MESSAGES)
def merge_messages(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, str]:
    """Put all messages into one list. Raises `InvalidInput` naming connection and message."""
    value = inputs.get("message_inputs")
    parts = value if isinstance(value, list) else [value]
    where = "MergeMessages: message_inputs"
    found = [item for index, part in enumerate(parts) for item in read_messages(part, f"{where}[{index}]")]
    return {"messages": write_messages(found, "MergeMessages")}
