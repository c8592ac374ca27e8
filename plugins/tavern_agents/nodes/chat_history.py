"""The nodes `core:LoadChatHistory` and `core:SaveChatHistory`: conversations that the project keeps."""

from typing import Annotated, Any, TypedDict

from tavern_agents.answers import read_answer, read_message
from tavern_host import InvalidInput, NodeContext, Slot, node
from tavern_host.contracts.histories import CHAT_HISTORY
from tavern_host.contracts.llm import ChatMessage


class History(TypedDict):
    """What the nodes give."""

    messages: Annotated[
        list[Any], Slot("The messages, oldest first.", display_name="Messages", match_categories=("ChatHistory",))
    ]
    count: Annotated[int, Slot("How many there are.", display_name="Count")]


_ID = Slot("The conversation's id: any name.", display_name="Conversation")


@node(type="LoadChatHistory", category="Agent", display_name="Load chat history", width=300, cached=False)
async def load_chat_history(
    context: NodeContext,
    history_id: Annotated[str, _ID],
    last: Annotated[int, Slot("At most so many messages, the latest; 0 for all.", min=0)] = 0,
) -> History:
    """Give the messages of a conversation; none for one that is not there yet."""
    kept = await context.plugin.services.get(CHAT_HISTORY).load(_named(history_id), last=last or None)
    return {"messages": [one.message.to_json() for one in kept], "count": len(kept)}


@node(type="SaveChatHistory", category="Agent", display_name="Save chat history", width=300, cached=False)
async def save_chat_history(
    context: NodeContext,
    history_id: Annotated[str, _ID],
    user_message: Annotated[str, Slot("What a person said.", display_name="User message", multiline=True)] = "",
    messages: Annotated[
        list[Any] | None, Slot("Further messages, after that.", match_categories=("ChatHistory",))
    ] = None,
    response: Annotated[
        Any, Slot("The answer of a model, whole or its text; comes last.", match_categories=("LlmOutput",))
    ] = None,
) -> History:
    """Add messages to a conversation, which begins with the first. What it gives is the whole conversation."""
    added = [ChatMessage(role="user", content=user_message)] if user_message else []
    added += [read_message(message, f"messages[{index}]") for index, message in enumerate(messages or [])]
    if response is not None and response != "":
        added.append(read_answer(response).message())
    histories = context.plugin.services.get(CHAT_HISTORY)
    if added:
        await histories.append(_named(history_id), added, run_id=context.run_id, call=context.call)
    kept = await histories.load(_named(history_id))
    return {"messages": [one.message.to_json() for one in kept], "count": len(kept)}


def _named(history_id: str) -> str:
    if not history_id.strip():
        raise InvalidInput("the id of the conversation is empty")
    return history_id.strip()
