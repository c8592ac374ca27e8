"""A conversation as a model gets it: every call with its one result, what was said first as a summary.

Decides about messages only; stores nothing and asks nobody.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from operator import attrgetter
from sys import getsizeof

from tavern_agents.rows import Kept
from tavern_llm.api.llm import ChatMessage, LlmToolCall, Transcript, holds_object
from tavern_tools.api.toolcalls import ToolCallRequest, ToolFeedback

MAY_HAVE_RUN = "The call was interrupted: it may have run, or not. Find out what it did before you repeat it."
NEVER_RAN = "The call was never made: the work was interrupted before it began."
BROKEN_OFF = "broken off"
"""How the text about the calls of a deliberation begins that did not end."""
SUMMARY = "What was said before, in short:\n"
READER = "agents:read_result"
"""The tool by which an agent reads on in a long result, of which the conversation says how."""
_EMPTY, _MESSAGE, _CALL = 2_000, 1_500, 1_000
"""About how many bytes a conversation, a message and a call take, beside their texts."""
_TASK = 3
_ARGUMENTS = attrgetter("arguments")
"""How many of the texts that were said to an agent are its task."""


class Conversation:
    """The messages of a conversation after its summary, which stands for those up to the one with the number `until`.

    What a model gets is extended with each message that is added: every call has its one result behind it, that which
    came last for the latest call with its id; of calls in one message that share an id, the next one.
    """

    def __init__(self, summary: str = "", kept: Iterable[Kept] = (), until: int = 0) -> None:
        self.summary, self.until = summary, until
        self.kept: list[Kept] = []
        self.tokens = 0
        """About how many tokens the messages have, the summary not counted."""
        self.bytes = _EMPTY + getsizeof(summary)
        """About how many bytes it takes in memory."""
        self.has_long_results = False
        """Whether one of the messages says how to read on in a result."""
        self._said: deque[str] = deque(maxlen=_TASK)
        self._repaired: list[ChatMessage] = []
        self._changeable: list[int] = []
        self._open: dict[str, list[int]] = {}
        self.extend(kept)

    def extend(self, kept: Iterable[Kept]) -> None:
        """Add messages behind the others."""
        for one in kept:
            self.kept.append(one)
            self._add(one.message)

    def _add(self, message: ChatMessage) -> None:
        self.has_long_results = self.has_long_results or READER in message.content
        if message.role == "tool":
            if waiting := self._open.get(message.tool_call_id or ""):
                self._answer(waiting.pop(0), message)
                if not waiting:
                    del self._open[message.tool_call_id or ""]
            return
        if message.role == "user" and not message.content.startswith("<OBSERVATION>"):
            self._said.append(message.content)
        calls = _told_apart(message.tool_calls)
        self._put(message if calls == message.tool_calls else message.model_copy(update={"tool_calls": calls}))
        first = len(self._repaired)
        for call in calls:
            self._put(ChatMessage(role="tool", content=MAY_HAVE_RUN, tool_call_id=call.id))
        for id in {call.id for call in message.tool_calls}:
            self._open[id] = [first + place for place, call in enumerate(message.tool_calls) if call.id == id]

    def _put(self, message: ChatMessage) -> None:
        if holds_object(message):
            self._changeable.append(len(self._repaired))
        self._repaired.append(message)
        self.tokens += estimate(message)
        self.bytes += bytes_of(message)

    def _answer(self, place: int, result: ChatMessage) -> None:
        """Put a result in the place of what stands there for it."""
        before = self._repaired[place]
        if result.tool_call_id != before.tool_call_id:
            result = result.model_copy(update={"tool_call_id": before.tool_call_id})
        self.tokens += estimate(result) - estimate(before)
        self.bytes += bytes_of(result)
        if holds_object(result):
            self._changeable.append(place)
        self._repaired[place] = result

    def messages(self, before: Sequence[ChatMessage] = (), after: Sequence[ChatMessage] = ()) -> Transcript:
        """Return the messages of a request to a model: the summary, where there is one, and the messages after it;
        others, which hold no objects, `before` and `after` those."""
        first = [*before, *([self._summary] if self.summary else [])]
        return Transcript((*first, *self._repaired, *after), [len(first) + at for at in self._changeable])

    def added_by(self, run_id: str) -> list[ChatMessage]:
        """Return the last messages, as far as a run has added them."""
        found = [one.message for one in takewhile(lambda one: one.run_id == run_id, reversed(self.kept))]
        return found[::-1]

    @property
    def size(self) -> int:
        """About how many tokens a request has."""
        return self.tokens + (estimate(self._summary) if self.summary else 0)

    @property
    def _summary(self) -> ChatMessage:
        return ChatMessage(role="user", content=SUMMARY + self.summary)

    @property
    def task(self) -> str:
        """The current task: the last texts that were said to the agent, the latest first."""
        return "\n".join(reversed(self._said))

    def shortened(self, count: int, summary: str) -> Conversation:
        """Return the conversation with a summary for its first messages, and for what the one before stood for."""
        return Conversation(summary, self.kept[count:], self.kept[count - 1].seq)

    def boundary(self, tokens: int) -> int:
        """Return how many of the messages a summary may replace so that about `tokens` stay: never between a call
        and its result, never the last thing that a person said. 0 where there is nothing to win."""
        messages = [kept.message for kept in self.kept]
        starts = [place for place, message in enumerate(messages) if _begins_turn(messages, place)]
        starts = [place for place in starts if place <= _last_said(messages)]
        size = 0
        sizes = [size := size + estimate(message) for message in reversed(messages)][::-1]
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


def estimate(message: ChatMessage) -> int:
    """Return about how many tokens a message has: four ASCII characters, or one other, are one."""
    total = 8 + 500 * len(message.images)
    for text in (message.content, *map(_ARGUMENTS, message.tool_calls)):
        other = 0 if text.isascii() else sum(not sign.isascii() for sign in text)
        total += (len(text) - other) // 4 + other
    return total


def bytes_of(message: ChatMessage) -> int:
    """Return about how many bytes a message takes in memory."""
    texts = [message.content, message.reasoning, *(call.arguments for call in message.tool_calls)]
    extras = [message.extra, *(call.extra for call in message.tool_calls)]
    size = sum(map(getsizeof, texts)) + sum(len(json.dumps(extra)) for extra in extras if extra)
    return size + _MESSAGE + _CALL * len(message.tool_calls)
