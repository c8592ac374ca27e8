"""What a host had accepted survives its being killed at any moment; see docs/performance.md, *Faults*."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from helpers.repetition import repetitions

from benchmarks.faultchild import Place, graph_of
from benchmarks.faults import Account, await_end, kill_many
from tavern_host import EXECUTION_ENGINE


@pytest.mark.timeout(300)
async def test_no_accepted_run_and_no_kept_result_is_lost_when_the_host_is_killed_at_random_moments(
    tmp_path: Path,
) -> None:
    kills = repetitions(6, 40)
    seed = random.SystemRandom().randrange(10**6)
    account = await kill_many(kills, seed, tmp_path)
    what = f"seed {seed}, {account.kills} kills, {account.runs} runs: {account.broken[:5]}"
    assert not account.broken, what
    assert account.kills == kills, what
    assert account.runs > 0, what
    assert account.resumed > 0, what
    assert account.journalled > 0, what


async def test_a_run_that_is_lost_is_noticed(tmp_path: Path) -> None:
    place, account = Place(tmp_path), Account()
    place.fill()
    async with place.host(serving=True) as host:
        await await_end(host.services.get(EXECUTION_ENGINE), "run_that_is_gone", graph_of(0), account)
    assert list(account.lost) == ["run_that_is_gone"]
