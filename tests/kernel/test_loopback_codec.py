"""The codec: what may cross a plugin boundary comes back as it was; what may not is named with its place."""

from __future__ import annotations

import contextlib
import json
import math
import string
import typing
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any, Literal, Self

import pytest
from documentation.platform import interfaces
from helpers.repetition import Failures, repetitions
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, JsonValue, model_validator

from tavern_host.contracts.calls import CallContext, system_call
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.contracts.hooks import Veto
from tavern_host.contracts.http import HttpRequest, HttpResponse
from tavern_host.contracts.nodes import DataFlowType, NodeDefinition, SlotDefinition
from tavern_host.contracts.services import interface_methods
from tavern_host.contracts.settings import SettingItem
from tavern_host.contracts.wire import Model, WireError
from tavern_host.contracts.workflows import InterfaceSlot, Workflow
from tavern_host.runtime import codec
from tavern_host.runtime.codec import decode, encode
from tavern_host.storage import values
from tavern_host.storage.values import decode_loose, encode_loose

Answer = RunRequest | Veto | None
NOW = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


class Part(Model):
    """A model of one kind of each."""

    number: int = 0
    ratio: Annotated[float, Field(ge=0)] = 0.5
    either: str | int | float | bool | None = None
    pair: tuple[int, str] | None = None
    names: tuple[str, ...] = ()
    data: bytes = b""
    when: datetime | None = None
    parts: dict[str, list[Part]] = Field(default_factory=dict)
    mode: Literal["a", "b", 1] = "a"


class Same(Model):
    """A model with a field of another."""

    number: int = 0


class Checked(Model):
    """A model that asks more than types of its fields, and of all of them."""

    names: list[Annotated[str, Field(max_length=3)]] = Field(default_factory=list)
    least: int = 0
    most: int = 0

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.least > self.most:
            raise ValueError("the least is more than the most")
        return self


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
MARKS = st.sampled_from(["$bytes", "$dict", "$kept", "$datetime", "$"])


def nested(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    inner = st.text(max_size=8)
    return st.recursive(
        values, lambda one: st.lists(one, max_size=4) | st.dictionaries(inner, one, max_size=4), max_leaves=20
    )


json_values = nested(st.none() | st.booleans() | NUMBERS | st.text())
moments = st.datetimes(timezones=st.just(UTC))
edge_values = nested(json_values | st.binary(max_size=20) | moments | st.dictionaries(MARKS, st.integers(), max_size=2))


def round_trip(value: Any, annotation: Any) -> Any:
    return decode(encode(value, annotation), annotation)


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal and of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return bool(a == b)


# --- what comes back --------------------------------------------------------------------------------------


@given(json_values)
def test_json_comes_back_as_it_was(value: Any) -> None:
    assert same(round_trip(value, JsonValue), value)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (None, None),
        (True, bool),
        (-(2**63), int),
        (0.1, float),
        ("ünï\0 NaN Infinity 1e999 99999999999999999999", str),
        ({"a": 1e300, "b": -0.0}, JsonValue),
        ((Same(number=1), Part(number=1)), tuple[Part | Same, Part | Same]),
        (bytes(range(256)), bytes),
        (NOW, datetime),
        (RunStatus.RUNNING, RunStatus),
        ("b", Literal["a", "b"]),
        (True, Literal[1, True]),
        (None, Literal["a", "b"] | None),
        ([1, 2], list[int]),
        ((1, 2), tuple[int, ...]),
        ((1, "a"), tuple[int, str]),
        ({"a": [None, "x"]}, dict[str, list[str | None]]),
        ({"a": 1}, dict[Annotated[str, Field(max_length=9)], int]),
        (3, float | int),
        (3.0, int | float),
        (True, str | int | float | bool),
        ([1], JsonValue | None),
        (Gap(first=1, last=2), Event | Gap),
        (Part(either=1.0, pair=(1, "x"), names=("a",), data=b"\xff", when=NOW, mode=1), Part),
        (Part(parts={"x": [Part(number=1), Part()]}), Part),
        (HttpRequest(method="GET", path="/", body=b"\xff\x00", call=system_call()), HttpRequest),
        (Event(seq=1, type="A", payload={"x": [1]}, time=NOW), Event),
    ],
)
def test_a_value_comes_back_as_it_was(value: Any, annotation: Any) -> None:
    assert same(round_trip(value, annotation), value)


def test_decoded_models_know_which_fields_were_set() -> None:
    document = {"name": "Tale", "mood": "gloomy", "nodes": [{"id": "n", "type": "core:Text", "width": 3}]}
    workflow = Workflow.model_validate(document)
    back = round_trip(workflow, Workflow)
    assert back.model_dump(mode="json", exclude_unset=True) == document
    assert back.model_fields_set == workflow.model_fields_set
    item = SettingItem(key="a", type="json", label="A", default_value=None)
    assert round_trip(item, SettingItem).has_default
    assert not round_trip(SettingItem(key="a", type="json", label="A"), SettingItem).has_default


