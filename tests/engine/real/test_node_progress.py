"""What clients hear of the progress of nodes, wherever their code runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from apart_bench import apart
from engine_bench import Bench, plugin_folders, state, workflow
from helpers.repetition import Failures

from tavern_engine.cli.progress_view import ProgressView
from tavern_host import Host
from tavern_host.contracts.events import Event
from tavern_host.testing.fixtures import Placement

SHARED_PLUGINS = ["acme_flow", "acme_apart"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

KINDS = ("Tell", "TellInThread", "TellApart", "TellInStream")
MESSAGES = ("NODE_EXECUTING", "NODE_PROGRESS", "NODE_COMPLETE")


@pytest.mark.parametrize("place", ["in-process", "loopback"])
async def test_a_nodes_progress_is_told_while_it_runs(place: Placement, tmp_path: Path) -> None:
    document = workflow({kind: apart(kind, file=tmp_path / "go") for kind in KINDS})
    plugins, trust = plugin_folders("acme_nodes", "acme_apart"), ["acme-nodes", "acme-apart"]
    async with Host(tmp_path / "project", plugins=plugins, trust=trust, placement=place) as host:
        bench = Bench(host)
        watching = host.events.subscribe(*MESSAGES)
        run_id = await bench.start(document)
        view = ProgressView(await bench.engine.get(run_id), lambda node_id: node_id)
        for kind in KINDS:
            await bench.until("NODE_PROGRESS", nodeId=kind, value=2, max=4, message="second")
        (tmp_path / "go").touch()
        run = await bench.engine.wait(run_id)
        await watching.close()
        events = [event async for event in watching if isinstance(event, Event)]

    assert run.status == "complete", run.error
    with Failures() as failures:
        for kind in KINDS:
            own = [event for event in events if event.payload.get("nodeId") == kind]
            shown = []
            for event in own:
                view.see(event.type, event.payload)
                if event.type == "NODE_PROGRESS":
                    shown.append(next(row[3] for row in view.picture().rows if row[1] == kind))
            with failures.row(kind):
                types = [event.type for event in own]
                assert types[0] == "NODE_EXECUTING"
                assert types[-1] == "NODE_COMPLETE"
                assert shown[-1] == "2/4 second"


async def test_very_much_progress_becomes_few_messages(shared: Bench) -> None:
    times = 20_000
    run = await shared.run(workflow({"n": {"type": "acme-flow:Chatter", "inputValues": {"times": times}}}))

    told = await shared.events(run, "NODE_PROGRESS")

    shown = state(run, "n")
    assert shown.started is not None and shown.finished is not None
    assert 1 <= len(told) <= 2 + 20 * (shown.finished - shown.started)
    values = [event.payload["value"] for event in told]
    assert values == sorted(values)


async def test_progress_that_is_no_number_is_refused(shared: Bench) -> None:
    with Failures() as failures:
        for what, shown in [("half", "'half'"), (True, "True"), ([1], "[1]")]:
            node = {"type": "acme-flow:Misreport", "inputValues": {"what": what}}
            run = await shared.run(workflow({"n": node}))
            with failures.row(shown):
                error = state(run, "n").error
                assert f"the progress of a node must be finite numbers, not {shown}" in error.message


async def test_an_isolated_node_has_no_plugin_context(shared: Bench) -> None:
    run = await shared.run(workflow({"n": "acme-apart:UsePluginApart"}))
    error = state(run, "n").error
    assert "an isolated node runs in a process of its own and has no plugin context, so no settings" in error.message
