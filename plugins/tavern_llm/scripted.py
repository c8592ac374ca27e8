"""The adapter `scripted`: plays replies from a file of the project, for demonstrations and tests.

It never leaves the machine, which is why a project may set it up. The file's format is in `script.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext, new_id
from tavern_host.contracts.errors import Misconfigured, PluginFailure, one_line
from tavern_host.contracts.wire import Model
from tavern_llm.api.llm import ChatMessage, LlmCallFragment, LlmChunk, LlmRequest, LlmResponse, LlmToolCall
from tavern_llm.options import options_problem
from tavern_llm.script import ScriptedReply, read_script

MAX_BYTES = 1 << 20
"""The largest script that is read."""


class ScriptedOptions(Model):
    """What a `scripted` model is set up with: the file, relative to the project's folder, and how a
    streamed reply is cut: parts of `chunk_chars` characters, `delay_ms` apart."""

    model_config = ConfigDict(alias_generator=None)

    file: str = Field(min_length=1)
    chunk_chars: int = Field(default=12, ge=1)
    delay_ms: float = Field(default=0, ge=0, le=10_000)


class ScriptedAdapter:
    """Answers with the first reply of the file that fits; read again whenever the file has changed."""

    def __init__(self, options: dict[str, JsonValue], context: PluginContext) -> None:
        try:
            self._options = ScriptedOptions.model_validate(options)
        except ValidationError as error:
            raise Misconfigured(options_problem("scripted", error)) from None
        self._root = context.project.root
        self._replies: tuple[ScriptedReply, ...] = ()
        self._times_used: dict[int, int] = {}
        self._stamp: tuple[int, int, int] | None = None

    async def complete(self, request: LlmRequest, call: CallContext) -> LlmResponse:
        """Return the reply that fits. Raises `PluginFailure` where none does, `Misconfigured` for the file."""
        return _answer(self._next(request.messages), request)

    async def stream(self, request: LlmRequest, call: CallContext) -> AsyncIterator[LlmChunk]:
        """Yield the reply that fits in pieces; errors as in `complete`."""
        answer = _answer(self._next(request.messages), request)
        chunks = [LlmChunk(reasoning=part) for part in self._parts(answer.reasoning or "")]
        chunks += [LlmChunk(text=part) for part in self._parts(answer.text)]
        for index, made in enumerate(answer.tool_calls):
            chunks.append(LlmChunk(call=LlmCallFragment(index=index, id=made.id, name=made.name)))
            parts = self._parts(made.arguments)
            chunks += [LlmChunk(call=LlmCallFragment(index=index, arguments=part)) for part in parts]
        for position, chunk in enumerate(chunks):
            if position:
                await asyncio.sleep(self._options.delay_ms / 1000)
            yield chunk
        yield LlmChunk(response=answer)

    async def close(self) -> None:
        """Forget the replies."""
        self._replies, self._stamp = (), None

    def _parts(self, text: str) -> list[str]:
        size = self._options.chunk_chars
        return [text[start : start + size] for start in range(0, len(text), size)]

    def _next(self, messages: list[ChatMessage]) -> ScriptedReply:
        self._read_if_changed()
        for index, reply in enumerate(self._replies):
            if reply.times is not None and self._times_used.get(index, 0) >= reply.times:
                continue
            if reply.when.hold(messages):
                self._times_used[index] = self._times_used.get(index, 0) + 1
                return reply
        last = f"{messages[-1].role}: {one_line(messages[-1].content)!r}" if messages else "(none)"
        raise PluginFailure(f"{self._options.file}: no reply fits; the last message was {last}; add one to the file")

    def _read_if_changed(self) -> None:
        path = self._path()
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp == self._stamp:
                return
            if not path.is_file() or status.st_size > MAX_BYTES:
                raise self._problem(f"is not a file of at most {MAX_BYTES // 1024} KiB")
            text = path.read_bytes().decode("utf-8")
        except FileNotFoundError:
            raise self._problem(f"does not exist in the project {self._root.name!r}") from None
        except UnicodeDecodeError as error:
            raise self._problem(f"is not UTF-8 text (byte {error.start})") from None
        except OSError as error:
            raise self._problem(f"cannot be read: {error.strerror}") from None
        self._stamp = None
        self._replies = read_script(text, self._options.file)
        self._times_used = {}
        self._stamp = stamp

    def _path(self) -> Path:
        root = self._root.resolve()
        try:
            path = (root / self._options.file).resolve()
        except (OSError, RuntimeError, ValueError):
            raise self._problem("is not a path that can be followed") from None
        if not path.is_relative_to(root):
            raise self._problem("leads out of the project; only files of the project are read")
        return path

    def _problem(self, text: str) -> Misconfigured:
        return Misconfigured(f"scripted replies: the file {self._options.file!r} {text}")


def _answer(reply: ScriptedReply, request: LlmRequest) -> LlmResponse:
    """Return a reply as an answer; calls without an id get one of their own each time."""
    return LlmResponse(
        text=reply.reply,
        model=request.model or "scripted",
        tool_calls=[
            LlmToolCall(id=call.id or new_id("call"), name=call.name, arguments=call.arguments)
            for call in reply.tool_calls
        ],
        reasoning=reply.reasoning,
        usage=reply.usage,
        finish_reason=reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop"),
    )
