"""The feedback to an agent whose text holds no call, and how long feedback may be.

Texts only; who reads them and when is the loop's business.
"""

from __future__ import annotations

import re

MAX_OBSERVATION = 16_000
"""The longest observation, in characters, that goes into a conversation."""

MAX_STEP = 64_000
"""How long all observations of one step may be together."""

MIN_OBSERVATION = 500

_FRAME = re.compile(r"<(?=/?observation\b)", re.IGNORECASE)


def not_understood_text(warnings: list[str]) -> str:
    """Return the feedback to an agent whose text looks like a call and holds none that can be made."""
    problems = "; ".join(warnings)
    return f"Your text seems to ask for a tool, but no call could be read from it: {problems}"


def observation(text: str) -> str:
    """Return a sentence in the frame of an observation. The text cannot end the frame or begin another."""
    return f"<OBSERVATION>\n{_FRAME.sub('&lt;', cut_middle(text, MAX_OBSERVATION))}\n</OBSERVATION>"


def limit_for(count: int) -> int:
    """Return how long each of `count` observations of one step may be."""
    return max(MIN_OBSERVATION, min(MAX_OBSERVATION, MAX_STEP // max(1, count)))


def cut_middle(text: str, limit: int) -> str:
    """Return `text`, its middle replaced by a mark where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    mark = f"\n[… {len(text) - limit} characters left out …]\n"
    tail = limit // 3
    return f"{text[: limit - tail]}{mark}{text[len(text) - tail :]}"
