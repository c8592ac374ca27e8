"""Plays a recording to an agent at work, and notes the first difference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue

from tavern_agents.api.agents import AgentRun, AgentStatus
from tavern_agents.api.recordings import AgentRecording, DifferenceKind, RecordedCall, ReplayDifference, ReplayOptions
from tavern_agents.begun_calls import lost
from tavern_agents.conversation import BROKEN_OFF
from tavern_agents.deliberation import Situation
from tavern_agents.inventory import EXPERIENCE, REMEMBER
from tavern_agents.rows import InnerCall
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Interrupted, TavernError
from tavern_host.contracts.settings import MASK
from tavern_llm.api.llm import ChatMessage, LlmResponse
from tavern_tools.api.toolcalls import ToolCallRequest, ToolErrorType, ToolResult, ToolScope
from tavern_tools.api.tools import ToolManager

_AROUND = 60
"""How many characters of two texts are shown before and behind the first that differs."""

_NEW = re.compile(r"(?<=\bresult:)\d+(?=:)|(?<=_)[0-9a-f]{24}\b")
"""What is numbered from 1 in each run: handles of results, ids."""

NOT_REPLAYED = "The call was not made: this is a replay, and it does not only read."

_OWN = "agent:"
"""How the names of the macros begin that say what the agent itself is and remembers."""


class Player:
    """Gives an agent what was recorded: answers unless a model is to give them, the texts of the clock, results.

    `difference` is the first one that was found. The agent is stopped when it deliberates next.
    """

    def __init__(self, recording: AgentRecording, options: ReplayOptions) -> None:
        self._recording = recording
        self._options = options
        self.model = options.model
        self._calls = list(recording.calls)
        self._inner: list[RecordedCall] = []
        self._messages: list[ChatMessage] = []
        self._same: dict[str, Any] = {"prompts": [], "tools": [], "tools_text": ""}
        self.difference: ReplayDifference | None = None
        self.deliberations = self.calls = 0

    @property
    def experience(self) -> list[str]:
        """What the agent read of earlier calls of its tools, before the conversation."""
        first = next((one.messages[0].content for one in self._recording.deliberations[:1] if one.messages), "")
        _, header, text = first.removesuffix("\n</OBSERVATION>").partition(EXPERIENCE)
        return [header + text] if header and first.startswith("<OBSERVATION>") else []

    def latest(self, texts: list[str]) -> list[str]:
        """Return the texts of volatile macros as they were recorded, but what they say of the agent itself."""
        place, recorded = self.deliberations, self._recording.deliberations
        known = dict(map(_named, recorded[place].latest)) if place < len(recorded) else {}
        named = map(_named, texts)
        found = [f"{name}: {text if name.startswith(_OWN) else known.get(name, text)}" for name, text in named]
        return [*found, *(f"{BROKEN_OFF}: {known[BROKEN_OFF]}" for _ in [0] if BROKEN_OFF in known)]

    def answer(self, situation: Situation) -> LlmResponse | None:
        """Return the recorded answer to a situation; None where a model is to answer. Raises `Interrupted` at a
        difference."""
        place, recorded = self.deliberations, self._recording.deliberations
        self._check_inner()
        self.deliberations += 1
        self._inner = list(recorded[place].calls) if place < len(recorded) else []
        if self.model is None and place >= len(recorded):
            self._differs("message", "deliberations", len(recorded), place + 1)
        elif self.model is None:
            one = recorded[place]
            self._same |= {key: new for key in self._same if (new := getattr(one, key)) is not None}
            self._messages = [*self._messages[: one.kept], *one.messages]
            self._compare("prompt", "prompts", self._same["prompts"], situation.prompts)
            self._compare("tools", "tools", self._same["tools"], list(situation.tools))
            self._compare("tools", "toolsText", self._same["tools_text"], situation.tools_text)
            self._compare("time", "latest", one.latest, situation.latest)
            for number, (old, new) in enumerate(zip(self._messages, situation.conversation, strict=False)):
                is_result = old.role == "tool" or old.content.startswith("<OBSERVATION>")
                kind: DifferenceKind = "result" if is_result else "message"
                if situation.note and number == len(situation.conversation) - 1:
                    kind = "time" if situation.latest else "message"
                self._compare(kind, f"messages[{number}]", old.to_json(), new.to_json())
            self._compare("message", "messages.length", len(self._messages), len(situation.conversation))
        if self.difference is not None:
            raise Interrupted("the replay differs from the recording")
        return None if self.model is not None else recorded[place].answer

    async def call_all(
        self, tools: ToolManager, requests: list[ToolCallRequest], scope: ToolScope, call: CallContext
    ) -> list[ToolResult]:
        """Return the results of a chain of calls: what comes now, or what was recorded."""
        first = self.calls
        known = [self._recorded(request, self._calls, f"calls[{first + n}]") for n, request in enumerate(requests)]
        if self.difference is None and await self._is_made(tools, requests):
            results = await tools.call_all(requests, scope=scope, call=call)
            for number, (old, new) in enumerate(zip(known, results, strict=False), first):
                if old is not None:
                    self._compare("result", f"calls[{number}].result", _shown(old), _shown(new))
            return results
        results = []
        for request, result in zip(requests, known, strict=True):
            if result is None:  # of what follows nothing was made
                break
            results.append(result.model_copy(update=request.about))
        return results

    async def make_inner(self, tools: ToolManager, call: CallContext) -> None:
        """Ask for the calls that a recorded deliberation made itself."""
        for one in list(self._inner):
            request = ToolCallRequest(tool_id=one.tool_id, arguments=one.arguments, protocol=one.protocol)
            await tools.call(request, call=call)

    async def inner(self, tools: ToolManager, made: InnerCall, *, is_within: bool) -> None:
        """Give a call that a deliberation makes, or with `is_within` a call, its recorded result, or what to expect of
        it if it is really made."""
        path = f"deliberations[{self.deliberations - 1}].calls[{self.calls}]"
        known = None if is_within else self._recorded(made.request, self._inner, path)
        if self.difference is None and await self._is_made(tools, [made.request]):
            made.expected = None if known is None else (f"{path}.result", known)
        else:
            made.result = known or lost(made.request, NOT_REPLAYED, ToolErrorType.PERMISSION_DENIED)

    def came(self, made: InnerCall) -> None:
        """Compare the result of a call with what is expected."""
        if made.expected is not None and made.result is not None:
            path, known = made.expected
            self._compare("result", path, _shown(known), _shown(made.result))

    def _check_inner(self) -> None:
        if self._inner:
            self._differs("call", f"calls[{self.calls}]", _call(self._inner[0]), None)

    async def _is_made(self, tools: ToolManager, requests: Sequence[ToolCallRequest]) -> bool:
        if any(MASK in str(request.arguments) for request in requests):  # what it was is not known
            return False
        if self._options.tools != "read-only":
            return self._options.tools == "all"
        try:
            kinds = [request.tool_id for request in requests if request.tool_id != REMEMBER]  # that is forgotten, too
            found = [await tools.get(tool_id) for tool_id in kinds]
            return all(tool.read_only and not tool.volatile for tool in found)
        except TavernError:
            return True  # that it cannot be called any more is a difference

    def _recorded(self, request: ToolCallRequest, calls: list[RecordedCall], path: str) -> ToolResult | None:
        """Return the recorded result of the next call, if it is this one."""
        found = _call(request)
        self.calls += 1
        expected = [_call(call) for call in calls]
        if expected[:1] == [found]:
            return calls.pop(0).result
        kind: DifferenceKind = "order" if found in expected else "call"
        self._differs(kind, path, expected[0] if expected else None, found)
        return None

    def ended(self, run: AgentRun) -> None:
        """Compare how the run ended with how the recorded one did."""
        if run.status is AgentStatus.INTERRUPTED and self.difference is not None:
            return
        recorded = self._recording
        self._check_inner()
        if run.reason is not None and run.status.value != recorded.status:
            self._differs("reply", "status", recorded.status, f"{run.status.value}: {run.reason}")
        if self.model is None and self.deliberations < len(recorded.deliberations):
            self._differs("message", "deliberations", len(recorded.deliberations), self.deliberations)
        if self._calls:
            self._differs("call", f"calls[{self.calls}]", _call(self._calls[0]), None)
        self._compare("reply", "status", recorded.status, run.status.value)
        self._compare("reply", "text", recorded.text, run.text)

    def _compare(self, kind: DifferenceKind, path: str, expected: Any, found: Any) -> None:
        difference = _difference(expected, found, path)
        if difference is not None:
            self._differs(kind, *difference)

    def _differs(self, kind: DifferenceKind, path: str, expected: JsonValue, found: JsonValue) -> None:
        if self.difference is None:
            self.difference = ReplayDifference(
                deliberation=self.deliberations, kind=kind, path=path, expected=expected, found=found
            )


def _named(text: str) -> tuple[str, str]:
    name, _, rest = text.partition(": ")
    return name, rest


def _call(call: ToolCallRequest | RecordedCall) -> JsonValue:
    return {"tool": call.tool_id, "arguments": call.arguments}


def _shown(result: ToolResult) -> JsonValue:
    """Return the status, content and error of a result, without the times and ids of its call."""
    return result.model_dump(mode="json", by_alias=True, include={"status", "content", "structured", "error"})


def _difference(expected: Any, found: Any, path: str) -> tuple[str, JsonValue, JsonValue] | None:
    """Return the first place where two values differ, and what stands there; of long texts, what is around it."""
    if isinstance(expected, dict) and isinstance(found, dict):
        pairs: list[tuple[str, Any, Any]] = [
            (f"{path}.{key}", expected.get(key), found.get(key)) for key in dict.fromkeys([*expected, *found])
        ]
    elif isinstance(expected, list) and isinstance(found, list):
        pairs = [(f"{path}[{n}]", *pair) for n, pair in enumerate(zip(expected, found, strict=False))]
        pairs.append((f"{path}.length", len(expected), len(found)))
    elif isinstance(expected, str) and isinstance(found, str):
        old, new = _NEW.sub("…", expected), _NEW.sub("…", found)
        if old == new:
            return None
        both = enumerate(zip(old, new, strict=False))
        at = next((n for n, (one, other) in both if one != other), min(len(old), len(new)))
        part = slice(max(0, at - _AROUND), at + _AROUND)
        return path, old[part], new[part]
    else:
        return None if expected == found else (path, expected, found)
    return next((one for key, old, new in pairs if (one := _difference(old, new, key)) is not None), None)
