"""The platform's nodes that ask a language model, all through the service `llm`.

The operator of the host configures the servers and their keys, under the models of the service. A
workflow may come from anybody, so it can neither bring an address, to which prompts and keys would go, nor hold a
key, which would stand in its file, in events and in the history of runs. `api_settings` therefore is no more than
`{"use_env_vars": true}`, a reference to what the host has been set up with; everything else is refused by name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from tavern_host import InvalidInput, NodeContext, NodeDefinition, node
from tavern_nodes.conversation import message, read_messages, write_messages
from tavern_nodes.llm_requests import (
    SETUP_ADVICE,
    USE_ENVIRONMENT,
    Answer,
    answer_pieces,
    check_no_image,
    check_settings,
    further_parameters,
    llm_of,
    number_input,
    request_from,
    system_messages,
    text_input,
    with_usable_model,
)
from tavern_nodes.platform_slots import choices, slot

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
        raise InvalidInput(f"APISettings: {what}; {SETUP_ADVICE}")
    return {"api_settings": {USE_ENVIRONMENT: True}}


_TEMPERATURE = {"default": 0.7, "min": 0, "max": 2, "step": 0.1}
_MAX_TOKENS = {"default": 512, "min": 1, "max": 16384}

OPENAI_CHAT = NodeDefinition(
    type="OpenAIChat",
    namespace="core",
    category="TEST-LLM",
    display_name="🦉OpenAI连续聊天",
    description="Continues a conversation. It remembers nothing itself: bring the history back to external_history.",
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
            "What the model reads before all else.",
            required=True,
            categories=("Prompt",),
            config={"multiline": True},
        ),
        "clear_history": slot(
            "BOOLEAN",
            "清除历史记录",
            "Start over: leave out what external_history brings.",
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
    check_no_image(inputs, who)
    past = (
        [] if inputs.get("clear_history") else read_messages(inputs.get("external_history"), f"{who}: external_history")
    )
    turns = [*past, message("user", text_input(inputs, "user_input", who))]
    system = system_messages(inputs, who)
    request = request_from([*system, *turns], inputs, OPENAI_CHAT, who, ("temperature", "max_tokens"))
    request = await with_usable_model(request, OPENAI_CHAT, llm_of(context, who))
    answer = await llm_of(context, who).complete(request, call=context.call)
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
            "What the model reads before all else.",
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
    check_no_image(inputs, who)
    messages = [
        *system_messages(inputs, who),
        *read_messages(inputs.get("history"), f"{who}: history"),
        message("user", text_input(inputs, "prompt", who)),
    ]
    request = request_from(messages, inputs, OPENAI, who, ("temperature", "max_tokens"))
    request = await with_usable_model(request, OPENAI, llm_of(context, who))
    answer = Answer()
    async with aclosing(answer_pieces(request, inputs.get("stream") is True, context, who, answer)) as pieces:
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
            "The whole answer, once it is there: text, model, tool_calls, reasoning, finish_reason, choices, usage, "
            "response_id, error, extra, notices.",
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
    fields = {**inputs, "model": inputs.get("activated_model_id")}
    request = request_from(messages, fields, GENERIC_LLM_REQUEST, who, ("temperature", "max_tokens", "top_p"))
    seed = inputs.get("seed") or 0
    more = {"seed": number_input(seed, "INTEGER", f"{who}: seed")} if seed else {}
    more |= further_parameters(inputs.get("parameters"), f"{who}: parameters")
    request = request.model_copy(update={"parameters": request.parameters | more})
    answer = Answer()
    async with aclosing(answer_pieces(request, inputs.get("stream") is True, context, who, answer)) as pieces:
        async for piece in pieces:
            yield {"stream_output": piece}
    yield {"response": answer.to_json(), "responseText": answer.text, "usage": answer.response.usage.to_json()}
