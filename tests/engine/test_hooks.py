"""What a plugin may do to runs and node types by implementing the engine's hooks."""

from __future__ import annotations

import pytest
from engine_bench import Bench, OpenHost, give, output, slot, workflow

from tavern_host.contracts.errors import NotFound, Vetoed
from tavern_host.contracts.executions import RunRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_watch"]
IN, OUT = "core:GroupInput", "core:GroupOutput"


def answering(value: str) -> RunRequest:
    document = workflow({"one": give(value), "out": OUT}, "one > out.answer", interfaceOutputs={"answer": slot()})
    return RunRequest(workflow=document)


async def test_a_hook_that_refuses_or_fails_refuses_the_run(shared: Bench) -> None:
    for metadata, told in (
        ({"refuse": "not now"}, "acme-watch refused: not now"),
        ({"raise": True}, "the watch is broken"),
    ):
        with pytest.raises(Vetoed, match=told):
            await shared.engine.submit(RunRequest(workflow=workflow({}), metadata=metadata))
    assert (await shared.engine.queue()).running == []


async def test_a_hook_may_change_the_inputs_before_they_are_checked(shared: Bench) -> None:
    document = workflow({"in": IN}, interfaceInputs={"n": slot("INTEGER", required=True)})
    run = await shared.engine.run(RunRequest(workflow=document, inputs={"unknown": 1}, metadata={"inputs": {"n": 5}}))

    assert output(run, "in", "n") == 5


async def test_a_hook_may_change_the_outputs_and_nothing_else(shared: Bench) -> None:
    run = await shared.engine.run(answering("plain"))

    assert (run.outputs, run.status) == ({"answer": "changed"}, "complete")
    assert await shared.engine.get(run.id) == run


async def test_outputs_that_a_hook_gives_are_checked_again(shared: Bench) -> None:
    run = await shared.engine.run(answering("large"))
    assert (run.status, run.outputs) == ("error", {})
    assert run.error is not None and run.error.code == "output_error", run.error
    assert run.error.message == "the output 'answer'[0]: an int must have at most 64 bits"
    assert (await shared.engine.run(answering("halved"))).outputs == {"answer": "\ufffd"}


async def test_a_refusal_after_the_run_withholds_everything_that_it_gave(shared: Bench) -> None:
    seen = shared.host.events.subscribe("NODE_COMPLETE", "EXECUTION_STATUS_UPDATE")
    run = await shared.engine.run(answering("secret"))
    await seen.close()

    assert (run.status, run.outputs) == ("error", {})
    assert run.error is not None and run.error.code == "vetoed" and "that is secret" in run.error.message
    assert run.nodes["one"].status == "complete" and run.nodes["one"].output is None
    told = [event.payload.get("nodeId") async for event in seen]  # type: ignore[union-attr]
    assert "__WORKFLOW_INTERFACE_OUTPUTS__" not in told


# --- node types -----------------------------------------------------------------------------------


async def test_node_types_are_listed_by_full_type(shared: Bench) -> None:
    types = [node.full_type for node in await shared.nodes.list_nodes()]

    assert types == sorted(types)
    assert {"core:TextMerge", "acme-nodes:Add"} <= set(types)
    assert (await shared.nodes.get("acme-nodes:Add")).inputs["a"].data_flow_type == "INTEGER"
    with pytest.raises(NotFound, match=r"no node type 'core:TextMerg' \(did you mean core:TextMerge"):
        await shared.nodes.get("core:TextMerg")


async def test_a_hook_may_hide_a_node_type_and_change_how_one_looks(shared: Bench) -> None:
    with pytest.raises(NotFound):
        await shared.nodes.get("acme-nodes:Boom")
    look = await shared.nodes.get("acme-nodes:Look")
    run = await shared.run(workflow({"n": "Look"}))

    assert (look.display_name, look.type) == ("Seen", "Look")
    assert output(run, "n") == "none"


async def test_who_was_loaded_first_keeps_a_node_type_and_core_is_reserved(shared: Bench) -> None:
    assert (await shared.nodes.get("core:Text")).display_name != "Not the real one"
    assert (await shared.nodes.get("acme-nodes:Add")).display_name != "Not the real one"
    with pytest.raises(NotFound):
        await shared.nodes.get("core:Mine")

    problems = map(str, shared.host.plugin("acme-watch").problems)
    assert [problem for problem in problems if "node type" in problem] == [
        *(
            f"the node type core:{type} is not offered: the namespace 'core' is reserved for the host "
            "(choose another namespace, such as 'acme-watch')"
            for type in ("Text", "Mine")
        ),
        "the node type 'acme-nodes:Add' is not used: it is acme-nodes's already, and acme-nodes keeps it "
        "(choose another name)",
    ]
    assert shared.host.plugin("acme-nodes").problems == []


async def test_when_a_plugin_goes_its_node_types_and_filters_go_with_it(open_host: OpenHost) -> None:
    async with open_host("acme_watch", trust=False) as bench:
        await bench.host.grant("acme-nodes")
        await bench.host.grant("acme-watch")
        document = workflow({"n": "Add", "m": "Boom"})
        assert "$.nodes[1].type" in await bench.refusal(document)

        await bench.host.revoke("acme-watch")
        assert (await bench.nodes.get("acme-nodes:Boom")).type == "Boom"

        await bench.host.revoke("acme-nodes")
        assert "$.nodes[0].type" in await bench.refusal(document)
