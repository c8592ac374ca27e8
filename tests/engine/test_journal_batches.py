"""Node results as bytes: what comes back of every kind of value, and of bytes that are torn."""

from __future__ import annotations

import enum
import math
import random
import sys
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from helpers.repetition import Failures, repetitions
from hypothesis import given
from hypothesis import strategies as st
from runs_bench import CODED

from tavern_engine.journal.batch_decoder import decode_rows, fetched
from tavern_engine.journal.batch_encoder import LARGE, encode_rows
from tavern_engine.journal.batch_rows import NodeRow, Note, Rows, Stored
from tavern_host.contracts.errors import ErrorInfo, NotFound, TavernError

SIGNATURE = bytes(range(16))


Row = dict[str, Any]


def row(outputs: dict[str, Any] | None, node_id: str = "n", **more: Any) -> Row:
    """Return the fields of a node's row, as `NodeRow` has them."""
    usual = {"signature": SIGNATURE, "status": "complete", "started": 0.25, "finished": 0.5}
    return {"node_id": node_id, "outputs": outputs, **usual, **more}


def nodes(rows: list[Row]) -> list[NodeRow]:
    return [NodeRow(**each) for each in rows]


def rows_of(rows: list[Row]) -> Rows:
    found = Rows()
    for each in rows:
        note = Note(**{key: each[key] for key in ("status", "error", "attempts", "iteration") if key in each})
        found.fields += [each[key] for key in ("node_id", "signature", "started", "finished", "outputs")]
        found.fields.append(None if note == Note() else note)
    return found


class Encoded:
    """All of some rows as batches, with the values that are kept apart."""

    def __init__(self, rows: list[Row]) -> None:
        self.batches: list[bytes] = []
        self.large: dict[str, bytes] = {}
        self.lacking: list[str] = []
        written, done = rows_of(rows), 0
        while done < len(rows):
            batch = encode_rows(written, done)
            assert batch.rows > 0
            self.batches.append(batch.content)
            self.large |= batch.large
            self.lacking += batch.lacking
            done += batch.rows

    async def content(self, hash: str) -> bytes:
        return self.large[hash]

    def rows(self) -> list[NodeRow]:
        warnings: list[str] = []
        found = decode_rows(self.batches, warnings.append)
        assert warnings == []
        return found

    async def outputs(self) -> list[dict[str, Any] | None]:
        return [await fetched(each, self.content) for each in self.rows()]


