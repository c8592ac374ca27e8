"""Streams from node to node: item by item, bounded, to several readers, ended early, broken off, cached."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pytest
from engine_bench import Bench, group, no_tasks_are_left, output, slot, state, take, workflow
from helpers.held_time import HeldClock
from helpers.repetition import Failures
from loops_bench import policy
from run_cases import case, check

from tavern_host.contracts.events import Event
from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.workflows import Workflow

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_streams"]
BEHIND = 16
IN, OUT = "core:GroupInput", "core:GroupOutput"


def node(type: str, **inputs: Any) -> dict[str, Any]:
    """Return a node of the test plugin `acme-streams` with written values."""
    return {"type": f"acme-streams:{type}", "inputValues": inputs}


def numbers(length: int) -> dict[str, Any]:
    return node("Numbers", length=length)


def streams(**types: str) -> dict[str, Any]:
    """Return slots of an interface that stream."""
    return {key: slot(type, isStream=True) for key, type in types.items()}


async def said(bench: Bench, run: Run) -> list[tuple[Any, ...]]:
    """Return the events of nodes about themselves: node, what, and of an item, which."""
    fields = [event.payload for event in await bench.events(run, "ACME_STREAM")]
    return [(f["node"], f["what"], *((f["item"],) if "item" in f else ())) for f in fields]


async def told(bench: Bench, run: Run, type: str, **about: Any) -> list[Any]:
    """Return the contents of messages of a type, of those with these fields."""
    payloads = [event.payload for event in await bench.events(run, type)]
    return [p["yieldedContent"] for p in payloads if about.items() <= p.items()]


def items_of(contents: list[Any]) -> list[Any]:
    """Return the items that messages of streams brought."""
    found: list[Any] = []
    for content in contents:
        found += content["content"] if "count" in content else [content["content"]]
    return found


async def store_group(bench: Bench, source: dict[str, Any]) -> None:
    """Store a group `inner` that streams out what a node gives."""
    document = workflow({"n": source, "out": OUT}, "n.items > out.items", interfaceOutputs=streams(items="INTEGER"))
    await bench.workflows.save("inner", document)


BREAKS_AT_ONCE = policy(node("Breaks"), onError="default", defaults={"items": [7, 8]})
CASES = [
    case("readers of different speeds get everything, converted",
        {"s": numbers(40), "quick": node("Total"), "slow": node("LoudReader", turns=2), "odd": node("OneByOne"),
            "relay": node("AddOne"), "end": node("Texts")},
        "s.items > quick.items, s.items > slow.items, s.items > odd.items, s.items > relay.items",
        "relay.items > end.items",
        gives={"quick.total": sum(range(40)), "slow.count": 40, "odd.list": list(range(40)),
            "end.list": [str(n) for n in range(1, 41)]}),
    case("an input that is no stream gets all of it as one value",
        {"text": node("Pieces", text="a|b|c"), "numbers": numbers(3), "none": numbers(0),
            "mixed": node("Values", listed=[1, None, "x"]), "ab": node("Values", listed=["a", "b"]),
            "joined": take("STRING"), "as_text": take("STRING"), "no_text": take("STRING"),
            "list": take("ARRAY"), "letters": take("ARRAY"), "any": "Take", "digits": take("ARRAY"),
            "words": take("ARRAY")},
        "text.items > joined, numbers.items > as_text, none.items > no_text, numbers.items > any",
        "mixed.items > list, ab.items > letters, numbers.items > digits", "text.items > words",
        gives={"joined": "abc", "as_text": "012", "no_text": "", "any": [0, 1, 2],
            "list": [1, None, "x"], "letters": ["a", "b"], "digits": [0, 1, 2],
            "words": ["a", "b", "c"]}),
    case("an item that does not fit fails its reader", {"s": node("Values", listed=[1, 2, {}, 4]), "t": node("Total")},
        "s.items > t.items",
        error="node t (total): the input 'items': an item of the stream does not fit: expected an integer, got "
            "an object"),
    case("a node with streams and other outputs gives both",
        {"s": node("Tell", text="a bc def"), "words": node("Texts"), "sizes": node("Total"), "count": "Take",
            "joined": take("STRING")},
        "s.word > words.items, s.size > sizes.items, s.count > count, s.word > joined",
        gives={"words.list": ["a", "bc", "def"], "sizes.total": 6, "count": 3, "joined": "abcdef",
            "s.word": "abcdef", "s.size": [1, 2, 3], "s.count": 3}),
    case("a list given to the interface or written down is read as a stream",
        {"in": IN, "t": node("Total"), "u": node("Texts"), "w": node("Listed", items=[1, 2, 3]),
            "one": node("Listed", items="abc"), "r": node("Relay", items=["x", "y"]), "v": node("Listed")},
        "in.items > t.items, in.items > u.items, r.items > v.items", inputs={"items": [1, 2, 4]},
        interfaceInputs=streams(items="INTEGER"),
        gives={"t.total": 7, "u.list": ["1", "2", "4"], "w.list": [1, 2, 3], "one.list": ["abc"],
            "v.list": ["x", "y"]}),
    case("a source continues while somebody else reads",
        {"s": numbers(200), "t": node("First", count=2), "u": node("Total")}, "s.items > t.items, s.items > u.items",
        gives={"t.list": [0, 1], "u.total": sum(range(200))}),
    case("a source continues while its end or another stream of it is needed",
        {"s": node("Tell", text="word " * 100), "t": node("First", count=1), "a": "Take", "b": "Take"},
        "s.word > t.items, s.count > a, s.size > b", gives={"t.list": ["word"], "a": 100, "b": [4] * 100}),
    case("a source that the interface reads continues when its reader left",
        {"s": numbers(100), "t": node("First"), "out": OUT}, "s.items > t.items, s.items > out.items",
        interfaceOutputs=streams(items="INTEGER"), outputs={"items": list(range(100))}),
    case("a source without any reader runs to its end", {"s": numbers(500)}, gives={"s.items": list(range(500))}),
    case("a reader that is skipped does not hold its source up",
        {"s": numbers(100), "boom": policy("Boom", onError="skip_branch"), "t": node("After"), "u": node("Total")},
        "s.items > t.items, s.items > u.items, boom > t", gives={"u.total": sum(range(100))}, skipped="t"),
    case("a reader that fails leaves the others alone",
        {"s": numbers(100), "t": node("FailsAt", at=3), "u": node("Total")}, "s.items > t.items, s.items > u.items",
        gives={"u.total": sum(range(100))}, failed="t", error="node t (fails at): ValueError: the reader gave up"),
    case("a source that would end the program only fails", {"s": node("Leaves", after=2), "t": node("Total")},
        "s.items > t.items", skipped="t",
        error="node s (leaves): node Leaves tried to end the program (KeyboardInterrupt)"),
    case("a reader is retried where it has read nothing",
        {"s": numbers(40), "t": policy(node("Tries", reads=-1), retry=1)}, "s.items > t.items",
        gives={"t.list": list(range(40))}),
    case("a list is read from its beginning at the second try",
        {"t": policy(node("Tries", reads=2, items=[1, 2, 3]), retry=1)}, gives={"t.list": [1, 2, 3]}),
    case("the defaults of a source that failed at once are its items",
        {"s": BREAKS_AT_ONCE, "t": node("Listed"), "w": "Take"}, "s.items > t.items, s.items > w",
        gives={"t.list": [7, 8], "w": [7, 8]}, failed="s"),
    case("a source that waits for the readers of its defaults has failed",
        {"s": policy(node("Breaks"), onError="default", defaults={"items": list(range(100))}), "t": node("Listed")},
        "s.items > t.items", gives={"t.list": list(range(100))}, failed="s"),
    *(case(f"a class that streams begins anew, run {number}", {"s": node("Counting", length=3), "t": node("Listed")},
        "s.items > t.items", gives={"t.list": [1, 2, 3]}) for number in (1, 2)),
    case("a source is retried before its first item",
        {"s": policy(node("Breaks", works_at=2), retry=2), "t": node("Listed")}, "s.items > t.items",
        gives={"t.list": [100]}),
    case("a source is not retried after its first item",
        {"s": policy(node("Breaks", after=1, works_at=2), retry=2), "t": node("Listed")}, "s.items > t.items",
        failed="s", skipped="t", error="node s (breaks): ValueError: the source gave up"),
    case("a reader is not retried on part of its stream",
        {"s": numbers(40), "t": policy(node("Tries", reads=3), retry=1)}, "s.items > t.items", failed="t",
        error="node t (tries): ValueError: not this time"),
    case("readers of a source that may fail take another way",
        {"s": policy(node("Breaks", after=3), onError="skip_branch"), "t": node("Total"), "w": "Take"},
        "s.items > t.items, t.total > w", failed="s", skipped="t w"),
]  # fmt: skip


async def test_streams_give_what_lists_would_give(shared: Bench) -> None:
    await check(shared, CASES)


LONG = 200
MEETING = [
    case("a diamond, the shorter way first", {"s": numbers(LONG), "a": node("HoldBack"), "c": node("InTurn")},
        "s.items > a.items, s.items > c.a, a.items > c.b", gives={"c.counts": [LONG, LONG]}),
    case("the end of the source itself is needed first", {"s": node("Tell", text="word " * LONG), "b": node("After")},
        "s.count > b, s.word > b.items", gives={"b.list": [LONG, LONG]}),
    case("two streams of one source", {"s": node("Tell", text="word " * LONG), "c": node("InTurn")},
        "s.size > c.a, s.word > c.b", gives={"c.counts": [LONG, LONG]}),
    case("three sources in a ring",
        {"s": numbers(LONG), "u": numbers(LONG), "v": numbers(LONG), "c": node("InTurn"), "d": node("InTurn"),
            "e": node("InTurn")},
        "s.items > c.a, u.items > c.b, u.items > d.a, v.items > d.b, v.items > e.a, s.items > e.b",
        gives={"e.counts": [LONG, LONG]}),
    case("two sources, over the batch of one",
        {"s": numbers(LONG), "u": numbers(LONG), "a": node("Total"), "b": node("After"), "c": node("InTurn")},
        "u.items > a.items, a.total > b, s.items > b.items, s.items > c.a, u.items > c.b",
        gives={"b.list": [sum(range(LONG)), LONG]}),
]  # fmt: skip


async def test_streams_that_meet_again_never_deadlock(shared: Bench) -> None:
    """Many more ways to meet are in test_stream_graphs."""
    await check(shared, MEETING)


# --- from node to node ----------------------------------------------------------------------------


async def test_a_reader_sees_items_while_others_are_made(shared: Bench) -> None:
    document = workflow(
        {"s": node("LoudNumbers", length=100), "r": node("Relay"), "t": node("LoudReader")},
        "s.items > r.items, r.items > t.items",
    )
    run = await shared.run(document)
    heard = await said(shared, run)
    assert output(run, "t", "count") == 100
    assert heard.index(("t", "read", 0)) < heard.index(("s", "made", 99))
    assert [item for name, what, *item in heard if name == "t"] == [[n] for n in range(100)]


def furthest_ahead(heard: list[tuple[Any, ...]]) -> int:
    made = read = most = 0
    for _, what, *_ in heard:
        made += what == "made"
        read += what == "read"
        most = max(most, made - read)
    return most


async def test_a_source_is_ahead_of_its_slowest_reader_by_the_bound(shared: Bench) -> None:
    slow, quick = node("LoudReader", turns=3, most=60), node("Total")
    for nodes, edges in [
        ({"s": node("Endless"), "c": slow}, []),
        ({"s": node("LoudNumbers", length=60), "f": quick, "c": node("LoudReader", turns=3)}, ["s.items > f.items"]),
        (
            {"t": {"type": "Take", "inputValues": {"value": 3}}, "s": node("Endless"), "c": slow},
            ["t.value > s.step", "t.value > c.value"],
        ),
    ]:
        run = await shared.run(workflow(nodes, *edges, "s.items > c.items"))
        assert output(run, "c", "count") == 60
        assert 1 < furthest_ahead(await said(shared, run)) <= BEHIND + 1  # one waits to be handed over


async def test_items_may_be_anything(shared: Bench) -> None:
    listed: list[Any] = [None, [], {}, "bytes", "", 0, False, 1.5, [1, [2]], {"a": None}]
    document = workflow(
        {"s": node("Values", listed=listed), "u": node("Relay"), "v": node("Kinds")},
        "s.items > u.items, u.items > v.items",
    )
    run = await shared.run(document)
    kinds = ["NoneType", "list", "dict", "bytes", "str", "int", "bool", "float", "list", "dict"]
    assert output(run, "v", "list") == kinds
    told_of = items_of(await told(shared, run, "NODE_YIELD", sourceNodeId="s", isLastChunk=False))
    assert told_of[:3] == [None, [], {}] and told_of[3]["type"] == "opaque" and told_of[-1] == {"a": None}


async def test_streams_pass_through_groups_and_bypassed_nodes(shared: Bench) -> None:
    inner = workflow(
        {"in": IN, "n": node("AddOne"), "out": OUT},
        "in.items > n.items, n.items > out.items",
        interfaceInputs=streams(items="INTEGER"),
        interfaceOutputs=streams(items="INTEGER"),
    )
    await shared.workflows.save("inner", inner)
    bypassed = {**node("AddOne"), "bypassed": True}
    document = workflow(
        {"s": node("LoudNumbers", length=300), "g": group("inner"), "b": bypassed, "h": group("inner"),
            "t": node("LoudReader"), "texts": node("Texts")},
        "s.items > g.items, g.items > b.items, b.items > h.items, h.items > t.items, h.items > texts.items",
    )  # fmt: skip
    run = await shared.run(document)
    heard = await said(shared, run)
    assert [item for name, _, *item in heard if name == "t"] == [[n + 2] for n in range(300)]
    assert heard.index(("t", "read", 2)) < heard.index(("s", "made", 299))
    assert output(run, "texts", "list") == [str(n + 2) for n in range(300)]
    assert state(run, "g").output == state(run, "b").output == {"items": list(range(1, 301))}
    assert state(run, "b").bypassed


# --- out of the workflow --------------------------------------------------------------------------


def streaming_out(source: dict[str, Any], type: str = "STRING") -> Workflow:
    return workflow({"s": source, "out": OUT}, "s.items > out.answer", interfaceOutputs=streams(answer=type))


async def test_the_interface_streams_out(shared: Bench) -> None:
    run = await shared.run(streaming_out(node("Pieces", text="one|two|three", pause=True)))
    assert run.outputs == {"answer": "onetwothree"}
    out = await shared.events(run, "WORKFLOW_INTERFACE_YIELD", "NODE_YIELD", "NODE_COMPLETE", "NODE_EXECUTING")
    interface = [e.payload for e in out if e.type == "WORKFLOW_INTERFACE_YIELD"]
    assert [p["yieldedContent"] for p in interface if not p["isLastChunk"]] == [
        {"type": "text_chunk", "content": text} for text in ("one", "two", "three")
    ]
    assert [p["isLastChunk"] for p in interface] == [False, False, False, True]
    assert {p["interfaceOutputKey"] for p in interface} == {"answer"}
    of_node = [e.payload for e in out if e.type == "NODE_YIELD"]
    assert [p["yieldedContent"] for p in of_node] == [p["yieldedContent"] for p in interface]
    assert {p["sourceNodeId"] for p in of_node} == {"s"}
    final = [e.payload for e in out if e.payload.get("nodeId") == "__WORKFLOW_INTERFACE_OUTPUTS__"]
    assert final[0]["output"]["answer"]["type"] == "stream_placeholder"  # type: ignore[index,call-overload]
    order = [(e.type, e.payload.get("nodeId", e.payload.get("sourceNodeId"))) for e in out]
    assert order.index(("NODE_EXECUTING", "s")) < order.index(("NODE_YIELD", "s"))
    last = max(i for i, entry in enumerate(order) if entry[0] == "NODE_YIELD")
    assert last < order.index(("NODE_COMPLETE", "s"))


async def test_the_interface_streams_out_of_groups_and_converted(shared: Bench) -> None:
    await store_group(shared, numbers(5))
    document = workflow(
        {"in": IN, "g": group("inner"), "out": OUT},
        "g.items > out.text, g.items > out.numbers, in.items > out.given",
        interfaceInputs=streams(items="INTEGER"),
        interfaceOutputs=streams(text="STRING", numbers="INTEGER", given="INTEGER"),
    )
    run = await shared.run(document, items=[1, 2])
    assert run.outputs == {"text": "01234", "numbers": [0, 1, 2, 3, 4], "given": [1, 2]}
    for key, value in run.outputs.items():
        pieces = await told(shared, run, "WORKFLOW_INTERFACE_YIELD", interfaceOutputKey=key, isLastChunk=False)
        assert ("".join(p["content"] for p in pieces) if key == "text" else items_of(pieces)) == value
        lasts = await told(shared, run, "WORKFLOW_INTERFACE_YIELD", interfaceOutputKey=key, isLastChunk=True)
        assert len(lasts) == 1


async def test_items_in_the_shape_of_a_chunk_are_chunks(shared: Bench) -> None:
    call = {"type": "tool_call_chunk", "content": {"name": "f"}}
    listed = [{"type": "text_chunk", "content": "a"}, "b", {"type": "text_chunk", "content": "c"}, call, {"type": "x"}]
    run = await shared.run(streaming_out(node("Values", listed=listed), "WILDCARD"))
    chunks = await told(shared, run, "WORKFLOW_INTERFACE_YIELD", isLastChunk=False)
    assert chunks == [{"type": "text_chunk", "content": "abc"}, call, {"type": "custom", "content": {"type": "x"}}]


async def test_a_long_streams_messages_are_few_and_whole(shared: Bench) -> None:
    subscription = shared.host.events.subscribe("NODE_YIELD", limit=1000)
    run = await shared.run(workflow({"s": numbers(20_000), "t": node("Total")}, "s.items > t.items"))
    found: list[Any] = []
    async for event in subscription:
        assert isinstance(event, Event), "events were lost"
        if event.payload["isLastChunk"]:
            break
        found += items_of([event.payload["yieldedContent"]])
    assert output(run, "t", "total") == sum(range(20_000))
    assert found == list(range(20_000))


async def test_a_cached_stream_is_sent_out_again(shared: Bench) -> None:
    document = streaming_out(node("Pieces", text="a|b"))
    await shared.run(document)
    run = await shared.run(document)
    assert state(run, "s").cached
    assert run.outputs == {"answer": "ab"}
    chunks = await told(shared, run, "WORKFLOW_INTERFACE_YIELD")
    assert chunks == [{"type": "text_chunk", "content": "ab"}, {"type": "text_chunk", "content": ""}]


# --- leaving early --------------------------------------------------------------------------------


async def test_a_source_ends_when_its_last_reader_left(shared: Bench) -> None:
    await store_group(shared, node("Ticks", first=2))
    first = {"t": node("First")}
    rows: list[tuple[dict[str, Any], list[str], str]] = [
        *(
            ({"s": node(source), "t": node("First", closes=closes)}, ["s.items > t.items"], "s")
            for source in ("Ticks", "Endless", "StubbornTicks")
            for closes in (False, True)
        ),
        ({"s": node("Ticks", first=3), "a": node("Relay"), **first}, ["s.items > a.items", "a.items > t.items"], "s"),
        ({"g": group("inner"), **first}, ["g.items > t.items"], "g/n"),
        ({"s": node("Endless"), "t": node("FailsAt", at=3)}, ["s.items > t.items"], "s"),
        ({"s": node("Ticks", first=3), "t": node("Impatient")}, ["s.items > t.items"], "s"),
    ]
    with Failures() as failures:
        for nodes, edges, source in rows:
            with failures.row((nodes, edges)):
                run = await shared.run(workflow(nodes, *edges))
                fails = nodes["t"]["type"].endswith("FailsAt")
                assert run.status == ("error" if fails else "complete")
                assert (source, "closed") in await said(shared, run)


async def test_a_source_ends_as_soon_as_its_reader_left(shared: Bench) -> None:
    document = workflow({"s": node("Ticks", first=1), "t": node("First", count=1), "p": "Hang"}, "s.items > t.items")
    before = asyncio.all_tasks()
    run_id = await shared.start(document)
    await shared.until("ACME_STREAM", node="s", what="closed")
    assert (await shared.engine.get(run_id)).status == "running"
    await shared.interrupted(run_id)
    await no_tasks_are_left(before)


async def test_only_the_readers_that_run_are_waited_for(shared: Bench) -> None:
    nodes = {"s": numbers(100), "t": node("Total"), "u": node("Total")}
    document = workflow(nodes, "s.items > t.items, s.items > u.items")
    for target in ("u", "s"):
        run = await shared.engine.run(RunRequest(workflow=document, targets=[target], use_cache=False))
        assert run.status == "complete"
        assert state(run, "t").status == "skipped"
        assert state(run, "s").output == {"items": list(range(100))}


# --- failing --------------------------------------------------------------------------------------


async def test_a_source_that_fails_is_reported_once(shared: Bench) -> None:
    document = workflow(
        {"s": node("Breaks", after=5), "r": node("Relay"), "t": node("Total"), "u": node("Total"), "w": "Take"},
        "s.items > r.items, r.items > t.items, s.items > u.items, u.total > w",
    )  # fmt: skip
    run = await shared.run(document)
    assert run.error is not None and run.error.message == "node s (breaks): ValueError: the source gave up"
    assert [each.status for each in run.nodes.values()] == ["error", "skipped", "skipped", "skipped", "skipped"]
    assert len(await shared.events(run, "NODE_ERROR")) == 1
    last = await told(shared, run, "NODE_YIELD", sourceNodeId="s", isLastChunk=True)
    assert last == [{"type": "error_chunk", "content": "ValueError: the source gave up"}]


async def test_what_came_of_part_of_a_stream_is_not_cached(shared: Bench) -> None:
    """Nor what took the place of one: of each, the second run has the outputs anew."""
    salvaging = {"s": node("Breaks", after=30), "t": node("Salvage"), "w": "Take"}
    rows: list[tuple[dict[str, Any], str, str, list[Any]]] = [
        (salvaging, "s.items > t.items, t.total > w", "t.total w.value", [sum(range(30))] * 2),
        ({"s": BREAKS_AT_ONCE, "t": node("Listed")}, "s.items > t.items", "t.list", [[7, 8]]),
    ]
    with Failures() as failures:
        for nodes, edges, places, gives in rows:
            for _ in range(2):
                with failures.row((edges, places)):
                    run = await shared.run(workflow(nodes, edges))
                    assert [output(run, *place.split(".")) for place in places.split()] == gives
                    assert not any(state(run, name).cached for name in nodes)
        for count in (3, 50):
            with failures.row(count):
                nodes = {"s": node("Endless"), "t": node("First", count=count)}
                run = await shared.run(workflow(nodes, "s.items > t.items"))
                assert (output(run, "t", "list"), state(run, "s").cached) == (list(range(count)), False)


async def test_a_source_has_its_time_limit(shared: Bench) -> None:
    source = policy(node("Ticks", first=2), timeout=0.05)
    run = await shared.run(workflow({"s": source, "t": node("Listed")}, "s.items > t.items"))
    error = state(run, "s").error
    assert error is not None and error.code == "deadline_exceeded"
    assert state(run, "t").status == "skipped"
    assert ("s", "closed") in await said(shared, run)


async def test_an_interrupt_closes_generators_and_leaves_no_tasks(shared: Bench) -> None:
    readers = {"r": node("Relay"), "t": node("Total"), "u": node("Ticks"), "v": node("LoudReader", turns=2)}
    before = asyncio.all_tasks()
    for source in (node("Ticks", first=5), node("Endless")):
        document = workflow({"s": source, **readers}, "s.items > r.items, r.items > t.items, u.items > v.items")
        shared.since = shared.host.events.last_seq
        run_id = await shared.start(document)
        await shared.until("ACME_STREAM", node="v", what="read")
        run = await shared.interrupted(run_id)
        assert run.status == "interrupted"
        assert {("s", "closed"), ("u", "closed")} <= {*await said(shared, run)}
        await no_tasks_are_left(before)


# --- caching, length, fairness --------------------------------------------------------------------


async def test_a_changed_reader_reads_a_cached_stream(shared: Bench) -> None:
    def document(start: int) -> Workflow:
        return workflow({"s": numbers(30), "t": node("Total", value=start)}, "s.items > t.items")

    await shared.run(document(1))
    run = await shared.run(document(2))
    assert state(run, "s").cached and not state(run, "t").cached
    assert output(run, "t", "total") == sum(range(30))
    assert state(await shared.run(document(2)), "t").cached


async def test_a_stream_too_long_to_keep_is_read_whole(shared: Bench) -> None:
    length = 130_000
    document = workflow(
        {"s": numbers(length), "t": node("Total"), "n": node("Size"), "u": numbers(length)},
        "s.items > t.items, s.items > n.items",
    )
    run = await shared.run(document)
    assert output(run, "t", "total") == sum(range(length))
    assert output(run, "n", "count") == length
    assert len((state(run, "u").output or {})["items"]) == 100_000  # type: ignore[arg-type]
    assert not state(await shared.run(document), "u").cached


async def test_a_long_stream_takes_bounded_memory(shared: Bench, held_clock: HeldClock) -> None:
    async def pass_time() -> None:
        while True:
            held_clock.advance(0.001)
            await asyncio.sleep(0)

    document = workflow(
        {"s": node("Blocks", count=4_000, size=50_000), "r": node("Relay"), "t": node("Heavy")},
        "s.items > r.items, r.items > t.items",
    )
    passing = asyncio.create_task(pass_time())
    tracemalloc.start()
    try:
        run = await shared.run(document)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        passing.cancel()
    assert output(run, "t", "bytes") == 2 * 10**8
    assert peak < 10**8


async def test_a_source_that_never_awaits_lets_others_run(shared: Bench) -> None:
    pause = {"type": "Pause", "inputValues": {"turns": 5}}
    document = workflow(
        {"s": node("Endless"), "t": node("First", count=50_000), "alone": numbers(100_000), "p": pause},
        "s.items > t.items",
    )
    run = await shared.run(document)
    finished = {name: each.finished or 0.0 for name, each in run.nodes.items()}
    assert finished["p"] < finished["t"] and finished["p"] < finished["alone"]
