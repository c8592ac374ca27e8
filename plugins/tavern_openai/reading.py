"""Reads requests of chat completions: what is said, and what is asked for, in the terms of the host."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.errors import InvalidInput
from tavern_llm.api.llm import ChatImage, ChatMessage, LlmToolCall
from tavern_openai.api.requests import ChatBody
from tavern_openai.errors import wrong

PARAMETERS = frozenset({"temperature", "top_p", "top_k", "min_p", "n", "seed", "stop", "logit_bias", "verbosity"})
PARAMETERS |= {"max_tokens", "max_completion_tokens", "presence_penalty", "frequency_penalty", "repetition_penalty"}
PARAMETERS |= {"parallel_tool_calls", "reasoning_effort"}
"""What is passed on to the server of a language model; an agent and a workflow have their own."""

IGNORED = frozenset({"store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"})
IGNORED |= {"prediction", "modalities", "include", "truncation", "top_logprobs", "background"}
"""What changes nothing here; other than its usual value it is refused where it would."""

_USUAL: dict[str, tuple[Any, ...]] = {"modalities": (["text"],), "background": (False,), "top_logprobs": (0,)}
_ROLES = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_OWN = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio", "annotations"})


@dataclass(frozen=True)
class Asked:
    """What a request asks for. `conversation` is that of an agent which it continues; `user` names one where the client
    keeps none itself."""

    model: str
    messages: list[ChatMessage]
    tools: list[dict[str, JsonValue]] = field(default_factory=list)
    tool_choice: str | None = None
    schema: dict[str, JsonValue] | None = None
    parameters: dict[str, JsonValue] = field(default_factory=dict)
    conversation: str | None = None
    user: str | None = None

    @property
    def last(self) -> ChatMessage:
        """The message that is to be answered."""
        return self.messages[-1]


def read_chat(body: ChatBody) -> Asked:
    """Return the request in a body. Raises `InvalidInput` whose details name the `param` that is wrong."""
    parameters = read_parameters(body.further())
    schema = None
    if body.response_format is not None:
        schema, more = read_format(body.response_format)
        parameters |= more
    return Asked(
        model=body.model,
        messages=[_message(value, f"messages[{index}]") for index, value in enumerate(body.messages)],
        tools=read_tools(body.tools or []),
        tool_choice=read_choice(body.tool_choice) if body.tools else None,
        schema=schema,
        parameters=parameters,
        conversation=(body.metadata or {}).get("conversation") or None,
        user=body.user or None,
    )


def read_parameters(further: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return the parameters of a model among the further fields of a body. Raises `InvalidInput`."""
    for name, value in further.items():
        if name in PARAMETERS:
            continue
        if name not in IGNORED or value not in _USUAL.get(name, (value,)):
            raise wrong(f"{name} = {json.dumps(value)[:80]} is not supported here", name)
    return {name: value for name, value in further.items() if name in PARAMETERS}


def read_format(value: Mapping[str, Any]) -> tuple[dict[str, JsonValue] | None, dict[str, JsonValue]]:
    """Return the schema that an answer must follow, or the parameter that asks for any JSON. Raises `InvalidInput`."""
    kind = value.get("type")
    nested = value.get("json_schema")
    schema = (nested if isinstance(nested, dict) else value).get("schema")
    if kind == "json_schema" and isinstance(schema, dict):
        return schema, {}
    if kind == "json_object":
        return None, {"response_format": {"type": "json_object"}}
    if kind == "text":
        return None, {}
    raise wrong("response_format: expected text, json_object, or json_schema with a schema", "response_format")


def read_tools(tools: list[dict[str, Any]]) -> list[dict[str, JsonValue]]:
    """Return functions that a model may call. Raises `InvalidInput` for tools of other kinds."""
    for index, tool in enumerate(tools):
        function = tool.get("function")
        if (
            tool.get("type") != "function"
            or not isinstance(function, dict)
            or not isinstance(function.get("name"), str)
        ):
            raise wrong(f"tools[{index}]: only functions with a name are supported", f"tools[{index}]")
    return tools


def read_choice(choice: Any) -> str | None:
    """Return a choice of tools in words. Raises `InvalidInput`."""
    if isinstance(choice, dict):
        function = choice.get("function")
        choice = function.get("name") if isinstance(function, dict) else choice.get("name")
        if not isinstance(choice, str):
            raise wrong("tool_choice: expected auto, none, required, or a function with its name", "tool_choice")
    return choice or None


