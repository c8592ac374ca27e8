"""What an agent reads besides results: that a call could not be read, that it goes round in circles, that it must end.

Texts only; who reads them and when is the loop's business.
"""

from __future__ import annotations

from pydantic import JsonValue

from tavern_tools.api.observations import cut_middle, observation
from tavern_tools.api.toolcalls import ToolTask

MAX_OBSERVATION = 16_000
"""The longest observation, in characters, that goes into a conversation."""

MAX_STEP = 64_000
"""How long all observations of one step may be together."""

MIN_OBSERVATION = 500

CONTINUE = "Your work was stopped here. Continue it."
EMPTY = "Your answer was empty. Answer in words, or call a tool."


def not_understood_text(warnings: list[str]) -> str:
    """Return the feedback to an agent whose text looks like a call and holds none that can be made."""
    problems = "; ".join(warnings)
    return f"Your text seems to ask for a tool, but no call could be read from it: {problems}"


def circles_text(what: str) -> str:
    """Return the feedback to an agent that repeats itself."""
    return f"You make no headway: {what}. Do something else, or answer with what you know."


def last_text(limit: str) -> str:
    """Return the note that an agent reads before its last answer."""
    return f"You have reached a limit: {limit}. No tool can be called any more. Answer now with what you know."


def waits_text(task: ToolTask) -> tuple[str, dict[str, JsonValue]]:
    """Return how the trace says that a call waits for a person, and its details."""
    about: dict[str, JsonValue] = {"taskId": task.id, "toolId": task.tool_id, "arguments": task.arguments}
    if task.approval is None or (question := task.approval.question) is None:
        return f"{task.tool_id} waits for approval", about
    return f"Asks: {question.message}", {**about, "question": question.to_json()}


def framed(text: str) -> str:
    """Return a sentence in the frame of an observation, cut where it is too long."""
    return observation(cut_middle(text, MAX_OBSERVATION))


def limit_for(count: int) -> int:
    """Return how long each of `count` observations of one step may be."""
    return max(MIN_OBSERVATION, min(MAX_OBSERVATION, MAX_STEP // max(1, count)))
