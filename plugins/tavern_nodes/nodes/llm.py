"""The platform's nodes that ask a language model, all through the service `llm`.

The operator of the host configures the servers and their keys, under the models of the service. A
workflow may come from anybody, so it can neither bring an address, to which prompts and keys would go, nor hold a
key, which would stand in its file, in events and in the history of runs. `api_settings` therefore is no more than
`{"use_env_vars": true}`, a reference to what the host has been set up with; everything else is refused by name.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from tavern_host import InvalidInput, NodeContext, NodeDefinition, node
from tavern_host.contracts.errors import ServiceUnavailable
from tavern_host.contracts.llm import LLM, Llm, LlmChunk, LlmRequest, LlmUsage
from tavern_nodes.conversation import Message, message, read_messages, to_chat, write_messages
from tavern_nodes.documents import plain, read_json
from tavern_nodes.platform_slots import choices, slot
from tavern_nodes.values import MAX_TEXT, bounded, kind_of, show

USE_ENVIRONMENT = "use_env_vars"
_REFUSED = frozenset({"apikey", "authorization", "baseurl"})
"""What settings may not say, in small letters and without underscores."""

_HOW = (
    "whoever runs the host sets up models under extensions.tavern-llm.models in host.yaml, with base_url and "
    "api_key_env; then name the model in the node and switch use_env_vars on"
)

API_SETTINGS = NodeDefinition(
    type="APISettings",
    namespace="core",
    category="TEST-LLM",
    display_name="🦉API设置",
    description="Says that language models are reached as the host is set up; addresses and keys are not taken from a "
    "workflow.",
    inputs={
        USE_ENVIRONMENT: slot(
            "BOOLEAN",
            "使用环境变量",
            "Use the addresses and keys that the host is set up with; nothing else is possible.",
            required=True,
            config={"default": False},
        ),
        "base_url": slot(
            "STRING",
            "API 基础 URL",
            "Not used: a workflow cannot choose the server.",
            required=True,
            categories=("Url",),
            config={"default": "https://api.openai.com/v1", "multiline": False},
        ),
        "api_key": slot(
            "STRING",
            "API 密钥",
            "Leave it empty: a key in a workflow is seen by everybody who gets the workflow.",
            required=True,
            config={"default": "", "multiline": False},
        ),
    },
    outputs={
        "api_settings": slot(
            "OBJECT", "API 配置", "A reference to how the host is set up, without any key.", categories=("LlmConfig",)
        )
    },
)


@node(definition=API_SETTINGS)
def api_settings(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Give the reference. Raises `InvalidInput` where the settings of the workflow itself are asked for.

    What was entered as a key is passed on nowhere and shown in no message.
    """
    if inputs.get(USE_ENVIRONMENT, False) is not True:
        has_key = bool(inputs.get("api_key"))
        what = "the api_key of a workflow is not used (remove it)" if has_key else "base_url is not used"
        raise InvalidInput(f"APISettings: {what}; {_HOW}")
    return {"api_settings": {USE_ENVIRONMENT: True}}


def check_settings(value: Any, where: str) -> None:
    """Raise `InvalidInput` for settings that ask for an address or a key of their own."""
    if value is None:
        return
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: expected an object, as APISettings gives it, not {kind_of(value)}")
    if any(value[name] and str(name).lower().replace("_", "") in _REFUSED for name in value):
        raise InvalidInput(f"{where}: addresses and keys are not taken from a workflow; {_HOW}")


_TEMPERATURE = {"default": 0.7, "min": 0, "max": 2, "step": 0.1}
_MAX_TOKENS = {"default": 512, "min": 1, "max": 16384}

