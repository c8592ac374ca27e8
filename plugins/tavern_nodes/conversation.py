"""Lists of chat messages: reads them from JSON text or data, and writes them as JSON text.

A message is an object with `role` and `content`; what else it holds stays with it. Talks to nobody.
"""

from __future__ import annotations

from typing import Any

from tavern_host import InvalidInput
from tavern_llm.api.llm import ChatMessage
from tavern_nodes.documents import read_json
from tavern_nodes.values import bounded, kind_of, show, to_json

ROLES = ("system", "user", "assistant", "tool")

MAX_MESSAGES = 100_000
"""How many messages a list may hold."""

Message = dict[str, Any]


def message(role: str, content: str, **more: Any) -> Message:
    """Return a message."""
    return {"role": role, "content": content, **more}


def read_messages(value: Any, where: str) -> list[Message]:
    """Return the messages of a list, of one message, or of either as JSON text; of nothing none.

    Raises `InvalidInput` that begins with `where` and names the message.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return []
    if isinstance(value, str):
        value = read_json(value, where)
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise InvalidInput(f"{where}: expected a list of messages, not {kind_of(value)}")
    bounded(len(value), MAX_MESSAGES, where, "messages")
    return [_read(item, f"{where}[{index}]") for index, item in enumerate(value)]


def check_role(role: Any, where: str) -> str:
    """Return the role. Raises `InvalidInput` naming those there are."""
    if role not in ROLES:
        raise InvalidInput(f"{where}: expected one of {', '.join(ROLES)}, not {show(role)}")
    return str(role)


def to_chat(messages: list[Message]) -> list[ChatMessage]:
    """Return the messages as a language model gets them."""
    return [
        ChatMessage(
            role=item["role"],
            content=item["content"],
            name=item["name"] if isinstance(item.get("name"), str) and item["name"] else None,
        )
        for item in messages
    ]


def write_messages(messages: list[Message], where: str) -> str:
    """Return the messages as JSON text. Raises `InvalidInput` where that is too long."""
    return to_json(messages, where)


def _read(value: Any, where: str) -> Message:
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: expected an object with role and content, not {kind_of(value)}")
    check_role(value.get("role"), f"{where}.role")
    if not isinstance(value.get("content"), str):
        raise InvalidInput(f"{where}.content: expected text, not {kind_of(value.get('content'))}")
    return value
