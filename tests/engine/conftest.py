"""A host with the test plugins; its nodes run in its process, and with `cluster` also on a Dask cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from engine_bench import PLUGINS, Bench, OpenHost
from helpers.dask_cluster import shared_cluster

from tavern_host import Host
from tavern_host.testing.http import HttpClient, served

HERE_ALONE = {
    "test_streams": "streams stay at the host",
    "test_stream_graphs": "streams stay at the host",
    "test_isolated_runs": "the limits are those of the host's processes",
    "test_a_run_is_told_from_its_beginning_to_its_outputs": "a node at a cluster is shown as running in between",
    "test_a_failure_is_told_with_its_node_and_with_the_run": "a node at a cluster is shown as running in between",
    "test_others_get_turns_between_reused_nodes": "it counts turns of the event loop",
    "test_quick_iterations_leave_the_event_loop_to_others": "it counts turns of the event loop",
    "test_an_interrupt_reaches_every_awaiting_node": "the first node would still be on its way",
    "test_a_node_that_ignores_its_limit_is_left_behind": "the worker says so, not the host",
    "test_a_node_that_ignores_an_interrupt_is_left_behind": "it would keep a worker of the tests that follow",
    "test_a_node_may_clean_up_before_its_run_ends": "it would still be on its way",
    "test_quick_iterations_are_kept_together": "none is quick that goes to a worker and back",
    "test_a_loop_cut_off_anywhere_gives_the_same": "hundreds of runs, with thousands of round trips",
}
"""Tests, and files of tests, whose nodes run at the host alone, with the reason."""
BY_DEFAULT = {"test_runs", "test_policies", "test_branches"}
"""Files whose tests run on a cluster without `--extended`: about a tenth of all."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that has a host on a cluster too."""
    if "placement" not in metafunc.fixturenames:
        return
    file = metafunc.module.__name__
    far = pytest.param("cluster", marks=[] if file in BY_DEFAULT else [pytest.mark.extended])
    is_here = not HERE_ALONE.keys().isdisjoint({file, metafunc.function.__name__})
    metafunc.parametrize("placement", ["here"] if is_here else ["here", far], scope="module", indirect=True)


@pytest.fixture(scope="module")
def placement(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the settings with which nodes run at the host, or on a cluster."""
    return shared_cluster().settings if request.param == "cluster" else {}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where nodes take notes."""
    return tmp_path / "notes"


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """Return where nodes count how often they were called."""
    return tmp_path / "calls"


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """Return the file for which nodes wait."""
    return tmp_path / "go"


@pytest.fixture
def open_host(tmp_path: Path, placement: dict[str, Any]) -> OpenHost:
    """Return a function that opens a host with test plugins, all of them trusted unless told otherwise."""

    @asynccontextmanager
    async def opened(*plugins: str, settings: dict[str, Any] | None = None, trust: bool = True) -> AsyncIterator[Bench]:
        names = ["acme_nodes", *plugins]
        host = Host(
            tmp_path / "project",
            plugins=[PLUGINS / name for name in names],
            trust=[name.replace("_", "-") for name in names] if trust else [],
            settings=placement | (settings or {}),
        )
        async with host:
            yield Bench(host)

    return opened


@pytest.fixture
async def bench(open_host: OpenHost) -> AsyncIterator[Bench]:
    async with open_host() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, placement: dict[str, Any]
) -> AsyncIterator[Host]:
    names = ["acme_nodes", *getattr(request.module, "SHARED_PLUGINS", [])]
    plugins, trust = [PLUGINS / name for name in names], [name.replace("_", "-") for name in names]
    folder, settings = tmp_path_factory.mktemp("project"), getattr(request.module, "SHARED_SETTINGS", {})
    async with Host(folder, plugins=plugins, trust=trust, settings=placement | settings) as host:
        yield host


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(module_host: Host) -> AsyncIterator[HttpClient]:
    """Serve the host of a module."""
    async with served(module_host) as opened:
        yield opened


@pytest.fixture
def shared(module_host: Host) -> Bench:
    """Return the bench of a module, with an empty cache of outputs; for tests that leave nothing else behind.

    The module says `pytestmark = pytest.mark.asyncio(loop_scope="module")`, `SHARED_PLUGINS` beside acme_nodes, and
    `SHARED_SETTINGS`.
    """
    bench = Bench(module_host)
    bench.forget()
    return bench
