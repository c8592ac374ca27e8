"""A conversation as a model gets it: every call with its one result, what was said first as a summary.

Decides about messages only; stores nothing and asks nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tavern_agents.rows import Kept
from tavern_llm.api.llm import ChatMessage, LlmToolCall
from tavern_tools.api.toolcalls import ToolCallRequest, ToolFeedback

MAY_HAVE_RUN = "The call was interrupted: it may have run, or not. Find out what it did before you repeat it."
NEVER_RAN = "The call was never made: the work was interrupted before it began."
BROKEN_OFF = "broken off"
"""How the text about the calls of a deliberation begins that did not end."""
SUMMARY = "What was said before, in short:\n"


@dataclass
class Conversation:
    """The messages of a conversation after its summary."""

    summary: str = ""
    kept: list[Kept] = field(default_factory=list)

    def messages(self) -> list[ChatMessage]:
        """Return the messages of a request to a model: the summary, where there is one, and the messages after it."""
        messages = repaired([kept.message for kept in self.kept])
        return [ChatMessage(role="user", content=SUMMARY + self.summary), *messages] if self.summary else messages

    def boundary(self, tokens: int) -> int:
        """Return how many of the messages a summary may replace so that about `tokens` stay: never between a call
        and its result, never the last thing that a person said. 0 where there is nothing to win."""
        messages = [kept.message for kept in self.kept]
        starts = [place for place, message in enumerate(messages) if _begins_turn(messages, place)]
        starts = [place for place in starts if place <= _last_said(messages)]
        size = 0
        sizes = [size := size + estimate([message]) for message in reversed(messages)][::-1]
        fitting = [place for place in starts if sizes[place] <= tokens]
        return fitting[0] if fitting else (starts[-1] if starts else 0)


def _begins_turn(messages: Sequence[ChatMessage], place: int) -> bool:
    """Whether nothing before belongs to what stands here: the results of a call stand behind it."""
    return messages[place].role == "user" and (
        place == 0 or messages[place - 1].role != "assistant" or not _called(messages, place - 1)
    )


def _called(messages: Sequence[ChatMessage], place: int) -> bool:
    message = messages[place + 1]
    return bool(messages[place].tool_calls) or message.content.startswith("<OBSERVATION>")


def _last_said(messages: Sequence[ChatMessage]) -> int:
    said = (p for p in range(len(messages) - 1, -1, -1) if messages[p].role == "user" and _begins_turn(messages, p))
    return next(said, 0)


def repaired(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return messages in which every native call has one result, right behind it, and every result its call. A result
    belongs to the latest call with its id before it; of calls in one message that share an id, to the next one."""
    open_calls: dict[str, list[tuple[int, int]]] = {}
    results: dict[tuple[int, int], ChatMessage] = {}
    for place, message in enumerate(messages):
        if message.role == "tool":
            waiting = open_calls.get(message.tool_call_id or "")
            if waiting:
                results[waiting.pop(0)] = message
            continue
        for id in {call.id for call in message.tool_calls}:
            open_calls[id] = [(place, number) for number, call in enumerate(message.tool_calls) if call.id == id]
    found: list[ChatMessage] = []
    for place, message in enumerate(messages):
        if message.role == "tool":
            continue
        calls = _told_apart(message.tool_calls)
        found.append(message if calls == message.tool_calls else message.model_copy(update={"tool_calls": calls}))
        for number, call in enumerate(calls):
            result = results.get((place, number)) or ChatMessage(role="tool", content=MAY_HAVE_RUN)
            is_named = result.tool_call_id == call.id
            found.append(result if is_named else result.model_copy(update={"tool_call_id": call.id}))
    return found


def _told_apart(calls: tuple[LlmToolCall, ...]) -> tuple[LlmToolCall, ...]:
    """Return the calls of a message, each with an id of its own."""
    ids = [call.id for call in calls]
    if len(set(ids)) == len(ids):
        return calls
    return tuple(
        call.model_copy(update={"id": f"{call.id}_{number}"}) if call.id in ids[:number] else call
        for number, call in enumerate(calls)
    )


def result_messages(
    calls: Sequence[ToolCallRequest], answers: Sequence[ToolFeedback], native: Mapping[str, str] | None = None
) -> list[ChatMessage]:
    """Return the messages with which a model reads the results of its calls: an answer to each native call, then one
    message about those of the text. `native` are further answers, by the ids of native calls."""
    found: list[ChatMessage] = []
    framed: list[str] = []
    for call, one in zip(calls, answers, strict=False):
        if call.protocol == "native" and call.request_id is not None:
            found.append(ChatMessage(role="tool", content=one.framed, tool_call_id=call.request_id))
        else:
            framed.append(one.framed)
    found += [ChatMessage(role="tool", content=text, tool_call_id=id) for id, text in (native or {}).items()]
    return [*found, ChatMessage(role="user", content="\n".join(framed))] if framed else found


def estimate(messages: Sequence[ChatMessage]) -> int:
    """Return about how many tokens messages have: four ASCII characters, or one other, are one."""
    total = 0
    for message in messages:
        texts = [message.content, *(call.arguments for call in message.tool_calls)]
        for text in texts:
            other = 0 if text.isascii() else sum(not sign.isascii() for sign in text)
            total += (len(text) - other) // 4 + other
        total += 8 + 500 * len(message.images)
    return total


def task_of(kept: Sequence[Kept]) -> str:
    """Return the current task of a conversation: the last four texts that were said to the agent, the latest first."""
    said = [one.message.content for one in kept if one.message.role == "user"]
    return "\n".join([text for text in said if not text.startswith("<OBSERVATION>")][:-4:-1])