OPENAI_CHAT = NodeDefinition(
    type="OpenAIChat",
    namespace="core",
    category="TEST-LLM",
    display_name="🦉OpenAI连续聊天",
    description="Goes on with a conversation. It remembers nothing itself: bring the history back to external_history.",
    inputs={
        "api_settings": slot("OBJECT", "API配置", "From APISettings.", required=True, categories=("LlmConfig",)),
        "model": slot(
            "STRING",
            "模型名称",
            "The name of a model that the host is set up with; empty for the default.",
            required=True,
            config={"default": "gpt-4o", "placeholder": "输入模型名称，如 gpt-4o, gemini-1.5-flash-exp-0827 等"},
        ),
        "temperature": slot(
            "FLOAT", "温度参数", "How freely the model chooses its words.", required=True, config=_TEMPERATURE
        ),
        "max_tokens": slot("INTEGER", "最大令牌数", "How long the answer may be.", required=True, config=_MAX_TOKENS),
        "system_prompt": slot(
            "STRING",
            "系统提示",
            "What the model is told before all else.",
            required=True,
            categories=("Prompt",),
            config={"multiline": True},
        ),
        "clear_history": slot(
            "BOOLEAN",
            "清除历史记录",
            "Begin anew: leave out what external_history brings.",
            required=True,
            config={"default": False},
        ),
        "user_input": slot(
            "STRING", "用户输入", "What is said now.", required=True, categories=("Prompt",), config={"multiline": True}
        ),
        "external_history": slot(
            "STRING",
            "外部历史记录",
            "What was said so far, as JSON text.",
            required=False,
            categories=("ChatHistory", "Json"),
        ),
        "image": slot(
            "STRING",
            "图像输入",
            "Leave it empty: models are sent text only.",
            required=False,
            categories=("ImageData", "Url"),
        ),
    },
    outputs={
        "full_conversation": slot(
            "STRING",
            "完整对话历史",
            "The whole conversation with the system prompt and the answer, as JSON text.",
            categories=("ChatHistory",),
        ),
        "current_output": slot("STRING", "当前输出", "The answer.", categories=("LlmOutput",)),
        "history": slot(
            "STRING",
            "更新后的历史记录",
            "The conversation with the answer, without the system prompt, as JSON text.",
            categories=("ChatHistory", "Json"),
        ),
    },
)


@node(definition=OPENAI_CHAT, cached=False)
async def openai_chat(inputs: dict[str, Any], config: dict[str, Any], context: NodeContext) -> dict[str, str]:
    """Add what is said to the conversation, ask, and add the answer. Raises `InvalidInput`, and as `Llm` does."""
    who = "OpenAIChat"
    check_settings(inputs.get("api_settings"), f"{who}: api_settings")
    _check_image(inputs, who)
    past = (
        [] if inputs.get("clear_history") else read_messages(inputs.get("external_history"), f"{who}: external_history")
    )
    turns = [*past, message("user", _text(inputs, "user_input", who))]
    system = _system(inputs, who)
    request = _request([*system, *turns], inputs, OPENAI_CHAT, who, ("temperature", "max_tokens"))
    answer = await _llm(context, who).complete(request, call=context.call)
    turns.append(message("assistant", answer.text))
    return {
        "full_conversation": write_messages([*system, *turns], who),
        "current_output": answer.text,
        "history": write_messages(turns, who),
    }


OPENAI = NodeDefinition(
    type="OpenAI",
    namespace="core",
    category="TEST-LLM",
    display_name="🦉OpenAI格式聊天",
    description="Asks a language model and gives its answer, whole or as it comes.",
    inputs={
        "api_settings": slot("OBJECT", "API 设置", "From APISettings.", required=True, categories=("LlmConfig",)),
        "model": slot(
            "STRING",
            "模型",
            "The name of a model that the host is set up with; empty for the default.",
            required=True,
            config={
                "default": "deepseek-chat",
                "suggestions": choices(
                    "deepseek-chat", "chatgpt-4o-latest", "claude-sonnet-4-20250514", "gemini-2.5-flash-preview-05-20"
                ),
                "multiline": False,
                "placeholder": "输入模型名称",
            },
        ),
        "temperature": slot(
            "FLOAT", "温度", "How freely the model chooses its words.", required=True, config=_TEMPERATURE
        ),
        "max_tokens": slot("INTEGER", "最大令牌数", "How long the answer may be.", required=True, config=_MAX_TOKENS),
        "system_prompt": slot(
            "STRING",
            "系统提示",
            "What the model is told before all else.",
            required=True,
            categories=("Prompt", "UiBlock"),
            config={"default": "", "multiline": True, "placeholder": "系统提示词"},
        ),
        "prompt": slot(
            "STRING",
            "用户提示",
            "What is asked.",
            required=True,
            categories=("Prompt", "UiBlock"),
            config={"default": "", "multiline": True, "placeholder": "用户提示词"},
        ),
        "history": slot(
            "STRING",
            "聊天记录",
            "What was said before, as JSON text.",
            required=False,
            categories=("ChatHistory", "Json"),
        ),
        "image": slot(
            "STRING",
            "图像",
            "Leave it empty: models are sent text only.",
            required=False,
            categories=("ImageData", "Url"),
        ),
        "stream": slot(
            "BOOLEAN",
            "启用流式输出",
            "Give the answer piece by piece as it comes, not only as a whole.",
            required=False,
            config={"default": False},
        ),
    },
    outputs={
        "response": slot(
            "STRING", "生成回复 (批处理/完整流)", "The whole answer, once it is there.", categories=("LlmOutput",)
        ),
        "stream_output": slot(
            "STRING",
            "回复流 (流式)",
            "The pieces of the answer; none unless streaming is switched on.",
            stream=True,
            categories=("LlmOutput", "TextStream"),
        ),
    },
)


