"""What `check` says of policies, bypassed nodes and streams."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures
from workflows_bench import Bench, edge, group

TEXT = {"id": "text", "type": "core:Text", "inputValues": {"text": "x"}}
POLICY = "$.nodes[0].policy"


def with_policy(**policy: Any) -> dict[str, Any]:
    return {**TEXT, "policy": policy}


async def test_a_policy_is_read_with_all_that_is_wrong_with_it(bench: Bench) -> None:
    node = with_policy(retry=-1, retryDelay="soon", timeout=0, onError="explode", defaults=[])

    assert await bench.problems({"nodes": [node]}) == {
        f"{POLICY}.retry": "input should be greater than or equal to 0, got an integer",
        f"{POLICY}.retryDelay": "input should be a valid number, got 'soon'",
        f"{POLICY}.timeout": "input should be greater than 0, got an integer",
        f"{POLICY}.onError": "input should be 'fail', 'skip_branch', 'default' or 'route', got 'explode'",
        f"{POLICY}.defaults": "input should be a valid dictionary, got an array",
    }


async def test_errors_that_are_routed_have_an_output_of_their_own(bench: Bench) -> None:
    shown = {"id": "shown", "type": "core:ToJson"}
    edges = [edge("e", "text.error", "shown.value")]

    assert await bench.problems({"nodes": [with_policy(onError="route"), shown], "edges": edges}) == {}
    assert await bench.problems({"nodes": [TEXT, shown], "edges": edges}) == {
        "$.edges[0].sourceHandle": (
            "core:Text has no output 'error'; a node has it where its policy says onError: route"
        )
    }


async def test_a_loop_has_an_error_output_too(bench: Bench) -> None:
    zone = {"id": "loop", "type": "core:LoopZone", "configValues": {"count": 2}, "policy": {"onError": "route"}}
    nodes = [zone, {**TEXT, "parentNode": "loop"}, {"id": "shown", "type": "core:ToJson"}]

    assert await bench.problems({"nodes": nodes, "edges": [edge("e", "loop.error", "shown.value")]}) == {}


async def test_what_a_policy_says_without_effect_is_a_warning(bench: Bench) -> None:
    assert await bench.problems({"nodes": [with_policy(onError="route")]}) == {
        f"{POLICY}.onError": "warning: errors go to the output 'error', and no edge takes them from there"
    }
    assert await bench.problems({"nodes": [with_policy(defaults={"text": "x"})]}) == {
        f"{POLICY}.defaults": "warning: the defaults are not used: onError is 'fail', not 'default'"
    }
    assert await bench.problems({"nodes": [with_policy(retries=3)]}) == {
        f"{POLICY}.retries": "warning: a policy has no 'retries' (did you mean retry?)"
    }
    words = {"id": "w", "type": "acme-samples:Words", "policy": {"retry": 1}}
    assert await bench.problems({"nodes": [words]}) == {
        f"{POLICY}.retry": "warning: a node that streams is tried again only where it failed before its first item"
    }


async def test_defaults_are_for_outputs_that_there_are(bench: Bench) -> None:
    node = with_policy(onError="default", defaults={"texd": "x", "text": ["y"]})

    assert await bench.problems({"nodes": [node]}) == {
        f"{POLICY}.defaults.texd": "warning: core:Text has no output 'texd' (did you mean text?)",
        f"{POLICY}.defaults.text": "warning: expected text, got an array",
    }


async def test_a_group_has_no_policy(bench: Bench) -> None:
    node = {**group("g", "sample"), "policy": {"retry": 2}}

    assert await bench.problems({"nodes": [node]}) == {
        POLICY: "warning: a policy has no effect on a core:NodeGroup: set one on the nodes inside of the group"
    }


async def test_a_bypassed_node_needs_no_inputs(bench: Bench) -> None:
    merge = {"id": "m", "type": "core:TextMerge"}

    assert list(await bench.problems({"nodes": [merge]})) == ["$.nodes[0].inputValues.text_inputs"]
    assert await bench.problems({"nodes": [{**merge, "bypassed": True}]}) == {}


async def test_a_bypassed_node_is_of_a_type_that_there_is(bench: Bench) -> None:
    assert await bench.problems({"nodes": [{"id": "n", "type": "acme:Gizmo", "bypassed": True}]}) == {
        "$.nodes[0].type": "there is no node type 'acme:Gizmo'"
    }


async def test_a_stream_is_collected_for_an_input_that_is_none_and_not_the_other_way_round(bench: Bench) -> None:
    rows: list[Any] = [False, True]
    with Failures() as failures:
        for bypassed in rows:
            with failures.row(bypassed):
                words = {"id": "words", "type": "acme-samples:Words"}
                speak = {"id": "speak", "type": "acme-samples:Speak", "bypassed": bypassed}
                merge = {"id": "merge", "type": "core:TextMerge"}
                document = {
                    "nodes": [TEXT, words, speak, merge],
                    "edges": [edge("e0", "words.result", "merge.text_inputs"), edge("e1", "text.text", "speak.words")],
                }

                assert await bench.problems(document) == {
                    "$.edges[1]": "text.text to speak.words: a batch output cannot feed a stream input"
                }
