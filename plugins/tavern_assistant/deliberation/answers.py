"""Reads what a model answers: a reply and operations, however the JSON is wrapped; and the nodes that a reply names."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tavern_host.contracts.wire import wire_value

MOST_OPERATIONS = 200
"""How many operations one answer may have."""
MOST_CHARACTERS = 2**17
"""How long an answer may be, without thoughts: more than models are let write, and little enough for the event loop."""

_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
LINK = re.compile(r"\[([^\[\]]*)\]\(node:([^()\s]*)\)")
"""A link to a node in a reply: its words, and the node's id."""
_SHAPE = 'answer with one JSON object, {"reply": "…", "operations": […]}, and nothing else'


@dataclass(frozen=True)
class Answer:
    """What a model said; `problem` is what keeps its operations from being tried."""

    reply: str = ""
    operations: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""


def read_answer(text: str) -> Answer:
    """Return the answer in a text. An object with `operations`, or the operations alone, may stand in fences, behind
    thoughts, and between sentences."""
    text = _THOUGHT.sub("", text).strip()
    if len(text) > MOST_CHARACTERS:
        problem = f"the answer has {len(text):,} characters; give {MOST_CHARACTERS:,} at most"
        return Answer(reply=text[:MOST_CHARACTERS], problem=problem)
    found, problem = _json_in(text)
    if problem:
        return Answer(reply=text, problem=problem)
    if isinstance(found, list):
        found = {"reply": "", "operations": found}
    if not isinstance(found, dict) or not ("operations" in found or "reply" in found):
        return Answer(reply=text, problem=f"this is not the JSON that was asked for: {_SHAPE}")
    reply, operations = found.get("reply"), found.get("operations", [])
    said = reply.strip() if isinstance(reply, str) else ""
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        return Answer(reply=said, problem="operations must be a list of objects with op and path")
    if len(operations) > MOST_OPERATIONS:
        return Answer(reply=said, problem=f"{len(operations)} operations are too many; give {MOST_OPERATIONS} at most")
    return Answer(reply=said, operations=operations)


def _json_in(text: str) -> tuple[Any, str]:
    """Return the first JSON object, or array of objects, of a text; or what is wrong with it."""
    starts = [at for at in (text.find("{"), text.find("[{"), text.find("[]")) if at >= 0]
    if not starts:
        return None, f"there is no JSON in the answer: {_SHAPE}"
    start = min(starts)
    try:
        return wire_value(json.JSONDecoder().raw_decode(text, start)[0]), ""
    except (ValueError, RecursionError) as error:
        what, at = getattr(error, "msg", str(error)), getattr(error, "pos", start)
        return None, f"the JSON is broken at {text[max(start, at - 30) : at + 10]!r} ({what}): {_SHAPE}"


def with_nodes(reply: str, known: Collection[str], new: Mapping[str, str]) -> str:
    """Return a reply whose links name nodes by their ids: `new` has those of localIds. A link to what is no node of the
    workflow becomes its words."""

    def link(found: re.Match[str]) -> str:
        id = new.get(found[2], found[2])
        return f"[{found[1]}](node:{id})" if id in known else found[1]

    return LINK.sub(link, reply)
