"""The node `core:LlmApiRequest`: sends messages to a language model, parses nothing."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

from tavern_agents.api.callaccounts import CALL_ACCOUNTS
from tavern_host import NodeContext, Slot, node
from tavern_llm.api.llm import LLM, LlmRequest, LlmResponse, Transcript
from tavern_llm.messages import read_messages, read_tools

_MESSAGES = (
    "The conversation: objects with role (system, user, assistant or tool) and content; also tool_calls, tool_call_id, "
    "images, reasoning, extra."
)
_PARAMETERS = "Parameters of the model, such as temperature."
_KEYS = ", ".join(LlmResponse.model_fields)
_TEXT_STREAM = "The text as it comes; a line in brackets says where an answer broke off and restarted."
_CHUNKS = "All that comes: text, reasoning, call (index, id, name, arguments), restarted; at the end response."


class LlmAnswer(TypedDict, total=False):
    """What the node gives."""

    text: Annotated[str, Slot("The text of the answer.", display_name="Text", match_categories=("LlmOutput",))]
    response: Annotated[
        dict[str, Any],
        Slot(f"The whole answer: {_KEYS}.", display_name="Response", match_categories=("LlmOutput",)),
    ]
    text_stream: Annotated[
        str,
        Slot(_TEXT_STREAM, display_name="Text stream", stream=True, match_categories=("LlmOutput", "TextStream")),
    ]
    chunks: Annotated[
        dict[str, Any],
        Slot(_CHUNKS, display_name="Chunks", stream=True, match_categories=("LlmOutput", "StreamChunk")),
    ]


@node(type="LlmApiRequest", category="LLM", display_name="LLM request", width=350, cached=False)
async def llm_api_request(
    context: NodeContext,
    messages: Annotated[
        list[Any] | Transcript, Slot(_MESSAGES, display_name="Messages", match_categories=("ChatHistory",))
    ],
    system_prompt: Annotated[
        str, Slot("Put before the messages as a system message.", display_name="System prompt", multiline=True)
    ] = "",
    model: Annotated[
        str,
        Slot("The name of a model that is set up; empty for the default.", display_name="Model", widget="model-picker"),
    ] = "",
    parameters: Annotated[
        dict[str, Any] | None, Slot(_PARAMETERS, display_name="Parameters", match_categories=("LlmConfig",))
    ] = None,
    tools: Annotated[
        list[Any] | None, Slot("What the model may call, as OpenAI's functions.", display_name="Tools")
    ] = None,
    tools_text: Annotated[
        str, Slot("The tools as text, for a server that takes none.", display_name="Tools as text", multiline=True)
    ] = "",
    tool_choice: Annotated[
        str, Slot("auto, none, required, or the name of a tool; empty for the server's choice.", display_name="Tool")
    ] = "",
    response_schema: Annotated[
        dict[str, Any] | None, Slot("The JSON Schema that the answer must follow.", display_name="Response schema")
    ] = None,
) -> AsyncIterator[LlmAnswer]:
    """Ask a language model and give its answer, as it comes and whole."""
    asked = LlmRequest(
        messages=[],
        model=model.strip() or None,
        tools=read_tools(tools),
        tool_choice=tool_choice.strip() or None,
        tools_text=tools_text or None,
        response_schema=response_schema or None,
        parameters=parameters or {},
    )
    request = asked.model_copy(update={"messages": read_messages(messages, system_prompt)})
    if context.plugin.services.has(CALL_ACCOUNTS):
        await context.plugin.services.get(CALL_ACCOUNTS).model_asked(context.iteration, call=context.call)
    chunks = context.plugin.services.get(LLM).stream(request, call=context.call)
    try:
        async for chunk in chunks:
            piece: LlmAnswer = {"chunks": chunk.model_dump(mode="json", exclude_defaults=True)}
            text = f"\n\n[{chunk.restarted}]\n\n" if chunk.restarted else chunk.text
            if text:
                piece["text_stream"] = text
            if chunk.response is not None:
                whole = chunk.response.model_dump(mode="json")
                piece |= {"text": chunk.response.text, "response": whole, "chunks": {"response": whole}}
            yield piece
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()
