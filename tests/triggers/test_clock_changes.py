"""Two hosts over both changes of daylight saving time: what is due in the half hour around one fires once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from helpers.held_time import HeldClock
from helpers.waiting import let_pass

from tavern_engine.api.executions import EXECUTION_ENGINE, RunFilter
from tavern_host import Host, clock
from tavern_host.projects import Folders
from tests.triggers.trigger_bench import trigger_bench

AROUND, MINUTE = timedelta(minutes=15), timedelta(minutes=1)


def change_in(month: int) -> datetime:
    """Return when clocks in Europe change next year: at 1:00 UTC of the last Sunday of a month that has 31 days."""
    last = datetime(clock.now().year + 1, month, 31, 1, tzinfo=UTC)
    return last - timedelta(days=(last.weekday() + 1) % 7)


@pytest.mark.parametrize("month", [3, 10], ids=["spring", "autumn"])
async def test_two_hosts_fire_once_over_a_change_of_clocks(tmp_path: Path, held_clock: HeldClock, month: int) -> None:
    change = change_in(month)
    held_clock.set_date(change - AROUND - timedelta(seconds=30))
    async with trigger_bench(tmp_path) as bench:
        folders = Folders(tmp_path / "config", tmp_path / "state", tmp_path / "data")
        plugins = [tmp_path / "told"]
        async with Host(bench.project.root, plugins=plugins, trust=["told"], serving=True, folders=folders):
            crons = {"often": "*/5 * * * *", "skipped": "1 2 * * *", "again": "59 1 * * *", "after": "0 3 * * *"}
            for id, cron in crons.items():
                await bench.on(id, "schedule", {"cron": cron, "timeZone": "Europe/Berlin"}, overlap="parallel")
            while clock.now() < change + AROUND + timedelta(seconds=40):
                held_clock.advance(38)
                await let_pass(2)
            fired = {id: [one.due_at for one in await bench.firings(id)] for id in crons}
            runs = await bench.host.services.get(EXECUTION_ENGINE).history(RunFilter(workflow_id="note", limit=100))
    assert fired.pop("often") == [change + n * 5 * MINUTE for n in range(-3, 4)]
    before = change - MINUTE
    in_spring = {"again": [before], "skipped": [change], "after": [change]}
    due = in_spring if month == 3 else {}  # in autumn these times came an hour before, or come an hour later
    assert {id: times for id, times in fired.items() if times} == due
    assert len(runs) == 7 + len(due)
