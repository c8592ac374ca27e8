"""A host with the test plugins. Its nodes run in its process; in files `…_on_a_cluster.py`, and with `--cluster`, on a
Dask cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cache_bench import Place
from engine_bench import Bench, OpenHost, plugin_folders
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
    "held_clock": "the time of workers is not held",
}
"""Tests, files of tests, and fixtures of tests, whose nodes run at the host alone, with the reason."""


def _is_on_a_cluster(module: str, config: pytest.Config) -> bool:
    return module.endswith("_on_a_cluster") or bool(config.getoption("cluster"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out of those that run on a cluster what belongs at the host alone."""
    here = [
        item
        for item in items
        if isinstance(item, pytest.Function)
        and Path(__file__).parent in item.path.parents
        and _is_on_a_cluster(item.module.__name__, config)
        and not HERE_ALONE.keys().isdisjoint({item.module.__name__, item.originalname, *item.fixturenames})
    ]
    config.hook.pytest_deselected(items=here)
    items[:] = [item for item in items if item not in here]


@pytest.fixture(scope="module")
def placement(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the settings with which nodes run at the host, or on a cluster."""
    return shared_cluster().settings if _is_on_a_cluster(request.module.__name__, request.config) else {}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return where a plugin whose nodes say when they run, and a project, are."""
    return Place(tmp_path)


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
            plugins=plugin_folders(*names),
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
    plugins, trust = plugin_folders(*names), [name.replace("_", "-") for name in names]
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
