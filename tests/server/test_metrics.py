"""`/metrics`: what a host and its plugins count, as Prometheus reads it."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from helpers.folder_plugins import write_plugin
from helpers.waiting import let_pass, until

from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.metrics import MAX_LABELLED, Figure, Tally
from tavern_host.contracts.workflows import Workflow
from tavern_host.testing.http import HttpClient, served
from tavern_operations.api.metrics import METRICS, FigureHistory
from tavern_operations.metrics.history import KEPT, Recorder
from tavern_operations.metrics.web import exposition

LINE = re.compile(r'([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+\})? (NaN|[+-]?Inf|-?[0-9.e+-]+)')
ACME = """
from tavern_host import hookimpl
from tavern_host.contracts.metrics import Figure


@hookimpl
def tavern_collect_figures():
    odd = {"room": 'the "blue"\\\\one\\nforged 1'}
    return [Figure(name="guests", kind="gauge", value=3, help="Guests\\n# forged", labels=odd)]


@hookimpl
def tavern_before_tool_call(request):
    return None
"""
WORKFLOW = Workflow.model_validate(
    {
        "nodes": [
            {"id": "a", "type": "core:Wait", "inputValues": {"value": "x", "seconds": 0}},
            {"id": "b", "type": "core:ToNumber", "inputValues": {"value": "x"}},
        ],
        "edges": [],
    }
)


async def scraped(site: HttpClient) -> dict[str, float]:
    """Return the figures by name and labels, each line of which must be one that Prometheus takes."""
    answer = await site.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[str, float] = {}
    for line in (await answer.text()).splitlines():
        if not line.startswith("# "):
            match = LINE.fullmatch(line)
            assert match is not None, line
            name = f"{match[1]}{match[2] or ''}"
            assert name not in found, name
            found[name] = float(match[3])
    return found


async def test_figures_of_hooks_runs_tools_and_plugins(tmp_path: Path) -> None:
    hooks = ["hook:server:metrics:collect", "hook:server:tool:before-call"]
    write_plugin(tmp_path / "acme", {"__init__.py": ACME}, permissions={"hooks": hooks})
    host = Host(tmp_path / "inn", plugins=[tmp_path / "acme"], trust=["acme"])
    async with host, served(host) as site:
        assert (await site.get("/metrics", headers={"Authorization": None})).status == 401
        for _ in range(2):
            body = {"toolId": "system:get_current_time", "arguments": {}}
            called = await site.post("/api/tools/execute", json=body)
            assert called.status == 200, await called.text()
        await site.post("/api/tools/execute", json={"toolId": "no:such", "arguments": {}})
        run = await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow=WORKFLOW))
        assert run.status == "error", run.error
        found = await scraped(site)
        listed = [Figure.model_validate(one) for one in await (await site.get("/api/figures")).json()]
        assert {one.name for one in await host.services.get(METRICS).figures()} == {one.name for one in listed}

    assert found['tavern_tool_calls_total{status="done",tool="system:get_current_time"}'] == 2
    assert found['tavern_tool_calls_seconds_total{status="done",tool="system:get_current_time"}'] > 0
    assert found['tavern_tool_calls_total{status="denied",tool="unknown"}'] == 1
    assert found['tavern_hooks_total{hook="tavern_before_tool_call",plugin="acme"}'] == 2
    assert found['tavern_hooks_seconds_total{hook="tavern_before_tool_call",plugin="acme"}'] > 0
    assert found['tavern_runs_total{status="error"}'] == 1
    assert found['tavern_nodes_total{plugin="tavern-nodes",status="done",type="core:Wait"}'] == 1
    assert found['tavern_nodes_total{plugin="tavern-nodes",status="failed",type="core:ToNumber"}'] == 1
    assert found['tavern_active_runs{status="running"}'] == 0
    assert found["tavern_audit_log_writable"] == 1
    assert found["tavern_event_loop_lag_seconds"] >= 0
    assert found['tavern_plugins{state="started"}'] > 5
    assert found["process_open_fds"] > 3
    further = {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_threads", "tavern_sockets"}
    assert further | {"tavern_tasks", "tavern_journal_lag_seconds"} <= found.keys()
    assert found['tavern_x_acme_guests{room="the \\"blue\\"\\\\one\\nforged 1"}'] == 3


async def test_nodes_of_large_runs_are_counted_as_one_kind(tmp_path: Path) -> None:
    nodes = [{"id": str(n), "type": "core:UpperCase", "inputValues": {"text": str(n)}} for n in range(1_001)]
    large = Workflow.model_validate({"nodes": nodes, "edges": []})
    async with Host(tmp_path / "inn", third_party=False) as host:
        await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow=large))
        figures = await host.services.get(METRICS).figures()
    counted = {one.labels["type"]: one.value for one in figures if one.name == "tavern_nodes_total"}
    assert counted == {"*": 1_001}


def test_a_tally_has_a_bounded_number_of_labels() -> None:
    tally = Tally("calls", "Calls.", "who")
    for number in range(MAX_LABELLED + 50):
        tally.add(str(number), seconds=0.5)
    figures = {figure.labels["who"]: figure.value for figure in tally.figures() if figure.name == "calls_total"}
    assert (len(figures), figures["other"], figures["0"]) == (MAX_LABELLED + 1, 50, 1)
    assert sum(figure.value for figure in tally.figures() if figure.name == "calls_seconds_total") == 525


def test_numbers_are_written_as_prometheus_reads_them() -> None:
    for value, text in ((3.0, "3"), (0.25, "0.25"), (1e300, None), (float("inf"), "+Inf"), (float("nan"), "NaN")):
        line = exposition([Figure(name="a", value=value)]).splitlines()[2]
        assert LINE.fullmatch(line), line
        assert text is None or line == f"a {text}"


async def test_top_shows_what_runs_and_what_plugins_cost(tmp_path: Path) -> None:
    slow = WORKFLOW.model_copy(deep=True)
    slow.nodes[0].input_values["seconds"] = 600
    async with Host(tmp_path / "inn", serving=True, third_party=False) as host, served(host) as site:
        top = host.registrations.commands["top"].call
        socket = await site.socket()
        engine = host.services.get(EXECUTION_ENGINE)
        run_id = await engine.submit(RunRequest(workflow=slow))

        async def is_running() -> bool:
            return (await engine.get(run_id)).status == "running"

        await until(is_running, "the run has begun")

        text, plugins, runs, result = [output async for output in top({"every": 2, "once": True})]
        assert text.text.startswith("inn: 1 running, 0 waiting · ") and " · sockets 1 · " in text.text
        assert "tavern-engine" in [row[0] for row in plugins.rows]
        assert [row[:3] for row in runs.rows] == [[run_id, "", "running"]]
        assert result.data["figures"]["sockets"] == 1
        assert result.data["figures"]["journal_lag_seconds"] >= 0
        assert result.data["plugins"]["tavern-engine"]["hooks_total"] > 0
        await socket.close()
        await engine.interrupt(run_id)

        left = top({"every": 600, "once": False})
        for _ in range(3):
            await anext(left)
        reading = asyncio.create_task(anext(left))
        await until(lambda: "tavern-operations.none" in host.owned("tavern-operations")["subscription"], "it waits")
        reading.cancel()  # the terminal is gone
        await asyncio.wait([reading])
        assert "tavern-operations.none" not in host.owned("tavern-operations")["subscription"]

        live = top({"every": 0.5, "once": False})
        kinds = [(await anext(live)).kind for _ in range(4)]
        assert kinds == ["live", "progress", "result", "live"]
        await host.events.close()
        assert [output.kind async for output in live] == ["progress", "result"]  # the server stops
        with pytest.raises(InvalidInput, match="0.5 to 3600 seconds"):
            await anext(top({"every": 0, "once": True}))
    async with Host(tmp_path / "inn", third_party=False) as host:
        failure = await anext(host.registrations.commands["top"].call({"every": 2, "once": True}))
        assert failure.kind == "failure"
        assert "no server runs" in failure.text


async def test_figures_of_the_last_day_are_kept_by_the_minute(tmp_path: Path) -> None:
    async with Host(tmp_path / "inn", serving=True) as host, served(host) as site:
        await let_pass(5 * 60)
        hour = FigureHistory.model_validate(await (await site.get("/api/figures/history")).json())
        minutes = FigureHistory.model_validate(await (await site.get("/api/figures/history?seconds=150")).json())
        for seconds in (0, 86_401):
            assert (await site.get(f"/api/figures/history?seconds={seconds}")).status == 400
            with pytest.raises(InvalidInput):
                await host.services.get(METRICS).history(seconds)
    assert 5 <= len(hour.times) <= 7
    assert [(b - a).total_seconds() for a, b in pairwise(hour.times)] == [pytest.approx(60, abs=2)] * (
        len(hour.times) - 1
    )
    memory = next(one for one in hour.series if one.name == "process_resident_memory_bytes")
    assert all(value is not None and value > 1_000_000 for value in memory.values)
    hooks = [one for one in hour.series if one.name == "tavern_hooks_total"]
    assert all(set(one.labels) == {"plugin"} for one in hooks)
    assert len({one.labels["plugin"] for one in hooks}) == len(hooks) > 5
    assert len(minutes.times) in (2, 3)


def test_of_many_figures_as_many_are_given_as_are_asked_for_and_gaps_are_none() -> None:
    recorder, start = Recorder(), datetime(2030, 1, 1, tzinfo=UTC)
    for minute in range(KEPT + 10):
        gauges = [Figure(name="tavern_sockets", kind="gauge", value=minute)] if minute != KEPT + 8 else []
        recorder.add(start + timedelta(minutes=minute), gauges)
    assert not recorder.is_due(start + timedelta(minutes=KEPT + 9, seconds=30))
    found = recorder.since(start, 100)
    assert len(found.times) == len(found.series[0].values) <= 100
    assert (found.times[-1], found.series[0].values[-1]) == (start + timedelta(minutes=KEPT + 9), KEPT + 9)
    assert recorder.since(start + timedelta(minutes=KEPT + 7), 100).series[0].values == [KEPT + 7, None, KEPT + 9]
    assert found.times[0] >= start + timedelta(minutes=10)
