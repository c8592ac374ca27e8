"""The benchmarks measure what they say, and say whether a figure keeps its limit; how long things take is no test."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks import engine, enginepeers, harness, isolatedhosts, isolation, startup, trust
from benchmarks.__main__ import NAMES, main
from benchmarks.enginefloors import queued_generators
from benchmarks.enginegraphs import chain, fan, layers, stream
from benchmarks.enginesubject import BusListener, QueueListener, Subject
from benchmarks.harness import Report, Result
from benchmarks.pages import PAGE, write_figures
from benchmarks.thirdparty import KINDS, fill_site
from tavern_host import Host
from tavern_host.contracts.plugins import PluginState

KEYS = {"name", "value", "unit", "floor", "floor_name", "ratio", "runs"}
"""What every result has."""


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure everything one time."""
    monkeypatch.setattr(harness, "ROUNDS", 1)
    monkeypatch.setattr(harness, "TARGET", 0.0)
    monkeypatch.setattr(startup, "PHASE_RUNS", 1)


@pytest.fixture
def small(once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the engine with graphs of a few nodes."""
    few = engine.Sizes(chain=12, fan=9, depth=4, width=5, deep=6, pauses=3, items=40, long=6, broad=5)
    monkeypatch.setattr(engine, "SIZES", few)
    monkeypatch.setattr(enginepeers, "SIZES", {"chain": 12, "fan": 9, "depth": 4, "width": 5})


def result(ratio: float, limit: float | None, **more: object) -> Result:
    return dataclasses.replace(
        Result("a call", 2.0 * ratio, "µs", 2.0, "the direct call", ratio, runs=9, limit=limit), **more
    )


def test_benchmarks_start_outside_of_pytest() -> None:
    modules = ", ".join(f"benchmarks.{name}" for name in NAMES)
    subprocess.run([sys.executable, "-c", f"import {modules}"], cwd=Path(__file__).parents[2], check=True)


def test_a_figure_says_whether_it_keeps_limit_and_aim() -> None:
    for ratio, limit, aim, verdict in (
        (1.6, 1.6, None, "at most 1.6: holds"),
        (1.601, 1.6, None, "at most 1.6: EXCEEDED"),
        (9.0, None, None, ""),
        (0.3, 0.6, 0.4, "at most 0.6: holds, aim 0.4: reached"),
        (0.5, 0.6, 0.4, "at most 0.6: holds, aim 0.4: not reached"),
        (0.7, 0.6, 0.4, "at most 0.6: EXCEEDED, aim 0.4: not reached"),
    ):
        assert result(ratio, limit, aim=aim).verdict == verdict
    of_the_value = result(9.0, 20, value=18.0, unit="ms", limited="value")
    assert of_the_value.verdict == "at most 20 ms: holds"


def test_the_table_has_a_line_for_every_figure() -> None:
    report = Report("kernel", "3.11.7", [result(1.5, 1.6), result(2, None)])
    title, _, head, first, second = report.to_text().splitlines()
    assert title.startswith("kernel, Python 3.11.7")
    assert " ".join(head.split()) == "figure value floor ratio to limit"
    assert " ".join(first.split()) == "a call 3.000 µs 2.000 µs 1.500 the direct call at most 1.6: holds"
    assert " ".join(second.split()) == "a call 4.000 µs 2.000 µs 2.000 the direct call"


def test_what_cannot_be_measured_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, why in (
        (["kernel", "--only", "viwe"], "kernel has no part 'viwe'; it has view, dispatch, version, ready"),
        (["kernel", "--peers"], "kernel has no peers"),
        (["engine", "--docs", "--only", "W1"], "--docs writes the whole table; leave --only out"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert why in capsys.readouterr().err
    assert [name for name in NAMES if not import_module(f"benchmarks.{name}").FIGURES] == []


def figures(capsys: pytest.CaptureFixture[str], benchmark: str, part: str) -> list[dict[str, Any]]:
    """Measure one part; return its figures."""
    main([benchmark, "--only", part, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["benchmark"] == benchmark
    found: list[dict[str, Any]] = report["results"]
    assert found
    for figure in found:
        assert figure.keys() >= KEYS
        assert (figure["value"] > 0, figure["floor"] > 0) == (True, True)
    return found


@pytest.mark.parametrize("part", ["view", "dispatch", "version"])
def test_a_part_of_the_kernel_gives_figures(part: str, once: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert all(figure["limit"] > 0 and figure["ratio"] > 0 for figure in figures(capsys, "kernel", part))


def test_the_start_of_a_host_is_measured_with_all_its_plugins(
    once: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(startup, "DISTRIBUTIONS", 12)
    monkeypatch.setattr(startup, "PLUGINS", len(KINDS))
    whole, *parts = figures(capsys, "kernel", "ready")
    assert (whole["name"], whole["limit"]) == (f"ready, {len(KINDS)} plugins of 12 distributions", 2.0)
    assert parts[0]["floor"] == pytest.approx(sum(part["value"] for part in parts), abs=0.01)
    assert sum(part["ratio"] for part in parts) == pytest.approx(1, abs=0.01)


async def test_the_distributions_of_the_benchmark_are_found_and_their_plugins_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    names = fill_site(site, distributions=12, plugins=len(KINDS))
    monkeypatch.syspath_prepend(site)
    async with Host(tmp_path / "project", trust=names) as host:
        found = {plugin.name: plugin for plugin in host.plugins() if not plugin.first_party}
        assert found.keys() == set(names)
        for plugin in found.values():
            assert (plugin.state, plugin.problems) == (PluginState.STARTED, [])
            assert plugin.contributions["hook"]
            assert host.plugin(plugin.name).contributions["node"]
            assert plugin.config_options
    assert len(list(site.glob("*.dist-info/METADATA"))) == 12


@pytest.mark.parametrize("part", list(engine.FIGURES))
def test_a_part_of_the_engine_gives_right_results_and_figures(
    part: str, small: None, capsys: pytest.CaptureFixture[str]
) -> None:
    figures(capsys, "engine", part)


@pytest.mark.parametrize("part", list(trust.FIGURES))
def test_a_part_of_the_promises_gives_figures(
    part: str, once: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = trust.Sizes(runs=3, characters=600, nodes=30, items=200, tools=3, parses=2, output_characters=200, values=2)
    monkeypatch.setattr(trust, "SIZES", few)
    assert all(figure["limit"] > 0 for figure in figures(capsys, "trust", part))


@pytest.mark.parametrize("part", list(isolation.FIGURES))
def test_a_part_of_isolation_gives_figures(
    part: str, once: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(isolation, "BYTES", 1_000_000)
    monkeypatch.setattr(isolation, "IDLE", (0.1, 0.5))
    monkeypatch.setattr(isolatedhosts, "PLUGINS", 2)
    main(["isolation", "--only", part, "--json"])
    found = json.loads(capsys.readouterr().out)["results"]
    assert found
    assert all(figure["limit"] and figure["floor"] > 0 for figure in found)


async def test_a_run_that_gives_something_else_than_its_graph_is_not_measured() -> None:
    graph = chain(5)
    ran = await Subject(graph.workflow()).run()
    engine.check(ran, graph)
    with pytest.raises(AssertionError, match=r"chain: n4 gave \{'result': 4\}, expected \{'result': 5\}"):
        engine.check(ran, dataclasses.replace(graph, results={4: {"result": 5}}))


async def test_a_second_run_takes_from_the_cache_what_it_need_not_run_and_a_forgotten_one_runs_all() -> None:
    graph = layers(5, 4)
    subject = Subject(graph.workflow())
    first, again = await subject.run(), await subject.run()
    changed = {0: {"value": 1000}}
    other = await subject.run({"n0": graph.node(0, changed[0])})
    engine.check(other, graph, changed)
    subject.forget()
    whole = await subject.run()
    assert [first.executed, again.executed, other.executed, whole.executed] == [20, 0, len(graph.descendants(0)), 20]


@pytest.mark.parametrize("listener", [QueueListener, BusListener])
async def test_a_consumer_gets_all_messages_of_a_run(listener: type[QueueListener | BusListener]) -> None:
    graph = fan(300)
    ran = await Subject(graph.workflow(), listener=listener()).run()
    assert ran.messages > len(graph)
    assert ran.lost == 0


async def test_the_floor_of_streams_adds_up_what_the_nodes_do() -> None:
    assert {2: {"result": await queued_generators(100)}} == stream(100).results


def test_peers_that_are_not_installed_are_named_and_the_others_are_measured(
    small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peers = (*enginepeers.PEERS, enginepeers.Peer("a-peer-that-is-not-there", enginepeers.PEERS[0].build))
    monkeypatch.setattr(enginepeers, "PEERS", peers)
    main(["engine", "--peers", "--only", "W3", "--json"])
    captured = capsys.readouterr()
    installed, missing = enginepeers.installed()
    names = [figure["name"] for figure in json.loads(captured.out)["results"]]
    assert set(names) >= {f"W3 layers: {peer.label}" for peer in installed}
    assert "a-peer-that-is-not-there" in missing
    for name in missing:
        assert f"{name} is not installed; pip install -e '.[bench]'" in captured.err


def test_a_table_is_written_into_its_place_on_the_page_and_nowhere_else(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("before\n<!-- figures: engine -->\noutdated\n<!-- end of figures -->\nafter\n", encoding="utf-8")
    write_figures(Report("engine", "3.11.7", [result(0.5, 0.6, aim=0.4)]), page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n<!-- figures: engine -->\n")
    assert text.endswith("<!-- end of figures -->\nafter\n")
    assert "outdated" not in text
    assert (
        "| a call | 1.000 µs | 2.000 µs | 0.500 | the direct call | at most 0.6: holds, aim 0.4: not reached |" in text
    )
    with pytest.raises(ValueError, match="has no place for the figures of faults"):
        write_figures(Report("faults", "3.11.7", []), page)


def test_the_page_about_performance_has_places_for_figures(tmp_path: Path) -> None:
    copy = tmp_path / PAGE.name
    for name in ("engine", "faults", "trust"):
        copy.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
        write_figures(Report(name, "3.11.7", [result(0.5, 0.6)]), copy)
        assert "| a call | 1.000 µs |" in copy.read_text(encoding="utf-8")
