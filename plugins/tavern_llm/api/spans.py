"""Spans of OpenTelemetry about agents, models and tools, after its conventions for generative AI.

They go to whatever the program was set up with by the variables `OTEL_…`. Where the package `opentelemetry-api` is not
installed nothing is imported and nothing happens.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from typing import Any

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import TavernError
from tavern_llm.api.llm import ChatMessage, LlmRequest, LlmResponse, LlmUsage

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable that, set to `true`, lets spans of models hold what was said to them and what they answered."""

_conversation: ContextVar[str | None] = ContextVar("the conversation that spans belong to", default=None)

Tell = Callable[[Mapping[str, Any]], None]
"""Adds attributes to a span; those that are None are left out, and `error.type` marks it as failed."""


def span(
    operation: str, what: str, call: CallContext, attributes: Mapping[str, Any], *, is_client: bool = False
) -> AbstractContextManager[Tell]:
    """Let a span last as long as what runs inside; give what adds attributes to it.

    `operation` is that of the conventions (`chat`, `execute_tool` …), `what` it is done with. Attributes are named
    without `gen_ai.` in front. What runs inside becomes its children, unless it `is_client` of another server, where
    the pieces of an answer may be read in several tasks.
    """
    tracer = _tracer()
    return _NO_SPAN if tracer is None else _span(tracer, operation, what, call, attributes, is_client)


@contextmanager
def _span(
    tracer: Any, operation: str, what: str, call: CallContext, attributes: Mapping[str, Any], is_client: bool
) -> Iterator[Tell]:
    from opentelemetry import trace

    conversation = attributes.get("conversation.id") or _conversation.get()
    known = {
        "operation.name": operation,
        **attributes,
        "conversation.id": conversation,
        "tavern.trace.id": call.trace_id,
    }
    kind = trace.SpanKind.CLIENT if is_client else trace.SpanKind.INTERNAL
    made = tracer.start_span(f"{operation} {what}", kind=kind, attributes=_named(known))

    def tell(more: Mapping[str, Any]) -> None:
        made.set_attributes(_named(more))
        if more.get("error.type") is not None:
            made.set_status(trace.StatusCode.ERROR)

    try:
        quiet = {"record_exception": False, "set_status_on_exception": False}  # a message may quote what was said
        with nullcontext() if is_client else _current(trace.use_span(made, **quiet), conversation):
            yield tell
    except GeneratorExit:
        raise  # the reader of a stream has left
    except BaseException as error:
        tell({"error.type": error_type(error)})
        raise
    finally:
        made.end()


@contextmanager
def _current(span: AbstractContextManager[Any], conversation: str | None) -> Iterator[None]:
    token = _conversation.set(conversation)
    try:
        with span:
            yield
    finally:
        _conversation.reset(token)


def error_type(error: BaseException) -> str:
    """Return the status that a server answered with, else the code or the class of an error."""
    if not isinstance(error, TavernError):
        return type(error).__qualname__
    return str(error.info.details.get("status") or error.info.code)


def holds_content() -> bool:
    """Return whether spans are to hold what was said."""
    return os.environ.get(CONTENT, "").lower() == "true"


def of_usage(usage: LlmUsage) -> dict[str, Any]:
    """Return the attributes about tokens."""
    return {
        "usage.input_tokens": usage.prompt_tokens,
        "usage.output_tokens": usage.completion_tokens,
        "usage.cache_read.input_tokens": usage.cached_tokens,
        "usage.reasoning.output_tokens": usage.reasoning_tokens,
    }


def of_answer(request: LlmRequest, response: LlmResponse) -> dict[str, Any]:
    """Return the attributes about a model's answer."""
    reason = response.finish_reason
    found = {
        "response.model": response.model,
        "response.id": response.response_id,
        "response.finish_reasons": [reason] if reason else None,
        "error.type": "broke_off" if response.error else None,
        **of_usage(response.usage),
    }
    if holds_content() and _tracer() is not None:
        found["input.messages"] = _said(request.messages)
        found["output.messages"] = _said([response.message()])
    return found


def _said(messages: Iterable[ChatMessage]) -> str:
    """Return messages as JSON, in the form of the conventions."""
    found = []
    for message in messages:
        text = {"type": "text", "content": message.content}
        if message.role == "tool":
            text = {"type": "tool_call_response", "id": message.tool_call_id or "", "response": message.content}
        calls = [
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
            for call in message.tool_calls
        ]
        found.append({"role": message.role, "parts": [*([text] if message.content else []), *calls]})
    return json.dumps(found, ensure_ascii=False)


def _named(attributes: Mapping[str, Any]) -> dict[str, Any]:
    own = ("error.", "tavern.")
    known = {key: value for key, value in attributes.items() if value is not None}
    return {key if key.startswith(own) else f"gen_ai.{key}": value for key, value in known.items()}


_NO_SPAN: AbstractContextManager[Tell] = nullcontext(lambda attributes: None)


def _tracer() -> Any:
    """Return the tracer of the program, None where it was not set up for spans."""
    trace = _api()
    provider = None if trace is None else trace.get_tracer_provider()
    return None if provider is None or isinstance(provider, trace.ProxyTracerProvider) else _tracer_of(provider)


@cache
def _api() -> Any:
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace


@cache
def _tracer_of(provider: Any) -> Any:
    return provider.get_tracer("tavern-host")
