"""An isolated plugin is changed, moved and taken away while runs go on: what it began ends, and no run fails for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.plugin_files import write, write_whole
from helpers.survival import Child, say
from helpers.waiting import until

from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.workflows import Workflow
from tests.isolation.environment_bench import project
from tests.isolation.real.test_built_environments import add, links  # noqa: F401  # a fixture

CODE = """
import asyncio
from beta import version
from tavern_host import NodeContext, node

@node()
async def tell(seconds: float, context: NodeContext) -> str:
    await asyncio.sleep(seconds)
    return f"code CODE, beta {version}"
"""


def plugin(tmp_path: Path, code: str, beta: str) -> None:
    root = write_whole(
        tmp_path / "project" / "plugins" / "acme",
        "acme",
        {"__init__.py": "", "nodes.py": CODE.replace("CODE", code)},
        nodes={"entry": "nodes.py"},
        runtime={"placement": "process"},
    )
    write(root / "pyproject.toml", project(f"beta=={beta}", name="acme"))


def without_packages(tmp_path: Path) -> None:
    """Write the plugin so that it needs nothing but its own files."""
    code = CODE.replace("CODE", "one").replace("from beta", "from .beta")
    files = {"__init__.py": "", "nodes.py": code, "beta.py": "version = '1.0'\n"}
    root = tmp_path / "project" / "plugins" / "acme"
    write_whole(root, "acme", files, nodes={"entry": "nodes.py"}, runtime={"placement": "process"})


def asked(seconds: float) -> RunRequest:
    nodes = [{"id": "n", "type": "acme:Tell", "inputValues": {"seconds": seconds}}]
    return RunRequest(workflow=Workflow.model_validate({"name": "w", "nodes": nodes, "edges": []}))


async def said(host: Host, seconds: float = 0) -> Any:
    """What the node of a run said."""
    run = await host.services.get(EXECUTION_ENGINE).run(asked(seconds))
    return run.nodes["n"].output["result"] if run.status is RunStatus.COMPLETE else run.error


@asynccontextmanager
async def runs_all_the_time(host: Host) -> AsyncIterator[list[Run]]:
    """Make runs, three at once, until the block ends; those that have ended by then."""
    ended: list[Run] = []
    is_over = False

    async def run_on() -> None:
        while not is_over:
            ended.append(await host.services.get(EXECUTION_ENGINE).run(asked(0.02)))

    running = [asyncio.create_task(run_on()) for _ in range(3)]
    yield ended
    is_over = True
    await asyncio.gather(*running)


async def test_code_and_a_dependency_are_upgraded_under_runs_and_none_fails(
    tmp_path: Path,
    links: Path,  # noqa: F811
) -> None:
    for version in ("1.0", "2.0"):
        add(links, "beta", version)
    plugin(tmp_path, "one", "1.0")
    async with Host(tmp_path / "project", trust=["acme"]) as host:
        assert await said(host) == "code one, beta 1.0"
        before = asyncio.create_task(said(host, 3))
        async with runs_all_the_time(host) as ended:
            await until(lambda: len(ended) > 5, "runs have begun")
            plugin(tmp_path, "two", "2.0")
            (changed,) = await host.reload("acme")
            assert changed.state is PluginState.STARTED and not changed.pending_restart, changed.problems
            count = len(ended)
            await until(lambda: len(ended) > count + 5, "runs go on")
        assert {run.status for run in ended} == {RunStatus.COMPLETE}
        outputs = [run.nodes["n"].output["result"] for run in ended]
        assert {*outputs} == {"code one, beta 1.0", "code two, beta 2.0"}
        assert await before == "code one, beta 1.0", "what began with the old code ends with it"
        assert await said(host) == "code two, beta 2.0"


async def test_a_plugin_moves_between_processes_under_runs_and_none_fails(tmp_path: Path) -> None:
    without_packages(tmp_path)
    async with Host(tmp_path / "project", trust=["acme"]) as host:
        async with runs_all_the_time(host) as ended:
            for placement in ("in-process", "process-without-sandbox", None):
                count = len(ended)
                assert (await host.place("acme", placement)).state is PluginState.STARTED  # type: ignore[arg-type]
                await until(lambda count=count: len(ended) > count + 5, "runs go on")  # type: ignore[misc]
        assert {run.status for run in ended} == {RunStatus.COMPLETE}, [run.error for run in ended if run.error]


async def test_what_is_written_into_host_yaml_moves_plugins_of_a_host_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAVERN_CONFIG_DIR", str(tmp_path / "config"))
    (tmp_path / "config").mkdir()
    without_packages(tmp_path)
    async with Host(tmp_path / "project", trust=["acme"]) as host:
        watching = asyncio.create_task(host.watch_decisions(every=0.05))
        assert host.plugin("acme").placement == "process"
        for placement in ("process-without-sandbox", "process"):
            (tmp_path / "config" / "host.yaml").write_text(f"placement: {{acme: {placement}}}\n")
            await until(lambda placement=placement: host.plugin("acme").placement == placement, "it is followed")
            await until(lambda: host.plugin("acme").state is PluginState.STARTED, "it runs there")
        assert await said(host) == "code one, beta 1.0"
        watching.cancel()


async def test_an_upgrade_that_cannot_be_loaded_leaves_what_is_there(tmp_path: Path, links: Path) -> None:  # noqa: F811
    add(links, "beta")
    plugin(tmp_path, "one", "1.0")
    async with Host(tmp_path / "project", trust=["acme"]) as host:
        assert await said(host) == "code one, beta 1.0"
        plugin(tmp_path, "two", "7.0")
        (kept,) = await host.reload("acme")
        assert kept.state is PluginState.STARTED and "could not be installed" in kept.problems[-1].message
        assert await said(host) == "code one, beta 1.0"


async def test_a_grant_that_is_taken_back_ends_the_process(tmp_path: Path, links: Path) -> None:  # noqa: F811
    add(links, "beta")
    plugin(tmp_path, "one", "1.0")
    async with Host(tmp_path / "project") as host:
        assert host.plugin("acme").state is PluginState.NEEDS_REVIEW
        await host.grant("acme")
        assert await said(host) == "code one, beta 1.0"
        process = host.plugin("acme").process
        assert process is not None and process.pid is not None
        waiting = asyncio.create_task(said(host, 3_000))
        await asyncio.sleep(0.2)
        await host.revoke("acme")
        with pytest.raises(InvalidInput, match="the plugin acme waits for review"):
            await said(host)
        await until(lambda: not Path(f"/proc/{process.pid}").exists(), "its process has ended")
        assert await waiting != "code one, beta 1.0"


SPINS = """
import asyncio
from tavern_host import hookimpl

def spin():
    while True: pass

@hookimpl
async def tavern_startup(context):
    asyncio.get_running_loop().call_later(0.2, spin)
"""


async def host_that_is_killed(folder: Path, placement: str) -> None:
    """A host whose plugin computes without end; says the id of the plugin's first process."""
    before = Host(folder / "project")
    before.link()
    await before.place("acme", placement)  # type: ignore[arg-type]
    async with Host(folder / "project", trust=["acme"]) as host:
        process = host.plugin("acme").process
        assert process is not None
        say(process.pid)
        await asyncio.sleep(3_600)


@pytest.mark.parametrize("placement", ["process", "process-without-sandbox"])
async def test_no_process_outlives_a_host_that_is_killed(placement: str, tmp_path: Path) -> None:
    write_whole(tmp_path / "project" / "plugins" / "acme", "acme", SPINS, ["tavern_startup"])
    async with Child(host_that_is_killed, tmp_path, placement) as host:
        first = await host.said()
        inside = [first, *children(first)]
        await asyncio.sleep(0.5)  # it computes by now
        await host.killed()
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in inside), "all of them have ended")


def children(pid: int) -> list[int]:
    """The processes that a process has begun."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
