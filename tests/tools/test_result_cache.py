"""Results that are given again: to whom, for how long, and for which arguments."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host.contracts.calls import Principal
from tavern_host.contracts.toolcalls import ContentPart, ToolError, ToolErrorType, ToolResult
from tavern_host.contracts.tools import ToolCaching, ToolDefinition, ToolImplementation
from tavern_tools.calls.result_cache import ResultCache
from tavern_tools.catalog.catalog import Tool

WRITER, READER = Principal(kind="agent", id="writer"), Principal(kind="agent", id="reader")


def cached(seconds: float = 60, *, shared: bool = False, tool_id: str = "kb:Query", version: str = "1") -> Tool:
    node = ToolImplementation(kind="node", node_type="a:b")
    caching = ToolCaching(seconds=seconds, shared=shared)
    return Tool(ToolDefinition(id=tool_id, version=version, implementation=node, cache=caching))


def done(structured: Any = None, **more: Any) -> ToolResult:
    return ToolResult(tool_id="kb:Query", status="done", structured=structured, **more)


class Bench:
    """A cache and its clock."""

    def __init__(self, max_bytes: int = 1_000_000) -> None:
        self.now = 0.0
        self.settings = 0
        self.cache = ResultCache(lambda: self.settings, max_bytes, clock=lambda: self.now)

    def key(self, tool: Tool, arguments: Any = None, principal: Principal = WRITER) -> bytes:
        key = self.cache.key(tool, arguments or {}, principal)
        assert key is not None
        return key

    def put(self, tool: Tool, result: ToolResult, arguments: Any = None) -> bytes:
        key = self.key(tool, arguments)
        self.cache.put(key, tool, result)
        return key


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_result_is_given_again_for_equal_arguments_as_long_as_the_tool_says(bench: Bench) -> None:
    tool = cached(10)
    bench.put(tool, done([1]), {"a": 1, "b": {"c": 2, "d": 3}})
    key = bench.key(tool, {"b": {"d": 3, "c": 2}, "a": 1})
    bench.now = 9.9
    again = bench.cache.get(key)
    assert (again.structured, again.cached) == ([1], True)
    bench.now = 10.0
    assert bench.cache.get(key) is None


def test_a_tool_that_does_not_ask_for_it_is_not_cached(bench: Bench) -> None:
    tool = Tool(ToolDefinition(id="a", implementation=ToolImplementation(kind="node", node_type="a:b")))
    assert bench.cache.key(tool, {}, WRITER) is None
    bench.cache.put(b"key", tool, done())
    assert bench.cache.get(b"key") is None


def test_other_arguments_are_another_call(bench: Bench) -> None:
    rows: Any = [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1.0}),
        ({}, {"a": None}),
        ({"a": "é"}, {"a": "e\u0301"}),
        ({"a": "\ud800"}, {"a": "?"}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
    ]
    with Failures() as failures:
        for one, other in rows:
            with failures.row(one):
                tool = cached()
                assert bench.key(tool, one) != bench.key(tool, other)


def test_it_is_given_to_the_same_principal_or_where_shared_to_all(bench: Bench) -> None:
    own, shared = cached(), cached(shared=True)
    assert bench.key(own, {}, WRITER) != bench.key(own, {}, READER)
    assert bench.key(own, {}, WRITER) != bench.key(own, {}, Principal(kind="user", id="writer"))
    assert bench.key(shared, {}, WRITER) == bench.key(shared, {}, READER)


def test_a_tool_that_was_prepared_anew_or_in_another_version_is_another_tool(bench: Bench) -> None:
    one = cached()
    keys = {bench.key(one), bench.key(one), bench.key(cached()), bench.key(cached(version="2"))}
    assert len(keys) == 3


def test_no_result_outlives_a_change_of_settings(bench: Bench) -> None:
    tool = cached()
    bench.put(tool, done([1]))
    bench.settings += 1
    assert bench.cache.get(bench.key(tool)) is None


def test_what_cannot_be_given_again_is_not_kept(bench: Bench) -> None:
    rows: Any = [
        ToolResult(tool_id="a", status="error", error=ToolError(type=ToolErrorType.TIMEOUT, message="x", tool_id="a")),
        ToolResult(tool_id="a", status="pending", task_id="t"),
        ToolResult(tool_id="a", status="awaiting_approval", task_id="t"),
        done(content=[ContentPart(type="text", text="x"), ContentPart(type="stream", uri="stream_1")]),
        done(1, cached=True),
        done("x" * 600_000),
    ]
    with Failures() as failures:
        for result in rows:
            with failures.row(result):
                assert bench.cache.get(bench.put(cached(), result)) is None


def test_nobody_changes_what_others_are_given(bench: Bench) -> None:
    value: dict[str, Any] = {"deep": [1]}
    key = bench.put(cached(), done(value, content=[ContentPart(type="data", data=value)]))
    value["deep"].append(2)
    first = bench.cache.get(key)
    assert first is not None and isinstance(first.structured, dict)
    first.structured["deep"] = None
    second = bench.cache.get(key)
    assert second.structured == {"deep": [1]}
    assert second.content[0].data == {"deep": [1]}


def test_what_belonged_to_the_earlier_call_is_not_given_again(bench: Bench) -> None:
    told = {"index": 3, "block": 2, "request_id": "r", "coercions": ["c"], "warnings": ["w"], "attempts": 4}
    again = bench.cache.get(bench.put(cached(), done(1, duration_ms=9.5, **told)))
    assert again == done(1, cached=True)


def test_those_that_were_not_used_for_longest_go_first() -> None:
    bench = Bench(max_bytes=10_000)
    tool = cached()
    keys = [bench.put(tool, done("x" * 1000), {"n": n}) for n in range(5)]
    assert bench.cache.get(keys[0]) is not None
    keys += [bench.put(tool, done("x" * 1000), {"n": n}) for n in range(5, 8)]
    kept = [index for index, key in enumerate(keys) if bench.cache.get(key) is not None]
    assert 0 in kept and 1 not in kept and 7 in kept


def test_many_calls_and_tools_take_bounded_memory() -> None:
    bench = Bench(max_bytes=100_000)
    for number in range(5000):
        bench.put(cached(), done("x" * 100), {"n": number})
    assert bench.cache._entries.currsize <= 100_000
    assert len(bench.cache._entries) < 200
    tool = cached()
    for _ in range(1000):
        bench.put(tool, done(1))
    assert bench.cache._entries.currsize == sum(entry.size for entry in bench.cache._entries.values())


def test_what_is_no_json_is_not_cached(bench: Bench) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for odd in (object(), {1, 2}, b"x", deep):
        assert bench.cache.key(cached(), {"a": odd}, WRITER) is None
