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

from tavern_engine.api.runs import RUN_STORE
from tavern_host import Host
from tavern_host.contracts.errors import ServiceUnavailable
from tavern_host.contracts.executions import RunRequest, RunStatus
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
        assert [one.id for one in await bench.engine.history()] == [run]
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


def losing(tmp_path: Path, *, serving: bool) -> Host:
    """Return a host whose store writes runs and whose answer is lost, once the cue `accept` is given."""
    plugins = [*plugin_folders("acme_flow"), store_plugin(tmp_path, ANSWER_LOST)]
    return Host(tmp_path / "project", plugins=plugins, trust=["acme-flow", "acme-store"], serving=serving)


async def carried_out(tmp_path: Path, file: Path) -> list[str]:
    """Return the notes of nodes, after a host that serves had the time to take up what is in the store."""
    async with losing(tmp_path, serving=True):
        await let_pass(60)
    return notes(file)


@pytest.mark.parametrize(("serving", "noted"), [(True, []), (False, ["ran"])])
async def test_a_run_whose_acceptance_was_not_answered_is_not_carried_out_later(
    tmp_path: Path, file: Path, serving: bool, noted: list[str]
) -> None:
    STAGE.reset()
    STAGE.cue("accept").set()
    async with losing(tmp_path, serving=serving) as host:
        bench, document = Bench(host), workflow({"note": flow("NoteAlways", file=file, value="ran")})
        if serving:
            with pytest.raises(ServiceUnavailable) as refused:
                await bench.start(document)
            run_id = str(refused.value.info.details["run_id"])
            assert run_id in refused.value.message
        else:  # a command has the result itself
            run_id = (await bench.run(document)).id

        async def withdrawn() -> bool:
            entry = await host.services.get(RUN_STORE).get(run_id)
            return entry.status is RunStatus.INTERRUPTED and "it was not accepted" in str(entry.error)

        await until(withdrawn)
        await let_pass(60)
    assert await carried_out(tmp_path, file) == noted


@pytest.mark.parametrize("serving", [True, False])
async def test_a_run_whose_caller_is_gone_before_it_is_accepted_is_not_carried_out(
    tmp_path: Path, file: Path, serving: bool
) -> None:
    STAGE.reset()
    async with losing(tmp_path, serving=serving) as host:
        start = Bench(host).start(workflow({"note": flow("NoteAlways", file=file, value="ran")}))
        starting = asyncio.create_task(start)
        await STAGE.seen("accept").wait()
        starting.cancel()
        await let_pass(1)
        assert [run.status for run in await Bench(host).engine.history()] == [RunStatus.INTERRUPTED]
    assert await carried_out(tmp_path, file) == []