def test_defaults_and_internal_fields_are_sent() -> None:
    there = datetime(2026, 1, 2, 3, 0, tzinfo=timezone(timedelta(hours=8)))
    back = round_trip(there, datetime)
    assert (back, back.utcoffset()) == (there, timedelta()), "in universal time"
    call = system_call()
    assert round_trip(call, CallContext) == call
    assert round_trip(call.child(timeout=5), CallContext).id != call.id
    request = RunRequest(workflow_id="a")
    request.inputs["sneaked"] = [1]
    received = round_trip(request, RunRequest)
    received.inputs["sneaked"].append(2)
    assert (received.inputs, request.inputs) == ({"sneaked": [1, 2]}, {"sneaked": [1]})
    node = NodeDefinition(type="A", namespace="acme", handler="acme.nodes:a")
    assert "handler" not in node.to_wire()
    assert round_trip(node, NodeDefinition).handler == "acme.nodes:a"


def test_every_method_of_every_service_can_be_sent() -> None:
    for interface, name in ((i, name) for i in interfaces().values() for name in interface_methods(i)):
        for hint in typing.get_type_hints(getattr(interface, name), include_extras=True).values():
            item = typing.get_args(hint)[0] if typing.get_origin(hint) is AsyncIterator else hint
            with pytest.raises(WireError, match="^expected "):
                encode(object(), item)


# --- what does not cross ----------------------------------------------------------------------------------


HALF = "the text holds half of a surrogate pair"
LONG_INT, INFINITE = "an int must have at most 64 bits, this one has", "a number must be finite, this one is"
STRING = DataFlowType.STRING
FOUND = "expected SlotDefinition, found tavern_host.contracts.workflows.InterfaceSlot"
REFUSED: list[tuple[Any, Any, str]] = [
    ({}, Answer, "expected RunRequest, Veto or None, found dict"),
    (object(), None, "expected None, found object"),
    (1, bool, "expected bool, found int"),
    (True, int, "expected int, found bool"),
    ("1", int, "expected int, found str"),
    (2**63, int, f"{LONG_INT} 65"),
    (2**70, int | float, f"{LONG_INT} 72"),
    (math.nan, float, f"{INFINITE} nan"),
    (10**400, float, f"{INFINITE} inf"),
    (bytearray(b"x"), bytes, "expected bytes, found bytearray"),
    (datetime(2026, 1, 1), datetime, "a datetime must say its time zone, this one does not"),
    ("running", RunStatus, "expected RunStatus, found str"),
    ("c", Literal["a", "b"], "expected one of 'a', 'b', found 'c'"),
    (1, Literal["a", True], "expected one of 'a', True, found 1"),
    (["a", 1], list[str], "[1]: expected str, found int"),
    ("ab", list[str], "expected a list of str, found str"),
    ((1,), tuple[int, str], "expected a tuple of 2 values, found tuple"),
    ({1: "a"}, dict[str, str], "keys must be str, one is int"),
    ({"a b": {1}}, JsonValue, "['a b']: expected JSON, found set"),
    ([{"x": math.inf}], JsonValue, f"[0].x: {INFINITE} inf"),
    ({"x": Veto(reason="no")}, JsonValue, ".x: expected JSON, found tavern_host.contracts.hooks.Veto"),
    (RunRequest().model_copy(update={"inputs": {"a": [1, print]}}), Answer, ".inputs.a[1]: expected JSON, found "),
    (RunRequest().model_copy(update={"workflow_id": 3}), Answer, ".workflow_id: expected str or None, found int"),
    (RunRequest().model_copy(update={"nonsense": 3}), Answer, "a RunRequest has no nonsense"),
    (RunRequest.model_construct(), HttpResponse, "expected HttpResponse, found "),
    (Veto.model_construct(), Veto, "this Veto lacks reason"),
    (Part().model_copy(update={"ratio": -1.0}), Part, ".ratio: no valid Part: Input should be greater"),
    (InterfaceSlot(data_flow_type=STRING, key="a"), SlotDefinition, FOUND),
    ({"a": ["\ud800"]}, JsonValue, f".a[0]: {HALF}"),
    ({"a\ud800": 1}, JsonValue, f"['a\\ud800']: {HALF}"),
    (Part(names=("a", "\udfff")), Part | Same, f".names[1]: {HALF}"),
    ([{"a": 2**63}, 2**63], JsonValue, f"[0].a: {LONG_INT} 65"),
    (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), datetime, "expected datetime, found datetime."),
    (Checked(least=0).model_copy(update={"least": 3}), Checked, "no valid Checked: Value error, the least is more"),
    (Part().model_copy(update={"parts": {"a": [Same()]}}), Part, ".parts.a[0]: expected Part, found "),
    (1, set[int], "set[int] is no wire type"),
    (1, Any, "typing.Any is no wire type"),
    (1, dict[int, int], "dict[int, int] is no wire type"),
]


def test_values_that_may_not_cross_are_located() -> None:
    with Failures() as failures:
        for value, annotation, message in REFUSED:
            with failures.row(message):
                with pytest.raises(WireError) as refused:
                    round_trip(value, annotation)
                assert str(refused.value).startswith(message)


