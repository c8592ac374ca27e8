"""Tools as functions, for a script that was given some: `from tools import read_file`, `await tools.aio.read_file()`.

A function takes what its tool takes by name, returns the tool's value, and raises `ToolError`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

_NUMBER = int(os.environ.get("TAVERN_CALLS_FD", "-1"))
_OWNER = os.getpid()


class ToolError(Exception):
    """A call that gave no result: `type`, `message` and `details` say why."""

    def __init__(self, type: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(f"{type}: {message}")
        self.type, self.message, self.details = type, message, details or {}


class _Channel:
    """Sends calls and hands out their results: whoever waits first reads for all."""

    def __init__(self) -> None:
        self._sending = threading.Lock()
        self._turn = threading.Condition()
        self._is_read = False
        self._results: dict[int, dict[str, Any]] = {}
        self._number = 0
        self._held = bytearray()

    def call(self, tool_id: str, arguments: dict[str, Any]) -> Any:
        if os.getpid() != _OWNER:
            raise ToolError("InvalidState", "tools are called by the first process of a script only")
        with self._sending:
            number = self._number = self._number + 1
            asked = {"id": number, "tool": tool_id, "arguments": arguments}
            data = json.dumps(asked, allow_nan=False).encode()
            _write(len(data).to_bytes(4, "big") + data)
        return self._wait(number)

    def _wait(self, number: int) -> Any:
        while True:
            with self._turn:
                while self._is_read and number not in self._results:
                    self._turn.wait()
                if number in self._results:
                    return _value(self._results.pop(number))
                self._is_read = True
            result: dict[str, Any] | None = None
            try:
                result = json.loads(self._frame())
            finally:
                with self._turn:
                    self._is_read = False
                    if result is not None and result["id"] != number:
                        self._results[result["id"]] = result
                    self._turn.notify_all()
            if result is not None and result["id"] == number:
                return _value(result)

    def _frame(self) -> bytes:
        """Return the next frame. Only who reads for all calls it."""
        while len(self._held) < 4 or len(self._held) < 4 + int.from_bytes(self._held[:4], "big"):
            more = os.read(_NUMBER, 65536)
            if not more:
                raise ToolError("Closed", "the host accepts no further calls of this script")
            self._held += more
        end = 4 + int.from_bytes(self._held[:4], "big")
        frame = bytes(self._held[4:end])
        del self._held[:end]
        return frame


def _value(result: dict[str, Any]) -> Any:
    error = result.get("error")
    if error is not None:
        raise ToolError(error["type"], error["message"], error.get("details"))
    return result.get("value")


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(_NUMBER, view) :]


_channel = _Channel()


@functools.cache
def _table() -> dict[str, Any]:
    """Return the table of the tools: the call of each name, and the names that share one."""
    table: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return table


def call(tool_id: str, **arguments: Any) -> Any:
    """Call a tool by its id."""
    return _channel.call(tool_id, arguments)


def _function(name: str, tool_id: str, text: str) -> Callable[..., Any]:
    def function(**arguments: Any) -> Any:
        return _channel.call(tool_id, arguments)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


class _Aio:
    """The same functions to be awaited."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        function = __getattr__(name)

        async def awaited(**arguments: Any) -> Any:
            return await asyncio.to_thread(function, **arguments)

        awaited.__name__, awaited.__doc__ = name, function.__doc__
        return awaited


aio = _Aio()


def __getattr__(name: str) -> Callable[..., Any]:
    about = _table()["names"].get(name)
    if about is None:
        shared = _table()["shared"].get(name)
        if shared:
            raise AttributeError(f"{name} could be {' or '.join(shared)}: use that name")
        raise AttributeError(f"no tool is called {name}; dir(tools) lists those that may be called here")
    made = globals()[name] = _function(name, about["id"], about["doc"])
    return made


def __dir__() -> list[str]:
    return [*_table()["names"], "ToolError", "aio", "call"]
