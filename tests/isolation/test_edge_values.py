"""Values of edges at both ends of a link: what crosses, what stays, and what hostile bytes become."""

from __future__ import annotations

import asyncio
import enum
import gc
import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from helpers.repetition import Failures
from pydantic import JsonValue

from tavern_host import Blob, CallContext
from tavern_host.contracts.errors import PluginEnded
from tavern_host.contracts.wire import WireError
from tavern_host.storage.values import MAX_VALUES
from tavern_isolation.edges import ChildEdges, Handle, HostEdges
from tavern_isolation.node_values import packed, values_of
from tavern_isolation.notes import Notes
from tavern_isolation.typed import parts_of, read, value_of, write


class Tensor:
    """A value of a library's own."""


class Ends:
    """Both ends of one plugin's link."""

    def __init__(self, plugin: str = "acme") -> None:
        self.child = ChildEdges(plugin)
        self.said: list[tuple[str, list[int]]] = []
        self.host = HostEdges(plugin, Notes(self._tell))

    def _tell(self, what: str, numbers: list[int]) -> None:
        self.said.append((what, numbers))
        self.child.take(what, numbers)

    def to_host(self, value: Any) -> Any:
        return value_of(iter(parts_of(value, self.child)), self.host)

    def to_child(self, value: Any) -> Any:
        return value_of(iter(parts_of(value, self.host)), self.child)


async def turns() -> None:
    gc.collect()
    for _ in range(3):
        await asyncio.sleep(0)


async def test_what_has_a_codec_crosses_as_it_is() -> None:
    ends = Ends()
    blob = Blob(hash="a" * 64, media_type="text/plain", length=3)
    value = {
        "a": [1, None, 1.5, "é", b"\x00\xff", blob],
        "$kept": {"$bytes": 1},
        "at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    for one in (value, b"\x01raw", "", [CallContext.model_validate({"principal": {"kind": "user", "id": "ada"}})]):
        assert ends.to_host(one) == one
        assert ends.to_child(one) == one
    assert ends.said == []


async def test_any_other_value_stays_and_comes_back_as_the_same_object_as_long_as_it_is_held() -> None:
    ends, tensor = Ends(), Tensor()
    held = ends.to_host({"x": [tensor, 1], "y": tensor})
    assert held["x"][0] == Handle(plugin="acme", type=f"{__name__}.Tensor", number=held["x"][0].number)
    back = ends.to_child({"again": held["x"], "y": held["y"]})
    assert back["again"][0] is tensor is back["y"] and back["again"][1] == 1
    (number, other) = held["x"][0].number, held["y"].number
    kept = held.pop("y")
    await turns()
    assert ends.said == [("held", [number, other])]
    del held
    await turns()
    assert ends.said[1:] == [("dropped", [number])]
    assert ends.to_child(kept) is tensor
    with pytest.raises(PluginEnded, match="the process of acme that had this Tensor has ended"):
        ends.child.find("Tensor", number)


async def test_a_value_that_nobody_has_is_not_kept_for_ever(held_clock: Any) -> None:
    ends, tensor = Ends(), Tensor()
    parts_of(tensor, ends.child)  # the message is never read
    assert len(vars(ends.child)["_values"]) == 1
    held_clock.advance(601)
    ends.to_host(tensor)
    assert len(vars(ends.child)["_values"]) == 1


async def test_elsewhere_the_error_names_the_slot_the_type_and_what_to_return() -> None:
    ends, others = Ends(), Ends("other")
    image = ends.to_host(Tensor())
    instead = "return JSON, bytes, a Blob or a model of the host's contracts instead"
    with pytest.raises(Exception, match=f"node o:N, slot img: .*Tensor is in the .* of acme .*: {instead}"):
        packed({"img": image}, others.host, "o:N")
    with pytest.raises(Exception, match=f"node o:N, slot img: .*Tensor cannot be sent to .* other: {instead}"):
        packed({"img": Tensor()}, others.host, "o:N")
    keys, parts = packed({"a": 1, "img": image}, ends.host, "acme:N")
    with pytest.raises(PluginEnded, match="node acme:N, slot img: the process of acme that had this .* has ended"):
        values_of(keys, iter(parts), Ends().child, "acme:N")


class Colour(enum.Enum):
    RED = 1


async def test_what_no_node_may_give_is_refused_and_not_kept() -> None:
    ends = Ends()
    for value in (math.nan, 1 << 70, {1: 2}, datetime(2026, 1, 1)):
        with pytest.raises(WireError, match="must|bits|keys"):
            parts_of(value, ends.child)
    assert isinstance(ends.to_host(Colour.RED), Handle)


HOSTILE = {
    "no JSON": b"{",
    "bytes that do not follow": b"\0",
    "a name that is no type of the contracts": b'\x01[["os:system", "x"]]\n{"$kept": 0}',
    "a function of the contracts": b'\x01[["tavern_host.contracts.wire:wire_value", "x"]]\n{"$kept": 0}',
    "a model that it is not": b'\x01[["tavern_host.contracts.calls:CallContext", "[]"]]\n{"$kept": 0}',
    "a number that is none": b'\x01[["x", {"a": 1}]]\n{"$kept": 0}',
    "an object that was not sent": b'{"$kept": 0}',
    "an object by another name": b'{"$kept": "__class__"}',
    "a Blob that is none": json.dumps({"$blob1": ["../../etc/passwd", "x", -1]}).encode(),
    "bytes that are none": b'{"$bytes": "*"}',
    "a time that is none": b'{"$datetime": 5}',
    "no end": b"[" * 100_000,
    "very many values": b"[" + b"{}," * (MAX_VALUES + 1) + b"{}]",
    "very many values beside texts": b'["\\"",' + b"0," * (MAX_VALUES + 1) + b"0]",
    "a long number": b"9" * 5_000,
}


async def test_bytes_that_nobody_wrote_are_refused_and_make_nothing() -> None:
    ends = Ends()
    with Failures() as failures:
        for what, data in HOSTILE.items():
            for end in (ends.host, ends.child):
                with failures.row(f"{what}, {type(end).__name__}"), pytest.raises((WireError, PluginEnded)):
                    value_of(iter([data]), end)
        for what in ("very many values", "very many values beside texts"):
            with failures.row(f"{what}, typed"), pytest.raises(WireError, match="more than 1,000,000 values"):
                read(HOSTILE[what], JsonValue)
    many = "," * (MAX_VALUES + 2)
    assert read(write(many, JsonValue), JsonValue) == many, "they are in a text"
    large = many.encode()
    mark, part = parts_of(large, ends.host)
    assert part is large and value_of(iter([mark, part]), ends.child) is large, "and bytes are not looked through"
