"""Streams from node to node: item by item, bounded, to several readers, ended early, broken off, cached."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from engine_bench import Bench, OpenHost, output, slot, state, workflow

from tavern_host import WORKFLOW_MANAGER
from tavern_host.contracts.events import Event
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow

BEHIND = 16


@pytest.fixture
async def bench(open_host: OpenHost) -> AsyncIterator[Bench]:
    async with open_host("acme_streams") as opened:
        yield opened


def node(type: str, **inputs: Any) -> dict[str, Any]:
    """Return a node of the test plugin `acme-streams` with written values."""
    return {"type": f"acme-streams:{type}", "inputValues": inputs}


def with_policy(node: dict[str, Any], **policy: Any) -> dict[str, Any]:
    return {**node, "policy": policy}


def stream_slot(type: str = "WILDCARD") -> dict[str, Any]:
    return slot(type, isStream=True)


async def events(bench: Bench, run: Run, *types: str) -> list[Event]:
    """Return the events of a finished run, of these types."""
    found = []
    async for event in bench.host.events.subscribe(*types, "EXECUTION_STATUS_UPDATE", since=0):
        assert isinstance(event, Event), "events were lost"
        payload = event.payload
        if event.type != "EXECUTION_STATUS_UPDATE":
            if payload.get("promptId", run.id) == run.id:
                found.append(event)
        elif payload["promptId"] == run.id and RunStatus(str(payload["status"])).is_final:
            break
    return found


async def said(bench: Bench, run: Run) -> list[tuple[Any, ...]]:
    """Return what nodes said of themselves: node, what, and of an item, which."""
    fields = [event.payload for event in await events(bench, run, "ACME_STREAM")]
    return [(f["node"], f["what"], *((f["item"],) if "item" in f else ())) for f in fields]


async def told(bench: Bench, run: Run, type: str, **about: Any) -> list[Any]:
    """Return what messages of a type brought, of those with these fields."""
    payloads = [event.payload for event in await events(bench, run, type)]
    return [p["yieldedContent"] for p in payloads if about.items() <= p.items()]


def items_of(contents: list[Any]) -> list[Any]:
    """Return the items that messages of streams brought."""
    found: list[Any] = []
    for content in contents:
        found += content["content"] if "count" in content else [content["content"]]
    return found


async def no_tasks_are_left(before: set[asyncio.Task[Any]]) -> None:
    for _ in range(200):
        left = asyncio.all_tasks() - before
        if not left:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"tasks are left: {left}")


# --- from node to node ----------------------------------------------------------------------------


async def test_a_reader_sees_the_first_item_before_the_source_made_the_last(bench: Bench) -> None:
    document = workflow(
        {"s": node("LoudNumbers", length=100), "r": node("Relay"), "t": node("LoudReader")},
        "s.items > r.items",
        "r.items > t.items",
    )
    run = await bench.run(document)
    heard = await said(bench, run)
    assert output(run, "t", "count") == 100
    assert heard.index(("t", "read", 0)) < heard.index(("s", "made", 99))
    assert [item for name, what, *item in heard if name == "t"] == [[n] for n in range(100)]


async def test_an_endless_source_is_never_further_ahead_of_a_slow_reader_than_the_bound(bench: Bench) -> None:
    document = workflow({"s": node("Endless"), "c": node("CountSlowly", most=60)}, "s.items > c.items")
    run = await bench.run(document)
    assert output(run, "c", "count") == 60
    assert 1 < furthest_ahead(await said(bench, run)) <= BEHIND + 1  # one waits to be handed over


def furthest_ahead(heard: list[tuple[Any, ...]]) -> int:
    made = read = most = 0
    for _, what, *_ in heard:
        made += what == "made"
        read += what == "read"
        most = max(most, made - read)
    return most


async def test_the_bound_is_that_of_the_slowest_reader(bench: Bench) -> None:
    document = workflow(
        {"s": node("LoudNumbers", length=60), "f": node("Total"), "t": node("LoudReader", turns=3)},
        "s.items > f.items",
        "s.items > t.items",
    )
    run = await bench.run(document)
    assert output(run, "t", "count") == 60
    assert furthest_ahead(await said(bench, run)) <= BEHIND + 1


async def test_readers_of_different_speeds_get_everything(bench: Bench) -> None:
    document = workflow(
        {
            "s": node("Numbers", length=200),
            "quick": node("Total"),
            "slow": node("LoudReader", turns=2),
            "odd": node("OneByOne"),
            "relay": node("AddOne"),
            "end": node("Listed"),
        },
        "s.items > quick.items",
        "s.items > slow.items",
        "s.items > odd.items",
        "s.items > relay.items",
        "relay.items > end.items",
    )
    run = await bench.run(document)
    assert output(run, "quick", "total") == sum(range(200))
    assert output(run, "slow", "count") == 200
    assert output(run, "odd", "list") == list(range(200))
    assert output(run, "end", "list") == list(range(1, 201))


async def test_an_input_that_is_no_stream_gets_all_of_it_as_one_value(bench: Bench) -> None:
    document = workflow(
        {
            "text": node("Pieces", text="a|b|c"),
            "numbers": node("Numbers", length=3),
            "none": node("Numbers", length=0),
            "mixed": node("Values", listed=[1, None, "x"]),
            "ab": node("Values", listed=["a", "b"]),
            "joined": node("WholeText"),
            "as_text": node("WholeText"),
            "no_text": node("WholeText"),
            "list": node("WholeList"),
            "letters": node("WholeList"),
            "any": node("Whole"),
        },
        "text.items > joined.text",
        "numbers.items > as_text.text",
        "none.items > no_text.text",
        "numbers.items > any.value",
        "mixed.items > list.items",
        "ab.items > letters.items",
    )
    run = await bench.run(document)
    assert output(run, "joined", "text") == "abc"
    assert output(run, "as_text", "text") == "012"
    assert output(run, "no_text", "text") == ""
    assert output(run, "any", "value") == [0, 1, 2]
    assert output(run, "list", "list") == [1, None, "x"]
    assert output(run, "letters", "list") == ["a", "b"]


async def test_items_are_converted_on_the_edge(bench: Bench) -> None:
    document = workflow({"s": node("Numbers", length=20), "t": node("Texts")}, "s.items > t.items")
    run = await bench.run(document)
    assert output(run, "t", "list") == [str(n) for n in range(20)]


async def test_an_item_that_does_not_fit_fails_its_reader(bench: Bench) -> None:
    document = workflow({"s": node("Values", listed=[1, 2, {}, 4]), "t": node("Total")}, "s.items > t.items")
    run = await bench.run(document)
    assert run.error is not None
    assert run.error.message == (
        "node t (total): the input 'items': an item of the stream does not fit: expected an integer, got an object"
    )


async def test_items_may_be_anything(bench: Bench) -> None:
    listed: list[Any] = [None, [], {}, "bytes", "", 0, False, 1.5, [1, [2]], {"a": None}]
    document = workflow(
        {"s": node("Values", listed=listed), "t": node("Kinds"), "u": node("Relay"), "v": node("Kinds")},
        "s.items > t.items",
        "s.items > u.items",
        "u.items > v.items",
    )
    run = await bench.run(document)
    kinds = ["NoneType", "list", "dict", "bytes", "str", "int", "bool", "float", "list", "dict"]
    assert output(run, "t", "list") == output(run, "v", "list") == kinds
    told_of = items_of(await told(bench, run, "NODE_YIELD", sourceNodeId="s", isLastChunk=False))
    assert told_of[:3] == [None, [], {}] and told_of[3]["type"] == "opaque" and told_of[-1] == {"a": None}


async def test_a_node_with_streams_and_other_outputs_gives_both(bench: Bench) -> None:
    document = workflow(
        {
            "s": node("Tell", text="a bc def"),
            "words": node("Texts"),
            "sizes": node("Total"),
            "count": node("Whole"),
            "joined": node("WholeText"),
        },
        "s.word > words.items",
        "s.size > sizes.items",
        "s.count > count.value",
        "s.word > joined.text",
    )
    run = await bench.run(document)
    assert output(run, "words", "list") == ["a", "bc", "def"]
    assert output(run, "sizes", "total") == 6
    assert output(run, "count") == 3
    assert output(run, "joined", "text") == "abcdef"
    assert state(run, "s").output == {"word": "abcdef", "size": [1, 2, 3], "count": 3}


async def test_a_class_that_streams_keeps_its_state_within_a_run(bench: Bench) -> None:
    document = workflow({"s": node("Counting", length=3), "t": node("Listed")}, "s.items > t.items")
    for _ in range(2):
        run = await bench.engine.run(RunRequest(workflow=document, use_cache=False))
        assert output(run, "t", "list") == [1, 2, 3]


async def test_streams_go_through_groups_and_bypassed_nodes(bench: Bench) -> None:
    inner = {
        "id": "inner",
        "interfaceInputs": {"items": stream_slot("INTEGER")},
        "interfaceOutputs": {"items": stream_slot("INTEGER")},
    }
    group = workflow(
        {"in": "core:GroupInput", "n": node("AddOne"), "out": "core:GroupOutput"},
        "in.items > n.items",
        "n.items > out.items",
        **inner,
    )
    await store(bench, group)
    document = workflow(
        {
            "s": node("LoudNumbers", length=300),
            "g": {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "inner"}},
            "b": {**node("AddOne"), "bypassed": True},
            "h": {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "inner"}},
            "t": node("LoudReader"),
            "texts": node("Texts"),
        },
        "s.items > g.items",
        "g.items > b.items",
        "b.items > h.items",
        "h.items > t.items",
        "h.items > texts.items",
    )
    run = await bench.run(document)
    heard = await said(bench, run)
    assert [item for name, _, *item in heard if name == "t"] == [[n + 2] for n in range(300)]
    assert heard.index(("t", "read", 2)) < heard.index(("s", "made", 299))
    assert output(run, "texts", "list") == [str(n + 2) for n in range(300)]
    assert state(run, "g").output == {"items": list(range(1, 301))}
    assert state(run, "b").bypassed and state(run, "b").output == {"items": list(range(1, 301))}


async def store(bench: Bench, document: Workflow) -> None:
    await bench.host.services.get(WORKFLOW_MANAGER).save(str(document.id), document)


async def test_a_list_given_to_the_interface_or_written_down_is_read_as_a_stream(bench: Bench) -> None:
    document = workflow(
        {
            "in": "core:GroupInput",
            "t": node("Total"),
            "u": node("Texts"),
            "w": node("Listed", items=[1, 2, 3]),
            "one": node("Listed", items="abc"),
            "r": node("Relay", items=["x", "y"]),
            "v": node("Listed"),
        },
        "in.items > t.items",
        "in.items > u.items",
        "r.items > v.items",
        interfaceInputs={"items": stream_slot("INTEGER")},
    )
    run = await bench.run(document, items=[1, 2, 4])
    assert output(run, "t", "total") == 7
    assert output(run, "u", "list") == ["1", "2", "4"]
    assert output(run, "w", "list") == [1, 2, 3]
    assert output(run, "one", "list") == ["abc"]
    assert output(run, "v", "list") == ["x", "y"]


# --- out of the workflow --------------------------------------------------------------------------


def streaming_out(source: dict[str, Any], *, type: str = "STRING", grouped: bool = False) -> Workflow:
    return workflow(
        {"s": source, "out": "core:GroupOutput"},
        "s.items > out.answer",
        interfaceOutputs={"answer": stream_slot(type)},
    )


async def test_the_interface_streams_out(bench: Bench) -> None:
    run = await bench.run(streaming_out(node("Pieces", text="one|two|three", pause=True)))
    assert run.outputs == {"answer": "onetwothree"}
    out = await events(bench, run, "WORKFLOW_INTERFACE_YIELD", "NODE_YIELD", "NODE_COMPLETE", "NODE_EXECUTING")
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


async def test_the_interface_streams_out_of_groups_and_converted(bench: Bench) -> None:
    group = workflow(
        {"n": node("Numbers", length=5), "out": "core:GroupOutput"},
        "n.items > out.items",
        id="inner",
        interfaceOutputs={"items": stream_slot("INTEGER")},
    )
    await store(bench, group)
    document = workflow(
        {"g": {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "inner"}}, "out": "core:GroupOutput"},
        "g.items > out.text",
        "g.items > out.numbers",
        interfaceOutputs={"text": stream_slot("STRING"), "numbers": stream_slot("INTEGER")},
    )
    run = await bench.run(document)
    assert run.outputs == {"text": "01234", "numbers": [0, 1, 2, 3, 4]}
    text = await told(bench, run, "WORKFLOW_INTERFACE_YIELD", interfaceOutputKey="text", isLastChunk=False)
    assert "".join(piece["content"] for piece in text) == "01234"
    numbers = await told(bench, run, "WORKFLOW_INTERFACE_YIELD", interfaceOutputKey="numbers", isLastChunk=False)
    assert items_of(numbers) == [0, 1, 2, 3, 4]
    for key in ("text", "numbers"):
        lasts = await told(bench, run, "WORKFLOW_INTERFACE_YIELD", interfaceOutputKey=key, isLastChunk=True)
        assert len(lasts) == 1


async def test_items_in_the_shape_of_a_chunk_are_chunks(bench: Bench) -> None:
    call = {"type": "tool_call_chunk", "content": {"name": "f"}}
    listed = [{"type": "text_chunk", "content": "a"}, "b", {"type": "text_chunk", "content": "c"}, call, {"type": "x"}]
    run = await bench.run(streaming_out(node("Values", listed=listed), type="WILDCARD"))
    chunks = await told(bench, run, "WORKFLOW_INTERFACE_YIELD", isLastChunk=False)
    assert chunks == [{"type": "text_chunk", "content": "abc"}, call, {"type": "custom", "content": {"type": "x"}}]


async def test_a_hundred_thousand_items_are_told_in_few_messages_and_none_is_lost(bench: Bench) -> None:
    subscription = bench.host.events.subscribe("NODE_YIELD", limit=1000)
    document = workflow({"s": node("Numbers", length=100_000), "t": node("Total")}, "s.items > t.items")
    run = await bench.run(document)
    found: list[Any] = []
    async for event in subscription:
        assert isinstance(event, Event), "events were lost"
        if event.payload["isLastChunk"]:
            break
        found += items_of([event.payload["yieldedContent"]])
    assert output(run, "t", "total") == sum(range(100_000))
    assert found == list(range(100_000))


async def test_a_cached_stream_goes_out_again(bench: Bench) -> None:
    document = workflow(
        {"s": node("Pieces", text="a|b"), "t": node("Texts"), "out": "core:GroupOutput"},
        "s.items > t.items",
        "s.items > out.answer",
        interfaceOutputs={"answer": stream_slot("STRING")},
    )
    await bench.run(document)
    run = await bench.run(document)
    assert state(run, "s").cached
    assert run.outputs == {"answer": "ab"}
    chunks = await told(bench, run, "WORKFLOW_INTERFACE_YIELD")
    assert chunks == [{"type": "text_chunk", "content": "ab"}, {"type": "text_chunk", "content": ""}]


async def test_a_list_of_the_interface_goes_out_as_a_stream(bench: Bench) -> None:
    document = workflow(
        {"in": "core:GroupInput", "out": "core:GroupOutput"},
        "in.items > out.items",
        interfaceInputs={"items": stream_slot("INTEGER")},
        interfaceOutputs={"items": stream_slot("INTEGER")},
    )
    run = await bench.run(document, items=[1, 2])
    assert run.outputs == {"items": [1, 2]}
    assert items_of(await told(bench, run, "WORKFLOW_INTERFACE_YIELD", isLastChunk=False)) == [1, 2]


# --- leaving early --------------------------------------------------------------------------------


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize("source", ["Ticks", "Endless", "StubbornTicks"])
async def test_a_source_ends_when_its_only_reader_leaves(bench: Bench, source: str, closes: bool) -> None:
    document = workflow({"s": node(source), "t": node("First", closes=closes)}, "s.items > t.items")
    run = await bench.run(document)
    assert run.status == "complete"
    assert output(run, "t", "list") == [0]
    assert ("s", "closed") in await said(bench, run)


async def test_a_source_ends_as_soon_as_its_reader_left(bench: Bench) -> None:
    document = workflow(
        {"s": node("Ticks", first=1), "t": node("First", count=1), "p": {"type": "Hang"}}, "s.items > t.items"
    )
    await bench.run(workflow({"s": node("Numbers", length=1)}))  # what runs as long as the host is there now
    before = asyncio.all_tasks()
    run_id = await bench.start(document)
    await bench.until("ACME_STREAM", node="s", what="closed")
    assert (await bench.engine.get(run_id)).status == "running"
    await bench.engine.interrupt(run_id)
    await bench.engine.wait(run_id)
    await no_tasks_are_left(before)


async def test_a_source_in_a_chain_of_streams_ends_when_the_last_reader_leaves(bench: Bench) -> None:
    document = workflow(
        {"s": node("Ticks", first=3), "a": node("Relay"), "b": node("Relay"), "t": node("First", count=2)},
        "s.items > a.items",
        "a.items > b.items",
        "b.items > t.items",
    )
    run = await bench.run(document)
    assert run.status == "complete"
    assert output(run, "t", "list") == [0, 1]
    assert ("s", "closed") in await said(bench, run)


async def test_a_source_goes_on_while_somebody_else_reads(bench: Bench) -> None:
    document = workflow(
        {"s": node("LoudNumbers", length=200), "t": node("First", count=2), "u": node("Total")},
        "s.items > t.items",
        "s.items > u.items",
    )
    run = await bench.run(document)
    assert output(run, "t", "list") == [0, 1]
    assert output(run, "u", "total") == sum(range(200))


@pytest.mark.parametrize("edge", ["s.count > other.value", "s.size > other.value"])
async def test_a_source_goes_on_while_something_else_of_it_is_needed(bench: Bench, edge: str) -> None:
    text = "word " * 100
    document = workflow(
        {"s": node("Tell", text=text), "t": node("First", count=1), "other": node("Whole")}, "s.word > t.items", edge
    )
    run = await bench.run(document)
    assert output(run, "t", "list") == ["word"]
    assert output(run, "other") == (100 if "count" in edge else [4] * 100)


async def test_a_source_that_goes_out_by_the_interface_goes_on_when_its_reader_left(bench: Bench) -> None:
    document = workflow(
        {"s": node("Numbers", length=100), "t": node("First"), "out": "core:GroupOutput"},
        "s.items > t.items",
        "s.items > out.items",
        interfaceOutputs={"items": stream_slot("INTEGER")},
    )
    run = await bench.run(document)
    assert run.outputs == {"items": list(range(100))}


async def test_a_source_in_a_group_ends_when_its_reader_outside_left(bench: Bench) -> None:
    group = workflow(
        {"n": node("Ticks", first=2), "out": "core:GroupOutput"},
        "n.items > out.items",
        id="inner",
        interfaceOutputs={"items": stream_slot("INTEGER")},
    )
    await store(bench, group)
    document = workflow(
        {"g": {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "inner"}}, "t": node("First")},
        "g.items > t.items",
    )
    run = await bench.run(document)
    assert run.status == "complete"
    assert output(run, "t", "list") == [0]
    assert ("g/n", "closed") in await said(bench, run)


async def test_what_came_of_a_source_that_ended_early_is_not_used_again(bench: Bench) -> None:
    def document(count: int) -> Workflow:
        return workflow({"s": node("Endless"), "t": node("First", count=count)}, "s.items > t.items")

    for count in (3, 50):
        run = await bench.run(document(count))
        assert output(run, "t", "list") == list(range(count))
        assert not state(run, "s").cached


async def test_a_source_without_any_reader_runs_to_its_end(bench: Bench) -> None:
    run = await bench.run(workflow({"s": node("LoudNumbers", length=500)}))
    assert state(run, "s").output == {"items": list(range(500))}


async def test_a_reader_that_is_skipped_does_not_hold_its_source_up(bench: Bench) -> None:
    document = workflow(
        {
            "s": node("LoudNumbers", length=100),
            "boom": with_policy({"type": "Boom"}, onError="skip_branch"),
            "t": node("After"),
            "u": node("Total"),
        },
        "s.items > t.items",
        "s.items > u.items",
        "boom.value > t.value",
    )
    run = await bench.run(document)
    assert run.status == "complete"
    assert output(run, "u", "total") == sum(range(100))
    assert state(run, "t").status == "skipped"


async def test_only_the_readers_that_run_are_waited_for(bench: Bench) -> None:
    document = workflow(
        {"s": node("Numbers", length=100), "t": node("Total"), "u": node("Total")},
        "s.items > t.items",
        "s.items > u.items",
    )
    for target in ("u", "s"):
        run = await bench.engine.run(RunRequest(workflow=document, targets=[target], use_cache=False))
        assert run.status == "complete"
        assert state(run, "t").status == "skipped"
        assert state(run, "s").output == {"items": list(range(100))}


# --- failing --------------------------------------------------------------------------------------


async def test_a_source_that_fails_in_the_middle_is_told_once_and_its_readers_are_skipped(bench: Bench) -> None:
    document = workflow(
        {"s": node("Breaks", after=5), "r": node("Relay"), "t": node("Total"), "u": node("Total"), "w": node("Whole")},
        "s.items > r.items",
        "r.items > t.items",
        "s.items > u.items",
        "u.total > w.value",
    )
    run = await bench.run(document)
    assert run.status == "error"
    assert run.error is not None and run.error.message == "node s (breaks): ValueError: the source gave up"
    assert {name: each.status for name, each in run.nodes.items()} == {
        "s": "error", "r": "skipped", "t": "skipped", "u": "skipped", "w": "skipped"
    }  # fmt: skip
    assert len(await events(bench, run, "NODE_ERROR")) == 1
    last = await told(bench, run, "NODE_YIELD", sourceNodeId="s", isLastChunk=True)
    assert last == [{"type": "error_chunk", "content": "ValueError: the source gave up"}]


async def test_a_reader_that_fails_leaves_the_others_alone(bench: Bench) -> None:
    document = workflow(
        {"s": node("Numbers", length=100), "t": node("FailsAt", at=3), "u": node("Total")},
        "s.items > t.items",
        "s.items > u.items",
    )
    run = await bench.run(document)
    assert run.status == "error"
    assert state(run, "t").status == "error"
    assert output(run, "u", "total") == sum(range(100))


async def test_a_source_whose_only_reader_fails_ends(bench: Bench) -> None:
    document = workflow({"s": node("Endless"), "t": node("FailsAt", at=3)}, "s.items > t.items")
    run = await bench.run(document)
    assert run.error is not None and "the reader gave up" in run.error.message
    assert ("s", "closed") in await said(bench, run)


async def test_a_source_that_wants_to_end_the_program_only_fails(bench: Bench) -> None:
    document = workflow({"s": node("Leaves", after=2), "t": node("Total")}, "s.items > t.items")
    run = await bench.run(document)
    assert run.error is not None and "tried to end the program" in run.error.message
    assert state(run, "t").status == "skipped"


async def test_a_reader_may_be_content_with_what_came_but_that_is_not_used_again(bench: Bench) -> None:
    document = workflow(
        {"s": node("Breaks", after=30), "t": node("Salvage"), "w": node("Whole")},
        "s.items > t.items",
        "t.total > w.value",
    )
    for _ in range(2):
        run = await bench.run(document)
        assert run.status == "error"
        assert output(run, "w") == sum(range(30))
        assert not state(run, "t").cached and not state(run, "w").cached


async def test_a_source_is_tried_again_where_it_failed_before_its_first_item(bench: Bench) -> None:
    source = with_policy(node("Breaks", after=0, works_at=2), retry=2)
    run = await bench.run(workflow({"s": source, "t": node("Listed")}, "s.items > t.items"))
    assert output(run, "t", "list") == [100]
    assert state(run, "s").attempts == 2


async def test_a_source_is_not_tried_again_after_its_first_item(bench: Bench) -> None:
    source = with_policy(node("Breaks", after=1, works_at=2), retry=2)
    run = await bench.run(workflow({"s": source, "t": node("Listed")}, "s.items > t.items"))
    assert state(run, "s").status == "error"
    assert state(run, "t").status == "skipped"


async def test_a_reader_is_tried_again_where_it_has_read_nothing(bench: Bench) -> None:
    reader = with_policy(node("FailsAtOnce"), retry=1)
    run = await bench.run(workflow({"s": node("Numbers", length=40), "t": reader}, "s.items > t.items"))
    assert output(run, "t", "list") == list(range(40))


async def test_a_reader_is_not_tried_again_with_a_part_of_its_stream(bench: Bench) -> None:
    reader = with_policy(node("Tries", reads=3), retry=1)
    run = await bench.run(workflow({"s": node("Numbers", length=40), "t": reader}, "s.items > t.items"))
    assert state(run, "t").status == "error"


async def test_a_list_is_read_from_its_beginning_at_the_second_try(bench: Bench) -> None:
    reader = with_policy(node("Tries", reads=2, items=[1, 2, 3]), retry=1)
    run = await bench.run(workflow({"t": reader}))
    assert output(run, "t", "list") == [1, 2, 3]


async def test_a_source_has_its_time_limit(bench: Bench) -> None:
    source = with_policy(node("Ticks", first=2), timeout=0.05)
    run = await bench.run(workflow({"s": source, "t": node("Listed")}, "s.items > t.items"))
    assert state(run, "s").error is not None and state(run, "s").error.code == "deadline_exceeded"  # type: ignore[union-attr]
    assert state(run, "t").status == "skipped"
    assert ("s", "closed") in await said(bench, run)


async def test_the_defaults_of_a_source_that_failed_at_once_are_its_items(bench: Bench) -> None:
    source = with_policy(node("Breaks"), onError="default", defaults={"items": [7, 8]})
    document = workflow(
        {"s": source, "t": node("Listed"), "w": node("Whole")}, "s.items > t.items", "s.items > w.value"
    )
    run = await bench.run(document)
    assert run.status == "complete"
    assert output(run, "t", "list") == [7, 8]
    assert output(run, "w") == [7, 8]
    assert not state(await bench.run(document), "t").cached


async def test_what_follows_a_reader_of_a_source_that_may_fail_takes_another_way(bench: Bench) -> None:
    source = with_policy(node("Breaks", after=3), onError="skip_branch")
    document = workflow({"s": source, "t": node("Total"), "w": node("Whole")}, "s.items > t.items", "t.total > w.value")
    run = await bench.run(document)
    assert run.status == "complete"
    assert [state(run, name).status for name in "stw"] == ["error", "skipped", "skipped"]


async def test_a_reader_may_give_up_waiting(bench: Bench) -> None:
    document = workflow({"s": node("Ticks", first=3), "t": node("Impatient")}, "s.items > t.items")
    run = await bench.run(document)
    assert output(run, "t", "count") == 3
    assert ("s", "closed") in await said(bench, run)


# --- interrupted ----------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [node("Ticks", first=5), node("Endless")])
async def test_an_interrupt_closes_all_generators_and_leaves_no_tasks(bench: Bench, source: dict[str, Any]) -> None:
    document = workflow(
        {"s": source, "r": node("Relay"), "t": node("Total"), "u": node("Ticks"), "v": node("LoudReader", turns=2)},
        "s.items > r.items",
        "r.items > t.items",
        "u.items > v.items",
    )
    await bench.run(workflow({"s": node("Numbers", length=1)}))  # what runs as long as the host is there now
    before = asyncio.all_tasks()
    run_id = await bench.start(document)
    await bench.until("ACME_STREAM", node="v", what="read")
    assert await bench.engine.interrupt(run_id)
    run = await bench.engine.wait(run_id)
    assert run.status == "interrupted"
    heard = await said(bench, run)
    assert ("s", "closed") in heard and ("u", "closed") in heard
    await no_tasks_are_left(before)


# --- no way to wait for one another for ever ------------------------------------------------------

LONG = 200


@pytest.mark.parametrize(
    ("nodes", "edges", "name", "key", "expected"),
    [
        pytest.param(
            {"s": node("Numbers", length=LONG), "c": node("InTurn")},
            ["s.items > c.a", "s.items > c.b"],
            "c", "counts", [LONG, LONG],
            id="one source, read twice in turn",
        ),
        pytest.param(
            {"s": node("Numbers", length=LONG), "a": node("Relay"), "c": node("InTurn")},
            ["s.items > a.items", "a.items > c.a", "s.items > c.b"],
            "c", "counts", [LONG, LONG],
            id="a diamond, the longer way first",
        ),
        pytest.param(
            {"s": node("Numbers", length=LONG), "a": node("HoldBack"), "c": node("InTurn")},
            ["s.items > a.items", "s.items > c.a", "a.items > c.b"],
            "c", "counts", [LONG, LONG],
            id="a diamond, the shorter way first",
        ),
        pytest.param(
            {"s": node("Numbers", length=LONG), "a": node("Size"), "b": node("After")},
            ["s.items > a.items", "a.count > b.value", "s.items > b.items"],
            "b", "list", [LONG, LONG],
            id="a batch of the same source is needed first",
        ),
        pytest.param(
            {"s": node("Numbers", length=LONG), "a": node("Total"), "b": node("After")},
            ["s.items > a.items", "a.total > b.value", "s.items > b.items"],
            "b", "list", [sum(range(LONG)), LONG],
            id="another reader of the same source comes first",
        ),
        pytest.param(
            {"s": node("Tell", text="word " * LONG), "b": node("After")},
            ["s.count > b.value", "s.word > b.items"],
            "b", "list", [LONG, LONG],
            id="the end of the source itself is needed first",
        ),
        pytest.param(
            {"s": node("Tell", text="word " * LONG), "c": node("InTurn")},
            ["s.size > c.a", "s.word > c.b"],
            "c", "counts", [LONG, LONG],
            id="two streams of one source",
        ),
        pytest.param(
            {
                "s": node("Numbers", length=LONG), "a": node("Relay"), "b": node("HoldBack"), "c": node("InTurnOn"),
                "d": node("Relay"), "e": node("HoldBack"), "f": node("InTurn"),
            },
            [
                "s.items > a.items", "s.items > b.items", "a.items > c.a", "b.items > c.b",
                "c.items > d.items", "c.items > e.items", "d.items > f.a", "e.items > f.b",
            ],
            "f", "counts", [2 * LONG, 2 * LONG],
            id="diamonds one after the other",
        ),
        pytest.param(
            {
                "s": node("Numbers", length=LONG), "u": node("Numbers", length=LONG),
                "c": node("InTurn"), "d": node("InTurn"),
            },
            ["s.items > c.a", "u.items > c.b", "u.items > d.a", "s.items > d.b"],
            "d", "counts", [LONG, LONG],
            id="two sources read crosswise",
        ),
        pytest.param(
            {
                "s": node("Numbers", length=LONG), "u": node("Numbers", length=LONG), "v": node("Numbers", length=LONG),
                "c": node("InTurn"), "d": node("InTurn"), "e": node("InTurn"),
            },
            ["s.items > c.a", "u.items > c.b", "u.items > d.a", "v.items > d.b", "v.items > e.a", "s.items > e.b"],
            "e", "counts", [LONG, LONG],
            id="three sources in a ring",
        ),
        pytest.param(
            {
                "s": node("Numbers", length=LONG), "u": node("Numbers", length=LONG), "a": node("Total"),
                "b": node("After"), "c": node("InTurn"),
            },
            ["u.items > a.items", "a.total > b.value", "s.items > b.items", "s.items > c.a", "u.items > c.b"],
            "b", "list", [sum(range(LONG)), LONG],
            id="two sources, over the batch of one",
        ),
    ],
)  # fmt: skip
async def test_streams_that_meet_again_never_wait_for_one_another(
    bench: Bench, nodes: dict[str, Any], edges: list[str], name: str, key: str, expected: Any
) -> None:
    async with asyncio.timeout(20):
        run = await bench.run(workflow(nodes, *edges))
    assert output(run, name, key) == expected


async def test_a_setting_that_all_nodes_share_does_not_lift_the_bound(bench: Bench) -> None:
    document = workflow(
        {
            "text": node("Whole", value=3),
            "s": node("Endless"),
            "c": node("CountSlowly", most=40),
        },
        "text.value > s.step",
        "text.value > c.value",
        "s.items > c.items",
    )
    run = await bench.run(document)
    assert output(run, "c", "count") == 40
    assert furthest_ahead(await said(bench, run)) <= BEHIND + 1


# --- caching, length, fairness --------------------------------------------------------------------


async def test_a_cached_stream_is_read_again_by_a_changed_reader(bench: Bench) -> None:
    def document(start: int) -> Workflow:
        return workflow({"s": node("LoudNumbers", length=30), "t": node("Total", value=start)}, "s.items > t.items")

    await bench.run(document(1))
    run = await bench.run(document(2))
    assert state(run, "s").cached and not state(run, "t").cached
    assert output(run, "t", "total") == sum(range(30))
    again = await bench.run(document(2))
    assert state(again, "t").cached


async def test_a_stream_longer_than_what_is_kept_reaches_everybody_whole(bench: Bench) -> None:
    length = 130_000
    document = workflow(
        {
            "s": node("Numbers", length=length),
            "t": node("Total"),
            "n": node("Size"),
            "u": node("Numbers", length=length),
        },
        "s.items > t.items",
        "s.items > n.items",
    )
    run = await bench.run(document)
    assert output(run, "t", "total") == sum(range(length))
    assert output(run, "n", "count") == length
    assert len((state(run, "u").output or {})["items"]) == 100_000  # type: ignore[arg-type]
    again = await bench.run(document)
    assert not state(again, "u").cached


async def test_a_long_stream_takes_a_bounded_amount_of_memory(bench: Bench) -> None:
    document = workflow(
        {"s": node("Blocks", count=4_000, size=50_000), "r": node("Relay"), "t": node("Heavy")},
        "s.items > r.items",
        "r.items > t.items",
    )
    tracemalloc.start()
    try:
        run = await bench.run(document)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert output(run, "t", "bytes") == 2 * 10**8
    assert peak < 10**8


async def test_a_source_that_never_awaits_lets_others_have_their_turn(bench: Bench) -> None:
    document = workflow(
        {
            "s": node("Endless"),
            "t": node("First", count=300_000),
            "alone": node("Numbers", length=300_000),
            "p": {"type": "Pause", "inputValues": {"turns": 5}},
        },
        "s.items > t.items",
    )
    run = await bench.run(document)
    finished = {name: each.finished or 0.0 for name, each in run.nodes.items()}
    assert finished["p"] < finished["t"] and finished["p"] < finished["alone"]
