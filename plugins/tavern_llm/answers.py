"""Reads the answers of chat completions, whole or in pieces: text, thoughts, calls of tools, usage, and what else the
server wants back. Reads leniently where servers differ."""

from __future__ import annotations

import math
from typing import Any

from tavern_host.contracts.wire import LIMIT
from tavern_llm.api.llm import ChatMessage, LlmCallFragment, LlmChunk, LlmEmbeddings, LlmResponse, LlmUsage
from tavern_llm.chat_wire import ServerError, TooLong, WireError, raise_error
from tavern_llm.native_calls import CallAssembler
from tavern_llm.thoughts import ThoughtSplitter

REASONING = ("reasoning_content", "reasoning", "thinking")
"""The names under which servers send thoughts; some send the same under two."""

THOUGHT_SO_FAR = "What came so far were the model's thoughts; its answer begins here"

_KNOWN = frozenset({"role", "content", "tool_calls", "function_call", "refusal", "audio", "annotations", "index"})
_KNOWN |= {"logprobs", "token_ids", "stop_reason", "prefix", *REASONING}
_CACHED = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
_MOST_CHOICES = 128
_CONSTANT = frozenset({"type", "id", "format", "index"})
"""Fields of a part that each fragment of it repeats."""


class ReadMessage:
    """One message of the model, put together from what arrives."""

    def __init__(self) -> None:
        self._splitter = ThoughtSplitter()
        self._calls = CallAssembler()
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._extra: dict[str, Any] = {}
        self._key: str | None = None
        self._thoughts_apart: list[str] = []
        self.finish_reason: str | None = None

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._texts)

    def add(self, message: dict[str, Any]) -> list[LlmChunk]:
        """Take a whole message or a piece of one; return what it adds."""
        chunks: list[LlmChunk] = []
        self._key = self._key or next((key for key in REASONING if _text(message.get(key))), None)
        if self._key is not None and (thought := _text(message.get(self._key))):
            self._thoughts_apart.append(thought)
            chunks += self._say("reasoning", thought)
        for kind, text in _parts(message.get("content")):
            # A server that keeps thoughts apart leaves none in the text.
            split = self._splitter.feed(text) if kind == "text" and self._key is None else [(kind, text)]
            chunks += [chunk for one, piece in split for chunk in self._say(one, piece)]
        chunks += self._say("text", _text(message.get("refusal")))
        calls = message.get("tool_calls") or message.get("function_call")
        chunks += [LlmChunk(call=call) for call in self._calls.add(calls)] if calls else []
        for key, value in message.items():
            if key not in _KNOWN and value not in (None, "", [], {}):
                self._extra[key] = _merged(self._extra.get(key), value)
        return chunks

    def end(self) -> list[LlmChunk]:
        """Say that the message is whole; return what was held back."""
        chunks = [chunk for kind, text in self._splitter.finish() for chunk in self._say(kind, text)]
        return chunks + [LlmChunk(call=call) for call in self._calls.end()]

    def message(self) -> ChatMessage:
        """Return the message. Thoughts that came apart from the text go back under the server's name for them where
        the message has calls: then the model thinks on."""
        calls = self._calls.calls(is_cut=self.finish_reason == "length")
        apart = {self._key: "".join(self._thoughts_apart)} if self._key is not None and calls else {}
        return ChatMessage(
            role="assistant",
            content=self.text,
            tool_calls=calls,
            reasoning="".join(self._thoughts).strip() or None,
            extra={**apart, **self._extra},
        )

    def _say(self, kind: str, text: str) -> list[LlmChunk]:
        if kind == "void":
            self._texts = []
            return [LlmChunk(restarted=THOUGHT_SO_FAR)]
        if not text:
            return []
        if kind == "reasoning":
            self._thoughts.append(text)
            return [LlmChunk(reasoning=text)]
        self._texts.append(text)
        return [LlmChunk(text=text)]


