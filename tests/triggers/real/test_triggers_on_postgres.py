"""Two hosts with folders of their own that share a PostgreSQL database fire each trigger once between them."""

from __future__ import annotations

import json
import secrets
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from helpers.postgres import shared_server
from helpers.waiting import until

from tavern_engine.api.executions import EXECUTION_ENGINE, RunFilter
from tavern_host import clock
from tavern_triggers.api.triggers import FiringStatus
from tests.triggers.trigger_bench import trigger_bench

COUNT = 20


async def test_two_hosts_that_share_a_database_fire_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = f"hosts_{secrets.token_hex(8)}"
    url = f"{shared_server()}&options=-csearch_path%3D{schema}"
    settings = {"extensions.tavern-postgres.url": url, "extensions.tavern-postgres.schema": schema}
    monkeypatch.setenv("TAVERN_SETTINGS", json.dumps({**settings, "extensions.tavern-triggers.webhookKey": "shared"}))
    async with trigger_bench(tmp_path / "one") as one, trigger_bench(tmp_path / "two") as two:
        due = clock.now() + timedelta(seconds=3)
        for number in range(COUNT):
            await one.save(f"t{number}", "schedule", {"at": due.isoformat()}, inputs={"text": f"t{number}"})
        shutil.copytree(one.project.root / "triggers", two.project.root / "triggers")
        for number in range(COUNT):
            await (one if number % 2 else two).triggers.enable(f"t{number}")
        secret = await one.on("hook", "webhook", {})
        assert secret

        async def all_ended() -> bool:
            firings = await two.triggers.history(limit=1000)
            return len(firings) >= COUNT and all(firing.status.is_final for firing in firings)

        await until(all_ended)
        firings = await one.triggers.history(limit=1000)
        assert sorted(firing.trigger_id for firing in firings) == sorted(f"t{number}" for number in range(COUNT))
        assert {firing.status for firing in firings} == {FiringStatus.COMPLETE}
        runs = await one.host.services.get(EXECUTION_ENGINE).history(RunFilter(limit=1000))
        assert {run.id for run in runs} == {firing.run_id for firing in firings}
        assert (await two.triggers.get("t1")).status == "off"
