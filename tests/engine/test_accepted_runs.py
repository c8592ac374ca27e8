"""A run that was accepted is found again: one that cannot be recorded is refused, as `docs/operations.md` says."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_bench import Bench, give, plugin_folders, workflow

from tavern_host import Host
from tavern_host.contracts.errors import ServiceUnavailable
from tavern_host.contracts.executions import RunRequest
from tavern_host.testing.http import served


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