@node(definition=OPENAI, cached=False)
async def openai(inputs: dict[str, Any], config: dict[str, Any], context: NodeContext) -> AsyncIterator[dict[str, Any]]:
    """Ask, yield the pieces if wished, then the whole answer. Raises `InvalidInput`, and as `Llm` does."""
    who = "OpenAI"
    check_settings(inputs.get("api_settings"), f"{who}: api_settings")
    _check_image(inputs, who)
    messages = [
        *_system(inputs, who),
        *read_messages(inputs.get("history"), f"{who}: history"),
        message("user", _text(inputs, "prompt", who)),
    ]
    request = _request(messages, inputs, OPENAI, who, ("temperature", "max_tokens"))
    answer = _Answer()
    async with aclosing(_pieces(request, inputs.get("stream") is True, context, who, answer)) as pieces:
        async for piece in pieces:
            yield {"stream_output": piece}
    yield {"response": answer.text}


GENERIC_LLM_REQUEST = NodeDefinition(
    type="GenericLlmRequest",
    namespace="core",
    category="LLM",
    display_name="⚡通用 LLM 请求",
    description="Sends messages to the language model of a name and gives its answer, whole or as it comes.",
    width=350,
    inputs={
        "messages": slot(
            "STRING",
            "消息列表",
            'The conversation, as JSON text: `[{"role": "user", "content": "…"}]`.',
            categories=("Json", "ChatHistory", "NoDefaultEdit", "UiBlock"),
            config={"default": "[]", "languageHint": "json", "multiline": True},
        ),
        "parameters": slot(
            "STRING",
            "LLM 参数",
            'Further parameters of the model as JSON text, such as `{"temperature": 0.5}`. They count for more than '
            "the inputs of the same name.",
            required=False,
            categories=("Json", "LlmConfig", "NoDefaultEdit"),
            config={"default": "{}", "languageHint": "json"},
        ),
        "activated_model_id": slot(
            "STRING", "模型 ID", "The name of a model that the host is set up with; empty for the default."
        ),
        "temperature": slot(
            "FLOAT",
            "温度",
            "How freely the model chooses its words.",
            required=False,
            config={"default": 0.7, "min": 0, "max": 2, "step": 0.01},
        ),
        "max_tokens": slot(
            "INTEGER",
            "最大令牌数",
            "How long the answer may be.",
            required=False,
            config={"default": 2048, "min": 1, "max": 65536, "step": 64},
        ),
        "top_p": slot(
            "FLOAT",
            "Top P",
            "Choose only among the likeliest words that together have this probability.",
            required=False,
            config={"default": 1, "min": 0, "max": 1, "step": 0.01},
        ),
        "seed": slot(
            "INTEGER",
            "随机种子",
            "Makes answers repeatable where the model can do so; 0 sends none.",
            required=False,
            config={"default": 0, "min": 0, "step": 1},
        ),
        "stream": slot(
            "BOOLEAN",
            "启用流式输出",
            "Give the answer piece by piece as it comes, not only as a whole.",
            required=False,
            config={"default": False},
        ),
    },
    outputs={
        "response": slot(
            "OBJECT",
            "完整响应",
            "The whole answer, once it is there: text, model, finishReason, usage.",
            categories=("LlmOutput",),
        ),
        "responseText": slot(
            "STRING", "响应文本", "The text of the answer, once it is there.", categories=("LlmOutput",)
        ),
        "usage": slot("OBJECT", "Token 用量", "The tokens used, where the model says.", categories=("LlmOutput",)),
        "stream_output": slot(
            "STRING",
            "流式输出",
            "The pieces of the answer; none unless streaming is switched on.",
            stream=True,
            categories=("StreamChunk",),
        ),
    },
    config_schema={},
)


@node(definition=GENERIC_LLM_REQUEST, cached=False)
async def generic_llm_request(
    inputs: dict[str, Any], config: dict[str, Any], context: NodeContext
) -> AsyncIterator[dict[str, Any]]:
    """Ask, yield the pieces if wished, then the whole answer. Raises `InvalidInput`, and as `Llm` does."""
    who = "GenericLlmRequest"
    messages = read_messages(inputs.get("messages"), f"{who}: messages")
    given = {**inputs, "model": inputs.get("activated_model_id")}
    request = _request(messages, given, GENERIC_LLM_REQUEST, who, ("temperature", "max_tokens", "top_p"))
    seed = inputs.get("seed") or 0
    more = {"seed": _number(seed, "INTEGER", f"{who}: seed")} if seed else {}
    more |= _parameters(inputs.get("parameters"), f"{who}: parameters")
    request = request.model_copy(update={"parameters": request.parameters | more})
    answer = _Answer()
    async with aclosing(_pieces(request, inputs.get("stream") is True, context, who, answer)) as pieces:
        async for piece in pieces:
            yield {"stream_output": piece}
    yield {"response": answer.to_json(), "responseText": answer.text, "usage": answer.usage.to_json()}