def _message(value: Mapping[str, Any], where: str) -> ChatMessage:
    role = _ROLES.get(str(value.get("role")))
    if role is None:
        raise wrong(f"{where}.role: expected one of {', '.join(_ROLES)}, found {value.get('role')!r:.40}", where)
    text, images = _content(value.get("content"), f"{where}.content")
    calls = value.get("tool_calls") or []
    if role == "tool" and not isinstance(value.get("tool_call_id"), str):
        raise wrong(f"{where}.tool_call_id: a message of the role tool says which call it answers", where)
    try:
        return ChatMessage(
            role=role,
            content=text,
            images=tuple(images),
            name=value.get("name"),
            tool_calls=tuple(_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)),
            tool_call_id=value.get("tool_call_id"),
            extra={key: item for key, item in value.items() if key not in _OWN and item is not None} or None,
        )
    except (ValueError, TypeError):
        raise wrong(f"{where} is no message of a chat completion", where) from None


def _call(value: Any, where: str) -> LlmToolCall:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise wrong(f"{where}: expected a call of a function with its name and arguments", where)
    extra = {key: item for key, item in value.items() if key not in ("id", "type", "function", "index")}
    arguments = function.get("arguments", "{}")
    return LlmToolCall(id=str(value.get("id")), name=function["name"], arguments=arguments, extra=extra or None)


def _content(content: Any, where: str) -> tuple[str, list[ChatImage]]:
    """Return the text of a message, and its images and PDF files."""
    if content is None or isinstance(content, str):
        return content or "", []
    if not isinstance(content, list):
        raise wrong(f"{where}: expected a text or a list of parts", where)
    texts, images = list[str](), list[ChatImage]()
    for index, part in enumerate(content):
        place = f"{where}[{index}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("text", "input_text", "output_text", "refusal"):
            texts.append(str(part.get("text", part.get("refusal", ""))))
        elif kind in ("image_url", "input_image"):
            address = part.get("image_url")
            images.append(_image(address.get("url") if isinstance(address, dict) else address, "image/", place))
        elif kind in ("file", "input_file"):
            file = part.get("file") if kind == "file" else part
            images.append(_image(file.get("file_data") if isinstance(file, dict) else None, "application/pdf", place))
        else:
            raise wrong(f"{place}: parts of the type {kind!r:.40} are not supported", place)
    return "\n".join(texts), images


def _image(address: Any, kind: str, where: str) -> ChatImage:
    is_data = isinstance(address, str) and address.startswith(f"data:{kind}") and ";base64," in address[:200]
    is_far = kind == "image/" and isinstance(address, str) and address.startswith(("https://", "http://"))
    if not (is_data or is_far):
        what = "an image's address or its data" if kind == "image/" else "the data of a PDF file"
        raise wrong(f"{where}: expected {what} (data:{kind}…;base64,…)", where)
    return ChatImage(url=address)


def require_text(message: ChatMessage, *, with_images: bool = False) -> str:
    """Return the text that an agent or a workflow is given. Raises `InvalidInput` where there is none, or images that
    are not taken."""
    if message.role != "user" or not message.content.strip():
        raise wrong("messages: the last one must be the user's, with a text", "messages")
    if message.images and not with_images:
        raise wrong("messages: a workflow takes texts; images and files go to agents and language models", "messages")
    return message.content


def picture_of(image: ChatImage) -> tuple[str, bytes] | None:
    """Return the media type and the bytes of an image that came with the request; None for one at an address. Raises
    `InvalidInput` for another file than an image, and for what is no base64."""
    address = image.url or ""
    if not address.startswith("data:"):
        return None
    head, _, data = address.partition(",")
    kind = head.removeprefix("data:").partition(";")[0]
    if not kind.startswith("image/"):
        raise wrong("messages: agents take images; other files go to language models", "messages")
    try:
        return kind, b64decode(data, validate=True)
    except ValueError:
        raise wrong("messages: an image is not base64", "messages") from None


def refuse_tools(asked: Asked, what: str) -> None:
    """Raise `InvalidInput` where a request brings tools, or the form of the answer, to who has its own."""
    if asked.tools:
        raise InvalidInput(f"{what} calls the tools that it has; leave tools out", param="tools")
    if asked.schema is not None or "response_format" in asked.parameters:
        raise InvalidInput(f"{what} answers in its own form; leave response_format out", param="response_format")
