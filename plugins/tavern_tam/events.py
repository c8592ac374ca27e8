"""Makes a parser's events and calls without validating them again: all that they hold, the parser made itself.

A text may hold thousands of small calls, and validating them would take as long as finding them. What is made here
equals what the models' own constructors make; values that came from outside go through those.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, JsonValue

from tavern_host.contracts.protocols import ParseEvent
from tavern_host.contracts.toolcalls import ToolCallRequest

PROTOCOL = "tam"

_EVENT_FIELDS = set(ParseEvent.model_fields)
_CALL_FIELDS = set(ToolCallRequest.model_fields)

# What a model keeps beside its fields. `object.__setattr__` would look each of them up by name every time.
_set_fields = vars(BaseModel)["__pydantic_fields_set__"].__set__
_set_extra = vars(BaseModel)["__pydantic_extra__"].__set__
_set_private = vars(BaseModel)["__pydantic_private__"].__set__
_new = object.__new__
_set = object.__setattr__  # models are frozen


def text_event(text: str, offset: int) -> ParseEvent:
    """Return the event of text outside of calls that begins at `offset`."""
    event = _new(ParseEvent)
    _set(event, "__dict__", {"kind": "text", "text": text, "call": None, "offset": offset})
    _set_fields(event, _EVENT_FIELDS)
    _set_extra(event, None)
    _set_private(event, None)
    return event


def call_event(call: ToolCallRequest, offset: int) -> ParseEvent:
    """Return the event of a call whose block begins at `offset`."""
    event = _new(ParseEvent)
    _set(event, "__dict__", {"kind": "call", "text": "", "call": call, "offset": offset})
    _set_fields(event, _EVENT_FIELDS)
    _set_extra(event, None)
    _set_private(event, None)
    return event


def plain_call(tool_id: str, arguments: dict[str, JsonValue], block: int) -> ToolCallRequest:
    """Return a call of TAM that is alone in its block and has no options; the dict becomes its own."""
    call = _new(ToolCallRequest)
    values = {
        "tool_id": tool_id,
        "arguments": arguments,
        "index": 1,
        "block": block,
        "request_id": None,
        "on_error": "stop",
        "retry": 0,
        "variables": {},
        "protocol": PROTOCOL,
    }
    _set(call, "__dict__", values)
    _set_fields(call, _CALL_FIELDS)
    _set_extra(call, None)
    _set_private(call, None)
    return call


def chain_call(
    tool_id: str,
    arguments: dict[str, JsonValue],
    block: int,
    index: int,
    request_id: str | None,
    on_error: Literal["stop", "continue"],
    retry: int,
    variables: dict[str, JsonValue],
) -> ToolCallRequest:
    """Return a call of TAM; the fields are those of `ToolCallRequest`, and the dicts become the call's own."""
    call = plain_call(tool_id, arguments, block)
    more = {"index": index, "request_id": request_id, "on_error": on_error, "retry": retry, "variables": variables}
    call.__dict__.update(more)
    return call
