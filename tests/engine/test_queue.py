"""How many runs go on at a time, who comes next, and what is remembered of those that are over."""

from __future__ import annotations

from typing import Any

from engine_bench import Bench, OpenHost, give, output, workflow

from tavern_host.contracts.workflows import Workflow

LIMIT = "extensions.tavern-engine.maxConcurrentRuns"


async def test_a_deadline_holds_for_a_waiting_run_too(open_host: OpenHost) -> None:
    async with open_host(settings={LIMIT: 1}) as bench:
        await bench.start(workflow({"n": "Hang"}))

        run = await bench.run(workflow({"m": "Hang"}), call=bench.host.call().child(timeout=0.1))

        assert run.error is not None and run.error.code == "deadline_exceeded"
        assert (await bench.engine.queue()).pending == []


async def test_queue_updates_tell_what_runs_and_what_waits(open_host: OpenHost) -> None:
    def promised(found: list[dict[str, Any]]) -> list[str]:
        return [item["promptId"] for item in found]

    async with open_host(settings={LIMIT: 1}) as bench:
        updates = bench.host.events.subscribe("SYSTEM_QUEUE_UPDATE")
        first = await bench.start(workflow({"n": "Hang"}))
        second = await bench.start(workflow({"m": "Hang"}))
        await bench.until("NODE_EXECUTING", nodeId="n")

        states = []
        async for event in updates:
            payload: Any = event.payload  # type: ignore[union-attr]
            states.append((promised(payload["runningExecutions"]), promised(payload["pendingExecutions"])))
            if states[-1] == ([first], [second]):
                break


async def test_runs_that_memory_has_no_room_for_are_found_in_the_store(bench: Bench) -> None:
    document = workflow({"one": give(1)}, name="short")
    first = await bench.run(document)
    for _ in range(501):
        await bench.run(Workflow())

    found = await bench.engine.get(first.id)

    assert (found.status, found.workflow_name) == ("complete", "short")
    assert output(found, "one") == 1
