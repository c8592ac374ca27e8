"""What one socket wants to hear: events by type, by the run and by the agent that they are of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from multidict import MultiMapping
from pydantic import Field, StringConstraints

from tavern_host.contracts.documents import read_model
from tavern_host.contracts.wire import Model

_RUN_KEYS = ("promptId", "runId", "agentRunId", "sceneRunId")
"""Where events say which run they are of; `profileId` is their agent."""
_STREAMS = ("NODE_YIELD", "WORKFLOW_INTERFACE_YIELD")
_MOST = 1000
"""How many runs, agents and types one socket may name, each."""
MOST_TEXT = 1 << 16
"""How many characters a text has at most that is joined of pieces of a stream for a slow client."""

Names = Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=_MOST)]
Types = Annotated[list[Annotated[str, StringConstraints(pattern=r"^[^*]{0,199}(\*|[^*])$")]], Field(max_length=_MOST)]


class Wanted(Model):
    """The payload of `SUBSCRIBE`, and the query of `/ws`: what to hear from now on; everything, where it names nothing.

    An event is sent where its type is named, or matched by a pattern with a `*` at its end, and the run or the agent
    that it is of. Where neither runs nor agents are named, it need not be of one.
    """

    runs: Names = Field(default_factory=list)
    agents: Names = Field(default_factory=list)
    types: Types = Field(default_factory=list)


def wanted_of(query: MultiMapping[str]) -> Wanted:
    """Return the events that the query of a socket names. Raises `InvalidInput`."""
    return read_model(Wanted, {key: query.getall(key, []) for key in Wanted.model_fields}, "the query")


class Filter:
    """Decides which events are wanted."""

    def __init__(self, wanted: Wanted) -> None:
        self._runs, self._agents = frozenset(wanted.runs), frozenset(wanted.agents)
        self._types = frozenset(type for type in wanted.types if not type.endswith("*"))
        self._prefixes = tuple(type[:-1] for type in wanted.types if type.endswith("*"))

    def __call__(self, type: str, payload: Mapping[str, Any]) -> bool:
        """Return whether an event is wanted."""
        if (self._types or self._prefixes) and not (type in self._types or type.startswith(self._prefixes)):
            return False
        if not self._runs and not self._agents:
            return True
        return _names(payload, _RUN_KEYS, self._runs) or _names(payload, ("profileId",), self._agents)


def state_of(type: str, payload: Mapping[str, Any]) -> str | None:
    """Return of what an event is the newest state, None where a slow client may miss none of its kind."""
    own = f"{payload.get('promptId')} {payload.get('nodeId')}" if type == "NODE_PROGRESS" else None
    return type if type == "SYSTEM_QUEUE_UPDATE" else own


def joined(type: str, one: Mapping[str, Any], next: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the payload of two pieces of text of one stream in one; None for what is no such pair."""
    if type in _STREAMS and not one.get("isLastChunk") and _stream_of(one) == _stream_of(next):
        match one.get("yieldedContent"), next.get("yieldedContent"):
            case (
                {"type": "text_chunk", "content": str() as text, **more},
                {"type": "text_chunk", "content": str() as after, **others},
            ) if not more and not others and len(text) + len(after) <= MOST_TEXT:
                return {**next, "yieldedContent": {"type": "text_chunk", "content": text + after}}
    return None


def _stream_of(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in payload.items() if key not in ("yieldedContent", "isLastChunk")}


def _names(payload: Mapping[str, Any], keys: tuple[str, ...], wanted: frozenset[str]) -> bool:
    return any(isinstance(value := payload.get(key), str) and value in wanted for key in keys)
