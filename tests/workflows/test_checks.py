"""What `check` says of a document: everything at once, each with its place; edges, policies, loops and groups."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures
from helpers.workflow_documents import edge
from workflows_bench import Bench, group

from tavern_host.contracts.workflows import Workflow


def text(identifier: str = "text", inside: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a node without problems, which may be inside of a loop."""
    parent = {"parentNode": inside} if inside else {}
    return {"id": identifier, "type": "core:Text", "inputValues": {"text": "x"}, **parent, **more}


def merge(identifier: str = "merge", inside: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a node with an input, which has a value."""
    return {**text(identifier, inside), "type": "core:TextMerge", "inputValues": {"text_inputs": ["x"]}, **more}


def node(type: str, identifier: str = "n", **inputs: Any) -> dict[str, Any]:
    return {"id": identifier, "type": type, "inputValues": inputs}


CARRIED = [{"key": "n", "dataFlowType": "STRING", "initial": "a"}]


def loop(identifier: str = "loop", *, inside: str | None = None, **config: Any) -> dict[str, Any]:
    """Return a loop with other configuration, which may lie in another."""
    values = {"carried": CARRIED, "count": 3, **config}
    return {**text(identifier, inside), "type": "core:LoopZone", "inputValues": {}, "configValues": values}


def case(nodes: list[Any], *edges: str, gives: dict[str, str] | None = None, **more: Any) -> tuple[Any, dict[str, str]]:
    """Return a document with edges written `node.slot > node.slot`, and its problems by path."""
    joined = [edge(f"e{place}", *ends.split(" > ")) for place, ends in enumerate(edges)]
    return {"nodes": nodes, "edges": joined, **more}, gives or {}


async def check(bench: Bench, cases: list[tuple[Any, dict[str, str]]]) -> None:
    """Check that documents have the problems that are said."""
    with Failures() as failures:
        for document, problems in cases:
            with failures.row(document):
                assert await bench.problems(document) == problems


NEEDED = "the required input 'text_inputs' has neither an edge, a value nor a default"
UNFED = "nothing feeds the interface output {!r}: draw an edge to it, or remove it"
KNOT = "these nodes wait for one another"
MERGE, SUM = node("core:TextMerge", "merge"), node("core:MathOperation", "sum", a=1, b=2)
PLAIN = [
    case([text(), MERGE, node("core:GroupInput", "in")],
        *("txt.text > merge.text_inputs", "text.txt > merge.text_inputs", "text.text > merge.text_input"),
        *("text.text > merge.separator__0", "in.word > merge.text_inputs", "text.text > in.word"),
        interfaceInputs={"words": {"dataFlowType": "STRING"}}, gives={
        "$.edges[0].source": "there is no node 'txt' (did you mean text?)",
        "$.edges[1].sourceHandle": "core:Text has no output 'txt' (did you mean text?)",
        "$.edges[2].targetHandle": "core:TextMerge has no input 'text_input' (did you mean text_inputs?)",
        "$.edges[3].targetHandle": "core:TextMerge has no input 'separator__0' (did you mean separator?)",
        "$.edges[4].sourceHandle": "core:GroupInput has no output 'word' (did you mean words?)",
        "$.edges[5].targetHandle": "core:GroupInput has no input 'word'"}),
    case([text(), node("core:GroupOutput", "out")], "text.text > out.fed", interfaceOutputs={
        **{key: {"dataFlowType": "STRING"} for key in ("fed", "unfed")},
        "needed": {"dataFlowType": "STRING", "required": True},
        "default": {"dataFlowType": "STRING", "config": {"default": "x"}}}, gives={
        "$.interfaceOutputs.unfed": f"warning: {UNFED.format('unfed')}",
        "$.interfaceOutputs.needed": UNFED.format("needed")}),
    case([text(), SUM], "text.text > sum.a",
        gives={"$.edges[0]": "text.text to sum.a: STRING does not go into FLOAT"}),
    case([{"id": "m", "type": "core:MathOperation", "configValues": {"operationMode": "power"}}],
        gives={"$.nodes[0].inputValues.base": NEEDED.replace("text_inputs", "base")}),
    case([{**SUM, "configValues": {"operationMode": "ad"}}], gives={"$.nodes[0].configValues.operationMode": (
        "warning: core:MathOperation has no mode 'ad' (did you mean add?)")}),
    case([text(), text("other"), merge()], *("text.text > merge.separator", "other.text > merge.separator"),
        gives={"$.edges[1].targetHandle": "the input 'separator' of merge takes one edge and has $.edges[0] already"}),
    case([text(), node("core:GroupOutput", "o1"), node("core:GroupOutput", "o2")],
        *("text.text > o1.x", "text.text > o2.x"), interfaceOutputs={"x": {"dataFlowType": "STRING"}},
        gives={"$.edges[1].targetHandle": "the interface output 'x' is fed by o1 already"}),
    case([MERGE], gives={"$.nodes[0].inputValues.text_inputs": NEEDED}),
    case([node("core:TextMerge", text_inputs="x")]),
    case([node("core:MathOperation", a="one", b=2)],
        gives={"$.nodes[0].inputValues.a": "warning: expected a number, got text"}),
    case([text(parentNode="frame")], gives={"$.nodes[0].parentNode": "warning: there is no node 'frame'"}),
    case([{**MERGE, "id": name} for name in "abcdef"],
        *("a.merged_text > b.text_inputs", "b.merged_text > c.text_inputs", "c.merged_text > a.text_inputs"),
        *("c.merged_text > d.text_inputs", "e.merged_text > e.text_inputs", "d.merged_text > f.text_inputs"),
        gives={"$.edges[2]": f"{KNOT}: a → b → c → a", "$.edges[4]": f"{KNOT}: e → e"}),
    case([{**MERGE, "bypassed": True}]),
    case([{"id": "n", "type": "acme:Gizmo", "bypassed": True}],
        gives={"$.nodes[0].type": "there is no node type 'acme:Gizmo'"}),
    *(case([text(), node("acme-samples:Words", "words"), node("acme-samples:Speak", "speak") | more, MERGE],
        *("words.result > merge.text_inputs", "text.text > speak.words"),
        gives={"$.edges[1]": "text.text to speak.words: a batch output cannot feed a stream input"})
        for more in ({}, {"bypassed": True})),
]  # fmt: skip


async def test_every_problem_of_nodes_and_edges_is_placed(bench: Bench) -> None:
    await check(bench, PLAIN)


async def test_every_problem_of_the_shape_is_placed(bench: Bench) -> None:
    document = {
        "name": 5,
        "nodes": [
            {"type": "core:Text"},
            "no node",
            {"id": "n", "type": "core:Text", "position": {"x": "left"}, "inputConnectionOrders": {"a": "e1"}},
        ],
        "edges": [{"id": "e", "source": "n"}],
        "interfaceInputs": {"a b": {"dataFlowType": "TEXT"}, "none": {}},
    }
    problems = await bench.problems(document)
    assert problems["$.name"] == "input should be a valid string, got an integer"
    assert problems["$.nodes[0].id"] == problems["$.edges[0].sourceHandle"] == "is missing"
    assert "got 'no node'" in problems["$.nodes[1]"]
    assert problems["$.nodes[2].position.x"] == (
        "input should be a valid integer, got 'left' or input should be a valid number, got 'left'"
    )
    assert problems["$.nodes[2].inputConnectionOrders.a"] == "input should be a valid list, got 'e1'"
    assert problems['$.interfaceInputs["a b"].dataFlowType'].startswith("input should be 'STRING', 'INTEGER'")
    assert problems["$.interfaceInputs.none.dataFlowType"] == "is missing"
    assert len(problems) == 10

    nodes = [{"id": "broken"}, {"id": "typo", "type": "core:TextMerg", "inputValues": {}}]
    document, _ = case(nodes, "broken.x > typo.y", "gone.x > typo.y", name=5)
    assert await bench.problems(document) == {
        "$.name": "input should be a valid string, got an integer",
        "$.nodes[0].type": "is missing",
        "$.nodes[1].type": "there is no node type 'core:TextMerg' (did you mean core:TextMerge?)",
        "$.edges[1].source": "there is no node 'gone'",
    }, "sound parts are checked beside broken ones"

    document, _ = case([text(), MERGE, text()], *["text.text > merge.text_inputs"] * 2)
    document["edges"][1]["id"] = "e0"
    problems = await bench.problems(document)
    assert problems["$.nodes[2].id"] == "the id 'text' is taken by $.nodes[0]"
    assert problems["$.edges[1].id"] == "the id 'e0' is taken by $.edges[0]"


async def test_long_chains_and_cycles_need_no_recursion(bench: Bench) -> None:
    nodes = [{**MERGE, "id": f"n{i}"} for i in range(1100)]
    chain = [f"n{i}.merged_text > n{i + 1}.text_inputs" for i in range(1099)]
    ring = " → ".join(f"n{i}" for i in range(10))

    await check(
        bench,
        [
            case([merge("n0"), *nodes[1:]], *chain),
            case(
                nodes,
                *(*chain, "n1099.merged_text > n0.text_inputs"),
                gives={"$.edges[1099]": f"{KNOT}: {ring} → 1,090 more → n0"},
            ),
        ],
    )


# --- policies -----------------------------------------------------------------------------------------

POLICY = "$.nodes[0].policy"
ROUTED = {"policy": {"onError": "route"}}
POLICIES = [
    case([text(policy={"retry": -1, "retryDelay": "soon", "timeout": 0, "onError": "explode", "defaults": []})],
        gives={f"{POLICY}.retry": "input should be greater than or equal to 0, got an integer",
        f"{POLICY}.retryDelay": "input should be a valid number, got 'soon'",
        f"{POLICY}.timeout": "input should be greater than 0, got an integer",
        f"{POLICY}.onError": "input should be 'fail', 'skip_branch', 'default' or 'route', got 'explode'",
        f"{POLICY}.defaults": "input should be a valid dictionary, got an array"}),
    case([text(**ROUTED), node("core:ToJson", "shown")], "text.error > shown.value"),
    case([text(), node("core:ToJson", "shown")], "text.error > shown.value", gives={"$.edges[0].sourceHandle": (
        "core:Text has no output 'error'; a node has it where its policy says onError: route")}),
    case([{**loop(), **ROUTED}, text("in", "loop"), node("core:ToJson", "shown")], "loop.error > shown.value"),
    case([text(**ROUTED)],
        gives={f"{POLICY}.onError": "warning: errors go to the output 'error', and no edge takes them from there"}),
    case([text(policy={"defaults": {"text": "x"}})],
        gives={f"{POLICY}.defaults": "warning: the defaults are not used: onError is 'fail', not 'default'"}),
    case([text(policy={"retries": 3})],
        gives={f"{POLICY}.retries": "warning: a policy has no 'retries' (did you mean retry?)"}),
    case([{**node("acme-samples:Words"), "policy": {"retry": 1}}], gives={
        f"{POLICY}.retry": "warning: a node that streams is tried again only where it failed before its first item"}),
    case([text(policy={"onError": "default", "defaults": {"texd": "x", "text": ["y"]}})], gives={
        f"{POLICY}.defaults.texd": "warning: core:Text has no output 'texd' (did you mean text?)",
        f"{POLICY}.defaults.text": "warning: expected text, got an array"}),
    case([{**group("g", "sample"), "policy": {"retry": 2}}],
        gives={POLICY: "warning: a policy has no effect on a core:NodeGroup: set one on the nodes inside of the group"}
        ),
]  # fmt: skip


async def test_every_problem_of_a_policy_is_placed(bench: Bench) -> None:
    await check(bench, POLICIES)


# --- loops --------------------------------------------------------------------------------------------

ENDLESS = "the loop has no end: give it a count, a conditionSlot or maxIterations"
UNMET = "no edge from inside of the loop leads into its condition 'done'"
CONFIG = "$.nodes[0].configValues"
KEYS: list[Any] = [{"dataFlowType": "STRING"}, 5, {"key": "a__b"}, {"key": "n", "dataFlowType": [], "initial": 1}]
WRONG = {
    **{"carried": [*KEYS, {"key": "m"}, {"key": "m"}], "perIteration": {"key": "x"}, "count": -1},
    **{"maxIterations": 2_000_000, "conditionSlot": "count", "stopWhen": "yes"},
}
WORDS, SPEAK = {"type": "acme-samples:Words"}, {"type": "acme-samples:Speak", "parentNode": "loop"}
NO_STREAM = "a stream does not go into a loop; collect it outside of 'loop'"
LOOPS = [
    case([*(text("before"), loop(perIteration=[{"key": "each", "dataFlowType": "STRING"}], conditionSlot="done")),
        *(merge("in", "loop"), loop("deep", inside="loop"), merge("low", "deep"), merge("after"))],
        *("before.text > loop.in__n", "loop.in__n > in.text_inputs", "before.text > in.separator"),
        *("in.merged_text > loop.next__n", "in.merged_text > loop.each__each", "in.merged_text > deep.in__n"),
        *("before.text > low.text_inputs", "loop.in__n > low.separator", "low.merged_text > deep.next__n"),
        *("loop.out__n > after.text_inputs", "loop.stopped_by > after.separator"),
        gives={"$.nodes[1].configValues.conditionSlot": f"warning: {UNMET}"}),
    case([loop(**WRONG), text("t", "loop")], "loop.out__n > t.x", gives={
        "$.edges[0].targetHandle": "core:Text has no input 'x'",
        f"{CONFIG}.carried[0].key": "expected a name without '__', got null",
        f"{CONFIG}.carried[1]": "expected an object with a key, got an integer",
        f"{CONFIG}.carried[2].key": "expected a name without '__', got 'a__b'",
        f"{CONFIG}.carried[3].dataFlowType": "an array is no dataFlowType",
        f"{CONFIG}.carried[5].key": "the key 'm' is there twice",
        f"{CONFIG}.perIteration": "expected a list of {key, dataFlowType}, got an object",
        f"{CONFIG}.count": "expected an integer from 0 to 1,000,000, got -1",
        f"{CONFIG}.maxIterations": "expected an integer from 1 to 1,000,000, got 2000000",
        f"{CONFIG}.conditionSlot": "expected the key of a slot, without '__' and not 'count', got 'count'",
        f"{CONFIG}.stopWhen": "expected true or false, got 'yes'"}),
    case([loop(carried=[{"key": "n", "dataFlowType": "INTEGER", "initial": "one"}]), text("t", "loop")],
        gives={f"{CONFIG}.carried[0].initial": "warning: expected an integer, got text"}),
    *(case([loop(**{"count": None} | config), text("t", "loop")]) for config in ({"count": 2.0}, {"maxIterations": 5})),
    case([*(SUM, loop(count=None), text("t", "loop"), loop("until", count=None, conditionSlot="done")),
        {**node("core:Compare", "compare", a=1, b=2), "parentNode": "until"}],
        *("sum.result > loop.count", "compare.result > until.done"),
        gives={"$.edges[0]": "sum.result to loop.count: FLOAT does not go into INTEGER"}),
    case([loop(count=None), text("t", "loop"), loop("until", count=None, conditionSlot="done"), text("u", "until")],
        gives={CONFIG: ENDLESS, "$.nodes[2].configValues.conditionSlot": UNMET}),
    case([loop(count=5000)], gives={
        f"{CONFIG}.count": "warning: the loop ends after 1,000 iterations, its maxIterations, not after 5,000",
        "$.nodes[0]": "warning: there is nothing inside of the loop: no node names it as its parentNode"}),
    case([*({**WORDS, "id": "outside"}, loop(), {**SPEAK, "id": "a"}),
        *({**WORDS, "id": "inside", "parentNode": "loop"}, {**SPEAK, "id": "b"}, merge("c", "loop"))],
        *("outside.result > a.words", "outside.result > c.text_inputs", "inside.result > b.words"),
        *("inside.result > loop.next__n", "outside.result > loop.in__n"), gives={
        "$.edges[0]": f"outside.result to a.words: {NO_STREAM}",
        "$.edges[1]": f"outside.result to c.text_inputs: {NO_STREAM}"}),
    case([loop(), {"id": "in", "type": "core:GroupInput", "parentNode": "loop"}], gives={"$.nodes[1].parentNode": (
        "a core:GroupInput cannot be inside of a loop; edges from outside lead into 'loop' as well")}),
    case([loop(), {**group("g", "sample"), "parentNode": "loop"}, text("t")], "t.text > g.none",
        gives={"$.edges[0].targetHandle": "core:NodeGroup has no input 'none'"}),
    case([{**loop(), "bypassed": True}, {**MERGE, "parentNode": "loop"}]),
    case([loop(), text("frame", "loop"), merge("in", "frame"), text("t")],
        *("loop.in__n > in.text_inputs", "in.merged_text > loop.next__n"),
        gives={"$.nodes[2].parentNode": "warning: 'frame' is a core:Text, no core:LoopZone: it makes no loop"}),
    case([loop(carried=[{"key": key, "dataFlowType": "STRING", "initial": key} for key in "ab"]), merge("m", "loop")],
        *("loop.in__a > m.text_inputs", "m.merged_text > loop.next__a", "loop.in__a > loop.next__b")),
    case([loop(), merge("a", "loop"), merge("b", "loop")],
        *("a.merged_text > b.text_inputs", "b.merged_text > a.text_inputs"),
        gives={"$.edges[1]": f"{KNOT}: a → b → a"}),
    case([loop(), merge("inside", "loop"), merge("outside")],
        *("loop.out__n > outside.text_inputs", "outside.merged_text > inside.text_inputs"),
        gives={"$.edges[1]": f"{KNOT}: loop → outside → loop"}),
]  # fmt: skip
LEADS_OUT = "the edge leads out of the loop '{}'; what is inside gives values to the loop's own inputs"
ENDED = "a loop's outputs are there when it has ended, so nothing inside of it can use them"
BORDERS = {
    "inside.text > outside.text_inputs": LEADS_OUT.format("loop"),
    "inside.text > other.in__n": LEADS_OUT.format("loop"),
    "inside.text > loop.in__n": LEADS_OUT.format("loop"),
    "low.merged_text > loop.next__n": LEADS_OUT.format("deep"),
    "loop.index > outside.text_inputs": "'index' is for the nodes inside of the loop",
    "deep.in__n > inner.text_inputs": "'in__n' is for the nodes inside of the loop",
    "loop.out__n > inner.text_inputs": ENDED,
    "loop.out__n > loop.next__n": ENDED,
    "before.text > loop.next__n": "'next__n' takes edges from inside of the loop",
    "inside.text > deep.next__n": "'next__n' takes edges from inside of the loop",
}


async def test_every_problem_of_a_loop_is_placed(bench: Bench) -> None:
    await check(bench, LOOPS)


async def test_edges_that_cannot_cross_borders_are_refused(bench: Bench) -> None:
    nodes = [
        *(text("before"), merge("outside"), loop(), text("inside", "loop"), merge("inner", "loop")),
        *(loop("deep", inside="loop"), merge("low", "deep"), loop("other"), text("y", "other")),
    ]
    cases = [
        case(nodes, ends, gives={"$.edges[0]": f"{ends.replace(' >', ' to')}: {said}"})
        for ends, said in BORDERS.items()
    ]
    await check(bench, cases)


async def test_nodes_inside_of_one_another_are_refused(bench: Bench) -> None:
    nodes = [loop("a", inside="b"), loop("b", inside="a"), text("t", "b"), loop("c", inside="c")]

    problems = await bench.problems({"nodes": nodes})

    assert {path: message for path, message in problems.items() if path.endswith("parentNode")} == {
        "$.nodes[0].parentNode": "these nodes are inside of one another: a → b → a",
        "$.nodes[3].parentNode": "these nodes are inside of one another: c → c",
    }


async def test_loops_nest_fifty_deep_and_no_deeper(bench: Bench) -> None:
    for depth in (51, 1100):
        nodes = [loop(f"l{i}", inside=f"l{i - 1}" if i else None) for i in range(depth)]
        last = f"l{depth - 1}"
        too_deep = {"$.nodes[50].parentNode": "loops are nested deeper than 50"}
        whole = case([*nodes, text("t", last)], f"t.text > {last}.next__n", gives=too_deep)
        await check(bench, [whole, case([*nodes[:50], text("t", "l49")])])


# --- groups -------------------------------------------------------------------------------------------

REFERENCE = "$.nodes[0].configValues.referencedWorkflowId"
UPPER, _ = case(
    [node("core:GroupInput", "in"), {"id": "merge", "type": "core:TextMerge"}, node("core:GroupOutput", "out")],
    *("in.words > merge.text_inputs", "merge.merged_text > out.text"),
    interfaceInputs={"words": {"dataFlowType": "STRING", "required": True}},
    interfaceOutputs={"text": {"dataFlowType": "STRING"}},
)
FILES: dict[str, list[Any]] = {
    "spoilt": [{"id": "n"}, {"id": "m"}],
    **{"a": [group("g", "b")], "b": [text(), group("g", "c")], "c": [group("g", "a")]},
    **{"first": [group("g", "second")], "second": [group("g", "first")]},
    "inner": [{"id": "x", "type": "acme:Gizmo"}, {"id": "m", "type": "core:TextMerge"}],
    "outer": [text(), group("g", "inner")],
    "odd": [*UPPER["nodes"], {"id": "x", "type": "acme:Gizmo"}],
}
FIRST = "$.nodes[0].type: there is no node type 'acme:Gizmo'; and 1 more"
CIRCLE = {REFERENCE: "groups stand for one another without end: a → b → c → a"}
GROUPS = [
    case([text(), group("one", "upper"), group("two", "upper")], "text.text > one.words", "one.text > two.words"),
    case([text(), group("one", "upper"), group("two", "upper")], *("text.txt > one.word", "one.words > two.words"),
        gives={"$.edges[0].sourceHandle": "core:Text has no output 'txt' (did you mean text?)",
        "$.edges[0].targetHandle": "core:NodeGroup has no input 'word' (did you mean words?)",
        "$.edges[1].sourceHandle": "core:NodeGroup has no output 'words'",
        "$.nodes[1].inputValues.words": NEEDED.replace("text_inputs", "words")}),
    case([{**group("g", "upper"), "inputValues": {"words": ["a"]}}],
        gives={"$.nodes[0].inputValues.words": "warning: expected text, got an array"}),
    *(case([{"id": "g", "type": "core:NodeGroup", "configValues": config}], gives={REFERENCE: message})
        for config, message in (({}, "expected the id of a workflow, got nothing"),
        ({"referencedWorkflowId": ""}, "expected the id of a workflow, got empty text"),
        ({"referencedWorkflowId": ["upper"]}, "expected the id of a workflow, got an array"),
        ({"referencedWorkflowId": "uper"}, "there is no workflow 'uper' (did you mean upper?)"), (
        {"referencedWorkflowId": "spoilt"},
        "the workflow 'spoilt' cannot be read: $.nodes[0].type: is missing; and 1 more"))),
    case([group("g", "gone"), text()], "text.text > g.words", gives={REFERENCE: "there is no workflow 'gone'"}),
    case([group("g", "w")], id="w", gives={REFERENCE: "there is no workflow 'w'"}),
    case([group("g", "a")], gives=CIRCLE),
    case([group("g", "a")], id="c", gives=CIRCLE),
    case([text()], id="second"),
    case([group("g", "inner"), group("h", "outer")], gives={REFERENCE: f"the workflow 'inner' has problems: {FIRST}",
        REFERENCE.replace("0", "1"): f"the workflow 'outer' has problems: in 'inner', {FIRST}"}),
    case([{**group("g", "odd"), "bypassed": True}], gives={
        REFERENCE: "warning: the workflow 'odd' has problems: $.nodes[3].type: there is no node type 'acme:Gizmo'"}),
    case([{**group("g", "upper"), "inputValues": {"words": "x"}}, text("g/merge"), text("a/b")],
        gives={"$.nodes[1].id": "the id 'g/merge' is that of a node inside the group 'g'; choose another"}),
]  # fmt: skip


async def test_every_problem_of_a_group_is_placed(bench: Bench) -> None:
    bench.write("upper.json", UPPER)
    for name, nodes in FILES.items():
        bench.write(f"{name}.json", {**(UPPER if name == "odd" else {}), "nodes": nodes})
    await check(bench, GROUPS)


def chain_of_groups(bench: Bench, depth: int, *, width: int = 1) -> None:
    """Store `g1` … so that each stands on the next, `width` times; the last has one node."""
    for place in range(1, depth):
        bench.write(f"g{place}.json", nodes=[group(f"n{i}", f"g{place + 1}") for i in range(width)])
    bench.write(f"g{depth}.json", nodes=[text()])


async def test_groups_nest_fifty_deep_and_no_deeper(bench: Bench) -> None:
    for depth in (51, 1100):
        chain_of_groups(bench, depth)
        too_deep = {REFERENCE: f"groups are nested {depth} deep, at most 50 are allowed"}
        await check(bench, [case([group("g", f"g{depth - 49}")]), case([group("g", "g1")], gives=too_deep)])


async def test_groups_that_multiply_beyond_reason_are_refused(bench: Bench) -> None:
    chain_of_groups(bench, 10, width=10)
    much = "with its groups expanded the workflow has 2,111,111,111 nodes, at most 100,000 are allowed"

    await check(bench, [case([group("g", "g1")], gives={"$.nodes": much}), case([group("g", "g6")])])


async def test_the_closure_has_references_at_any_depth(bench: Bench) -> None:
    bench.write("a.json", nodes=[group("g", "b"), group("h", "b"), group("again", "a"), group("i", "spoilt")])
    bench.write("b.json", nodes=[text(), group("g", "sample")])
    bench.write("other.json", nodes=[text()])
    bench.write("spoilt.json", nodes=[{"id": "n"}])
    workflow = Workflow.model_validate({"nodes": [group("g", "a"), group("h", "gone")]})

    found = await bench.manager.closure(workflow)

    assert {identifier: stored.source for identifier, stored in found.items()} == {
        "a": "project",
        "b": "project",
        "sample": "plugin:acme-samples",
    }
    assert found["b"].revision == (await bench.manager.get("b")).revision
    assert found["b"].workflow.nodes[1].config_values == {"referencedWorkflowId": "sample"}
    assert await bench.manager.closure(Workflow.model_validate({"nodes": [text()]})) == {}
