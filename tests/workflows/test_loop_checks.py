"""What `check` says of loops: their configuration, their end, and what crosses their borders."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures
from workflows_bench import Bench, edge, group

CARRIED = [{"key": "n", "dataFlowType": "STRING", "initial": "a"}]
LOOP = {"id": "loop", "type": "core:LoopZone", "configValues": {"carried": CARRIED, "count": 3}}


def loop(identifier: str = "loop", *, inside: str | None = None, **config: Any) -> dict[str, Any]:
    """Return a loop with other configuration, which may lie in another."""
    parent = {"parentNode": inside} if inside else {}
    return {**LOOP, "id": identifier, "configValues": {"carried": CARRIED, "count": 3} | config, **parent}


def text(identifier: str, inside: str | None = None) -> dict[str, Any]:
    parent = {"parentNode": inside} if inside else {}
    return {"id": identifier, "type": "core:Text", "inputValues": {"text": "x"}, **parent}


def merge(identifier: str, inside: str | None = None) -> dict[str, Any]:
    return {**text(identifier, inside), "type": "core:TextMerge", "inputValues": {"text_inputs": ["x"]}}


async def test_a_sound_loop_has_no_problems(bench: Bench) -> None:
    zone = loop(perIteration=[{"key": "each", "dataFlowType": "STRING"}], conditionSlot="done")
    document = {
        "nodes": [
            text("before"),
            zone,
            merge("in", "loop"),
            loop("deep", inside="loop"),
            merge("low", "deep"),
            merge("after"),
        ],
        "edges": [
            edge("e0", "before.text", "loop.in__n"),
            edge("e1", "loop.in__n", "in.text_inputs"),
            edge("e2", "before.text", "in.separator"),
            edge("e3", "in.merged_text", "loop.next__n"),
            edge("e4", "in.merged_text", "loop.each__each"),
            edge("e5", "in.merged_text", "deep.in__n"),
            edge("e6", "before.text", "low.text_inputs"),
            edge("e7", "loop.in__n", "low.separator"),
            edge("e8", "low.merged_text", "deep.next__n"),
            edge("e9", "loop.out__n", "after.text_inputs"),
            edge("e10", "loop.stopped_by", "after.separator"),
        ],
    }

    problems = await bench.problems(document)

    condition = "warning: no edge from inside of the loop leads into its condition 'done'"
    assert problems == {"$.nodes[1].configValues.conditionSlot": condition}


async def test_everything_that_is_wrong_with_a_loops_configuration_is_told_with_its_place(bench: Bench) -> None:
    config = {
        "carried": [
            {"dataFlowType": "STRING"},
            5,
            {"key": "a__b"},
            {"key": "n", "dataFlowType": []},
            {"key": "m"},
            {"key": "m"},
        ],
        "perIteration": {"key": "x"},
        "count": -1,
        "maxIterations": 2_000_000,
        "conditionSlot": "count",
        "stopWhen": "yes",
    }
    zone = {"id": "loop", "type": "core:LoopZone", "configValues": config}

    problems = await bench.problems({"nodes": [zone, text("t", "loop")], "edges": [edge("e", "loop.out__n", "t.x")]})

    place = "$.nodes[0].configValues"
    assert {path.removeprefix(place): message for path, message in problems.items() if path.startswith(place)} == {
        ".carried[0].key": "expected a name without '__', got null",
        ".carried[1]": "expected an object with a key, got an integer",
        ".carried[2].key": "expected a name without '__', got 'a__b'",
        ".carried[3].dataFlowType": "an array is no dataFlowType",
        ".carried[5].key": "the key 'm' is there twice",
        ".perIteration": "expected a list of {key, dataFlowType}, got an object",
        ".count": "expected an integer from 0 to 1,000,000, got -1",
        ".maxIterations": "expected an integer from 1 to 1,000,000, got 2000000",
        ".conditionSlot": "expected the key of a slot, without '__' and not 'count', got 'count'",
        ".stopWhen": "expected true or false, got 'yes'",
    }


async def test_the_carried_state_begins_with_a_value_of_its_type(bench: Bench) -> None:
    zone = loop(carried=[{"key": "n", "dataFlowType": "INTEGER", "initial": "one"}])

    assert await bench.problems({"nodes": [zone, text("t", "loop")]}) == {
        "$.nodes[0].configValues.carried[0].initial": "warning: expected an integer, got text"
    }


async def test_a_loop_ends_by_what_its_configuration_says(bench: Bench) -> None:
    rows: list[Any] = [{"count": 2}, {"maxIterations": 5}]
    with Failures() as failures:
        for config in rows:
            with failures.row(config):
                assert await bench.problems({"nodes": [loop(**{"count": None} | config), text("t", "loop")]}) == {}


async def test_a_loop_ends_by_a_count_that_comes_from_outside_or_a_condition_from_inside(bench: Bench) -> None:
    number = {"id": "number", "type": "core:MathOperation", "inputValues": {"a": 1, "b": 2}}
    compare = {"id": "compare", "type": "core:Compare", "parentNode": "until", "inputValues": {"a": 1, "b": 2}}
    nodes = [number, loop(count=None), text("t", "loop"), loop("until", count=None, conditionSlot="done"), compare]
    edges = [edge("e0", "number.result", "loop.count"), edge("e1", "compare.result", "until.done")]

    problems = await bench.problems({"nodes": nodes, "edges": edges})

    assert problems == {"$.edges[0]": "number.result to loop.count: FLOAT does not go into INTEGER"}


async def test_a_loop_without_an_end_is_refused(bench: Bench) -> None:
    nodes = [loop(count=None), text("t", "loop"), loop("until", count=None, conditionSlot="done"), text("u", "until")]

    assert await bench.problems({"nodes": nodes}) == {
        "$.nodes[0].configValues": "the loop has no end: give it a count, a conditionSlot or maxIterations",
        "$.nodes[2].configValues.conditionSlot": ("no edge from inside of the loop leads into its condition 'done'"),
    }


async def test_a_count_beyond_the_maximum_and_an_empty_loop_are_warnings(bench: Bench) -> None:
    assert await bench.problems({"nodes": [loop(count=5000)]}) == {
        "$.nodes[0].configValues.count": (
            "warning: the loop ends after 1,000 iterations, its maxIterations, not after 5,000"
        ),
        "$.nodes[0]": "warning: there is nothing inside of the loop: no node names it as its parentNode",
    }


# --- borders ------------------------------------------------------------------------------------------


async def test_what_cannot_cross_the_border_of_a_loop_is_refused(bench: Bench) -> None:
    rows: list[Any] = [
        (
            ("inside.text", "outside.text_inputs"),
            "the edge leads out of the loop 'loop'; what is inside gives values to the loop's own inputs",
        ),
        (
            ("inside.text", "other.in__n"),
            "the edge leads out of the loop 'loop'; what is inside gives values to the loop's own inputs",
        ),
        (
            ("inside.text", "loop.in__n"),
            "the edge leads out of the loop 'loop'; what is inside gives values to the loop's own inputs",
        ),
        (
            ("low.merged_text", "loop.next__n"),
            "the edge leads out of the loop 'deep'; what is inside gives values to the loop's own inputs",
        ),
        (("loop.index", "outside.text_inputs"), "'index' is for the nodes inside of the loop"),
        (("deep.in__n", "inner.text_inputs"), "'in__n' is for the nodes inside of the loop"),
        (
            ("loop.out__n", "inner.text_inputs"),
            "a loop's outputs are there when it has ended, so nothing inside of it can use them",
        ),
        (
            ("loop.out__n", "loop.next__n"),
            "a loop's outputs are there when it has ended, so nothing inside of it can use them",
        ),
        (("before.text", "loop.next__n"), "'next__n' takes edges from inside of the loop"),
        (("inside.text", "deep.next__n"), "'next__n' takes edges from inside of the loop"),
    ]
    with Failures() as failures:
        for ends, message in rows:
            with failures.row((ends, message)):
                document = {
                    "nodes": [
                        *(text("before"), merge("outside"), loop(), text("inside", "loop"), merge("inner", "loop")),
                        *(loop("deep", inside="loop"), merge("low", "deep"), loop("other"), text("y", "other")),
                    ],
                    "edges": [edge("e", *ends)],
                }

                assert await bench.problems(document) == {"$.edges[0]": f"{ends[0]} to {ends[1]}: {message}"}


async def test_a_stream_does_not_go_into_a_loop_but_flows_inside_of_it(bench: Bench) -> None:
    words, speak = {"type": "acme-samples:Words"}, {"type": "acme-samples:Speak", "parentNode": "loop"}
    document = {
        "nodes": [
            *({**words, "id": "outside"}, loop(), {**speak, "id": "a"}),
            *({**words, "id": "inside", "parentNode": "loop"}, {**speak, "id": "b"}, merge("c", "loop")),
        ],
        "edges": [
            edge("e0", "outside.result", "a.words"),
            edge("e1", "outside.result", "c.text_inputs"),
            edge("e2", "inside.result", "b.words"),
            edge("e3", "inside.result", "loop.next__n"),
            edge("e4", "outside.result", "loop.in__n"),
        ],
    }
    refused = "a stream does not go into a loop; collect it outside of 'loop'"

    assert await bench.problems(document) == {
        "$.edges[0]": f"outside.result to a.words: {refused}",
        "$.edges[1]": f"outside.result to c.text_inputs: {refused}",
    }


async def test_the_interface_of_a_workflow_is_not_inside_of_a_loop(bench: Bench) -> None:
    nodes = [loop(), {"id": "in", "type": "core:GroupInput", "parentNode": "loop"}]

    assert await bench.problems({"nodes": nodes}) == {
        "$.nodes[1].parentNode": (
            "a core:GroupInput cannot be inside of a loop; edges from outside lead into 'loop' as well"
        )
    }


async def test_a_group_may_be_inside_of_a_loop(bench: Bench) -> None:
    document = {
        "nodes": [loop(), {**group("g", "sample"), "parentNode": "loop"}, text("t")],
        "edges": [edge("e", "t.text", "g.none")],
    }

    assert list(await bench.problems(document)) == ["$.edges[0].targetHandle"]


async def test_a_bypassed_loop_needs_no_inputs_inside(bench: Bench) -> None:
    nodes = [{**loop(), "bypassed": True}, {"id": "m", "type": "core:TextMerge", "parentNode": "loop"}]

    assert await bench.problems({"nodes": nodes}) == {}


# --- parents ------------------------------------------------------------------------------------------


async def test_a_parent_that_is_no_loop_is_a_warning_and_is_passed_through(bench: Bench) -> None:
    document = {
        "nodes": [loop(), text("frame", "loop"), merge("in", "frame"), text("t")],
        "edges": [edge("e0", "loop.in__n", "in.text_inputs"), edge("e1", "in.merged_text", "loop.next__n")],
    }

    assert await bench.problems(document) == {
        "$.nodes[2].parentNode": "warning: 'frame' is a core:Text, no core:LoopZone: it makes no loop"
    }


async def test_nodes_that_are_inside_of_one_another_are_refused(bench: Bench) -> None:
    nodes = [loop("a", inside="b"), loop("b", inside="a"), text("t", "b"), loop("c", inside="c")]

    problems = await bench.problems({"nodes": nodes})

    assert problems["$.nodes[0].parentNode"] == "these nodes are inside of one another: a → b → a"
    assert problems["$.nodes[3].parentNode"] == "these nodes are inside of one another: c → c"
    assert len([path for path in problems if path.endswith("parentNode")]) == 2


async def test_loops_nest_fifty_deep_and_no_deeper(bench: Bench) -> None:
    rows: list[Any] = [51, 3000]
    with Failures() as failures:
        for depth in rows:
            with failures.row(depth):
                nodes = [loop(f"l{i}", inside=f"l{i - 1}" if i else None) for i in range(depth)]
                edges = [edge("e", "t.text", f"l{depth - 1}.next__n")]

                problems = await bench.problems({"nodes": [*nodes, text("t", f"l{depth - 1}")], "edges": edges})

                assert problems == {"$.nodes[50].parentNode": "loops are nested deeper than 50"}
                assert await bench.problems({"nodes": [*nodes[:50], text("t", "l49")]}) == {}


# --- cycles -------------------------------------------------------------------------------------------


async def test_feedback_through_a_loops_state_is_no_cycle(bench: Bench) -> None:
    carried = [{"key": key, "dataFlowType": "STRING", "initial": key} for key in "ab"]
    document = {
        "nodes": [loop(carried=carried), merge("m", "loop")],
        "edges": [
            edge("e0", "loop.in__a", "m.text_inputs"),
            edge("e1", "m.merged_text", "loop.next__a"),
            edge("e2", "loop.in__a", "loop.next__b"),
        ],
    }

    assert await bench.problems(document) == {}


async def test_a_cycle_inside_of_a_loop_is_told(bench: Bench) -> None:
    document = {
        "nodes": [loop(), merge("a", "loop"), merge("b", "loop")],
        "edges": [edge("e0", "a.merged_text", "b.text_inputs"), edge("e1", "b.merged_text", "a.text_inputs")],
    }

    assert await bench.problems(document) == {"$.edges[1]": "these nodes wait for one another: a → b → a"}


async def test_a_cycle_through_a_loop_as_a_whole_is_told(bench: Bench) -> None:
    document = {
        "nodes": [loop(), merge("inside", "loop"), merge("outside")],
        "edges": [
            edge("e0", "loop.out__n", "outside.text_inputs"),
            edge("e1", "outside.merged_text", "inside.text_inputs"),
        ],
    }

    assert await bench.problems(document) == {"$.edges[1]": "these nodes wait for one another: loop → outside → loop"}