class _Answer:
    """An answer as it grows."""

    def __init__(self) -> None:
        self.text = ""
        self.model: str | None = None
        self.finish_reason: str | None = None
        self.usage = LlmUsage()
        self._pieces: list[str] = []
        self._length = 0

    def add(self, chunk: LlmChunk, who: str) -> None:
        """Add a piece. Raises `InvalidInput` where the answer grows over `MAX_TEXT`."""
        self._pieces.append(chunk.text)
        self._length += len(chunk.text)
        bounded(self._length, MAX_TEXT, who, "characters")
        self.finish_reason = chunk.finish_reason or self.finish_reason
        self.usage = chunk.usage or self.usage

    def finish(self) -> None:
        """Join the pieces."""
        self.text = "".join(self._pieces)

    def to_json(self) -> dict[str, Any]:
        """Return the answer as an object."""
        found = {"text": self.text, "model": self.model, "finishReason": self.finish_reason}
        return {**{key: value for key, value in found.items() if value is not None}, "usage": self.usage.to_json()}


async def _pieces(
    request: LlmRequest, streams: bool, context: NodeContext, who: str, answer: _Answer
) -> AsyncGenerator[str, None]:
    """Fill `answer`; yield its pieces as they come if it `streams`."""
    llm = _llm(context, who)
    if not streams:
        response = await llm.complete(request, call=context.call)
        answer.model, answer.usage, answer.finish_reason = response.model, response.usage, response.finish_reason
        answer.text = response.text
        return
    answer.model = request.model
    chunks = llm.stream(request, call=context.call)
    try:
        async for chunk in chunks:
            answer.add(chunk, who)
            if chunk.text:
                yield chunk.text
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()
    answer.finish()


def _llm(context: NodeContext, who: str) -> Llm:
    if not context.plugin.services.has(LLM):
        raise ServiceUnavailable(
            f"{who}: there is no language model: no plugin provides the service llm; enable tavern-llm"
        )
    return context.plugin.services.get(LLM)


def _request(
    messages: list[Message], inputs: dict[str, Any], definition: NodeDefinition, who: str, names: tuple[str, ...]
) -> LlmRequest:
    if not messages:
        raise InvalidInput(f"{who}: expected at least one message")
    slots = definition.inputs
    model = inputs.get("model", slots["model"].default if "model" in slots else None) or ""
    if not isinstance(model, str):
        raise InvalidInput(f"{who}: the model's name must be text, not {kind_of(model)}")
    parameters = {}
    for name in names:
        value = inputs.get(name, slots[name].default)
        if value is not None:
            parameters[name] = _number(value, slots[name].data_flow_type, f"{who}: {name}")
    return LlmRequest(messages=to_chat(messages), model=model.strip() or None, parameters=parameters)


def _number(value: Any, kind: str, where: str) -> float:
    wanted = "a whole number" if kind == "INTEGER" else "a number"
    if kind == "INTEGER" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int if kind == "INTEGER" else int | float):
        raise InvalidInput(f"{where}: expected {wanted}, not {show(value)}")
    number: float = value
    return number


def _parameters(value: Any, where: str) -> dict[str, Any]:
    """Return further parameters from JSON text or an object; a reference of APISettings adds nothing."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return {}
    found = read_json(value, where) if isinstance(value, str) else plain(value, where)
    if not isinstance(found, dict):
        raise InvalidInput(f"{where}: expected an object, not {kind_of(found)}")
    check_settings(found, where)
    return {key: item for key, item in found.items() if key != USE_ENVIRONMENT}


def _system(inputs: dict[str, Any], who: str) -> list[Message]:
    prompt = _text(inputs, "system_prompt", who)
    return [message("system", prompt)] if prompt.strip() else []


def _text(inputs: dict[str, Any], key: str, who: str) -> str:
    value = inputs.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidInput(f"{who}: {key} must be text, not {kind_of(value)}")
    return value


def _check_image(inputs: dict[str, Any], who: str) -> None:
    if inputs.get("image"):
        raise InvalidInput(f"{who}: image: models are sent text only; leave it empty")