def test_errors_in_unions_name_the_right_member() -> None:
    run = Run(id="r", status=RunStatus.COMPLETE, submitted_at=NOW, outputs={"a": 1})
    wrong = run.model_copy(update={"outputs": {"a": {"b": [object()]}}})
    with pytest.raises(WireError, match=r"^\.outputs\.a\.b\[0\]: expected JSON, found object$"):
        encode(wrong, Run | Veto | None)


@pytest.fixture
def few_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a value hold fewer values, so that the limit is reached soon."""
    for module in (codec, values):
        monkeypatch.setattr(module, "MAX_VALUES", 50_000)


def endless_values() -> tuple[Any, Any, Any]:
    """Return values that contain themselves, are very wide, and very deep."""
    endless: list[Any] = []
    endless.append(endless)
    wide: Any = []
    for _ in range(40):
        wide = [wide, wide]
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    return endless, wide, deep


@pytest.mark.usefixtures("few_values")
def test_endless_values_are_refused() -> None:
    told = (r"\.me\[0\]: .*values, or contains itself", "values, or contains itself", r"\.me\[0\].*nested too deeply")
    for value, message in zip(endless_values(), told, strict=True):
        with pytest.raises(WireError, match=message):
            encode({"me": value}, JsonValue)
    with pytest.raises(WireError, match="values, or contains itself"):
        encode([1] * 50_001, list[int])


HOSTILE: list[tuple[bytes, Any]] = [
    *(
        (data, JsonValue)
        for data in (b"1e999", b"[-1E+0400]", b"[9223372036854775808]", b'"\\ud800"', b"NaN", b"[" * 5000)
    ),
    *((data, float) for data in (b"true", b'"1"', b"1" + b"0" * 400)),
    *((data, datetime) for data in (b'"2026-01-01T00:00:00"', b'"2026-01-01T00:00:00+08:00"', b"0")),
    *((data, Same) for data in (b"{}", b"[1]", b'["1","0x1",null]', b'[1,"0x1",{"more":1}]', b"[1,1,null]")),
    *((data, Part | Same) for data in (b'[1,"0x1",null]', b'["Other",[1,"0x1",null]]', b'["Same",null]', b"[[],1]")),
    *((data, RunStatus) for data in (b'"running"', b'"mro"', b"1")),
    *((data, Literal["a", 1]) for data in (b'"b"', b"true", b"[]")),
    *((data, tuple[int, str]) for data in (b"[1]", b'["a",1]', b'[1,"a",2]', b"{}")),
    (b'[["abcd"],0,0,"0x1",null]', Checked),
    (b'[[],2,1,"0x7",null]', Checked),
    (b'["n","t","0x0",{"id":"m"}]', InterfaceSlot),
]


def test_hostile_bytes_build_nothing_but_what_is_declared() -> None:
    with Failures() as failures:
        for data, annotation in HOSTILE:
            with failures.row((data, annotation)), pytest.raises(WireError):
                decode(data, annotation)
    assert decode(b'[1,"0xffff",null]', Same).model_fields_set == {"number"}
    assert decode(b'{"a":1,"a":2}', JsonValue) == {"a": 2}


KINDS = (Answer, Part, ErrorInfo, RunStatus, list[int], tuple[int, str], dict[str, bytes], datetime, bytes)


@settings(max_examples=repetitions(40, 200))
@given(st.one_of(st.binary(max_size=30), json_values.map(lambda value: json.dumps(value).encode())))
def test_arbitrary_bytes_raise_only_wire_errors(data: bytes) -> None:
    for annotation in KINDS:
        with contextlib.suppress(WireError):
            decode(data, annotation)


# --- values on edges --------------------------------------------------------------------------------------


@given(edge_values)
def test_encodable_edge_values_round_trip(value: Any) -> None:
    data, kept = encode_loose(value)
    assert kept == []
    assert same(decode_loose(data, kept), value)


class Picture:
    """Something that has no codec."""


def test_other_edge_values_stay_in_memory() -> None:
    picture, outer = Picture(), {"$kept": [1], "name": "x"}
    value = {"picture": picture, "more": [picture, outer], "nan": math.nan, "big": 2**64, 1: 2}
    data, kept = encode_loose({"all": value, "rest": value["more"]})
    back = decode_loose(data, kept)
    assert back["rest"][0] is picture
    assert back["rest"][1] == outer and back["rest"][1] is not outer
    assert back["all"] is value, "keys that are no text have no codec"
    assert string.ascii_letters not in data.decode()


@pytest.mark.usefixtures("few_values")
def test_endless_edge_values_stay_in_memory() -> None:
    for value in endless_values():
        assert decode_loose(*encode_loose(value)) is value


def test_tuples_become_lists_on_edges() -> None:
    naive = datetime(2026, 1, 1)
    assert decode_loose(*encode_loose({"a": (1, 2), "b": naive})) == {"a": [1, 2], "b": naive}
