"""Recognises in what a server says about a request what it does not take, and that a prompt is too long.

Servers agree on no codes, so that their words decide; what is learned is kept only once a request succeeds with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tavern_llm.api.llm import LlmRequest, LlmResponse
from tavern_llm.chat_body import LIMITS, Dialect

MAY_LEARN = frozenset({400, 404, 405, 415, 422, 500, 501})
"""The HTTP status codes of answers that may be about the form of a request."""

_OVERFLOW = re.compile(
    r"context.?(length|window|size).{0,4}exce|exceed\w*.{0,60}(context|maximum (number of tokens|allowed|prompt))"
    r"|maximum (context|prompt|input) (length|size)|(context|prompt|input).{0,3}(length|window|size).{0,60}exceed"
    r"|context length is only|(prompt|input|request|conversation) is too (long|large)|prompt too long"
    r"|too many (input |prompt )?tokens|input token count|tokens? limit exceeded|exceed\w* (the )?(token )?limit of"
    r"|reduce the length of|larger than the (maximum )?context|context shift is disabled|model_max_prompt_tokens"
    r"|request_too_large|job requires \d+ pages|token limit",
    re.IGNORECASE | re.DOTALL,
)
_RATE = re.compile(r"per (minute|hour|day)|\b[rt]p[md]\b|rate.?limit|quota", re.IGNORECASE)
_REFUSES = re.compile(
    r"unsupported|not (be )?(support|permit|allow|accept|enabled)|unknown|unrecogni|unexpected|"
    r"does not (support|accept)|extra (input|field|argument|param)|"
    r"only (allowed|supported|when)|not (available|implemented)|unavailable",
    re.IGNORECASE,
)
_KEYWORD = re.compile(
    r"additionalproperties|\$schema|\$ref|\$defs|oneof|anyof|allof|\bconst\b|exclusiveminimum|exclusivemaximum|"
    r"minlength|maxlength|minitems|maxitems|uniqueitems|pattern(properties)?\b|propertynames|\"?default\"?|"
    r"(schema|tool|function|parameter).{0,80}(keyword|'format'|\"format\")|invalid.{0,20}schema"
)

_KEPT = frozenset({"model", "messages", "stream", "tools", "response_format", *LIMITS})

_Rule = tuple[str, str, Callable[[LlmRequest, dict[str, Any]], bool]]

_RULES: tuple[_Rule, ...] = (
    ("other_limit", r"max_completion_tokens", lambda request, body: bool({*LIMITS} & body.keys())),
    ("plain_schemas", _KEYWORD.pattern, lambda request, body: bool({"tools", "response_format"} & body.keys())),
    (
        "schema_in_prompt",
        r"response.?format|json.?schema|mime type|grammar|structured output|json mode",
        lambda request, body: "response_format" in body,
    ),
    (
        "text_tools",
        r"tool.?choice.{0,20}requires|tools?\b.{0,60}(support|requires|not (enabled|allowed|available|implemented))|"
        r"(support|unsupported|unknown|unrecogni|unexpected|permitted).{0,60}\b(tools?|functions?|function.call)\b|"
        r"function.?call\w*.{0,40}support|\btools\b.{0,60}(extra|permitted|unexpected)",
        lambda request, body: "tools" in body and bool(request.tools_text),
    ),
    (
        "alternate",
        r"alternat(e|ing)\b|system message must be|must be at the (beginning|start)|first message",
        lambda *_: True,
    ),
    (
        "no_system",
        r"system.{0,20}(role|message|prompt|instruction).{0,40}(support|allow|enabled)|role.{0,4}system",
        lambda *_: True,
    ),
    (
        "short_ids",
        r"tool.?call.?id|length of 9|tool_calls.{0,20}\bid\b",
        lambda request, body: any(message.tool_calls or message.tool_call_id for message in request.messages),
    ),
    (
        "empty_content",
        r"content.{0,120}(null|none|string|\bstr\b|required|missing|empty|object)|(null|none|missing).{0,60}content",
        lambda request, body: any(message["content"] is None for message in body["messages"]),
    ),
)


def is_overflow(said: str, status: int | None) -> bool:
    """Whether a server says that a prompt is longer than its model takes."""
    if status == 413:
        return not _RATE.search(said)
    return status not in (401, 403, 429) and bool(_OVERFLOW.search(said)) and not _RATE.search(said)


def learned(dialect: Dialect, request: LlmRequest, body: dict[str, Any], said: str) -> Dialect | None:
    """Return the dialect in which a refused request may succeed; None where the refusal is about something else."""
    said = said.lower()
    if _REFUSES.search(said):
        for key in sorted(body.keys() - _KEPT, key=len, reverse=True):
            name = re.escape(key.lower())  # a common word may be meant otherwise, unless it is quoted
            if re.search(rf"\b{name}\b" if "_" in key or len(key) > 6 else rf"['\"`]{name}['\"`]", said):
                return Dialect(dialect.omitted | {key}, dialect.shapes)
        extras = {key for message in request.messages for key in message.extra or ()}
        extras |= {key for message in request.messages for call in message.tool_calls for key in call.extra or ()}
        if "plain_messages" not in dialect.shapes and any(key.lower() in said for key in extras):
            return Dialect(dialect.omitted, dialect.shapes | {"plain_messages"})
    for shape, pattern, applies in _RULES:
        if shape not in dialect.shapes and applies(request, body) and re.search(pattern, said, re.DOTALL):
            return Dialect(dialect.omitted, dialect.shapes | {shape})
    return None


_LONG_CHARACTERS = re.compile(r"[぀-ヿ㐀-鿿가-힣]")
"""Kana, Han and Hangul: at most four make a token."""

_LEAST = 2_000


_FEW = (
    "the server counted fewer tokens than the prompt has words: it has cut the prompt, or counts only what it did not "
    "have in its cache"
)


def with_hints(request: LlmRequest, answer: LlmResponse) -> LlmResponse:
    """Return an answer with a notice where its server may have cut the prompt in silence. Some servers count only what
    was not in their cache, so that is no failure."""
    usage = answer.usage
    counted = (usage.prompt_tokens or 0) + (usage.cached_tokens or 0)
    is_long = sum(len(message.content) for message in request.messages) >= _LEAST
    if usage.prompt_tokens and is_long and counted < 0.8 * sum(_least_tokens(m.content) for m in request.messages):
        return answer.model_copy(update={"notices": [*answer.notices, _FEW]})
    return answer


def _least_tokens(text: str) -> int:
    return len(text.split()) + len(_LONG_CHARACTERS.findall(text)) // 4
