"""Records the situations of an agent that deliberates, and its answers: messages and long texts by reference, so that
a recording grows with the run and not with its square."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tavern_agents.conversation import Conversation
from tavern_agents.deliberation import Situation
from tavern_agents.rows import InnerCall
from tavern_llm.api.llm import LlmResponse


class Recorder:
    """The deliberations of one run that are not kept yet."""

    def __init__(self) -> None:
        self.is_on = False
        self._rows: list[bytes] = []
        self._texts: dict[str, bytes] = {}
        self._known: dict[str, tuple[object, str]] = {}

    def add(
        self, conversation: Conversation, situation: Situation, answer: LlmResponse, calls: Sequence[InnerCall]
    ) -> None:
        """Note a deliberation, with the calls that it made itself; of the messages, only those that are not in the
        conversation as it is kept."""
        if not self.is_on:
            return
        kept = conversation.kept
        row = {
            "first": kept[0].seq if kept else 0,
            "last": kept[-1].seq if kept else 0,
            "before": self._text("before", situation.before),
            "summary": self._text("summary", conversation.summary),
            "note": situation.note,
            "latest": situation.latest,
            "prompts": self._text("prompts", situation.prompts),
            "tools": self._text("tools", situation.tools),
            "tools_text": self._text("tools_text", situation.tools_text),
            "answer": answer.to_json(),
            "calls": [one.number for one in calls],
        }
        self._rows.append(encoded(row))

    def _text(self, name: str, value: Any) -> str:
        """Return the key of what is often the same."""
        known = self._known.get(name)
        if known is not None and (known[0] is value or known[0] == value):
            return known[1]
        body = encoded(value)
        key = hashlib.sha256(body).hexdigest()[:32]
        self._known[name] = value, key
        self._texts[key] = body
        return key

    def unwritten(self) -> tuple[list[bytes], dict[str, bytes]]:
        """Return the rows noted since the last call, to be stored: the deliberations, and texts by their keys."""
        found = self._rows, self._texts
        self._rows, self._texts = [], {}
        return found

    def put_back(self, rows: Sequence[bytes], texts: Mapping[str, bytes]) -> None:
        """Take back what could not be kept."""
        self._rows, self._texts = [*rows, *self._rows], {**texts, **self._texts}


def encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
