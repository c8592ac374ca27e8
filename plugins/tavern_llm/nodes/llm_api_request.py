"""The node `core:LlmApiRequest`: sends messages to a language model, parses nothing."""

from typing import Annotated, Any, TypedDict

from tavern_host import InvalidInput, NodeContext, Slot, node
from tavern_host.contracts.llm import LLM, ChatMessage, LlmRequest

ROLES = ("system", "user", "assistant", "tool")


class LlmAnswer(TypedDict):
    """What the node gives."""

    text: Annotated[str, Slot("The text of the answer.", display_name="Text", match_categories=("LlmOutput",))]
    response: Annotated[
        dict[str, Any],
        Slot(
            "The whole answer: text, model, finish_reason, usage.",
            display_name="Response",
            match_categories=("LlmOutput",),
        ),
    ]


@node(type="LlmApiRequest", category="LLM", display_name="LLM request", width=350)
async def llm_api_request(
    context: NodeContext,
    messages: Annotated[
        list[Any],
        Slot(
            "The conversation: a list of objects with role (system, user, assistant or tool) and content.",
            display_name="Messages",
            match_categories=("ChatHistory",),
        ),
    ],
    system_prompt: Annotated[
        str, Slot("Put before the messages as a system message.", display_name="System prompt", multiline=True)
    ] = "",
    model: Annotated[
        str, Slot("The name of a model that is set up; empty for the default.", display_name="Model")
    ] = "",
    parameters: Annotated[
        dict[str, Any] | None,
        Slot(
            "Parameters of the model, such as temperature.", display_name="Parameters", match_categories=("LlmConfig",)
        ),
    ] = None,
) -> LlmAnswer:
    """Ask a language model and give its answer."""
    conversation = read_messages(messages, system_prompt)
    request = LlmRequest(messages=conversation, model=model.strip() or None, parameters=parameters or {})
    response = await context.plugin.services.get(LLM).complete(request, call=context.call)
    return {"text": response.text, "response": response.to_json()}


def read_messages(messages: list[Any], system_prompt: str = "") -> list[ChatMessage]:
    """Return the values of the node's inputs as messages. Raises `InvalidInput` naming the wrong one."""
    found = [ChatMessage(role="system", content=system_prompt)] if system_prompt else []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, dict):
            raise InvalidInput(f"{where}: expected an object with role and content, found {type(message).__name__}")
        role, content, name = message.get("role"), message.get("content"), message.get("name")
        if role not in ROLES:
            raise InvalidInput(f"{where}.role: expected one of {', '.join(ROLES)}, found {role!r}")
        if not isinstance(content, str):
            raise InvalidInput(f"{where}.content: expected a text, found {type(content).__name__}")
        found.append(ChatMessage(role=role, content=content, name=name if isinstance(name, str) else None))
    if not found:
        raise InvalidInput("messages: expected at least one message, or a system prompt")
    return found
