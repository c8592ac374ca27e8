"""Reads conversations and tools that came as JSON, from workflows and files, and names what is wrong by its place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tavern_host.contracts.errors import InvalidInput
from tavern_llm.api.llm import ChatMessage, Transcript
from tavern_llm.options import mistakes

ROLES = ("system", "user", "assistant", "tool")
_KNOWN = frozenset(ChatMessage.model_fields)
_READER = TypeAdapter(list[ChatMessage])


def read_messages(messages: list[Any] | Transcript, system_prompt: str = "") -> Sequence[ChatMessage]:
    """Return messages, after the system prompt if there is one. Calls of tools may be in OpenAI's own form; keys that
    messages do not have are left out. Raises `InvalidInput` naming the wrong one."""
    found = [ChatMessage(role="system", content=system_prompt)] if system_prompt else []
    if messages and isinstance(messages, Transcript):
        return messages.behind(found[0]) if found else messages
    try:
        found += _READER.validate_python([_known(message, index) for index, message in enumerate(messages)])
    except ValidationError as error:
        (index, *_), text = mistakes(error)[0]
        raise InvalidInput(f"messages[{index}].{text.removeprefix(f'{index}.')}") from None
    if not found:
        raise InvalidInput("messages: expected at least one message, or a system prompt")
    return found


def read_tools(tools: list[Any] | None) -> list[dict[str, Any]]:
    """Return the tools of a request, as `ToolManager.native_schemas` gives them. Raises `InvalidInput`."""
    for index, tool in enumerate(tools or []):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise InvalidInput(f'tools[{index}]: expected {{"type": "function", "function": {{"name", …}}}}')
    return list(tools or [])


def _known(value: Any, index: int) -> dict[str, Any]:
    """Return the known fields of a message. Raises `InvalidInput` where its role, content or call id is wrong."""
    where = f"messages[{index}]"
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: expected an object with role and content, found {type(value).__name__}")
    role, content = value.get("role"), value.get("content")
    if role not in ROLES:
        raise InvalidInput(f"{where}.role: expected one of {', '.join(ROLES)}, found {role!r}")
    if content is None and value.get("tool_calls"):
        content = ""
    if not isinstance(content, str):
        raise InvalidInput(f"{where}.content: expected a text, found {type(content).__name__}")
    if role == "tool" and not value.get("tool_call_id"):
        raise InvalidInput(f"{where}.tool_call_id: a message of the role tool says which call it answers")
    known = {key: item for key, item in value.items() if key in _KNOWN and item is not None}
    calls = value.get("tool_calls")
    if isinstance(calls, list):
        known["tool_calls"] = [_call(call) for call in calls]
    return {**known, "content": content}


def _call(value: Any) -> Any:
    """Return a call of a tool in the form of `LlmToolCall`: OpenAI nests name and arguments in a `function`."""
    if not isinstance(value, dict):
        return value
    function = value.get("function")
    if isinstance(function, dict):
        value = {"id": value.get("id"), **{key: function[key] for key in ("name", "arguments") if key in function}}
    if isinstance(value.get("arguments"), dict):
        value = {**value, "arguments": json.dumps(value["arguments"], ensure_ascii=False)}
    return value