class AnswerReader:
    """Reads one answer, which may have several choices: the first is the answer, and is passed on as it comes."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._messages: dict[int, ReadMessage] = {0: ReadMessage()}
        self._usage = LlmUsage()
        self._id: str | None = None

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return self._messages[0].text

    @property
    def is_finished(self) -> bool:
        """Whether the model has said that it ends."""
        return self._messages[0].finish_reason is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come, which the stream itself says by `[DONE]`."""
        return False

    def add(self, data: dict[str, Any]) -> list[LlmChunk]:
        """Take an event of a stream; return what it adds. Raises `ServerError`."""
        return self._take(data, "delta")

    def whole(self, data: dict[str, Any], notices: list[str]) -> LlmResponse:
        """Return an answer that came in one piece. Raises `WireError`, `ServerError`."""
        raise_error(data)
        first = next(iter(_choices(data)), None)
        if first is None or not isinstance(first[1].get("message"), dict):
            raise WireError("answered without choices[0].message")
        self._take(data, "message")
        self.end()
        return self.response(notices)

    def end(self) -> list[LlmChunk]:
        """Say that the answer is whole; return what was held back."""
        return [chunk for number, message in self._messages.items() for chunk in message.end() if number == 0]

    def response(self, notices: list[str]) -> LlmResponse:
        """Return the whole answer."""
        first, *others = [self._messages[number].message() for number in sorted(self._messages)]
        return LlmResponse(
            text=first.content,
            model=self._model,
            tool_calls=first.tool_calls,
            reasoning=first.reasoning,
            finish_reason=self._messages[0].finish_reason,
            choices=others,
            usage=self._usage,
            response_id=self._id,
            extra=first.extra,
            notices=notices,
        )

    def _take(self, data: dict[str, Any], key: str) -> list[LlmChunk]:
        raise_error(data)
        identity = data.get("id")
        self._id = self._id or (identity if isinstance(identity, str) and identity else None)
        self._usage = read_usage(data.get("usage"), self._usage)
        chunks: list[LlmChunk] = []
        for number, choice in _choices(data):
            self._usage = read_usage(choice.get("usage"), self._usage)
            if number not in self._messages:
                if len(self._messages) >= _MOST_CHOICES:
                    raise TooLong(f"sent more than {_MOST_CHOICES} choices")
                self._messages[number] = ReadMessage()
            message = self._messages[number]
            reason = choice.get("finish_reason")
            if reason == "error":
                raise ServerError("the model could not finish its answer", 502)
            if isinstance(reason, str) and reason:
                message.finish_reason = reason
            piece = choice.get(key)
            added = message.add(piece) if isinstance(piece, dict) else []
            chunks += added if number == 0 else []
        return chunks


def pieces_of(answer: LlmResponse) -> list[LlmChunk]:
    """Return a whole answer as the chunks of a stream."""
    calls = [
        LlmChunk(call=LlmCallFragment(index=index, id=call.id, name=call.name, arguments=call.arguments))
        for index, call in enumerate(answer.tool_calls)
    ]
    said = [LlmChunk(reasoning=answer.reasoning or "", text=answer.text)] if answer.reasoning or answer.text else []
    return [*said, *calls, LlmChunk(response=answer)]


def read_usage(usage: Any, known: LlmUsage | None = None) -> LlmUsage:
    """Return the figures of an answer, after those that are known already."""
    known = known or LlmUsage()
    if not isinstance(usage, dict):
        return known
    figures = {**usage, **_dict(usage.get("prompt_tokens_details")), **_dict(usage.get("completion_tokens_details"))}
    figures["cached_tokens"] = next((figures[key] for key in _CACHED if figures.get(key) is not None), None)
    counts = {name: figures.get(name) for name in LlmUsage.model_fields}
    right = {name: count for name, count in counts.items() if type(count) is int and 0 <= count < LIMIT}
    return known.model_copy(update=right)


def read_embeddings(data: dict[str, Any], model: str, count: int) -> LlmEmbeddings:
    """Return the vectors of an answer, by their index. Raises `WireError`, `ServerError`."""
    raise_error(data)
    items = data.get("data")
    found = {}
    for position, item in enumerate(items if isinstance(items, list) else []):
        if isinstance(item, dict) and isinstance(item.get("embedding"), list):
            found[str(item.get("index", position))] = item["embedding"]
    try:
        vectors = [[float(number) for number in found[str(index)]] for index in range(count)]
        if not all(math.isfinite(number) for vector in vectors for number in vector):
            raise ValueError
    except (KeyError, TypeError, ValueError, OverflowError):
        raise WireError(f"answered without the vectors of all {count} texts") from None
    return LlmEmbeddings(vectors=vectors, model=model, usage=read_usage(data.get("usage")))


def _choices(data: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    choices = data.get("choices")
    found = [choice for choice in (choices if isinstance(choices, list) else []) if isinstance(choice, dict)]
    return [(index if isinstance(index := choice.get("index"), int) else 0, choice) for choice in found]


def _parts(content: Any) -> list[tuple[str, str]]:
    """Return the texts and thoughts of a content, which may be a list of parts."""
    if not isinstance(content, list):
        return [("text", text)] if (text := _text(content)) else []
    parts = [part for part in content if isinstance(part, dict)]
    return [
        ("text", _text(part["text"])) if "text" in part else ("reasoning", _text(part.get("thinking")))
        for part in parts
    ]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else ""


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _merged(known: Any, value: Any) -> Any:
    """Return a field of which another fragment came: texts grow, and so do lists, part by part where these have an
    index."""
    if isinstance(known, str) and isinstance(value, str):
        return known + value
    if isinstance(known, dict) and isinstance(value, dict):
        return known | {key: item if key in _CONSTANT else _merged(known.get(key), item) for key, item in value.items()}
    if isinstance(known, list) and isinstance(value, list):
        for item in value:
            index = item.get("index") if isinstance(item, dict) else None
            last = known[-1] if known and isinstance(known[-1], dict) else {}
            same = index is not None and (last.get("index"), last.get("type")) == (index, item.get("type"))
            known[-1:] = [_merged(last, item)] if same else [*known[-1:], item]
        return known
    return value if value is not None else known
