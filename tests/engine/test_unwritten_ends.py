"""Runs whose end cannot be written, as on a full disk: it is written when it can be, and nobody runs them once more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.unwritable import unwritable
from helpers.waiting import let_pass, until

from tavern_engine.api.runs import RUN_STORE
from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow

WAITS: dict[str, Any] = {"id": "n", "type": "core:Wait", "inputValues": {"value": "v", "seconds": 5}}


async def test_an_end_is_written_when_it_can_be_and_the_run_not_run_again(tmp_path: Path) -> None:
    async with Host(tmp_path / "project", serving=True) as host:
        engine, runs = host.services.get(EXECUTION_ENGINE), host.services.get(RUN_STORE)
        request = RunRequest(workflow=Workflow.model_validate({"nodes": [WAITS], "edges": []}))
        run_id = await engine.submit(request)

        async def has(status: RunStatus) -> bool:
            return (await runs.get(run_id)).status is status

        await until(lambda: has(RunStatus.RUNNING))
        store: Any = host._manager.services.stack("runStore")[0].instance
        async with unwritable(store._writer):
            assert (await engine.wait(run_id)).status is RunStatus.COMPLETE
            await let_pass(120)  # longer than a claim holds without being prolonged
            assert await has(RunStatus.RUNNING)
        await until(lambda: has(RunStatus.COMPLETE))
        assert (await runs.get(run_id)).attempt == 1
