"""Values of edges on a link. JSON, bytes, Blobs and models of the contracts cross; any other value stays in the process
of the plugin whose node gave it, and the host has a handle of it, which other nodes of that plugin take.

What is read is data: names are looked up among the contracts, and nothing else is made or run (`storage.values`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any
from weakref import finalize

from pydantic import BaseModel

from tavern_host.contracts.errors import PluginEnded
from tavern_host.contracts.wire import Model, WireError, kind_of, wire_value
from tavern_host.runtime.codec import decode, encode
from tavern_host.runtime.installed import is_published
from tavern_host.storage.values import decode_loose, encode_loose
from tavern_isolation.described import reference_of, shared_type
from tavern_isolation.notes import Notes

BYTES, _KEPT = b"\0", b"\1"
"""The part before one that is the bytes of a value as they are, and what begins a part with what stands for values
without a codec; JSON cannot begin so."""
_PLAIN = (int, float, str, bytes, datetime, dict, list, tuple)
_INSTEAD = "return JSON, bytes, a Blob or a model of the host's contracts instead"
_UNCLAIMED = 600.0
"""Seconds that the process of a plugin keeps a value of which the host never said that it has it."""


class Handle(Model):
    """A value in the process of a plugin: whose, and of which type. The process keeps it as long as this is held."""

    plugin: str
    type: str
    number: int


class Edges(ABC):
    """Writes and reads values of edges at one end of a link; stands where other values have an annotation."""

    def write(self, value: Any) -> bytes:
        """Return a value, which is no bytes, as bytes. Raises `WireError`."""
        data, kept = encode_loose(value)
        if not kept:
            return data
        return b"".join((_KEPT, json.dumps([*map(self._away, kept)]).encode(), b"\n", data))

    def read(self, data: bytes) -> Any:
        """Return the value that `write` made these bytes of at the other end."""
        kept: list[Any] = []
        if data.startswith(_KEPT):
            head, _, data = data[1:].partition(b"\n")
            kept = [self._back(*one) for one in json.loads(head)]
        return decode_loose(data, kept)

    def _away(self, value: Any) -> tuple[str, int | str]:
        if isinstance(value, _PLAIN):
            wire_value(value)  # says what is wrong with it, as the engine does of any node
        elif isinstance(value, BaseModel) and is_published(type(value).__module__):
            return reference_of(type(value)), encode(value, type(value)).decode()
        return self.keep(value)

    def _back(self, kind: str, content: int | str) -> Any:
        if isinstance(content, str):
            return decode(content.encode(), shared_type(kind))
        return self.find(kind, content)

    @abstractmethod
    def keep(self, value: Any) -> tuple[str, int]:
        """Return the type and the number of a value without a codec. Raises `WireError`."""

    @abstractmethod
    def find(self, kind: str, number: int) -> Any:
        """Return the value that such a number stands for."""


class HostEdges(Edges):
    """The host's end: has handles."""

    def __init__(self, plugin: str, notes: Notes) -> None:
        self._plugin = plugin
        self._notes = notes

    def keep(self, value: Any) -> tuple[str, int]:
        """Return the stand-in for a handle of the plugin."""
        if type(value) is not Handle:
            raise WireError(f"{kind_of(value)} cannot be sent to the process of {self._plugin}: {_INSTEAD}")
        if value.plugin != self._plugin:
            raise WireError(f"{value.type} is in the process of {value.plugin} and cannot leave it: {_INSTEAD}")
        return value.type, value.number

    def find(self, kind: str, number: int) -> Handle:
        """Return a new handle."""
        handle = Handle(plugin=self._plugin, type=str(kind)[:200], number=number)
        self._notes.say("held", number)
        finalize(handle, self._notes.say, "dropped", number).atexit = False
        return handle


class ChildEdges(Edges):
    """The end of the plugin: has the values."""

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin
        self._values: dict[int, Any] = {}
        self._unclaimed: dict[int, float] = {}
        self._numbers = itertools.count(secrets.randbits(48))  # those of an earlier process mean nothing here

    def keep(self, value: Any) -> tuple[str, int]:
        """Keep a value until the host drops it."""
        now = asyncio.get_running_loop().time()
        for number in [number for number, since in self._unclaimed.items() if now - since > _UNCLAIMED]:
            self.take("dropped", [number])
        number = next(self._numbers)
        self._values[number], self._unclaimed[number] = value, now
        return kind_of(value), number

    def find(self, kind: str, number: int) -> Any:
        """Return the value. Raises `PluginEnded`."""
        if number not in self._values:
            message = f"the process of {self._plugin} that had this {kind} has ended, and the value with it"
            raise PluginEnded(message, plugin=self._plugin)
        return self._values[number]

    def take(self, what: str, numbers: list[int]) -> None:
        """Take what the host says of its handles."""
        for number in numbers:
            self._unclaimed.pop(number, None)
            if what == "dropped":
                self._values.pop(number, None)
