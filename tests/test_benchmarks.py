"""The benchmarks measure what they say, and say whether a figure keeps its limit; how long things take is no test."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import harness, startup
from benchmarks.__main__ import NAMES, main
from benchmarks.harness import Report, Result
from benchmarks.thirdparty import KINDS, fill_site
from tavern_host import Host
from tavern_host.contracts.plugins import PluginState

KEYS = {"name", "value", "unit", "floor", "floor_name", "ratio", "runs"}
"""What every result has; DESIGN §8."""


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure everything one time."""
    monkeypatch.setattr(harness, "ROUNDS", 1)
    monkeypatch.setattr(harness, "TARGET", 0.0)
    monkeypatch.setattr(startup, "PHASE_RUNS", 1)


def result(ratio: float, limit: float | None) -> Result:
    return Result("a call", 2.0 * ratio, "µs", 2.0, "the direct call", ratio, runs=9, limit=limit)


@pytest.mark.parametrize(
    ("ratio", "limit", "verdict"),
    [(1.6, 1.6, "at most 1.6: holds"), (1.601, 1.6, "at most 1.6: EXCEEDED"), (9.0, None, "")],
)
def test_a_figure_says_whether_it_keeps_its_limit(ratio: float, limit: float | None, verdict: str) -> None:
    assert result(ratio, limit).verdict == verdict


def test_the_table_has_a_line_for_every_figure() -> None:
    report = Report("kernel", "3.11.7", [result(1.5, 1.6), result(2, None)])
    title, _, head, first, second = report.to_text().splitlines()
    assert title.startswith("kernel, Python 3.11.7")
    assert " ".join(head.split()) == "figure value floor ratio to limit"
    assert " ".join(first.split()) == "a call 3.000 µs 2.000 µs 1.500 the direct call at most 1.6: holds"
    assert " ".join(second.split()) == "a call 4.000 µs 2.000 µs 2.000 the direct call"


def test_a_part_that_there_is_not_is_named_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["kernel", "--only", "viwe"])
    assert "kernel has no part 'viwe'; it has view, dispatch, version, ready" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_says_what_its_parts_are(name: str) -> None:
    assert import_module(f"benchmarks.{name}").FIGURES


@pytest.mark.parametrize("part", ["view", "dispatch", "version"])
def test_a_part_alone_is_reported_as_json(part: str, once: None, capsys: pytest.CaptureFixture[str]) -> None:
    main(["kernel", "--only", part, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["benchmark"] == "kernel"
    assert report["results"]
    for figure in report["results"]:
        assert figure.keys() >= KEYS
        assert figure["ratio"] > 0
        assert figure["limit"] > 0


def test_the_start_of_a_host_is_measured_with_all_its_plugins(once: None, capsys: pytest.CaptureFixture[str]) -> None:
    main(["kernel", "--only", "ready", "--json"])
    whole, *parts = json.loads(capsys.readouterr().out)["results"]
    assert (whole["name"], whole["limit"]) == ("ready, 20 plugins of 200 distributions", 2.0)
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
            assert plugin.contributions["node"]
            assert plugin.config_options
    assert len(list(site.glob("*.dist-info/METADATA"))) == 12
