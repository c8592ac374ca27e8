"""A server under load, under kills, and among clients that speak no HTTP; the benchmarks soak, faults and badclients do
the same for longer."""

from __future__ import annotations

from pathlib import Path

from helpers.repetition import repetitions

from benchmarks.badclients import meet
from benchmarks.soak import soak
from benchmarks.writes import kill_often


async def test_mixed_load_leaves_nothing_behind(tmp_path: Path) -> None:
    """7 seconds here and the whole minute with `--extended`: in so few, memory still finds its level."""
    kinds = ("runs", "tool calls", "agents", "messages", "switches", "reloads", "answers", "settings")
    for seconds in (repetitions(7, 60), 61):  # the second where a busy machine does too little in the first
        soaked = await soak(seconds, 1, tmp_path / str(seconds))
        assert (soaked.errors, soaked.left) == ([], [])
        rare = [kind for kind in kinds if soaked.done[kind] < 3]
        if not rare:
            break
    assert rare == []
    assert soaked.growth <= repetitions(30, 5) / 100


async def test_kills_lose_no_acknowledged_write(tmp_path: Path) -> None:
    ledger = await kill_often(repetitions(3, 20), 2, tmp_path, window=0.8)
    assert ledger.lost == []
    assert set(ledger.acknowledged) == {"workflow", "run", "message", "setting", "grant"}


async def test_bad_clients_do_no_harm(tmp_path: Path) -> None:
    met = await meet(repetitions(200, 2000), 3, tmp_path)
    assert met.wrong == []
    assert set(met.answers) >= {0, 101, 400, 404}
    assert met.memory[-1] <= 1.3 * met.memory[len(met.memory) // 5]
