"""The nodes `core:LoadChatHistory` and `core:SaveChatHistory`: conversations that the project keeps."""

from typing import Annotated, Any, TypedDict

from tavern_agents.answers import read_answer
from tavern_agents.api.histories import CHAT_HISTORY
from tavern_host import InvalidInput, NodeContext, Slot, node
from tavern_host.contracts.documents import read_model
from tavern_llm.api.llm import ChatMessage


class History(TypedDict):
    """What the nodes give."""

    messages: Annotated[
        list[Any], Slot("The messages, oldest first.", display_name="Messages", match_categories=("ChatHistory",))
    ]
    count: Annotated[int, Slot("How many there are.", display_name="Count")]


_ID = Slot("The conversation's id: any name.", display_name="Conversation")
_BRANCH = Slot("A branch of the conversation; empty for the active one.", display_name="Branch")


@node(type="LoadChatHistory", category="Agent", display_name="Load chat history", width=300, cached=False)
async def load_chat_history(
    context: NodeContext,
    history_id: Annotated[str, _ID],
    last: Annotated[int, Slot("At most so many messages, the latest; 0 for all.", min=0)] = 0,
    branch: Annotated[str, _BRANCH] = "",
) -> History:
    """Give the messages of a branch of a conversation; none for a conversation that is not there yet."""
    histories = context.plugin.services.get(CHAT_HISTORY)
    kept = await histories.load_branch(_named(history_id), branch or None, last=last or None)
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
    branch: Annotated[str, _BRANCH] = "",
) -> History:
    """Add messages to a branch of a conversation, which begins with the first. What it gives is the whole branch."""
    added = [ChatMessage(role="user", content=user_message)] if user_message else []
    added += [read_model(ChatMessage, message, f"messages[{index}]") for index, message in enumerate(messages or [])]
    if response is not None and response != "":
        added.append(read_answer(response).message())
    histories = context.plugin.services.get(CHAT_HISTORY)
    if added:
        await histories.add(_named(history_id), added, branch=branch or None, run_id=context.run_id, call=context.call)
    kept = await histories.load_branch(_named(history_id), branch or None)
    return {"messages": [one.message.to_json() for one in kept], "count": len(kept)}


def _named(history_id: str) -> str:
    if not history_id.strip():
        raise InvalidInput("the id of the conversation is empty")
    return history_id.strip()
