"""A language model that says what a test tells it to: an adapter `told`, whose models call functions of the test."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.waiting import let_pass
from tavern_host.contracts.calls import CallContext
from tavern_llm.api.llm import ChatMessage, LlmChunk, LlmRequest, LlmResponse, LlmToolCall, LlmUsage

PLUGIN = """
import itertools

from helpers.stub_llm import ToldAdapter
from tavern_host import hookimpl
from tavern_llm.api.llm import LlmAdapterInfo
from tavern_tools.api.macros import PromptMacroInfo

numbers = itertools.count(1)

@hookimpl
def tavern_register_prompt_macros():
    return [PromptMacroInfo(name="told:count", handler=f"{__name__}:count", volatile=True)]

async def count(request, context):
    return str(next(numbers))

@hookimpl
def tavern_register_llm_adapters():
    return [LlmAdapterInfo(name="told", handler=f"{__name__}:ToldAdapter", network=False)]
"""
MANIFEST = """
name: told
displayName: Told
version: 1.0.0
nodes: {entry: ./nodes, namespace: told}
permissions: {hooks: ['hook:server:llm:register-adapters', 'hook:server:prompts:register-macros']}
"""
NODE = """
import asyncio
from tavern_host import NodeContext, node

@node(type="Mark", category="Test", display_name="Mark")
async def mark(context: NodeContext, text: str, seconds: float = 0.0) -> str:
    '''Write a line into the file `marks` of the project, then take some time.'''
    with open(context.plugin.project.root / "marks", "a") as marks:
        marks.write(text + "\\n")
    await asyncio.sleep(seconds)
    return text.upper()
"""

Said = LlmResponse | Exception
Say = Callable[[LlmRequest], Said | Awaitable[Said]]


@dataclass
class Model:
    """What a model says, and what it was asked. `pieces` is how many characters a chunk has, and `chunks` how many
    there are at most, with a `pause` of some seconds after each; `gate`, where there is one, must be open before it
    answers; `void` is streamed first, and taken back."""

    say: Say
    asked: list[LlmRequest] = field(default_factory=list)
    pieces: int = 7
    chunks: int = 50
    gate: asyncio.Event | None = None
    void: str = ""
    pause: float = 0.0


MODELS: dict[str, Model] = {}


class ToldAdapter:
    """Answers with what the function of its model returns; raises the exceptions that it returns."""

    def __init__(self, options: dict[str, Any], context: Any) -> None:
        self._name = str(options["model"])

    @property
    def _model(self) -> Model:
        return MODELS[self._name]  # looked up each time: another bench puts a new one there

    async def complete(self, request: LlmRequest, call: CallContext) -> LlmResponse:
        """Return the answer."""
        model = self._model
        model.asked.append(request)
        if model.gate is not None:
            await model.gate.wait()
        answer = model.say(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def stream(self, request: LlmRequest, call: CallContext) -> AsyncIterator[LlmChunk]:
        """Yield the answer in pieces."""
        answer = await self.complete(request, call)
        if self._model.void:
            yield LlmChunk(text=self._model.void)
            yield LlmChunk(restarted="the server broke off")
        pieces = max(self._model.pieces, len(answer.text) // self._model.chunks)
        for start in range(0, len(answer.text), pieces):
            yield LlmChunk(text=answer.text[start : start + pieces])
            if self._model.pause:
                await let_pass(self._model.pause)
        yield LlmChunk(response=answer)

    async def close(self) -> None:
        """Hold nothing."""


_numbers = itertools.count(1)


def said(text: str = "", *calls: tuple[str, Any], finish_reason: str = "stop", **more: Any) -> LlmResponse:
    """Return an answer with native calls, each a name and its arguments: an object, or the JSON text itself."""
    made = [
        LlmToolCall(id=f"call_{next(_numbers)}", name=name, arguments=a if isinstance(a, str) else json.dumps(a))
        for name, a in calls
    ]
    usage = LlmUsage(prompt_tokens=10, completion_tokens=5)
    return LlmResponse(text=text, model="m", tool_calls=made, finish_reason=finish_reason, usage=usage, **more)


def in_turn(*answers: Said) -> Say:
    """Return a function that gives one answer after the other."""
    rest = iter(answers)

    def say(request: LlmRequest) -> Said:
        return next(rest, said("I have nothing more to say."))

    return say


def last(request: LlmRequest) -> ChatMessage:
    """Return the last message that a model was asked with."""
    return request.messages[-1]


def write_plugin(folder: Path) -> Path:
    """Write the plugin with the adapter and return its folder."""
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text(MANIFEST, encoding="utf-8")
    (folder / "__init__.py").write_text(PLUGIN, encoding="utf-8")
    (folder / "nodes").mkdir()
    (folder / "nodes" / "__init__.py").write_text("", encoding="utf-8")
    (folder / "nodes" / "mark.py").write_text(NODE, encoding="utf-8")
    return folder


Call = tuple[str, dict[str, Any]]


def written(protocol: str, *calls: Call, chain: bool = False) -> LlmResponse:
    """Return an answer that asks for calls in a protocol; a `chain` in one block where the protocol has chains."""
    if protocol == "native":
        return said("Working on it.", *calls)
    if protocol == "tam" and chain:
        return said("Working on it.\n" + _tam(calls))
    blocks = {"tam": lambda c: _tam([c]), "action": _action, "tool_call": _tool_call}
    return said("Working on it.\n" + "\n".join(blocks[protocol](call) for call in calls))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _tam(calls: Sequence[Call]) -> str:
    lines = ["<|[REQUEST_TOOL]|>"]
    for number, (name, arguments) in enumerate(calls, 1):
        suffix = str(number) if len(calls) > 1 else ""
        lines.append(f"command{suffix}:「始」{name}「末」")
        lines += [f"{key}{suffix}:「始」{_text(value)}「末」" for key, value in arguments.items()]
    return "\n".join([*lines, "<|[END_TOOL]|>"])


def _action(call: Call) -> str:
    inputs = "".join(f'<input name="{key}"><![CDATA[{_text(value)}]]></input>' for key, value in call[1].items())
    return f"<ACTION><tool_id>{call[0]}</tool_id><inputs>{inputs}</inputs></ACTION>"


def _tool_call(call: Call) -> str:
    parameters = "".join(f'<param name="{key}"><![CDATA[{_text(value)}]]></param>' for key, value in call[1].items())
    return f'<tool_call name="{call[0]}">{parameters}</tool_call>'