def shape(value: Any) -> Any:
    """Return a value with its types, so that 1, 1.0 and True differ, and 0.0 and -0.0."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return type(value), value, math.copysign(1, value) if isinstance(value, float) else None


@given(st.lists(st.dictionaries(st.text(max_size=5), CODED, max_size=3), max_size=6))
async def test_values_that_have_a_codec_come_back_as_they_were(values: list[dict[str, Any]]) -> None:
    encoded = Encoded([row(each, str(index)) for index, each in enumerate(values)])
    assert encoded.lacking == []
    assert [shape(found) for found in await encoded.outputs()] == [shape(each) for each in values]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


SHAPES: dict[str, list[dict[str, Any] | None]] = {
    "integers": [{"a": 1}, {"a": -(2**63)}, {"a": 2**63 - 1}],
    "numbers": [{"a": 0.1}, {"a": -0.0}, {"a": 1e300}],
    "kinds": [{"a": 1}, {"a": True}, {"a": 1.0}, {"a": None}],
    "outputs": [{"a": 1, "b": 2}, {"b": 3, "a": 4}, {}, {"a": 5}],
    "no outputs": [{"a": 1}, None, {"b": "語"}, None, {}],
    "none": [None, None],
    "empty": [{}, {}],
    "lone surrogates": [
        {"plain": "\ud83d\ude00", "with bytes": ["\ud83d\ude00", b""], "large": "\ud83d\ude00" * LARGE}
    ],
    "deep": [{"a": nested(depth)} for depth in (10, 150, 250)],
}


async def test_rows_of_any_shapes_come_back() -> None:
    with Failures() as failures:
        for name, values in SHAPES.items():
            with failures.row(name):
                found = await Encoded([row(each, str(index)) for index, each in enumerate(values)]).outputs()
                assert [each and shape(each) for each in found] == [each and shape(each) for each in values]
                assert [each and list(each) for each in found] == [each and list(each) for each in values]


async def test_everything_about_a_node_comes_back() -> None:
    error = ErrorInfo(code="x", message="lone \ud800", details={"a": [1]}, plugin="p", retryable=True)
    rows = [
        row({"a": 1}),
        row(None, "group/näme\ud800", signature=None, status="error", error=error, attempts=3, iteration=7),
        row({}, signature=b"", started=1 / 3, finished=1e300, iteration=0),
    ]
    assert Encoded(rows).rows() == nodes(rows)
    assert Encoded(rows[:1] * 3).rows() == nodes(rows[:1] * 3)
    assert Encoded([row(None, signature=None)]).rows() == nodes([row(None, signature=None)])
    assert Encoded([]).rows() == []


class Color(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


def endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


ENCODED_NOWHERE: list[tuple[Any, str]] = [
    *((object(), "a value of type object has no codec"), (Color.RED, "Color has no codec")),
    *((Level.LOW, "Level has no codec"), (Decimal(1), "a value of type decimal.Decimal has no codec")),
    *(({1: "a"}, "keys that are no texts has no codec"), ({1, 2}, "a value of type set has no codec")),
    *(([{"deep": {Color.RED: 1}}], "keys that are no texts"), (float("nan"), "the number nan has no codec")),
    *(([1, {"a": -math.inf}], "the number -inf has no codec"), (2**63, "a whole number of more than 64 bits")),
    *(([-(2**63) - 1], "a whole number of more than 64 bits"), (10**5000, "a whole number of more than 64 bits")),
    *((datetime(2020, 1, 1), "a value of type datetime.datetime has no codec"), (endless(), "too deep")),
    *((nested(5_000), "too deep"), ([None] * 1_000_001, "too large")),
]


async def test_only_a_node_with_uncoded_values_lacks_outputs() -> None:
    with Failures() as failures:
        for value, reason in ENCODED_NOWHERE:
            with failures.row(reason):
                rows = [row({"a": 1}, "before"), row({"fine": 1, "odd": value}, "group/n"), row({"b": b"2"}, "after")]
                encoded = Encoded(rows)
                (told,) = encoded.lacking
                assert told.startswith("node group/n, output odd: ")
                assert reason in told
                assert await encoded.outputs() == [{"a": 1}, None, {"b": b"2"}]
                assert [each.lacking for each in encoded.rows()] == [None, told, None]


async def test_tuples_and_time_zones_are_normalised() -> None:
    moment = datetime(2020, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    (found,) = await Encoded([row({"a": (1, (2, b"3")), "b": moment})]).outputs()
    assert found == {"a": [1, [2, b"3"]], "b": datetime(2020, 1, 1, 10, tzinfo=UTC)}


async def test_odd_rows_cost_no_others() -> None:
    class Hostile(dict[str, Any]):
        def values(self) -> Any:
            raise SystemError("no")

        items = values

    rows = [row({"a": index}, f"n{index}") for index in range(300)]
    rows[123] = row(Hostile(a=1), "hostile")
    about = {"signature": "sig", "status": 3, "started": None, "finished": "x", "error": "err", "attempts": None}
    rows[200] = row({"a": 1}, "no row", **about, iteration=object())
    encoded = Encoded(rows)
    reasons = {"hostile": "SystemError", "no row": "AttributeError"}
    assert encoded.lacking == [f"node {n}: its result cannot be encoded ({kind})" for n, kind in reasons.items()]
    assert [each.outputs for each in encoded.rows()] == [None if i in (123, 200) else {"a": i} for i in range(300)]


async def test_error_details_without_json_are_left_out() -> None:
    error = ErrorInfo(code="x", message="m", details={"n": float("nan")})
    (found,) = Encoded([row(None, error=error)]).rows()
    assert found.error == ErrorInfo(code="x", message="m")


# --- large values --------------------------------------------------------------------------------------


async def test_a_large_value_is_kept_apart_once_and_comes_back() -> None:
    lists: list[Any] = [[["item"] * 10] * 5_000, [b"bytes"] * 20_000]
    for value in ("x" * (LARGE + 1), "语\ud800" * LARGE, bytes(LARGE + 1), *lists):
        rows = [row({"small": index, "large": value}, str(index)) for index in range(3)]
        encoded = Encoded(rows)

        assert sum(map(len, encoded.batches)) < 2000
        ((name, content),) = encoded.large.items()
        stored = encoded.rows()[0].outputs
        assert (stored["small"], type(stored["large"])) == (0, Stored)
        assert (stored["large"].hash, stored["large"].size) == (name, len(content))
        assert await encoded.outputs() == [each["outputs"] for each in rows]


async def test_many_large_values_are_encoded_a_part_at_a_time() -> None:
    rows = [row({"a": f"{index} " * 1_000_000}, str(index)) for index in range(10, 20)]
    first = encode_rows(rows_of(rows))
    assert 1 <= first.rows < 8
    assert sum(map(len, first.large.values())) < 20_000_000
    assert await Encoded(rows).outputs() == [each["outputs"] for each in rows]


async def test_a_large_value_gone_or_changed_is_refused() -> None:
    (found,) = Encoded([row({"a": [["item"] * 10] * 20_000})]).rows()

    async def gone(hash: str) -> bytes:
        raise NotFound("gone")

    async def other(hash: str) -> bytes:
        return b"no json"

    with pytest.raises(NotFound):
        await fetched(found, gone)
    with pytest.raises(TavernError, match="node n, output a: it cannot be read back"):
        await fetched(found, other)


# --- torn bytes ----------------------------------------------------------------------------------------


def read(batches: list[bytes]) -> tuple[list[NodeRow], list[str]]:
    warnings: list[str] = []
    return decode_rows(batches, warnings.append), warnings


def test_an_unknown_batch_is_left_out() -> None:
    good = Encoded([row({"a": 1})]).batches[0]
    for bad in (b"x", b"TVB3", b"TVB2" + bytes(100), bytes(1000), b"TVB3" + b"\xff" * 50):
        rows, (warning,) = read([good, bad, good])
        assert rows == nodes([row({"a": 1})] * 2)
        assert warning.startswith("batch 2 of 3 ") and warning.endswith(": the nodes in it count as not run")


def test_notes_stay_with_their_rows_in_every_frame() -> None:
    rows = [row({"a": n}, str(n), **({"status": "error", "attempts": n} if n % 7 == 0 else {})) for n in range(600)]
    assert Encoded(rows).rows() == nodes(rows)


def test_torn_or_changed_batches_give_whole_frames_only() -> None:
    rows = [row({"a": index, "b": b"bytes"}, str(index)) for index in range(600)]
    whole, expected, chance = Encoded(rows).batches[0], set(map(repr, nodes(rows))), random.Random(1)
    for place in chance.sample(range(len(whole)), repetitions(40, 300)):
        found, warnings = read([whole[:place]])
        assert found == nodes(rows[: len(found)])
        assert len(found) in (0, 250, 500) and len(warnings) <= 1
        torn = bytearray(whole)
        torn[place] ^= 1 << chance.randrange(8)
        found, warnings = read([bytes(torn)])
        assert set(map(repr, found)) <= expected
        assert warnings != []


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read(content: bytes) -> None:
    read([content, b"TVB3" + content])


def test_reading_does_not_need_more_stack_than_writing() -> None:
    batch = Encoded([row({"a": nested(180)})]).batches[0]

    def deep(left: int) -> list[NodeRow]:
        return deep(left - 1) if left else read([batch])[0]

    assert deep(sys.getrecursionlimit() // 2) == nodes([row({"a": nested(180)})])
