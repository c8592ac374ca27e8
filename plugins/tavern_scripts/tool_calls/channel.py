"""This side of the channel by which a script calls tools: frames of JSON over one end of a pair of sockets.

A frame is four bytes that say how long it is, the most significant first, and so much JSON. The script sends
`{id, tool, arguments}`, and gets `{id, value}` or `{id, error: {type, message, details}}` once for each. Whatever else
it sends ends its run. Nothing of the channel is left when it was closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.tools import ToolDefinition
from tavern_scripts.api.piped_program import to_the_end
from tavern_scripts.api.scripts import RunnableLanguage, SandboxLaunch, ScriptErrorType, ScriptLimits
from tavern_scripts.results.refusal import Refused
from tavern_scripts.sandbox.running import CALLS
from tavern_scripts.tool_calls.module import with_module
from tavern_tools.api.toolcalls import TaskStatus, ToolCallRequest, ToolError, ToolErrorType, ToolResult
from tavern_tools.api.tools import ToolManager

MAX_AT_ONCE = 16
"""How many calls of one script are made at once; more wait in the socket, and the script with them."""

_HEAD = 4
_WAIT = 60.0
"""Seconds after which a decision about a call is asked for again; it is known at once when it is made."""


class CallChannel(asyncio.Protocol):
    """The calls of one run. `theirs` is the end for the script; it is to be closed once the sandbox has it."""

    def __init__(
        self, manager: ToolManager, call: CallContext, tools: Sequence[ToolDefinition], limits: ScriptLimits, most: int
    ) -> None:
        """`most` is how many calls the script may make."""
        self._manager = manager
        self._call = call
        self._tools = tools
        self._tool_ids = {tool.id for tool in tools}
        self._longest, self._longest_answer = limits.output, limits.input
        self._most = most
        self._data = bytearray()
        self._ids: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._made = 0
        self._ours, self.theirs = socket.socketpair()
        self._transport: asyncio.Transport | None = None
        self._is_full = False
        self._is_paused = False
        self._clock: WallClock | None = None
        self.broken: Refused | None = None
        """Why the run has to end, if it has to."""

    def attached_to(self, launch: SandboxLaunch, folder: Path, language: RunnableLanguage) -> SandboxLaunch:
        """Return a program with its end of the channel and its module `tools`, made in the folder of the run.
        Blocking. Raises `InvalidInput`."""
        launch = with_module(launch, folder, language, self._tools)
        environment = {**launch.environment, "TAVERN_CALLS_FD": str(CALLS)}
        return launch.model_copy(update={"environment": environment, "calls": self.theirs.fileno()})

    async def open(self, clock: WallClock) -> None:
        """Begin to listen. `clock` stands still while calls are made."""
        self._clock = clock
        self._ours.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=self._ours)

    async def close(self) -> None:
        """End all calls that are still made, and take the channel away."""
        self.theirs.close()
        if self._transport is not None:
            self._transport.abort()
        else:
            self._ours.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- what the event loop tells -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        """End the calls: nobody is there to take their results."""
        for task in self._tasks:
            task.cancel()

    def pause_writing(self) -> None:
        """Make no further calls while the script takes no results."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Continue with what came meanwhile."""
        self._is_full = False
        self._read()

    def data_received(self, data: bytes) -> None:
        """Take what the script wrote."""
        self._data += data
        self._read()

    # --- frames --------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Begin the calls that are there, as many as may be made at once, and read on if there may be more."""
        assert self._transport is not None
        while self.broken is None and self._may_begin and len(self._data) >= _HEAD:
            size = int.from_bytes(self._data[:_HEAD], "big")
            if not 0 < size <= self._longest:
                self._break(f"a frame of {size:,} bytes, and from 2 to {self._longest:,} are possible")
                return
            if len(self._data) < _HEAD + size:
                break
            frame = bytes(self._data[_HEAD : _HEAD + size])
            del self._data[: _HEAD + size]
            self._take(frame)
        is_paused = self.broken is None and not self._may_begin
        if is_paused != self._is_paused and not self._transport.is_closing():
            self._is_paused = is_paused
            (self._transport.pause_reading if is_paused else self._transport.resume_reading)()

    @property
    def _may_begin(self) -> bool:
        return len(self._ids) < MAX_AT_ONCE and not self._is_full

    def _take(self, frame: bytes) -> None:
        try:
            asked = from_json(frame, allow_inf_nan=False)
            is_usable = True
        except ValueError:
            asked, is_usable = _unusable(frame), False
            if asked is None:
                return self._break("a frame that is no JSON")
        if not isinstance(asked, dict) or asked.keys() != {"id", "tool", "arguments"}:
            return self._break("a frame that is no call: it needs id, tool and arguments")
        number, tool_id, arguments = asked["id"], asked["tool"], asked["arguments"]
        is_call = type(number) is int and isinstance(tool_id, str) and isinstance(arguments, dict)
        if not is_call or not 0 < number < 2**53:
            return self._break("a frame whose id is no number from 1 on, or whose tool or arguments are none")
        if number in self._ids:
            return self._break(f"a second call {number} while the first is being made")
        self._made += 1
        if self._made > self._most:
            message = f"a script may make {self._most:,} calls of tools; its operator sets maxToolCalls"
            self._send(number, error={"type": ScriptErrorType.RESOURCE.value, "message": message})
        elif tool_id not in self._tool_ids:
            message = f"the tool {tool_id!r:.200} is not one of those that this script was given"
            self._send(number, error={"type": "PermissionDenied", "message": message})
        elif not is_usable:
            message = "the arguments hold what is no Unicode text, or are nested too deep"
            self._send(number, error={"type": ToolErrorType.PARAMETER_VALIDATION.value, "message": message})
        else:
            self._begin(number, ToolCallRequest(tool_id=tool_id, arguments=arguments))
        return None

    def _break(self, what: str) -> None:
        message = f"the script sent {what} on the channel of its tools, and was ended"
        self.broken = Refused(ScriptErrorType.SECURITY, message)
        self._data.clear()
        assert self._transport is not None and self._clock is not None
        self._transport.abort()
        self._clock.expire()

    def _send(self, number: int, **answer: Any) -> None:
        assert self._transport is not None
        if self._transport.is_closing():
            return
        data = to_json({"id": number, **answer})
        if len(data) > self._longest_answer:
            message = f"the result has {len(data):,} bytes; a script is given at most {self._longest_answer:,}"
            data = to_json({"id": number, "error": {"type": ScriptErrorType.OUTPUT.value, "message": message}})
        self._transport.write(len(data).to_bytes(_HEAD, "big") + data)

    # --- calls ---------------------------------------------------------------------------------------

    def _begin(self, number: int, request: ToolCallRequest) -> None:
        assert self._clock is not None
        if not self._ids:
            self._clock.stop()
        self._ids.add(number)
        task = asyncio.create_task(self._answer(number, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, number: int, request: ToolCallRequest) -> None:
        answer: dict[str, JsonValue]
        try:
            try:
                answer = _answer_of(await self._result(request))
            except TavernError as error:  # the manager is gone, or may not be asked any more
                answer = {"error": {"type": error.info.code, "message": error.info.message}}
        finally:
            self._ids.discard(number)
            if not self._ids and self._clock is not None:
                self._clock.go_on()
        self._send(number, **answer)
        self._read()

    async def _result(self, request: ToolCallRequest) -> ToolResult:
        """Return the result of a call; one that waits for a person, when it was decided."""
        result = await self._manager.call(request, call=self._call)
        if result.status != "awaiting_approval" or result.task_id is None:
            return result
        try:
            while True:
                task = await self._manager.task(result.task_id, wait=_WAIT, call=self._call)
                if task.status.is_final:
                    break
        except asyncio.CancelledError:  # nobody waits for it any more: it is not made later on
            await to_the_end(self._withdraw(result.task_id))
            raise
        if task.result is not None and task.status in (TaskStatus.DONE, TaskStatus.ERROR):
            return task.result
        said = f": {task.approval.comment}" if task.approval is not None and task.approval.comment else ""
        message = f"the call of {request.tool_id} was not made: {task.status}{said}"
        error = ToolError(type=ToolErrorType.PERMISSION_DENIED, message=message, tool_id=request.tool_id)
        return result.model_copy(update={"status": "error", "error": error})

    async def _withdraw(self, task_id: str) -> None:
        try:
            await self._manager.cancel_task(task_id, call=self._call)
        except TavernError:
            return


class WallClock:
    """The time that a script has left, which stands still while it waits for tools; the call's deadline does not."""

    def __init__(self, timer: asyncio.Timeout, call: CallContext, wall: float) -> None:
        self._timer = timer
        self._call = call
        self._left = wall
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()

    def stop(self) -> None:
        """Stand still."""
        now = self._loop.time()
        self._left -= now - self._since
        remaining = self._call.remaining()
        self._set(None if remaining is None else now + remaining)

    def go_on(self) -> None:
        """Run again."""
        self._since = self._loop.time()
        remaining = self._call.remaining()
        self._set(self._since + (self._left if remaining is None else min(self._left, remaining)))

    def expire(self) -> None:
        """End the run now."""
        self._set(self._loop.time())

    def _set(self, when: float | None) -> None:
        with contextlib.suppress(RuntimeError):  # the run is over
            self._timer.reschedule(when)


def _unusable(frame: bytes) -> Any:
    """Return a frame that an honest script may send, with half of a character in a text or nested deep; else None."""
    try:
        return json.loads(frame, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _answer_of(result: ToolResult) -> dict[str, JsonValue]:
    if result.error is not None:
        return {"error": json.loads(result.error.model_dump_json(include={"type", "message", "details"}))}
    if result.status == "pending":
        return {"value": {"status": "pending", "task_id": result.task_id}}
    if result.structured is not None:
        return {"value": result.structured}
    texts = [part.text for part in result.content if part.text is not None]
    return {"value": "\n".join(texts) if texts else None}
