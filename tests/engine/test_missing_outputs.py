"""An output of a workflow that got no value is named in the result of its run."""

from __future__ import annotations

from typing import Any

from engine_bench import Bench, OpenHost, give, slot, workflow

from tavern_host.contracts.executions import RunRequest, RunStatus

GIVES = {"fed": slot(), "unfed": slot(), "by default": slot(config={"default": "plain"})}


def document(**nodes: Any) -> Any:
    return workflow({**nodes, "out": "core:GroupOutput"}, "one > out.fed", interfaceOutputs=GIVES)


async def test_a_run_names_the_outputs_without_a_value(open_host: OpenHost) -> None:
    async with open_host() as bench:
        run = await bench.run(document(one=give(1)))
        assert (run.status, run.missing_outputs) == (RunStatus.COMPLETE, ["unfed"])
        ended = (await bench.events(run, "EXECUTION_STATUS_UPDATE"))[-1]
        assert ended.payload["missingOutputs"] == ["unfed"]
    async with open_host() as bench:
        assert (await bench.engine.get(run.id)).missing_outputs == ["unfed"], "it is recorded"


async def test_a_run_of_some_nodes_or_that_failed_does_not_name_the_rest(bench: Bench) -> None:
    some = await bench.engine.run(RunRequest(workflow=document(one=give(1)), targets=["one"]))
    failed = await bench.run(document(one="Boom"))
    assert [(run.status.value, run.missing_outputs) for run in (some, failed)] == [("complete", []), ("error", [])]


async def test_an_output_that_is_streamed_is_not_missing(bench: Bench) -> None:
    nodes = {"words": {"type": "core:TextToStream", "inputValues": {"text": "a b"}}, "out": "core:GroupOutput"}
    run = await bench.run(workflow(nodes, "words.stream > out.text", interfaceOutputs={"text": slot("STRING")}))
    assert (run.outputs, run.missing_outputs) == ({"text": "a b"}, [])
