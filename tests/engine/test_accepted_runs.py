"""A run that was accepted is found again: one that cannot be recorded is refused, as `docs/operations.md` says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from engine_bench import Bench, give, plugin_folders, workflow
from helpers.stage import STAGE
from helpers.waiting import let_pass, until
from loops_bench import flow, notes
from runs_bench import store_plugin

from tavern_host import Host
from tavern_host.contracts.errors import NotFound, ServiceUnavailable
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.runs import RUN_STORE
from tavern_host.testing.http import served

ANSWER_LOST = """
    async def accept(self, *args, **kwargs):
        await self.original.accept(*args, **kwargs)
        await STAGE.wait("accept")
        raise ServiceUnavailable("the database does not answer")
"""
"""A store that has written a run, and whose answer is lost."""


def host(root: Path, **more: bool) -> Host:
    """Return a host whose store of runs cannot be made, since a file is in its place."""
    (root / ".tavern").mkdir(parents=True, exist_ok=True)
    (root / ".tavern" / "runs").write_text("")
    return Host(root, plugins=plugin_folders("acme_nodes"), trust=["acme-nodes"], **more)


async def test_a_server_accepts_no_run_that_it_cannot_record(tmp_path: Path) -> None:
    async with host(tmp_path, serving=True) as serving:
        bench = Bench(serving)
        with pytest.raises(
            ServiceUnavailable, match="was not accepted, since it could not be recorded: .*runs"
        ) as refused:
            await bench.start(workflow({"one": give(1)}))
        assert refused.value.info.details["retry_after"] > 0
        assert (await bench.engine.queue()).running == []
        assert await bench.engine.history() == []

        (tmp_path / ".tavern" / "runs").unlink()
        run = await bench.start(workflow({"one": give(1)}))
        await bench.engine.wait(run)
    async with Host(tmp_path) as later:
        assert (await Bench(later).engine.get(run)).status == "complete"


async def test_a_client_is_told_when_to_ask_again(tmp_path: Path) -> None:
    async with host(tmp_path, serving=True) as serving, served(serving) as site:
        answer = await site.post("/api/prompt", json=workflow({"one": give(1)}).to_json())
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) > 0


async def test_runs_that_nobody_keeps_are_accepted(tmp_path: Path) -> None:
    async with host(tmp_path, serving=True) as serving:
        run = await Bench(serving).engine.run(RunRequest(workflow=workflow({"one": give(1)}), keep=False))
    assert run.status == "complete"


async def test_a_command_carries_out_what_it_cannot_record(tmp_path: Path) -> None:
    async with host(tmp_path) as alone:
        run = await Bench(alone).run(workflow({"one": give(1)}))
    assert run.status == "complete"
    assert str(run.not_resumable).startswith("it could not be recorded")


async def test_a_refused_run_that_the_store_took_is_not_carried_out(tmp_path: Path, file: Path) -> None:
    plugins = [*plugin_folders("acme_flow"), store_plugin(tmp_path, ANSWER_LOST)]
    project, trust = tmp_path / "project", ["acme-flow", "acme-store"]
    STAGE.reset()
    STAGE.cue("accept").set()
    async with Host(project, plugins=plugins, trust=trust, serving=True) as serving:
        bench = Bench(serving)
        with pytest.raises(ServiceUnavailable) as refused:
            await bench.start(workflow({"note": flow("NoteAlways", file=file, value="ran")}))
        run_id = str(refused.value.info.details["run_id"])
        assert run_id in refused.value.message

        async def ended() -> bool:
            return (await bench.engine.get(run_id)).status is RunStatus.INTERRUPTED

        await until(ended)
        run = await bench.engine.get(run_id)
        assert run.error is not None and run.error.message.startswith("it was not accepted")
        await let_pass(60)
    async with Host(project, plugins=plugins, trust=trust, serving=True) as later:
        await let_pass(60)
        assert (await Bench(later).engine.get(run_id)).status is RunStatus.INTERRUPTED
    assert notes(file) == []


@pytest.mark.parametrize("serving", [True, False])
async def test_a_run_whose_caller_is_gone_before_it_is_accepted_is_not_carried_out(
    tmp_path: Path, file: Path, serving: bool
) -> None:
    plugins = [*plugin_folders("acme_flow"), store_plugin(tmp_path, ANSWER_LOST)]
    project, trust = tmp_path / "project", ["acme-flow", "acme-store"]
    STAGE.reset()
    async with Host(project, plugins=plugins, trust=trust, serving=serving) as host:
        bench = Bench(host)
        starting = asyncio.create_task(bench.start(workflow({"note": flow("NoteAlways", file=file, value="ran")})))
        await STAGE.seen("accept").wait()
        starting.cancel()
        await asyncio.wait([starting])
        await let_pass(1)
        assert [run.status for run in await bench.engine.history()] == [RunStatus.INTERRUPTED]
    async with Host(project, plugins=plugins, trust=trust, serving=True):
        await let_pass(60)
    assert notes(file) == []


async def test_a_command_carries_out_once_what_the_store_took(tmp_path: Path, file: Path) -> None:
    plugins = [*plugin_folders("acme_flow"), store_plugin(tmp_path, ANSWER_LOST)]
    project, trust = tmp_path / "project", ["acme-flow", "acme-store"]
    STAGE.reset()
    STAGE.cue("accept").set()
    async with Host(project, plugins=plugins, trust=trust) as alone:
        run = await Bench(alone).run(workflow({"note": flow("NoteAlways", file=file, value="ran")}))
    assert run.status == "complete"
    async with Host(project, plugins=plugins, trust=trust, serving=True):
        await let_pass(60)
    assert notes(file) == ["ran"]


async def test_of_a_run_that_the_store_did_not_take_nothing_is_found(tmp_path: Path) -> None:
    async with host(tmp_path, serving=True) as serving:
        with pytest.raises(ServiceUnavailable) as refused:
            await Bench(serving).start(workflow({"one": give(1)}))
        (tmp_path / ".tavern" / "runs").unlink()
        await let_pass(60)
        with pytest.raises(NotFound):
            await serving.services.get(RUN_STORE).get(str(refused.value.info.details["run_id"]))
