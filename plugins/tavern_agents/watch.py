"""Notices when an agent goes round in circles, and when a budget is used up. Pure bookkeeping."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tavern_agents.api.agents import AgentLimits, AgentUsage
from tavern_llm.api.llm import LlmModelInfo, LlmResponse
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult

LONGEST_CYCLE = 3
"""How many different steps a cycle may have to be noticed."""

_WAITING = ("system:task_", "system:stream_")
"""Tools that are rightly asked the same again."""


class CycleWatch:
    """The latest steps of a run, as far as they tell whether it makes headway."""

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self._steps: list[str] = []
        self._errors: list[str] = []
        self.was_nudged = False

    def add(self, calls: Sequence[ToolCallRequest], results: Sequence[ToolResult]) -> str | None:
        """Add a step; return what repeats itself, where something does."""
        asked = [[call.tool_id, call.arguments] for call in calls if not call.tool_id.startswith(_WAITING)]
        if asked:
            self._steps.append(json.dumps(asked, sort_keys=True, ensure_ascii=False))
        errors = [f"{r.tool_id}: {r.error.message}" for r in results if r.error is not None]
        if errors and len(errors) == len(results):
            self._errors.append("\n".join(errors))
        else:
            self._errors.clear()
        found = self._cycle()
        if found is not None:
            self._steps.clear()
            self._errors.clear()
        return found

    def _cycle(self) -> str | None:
        for period in range(1, LONGEST_CYCLE + 1):
            latest = self._steps[-period * self._repeats :]
            if len(latest) == period * self._repeats and latest == latest[:period] * self._repeats:
                if period == 1:
                    return f"the same call was made {self._repeats} times in a row"
                return f"the same {period} calls were made in turn {self._repeats} times"
        if len(self._errors) >= self._repeats + 1 and len(set(self._errors[-self._repeats - 1 :])) == 1:
            return f"the same error came {self._repeats + 1} times in a row"
        return None


def used_up(limits: AgentLimits, usage: AgentUsage, seconds: float, calls: int = 0) -> str | None:
    """Return which limit does not allow another request, or a batch of `calls`."""
    if calls:
        if limits.calls is not None and usage.calls + calls > limits.calls:
            return f"it may make {limits.calls} calls, has made {usage.calls}, and asks for {calls} more"
        return None
    tokens = usage.prompt_tokens + usage.completion_tokens
    if usage.steps >= limits.steps:
        return f"no final reply within {limits.steps} steps"
    if limits.tokens is not None and tokens >= limits.tokens:
        return f"it has used {tokens} of {limits.tokens} tokens"
    if limits.cost is not None and usage.cost is not None and usage.cost >= limits.cost:
        return f"it has used {usage.cost:.4f} of {limits.cost:g} in money"
    if limits.seconds is not None and seconds >= limits.seconds:
        return f"it has worked for {limits.seconds:g} seconds"
    return None


def about(answer: LlmResponse, run_id: str) -> dict[str, Any]:
    """Return the details of a step's answer for the trace, as far as they are known: its run, its model, its tokens."""
    used = {"promptTokens": answer.usage.prompt_tokens, "completionTokens": answer.usage.completion_tokens}
    known = {"runId": run_id, "responseId": answer.response_id, "model": answer.model or None, **used}
    return {name: value for name, value in known.items() if value is not None}


def added(usage: AgentUsage, answer: LlmResponse, model: LlmModelInfo | None) -> AgentUsage:
    """Return the usage of a run with that of an answer added. The cost becomes unknown where the model has no price."""
    prompt, completion = answer.usage.prompt_tokens or 0, answer.usage.completion_tokens or 0
    cost = usage.cost
    if prompt or completion:
        if model is None or model.price_input is None or model.price_output is None:
            cost = None
        elif cost is not None:
            cost += (prompt * model.price_input + completion * model.price_output) / 1e6
    used = {
        "prompt_tokens": usage.prompt_tokens + prompt,
        "completion_tokens": usage.completion_tokens + completion,
        "cost": cost,
    }
    return usage.model_copy(update=used)
