"""Nothing is left of scripts: of many runs, of runs that are cut off, of runs at the same time, of a host that is killed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import pytest
from helpers.repetition import repetitions

from tests.scripts.real.attacks.hosts import (
    HOSTS,
    HostProcess,
    Language,
    Observed,
    Unavailable,
    processes_of,
    start,
    token_of,
    wait_for_nothing,
)
from tests.scripts.real.attacks.program import ATTACKS

BUSY, ENDLESS, PLANTS, LOOKS = ([ATTACKS[name]] for name in ("is_busy", "never_ends", "plants", "looks_around"))
RUNS = int(os.environ.get("TAVERN_ATTACK_RUNS", repetitions(8, 334)))
"""How many times a script is run in each of the three sandboxes; the environment asks for more."""

AT_ONCE = 4
CUTS = repetitions(8, 40)
LANGUAGES: tuple[Language, ...] = ("python", "nodejs")


@pytest.mark.timeout(120 + RUNS)
def test_many_runs_leave_nothing_behind(host: HostProcess) -> None:
    grounds = {language: host.playground() for language in LANGUAGES}
    for language, ground in grounds.items():
        host.end(host.start(BUSY, language, ground))
    before, temporary = host.ask("renew"), host.temporary

    seen = []
    for number in range(-(-RUNS // AT_ONCE)):
        language = LANGUAGES[number % 2]
        numbers = [host.start(BUSY, language, grounds[language]) for _ in range(AT_ONCE)]
        seen += [host.end(number) for number in numbers]

    assert [observed for observed in seen if observed.verdicts != [["done", ""]]] == []
    for ground in grounds.values():
        nothing_is_left(host, before, seen, token_of(ground))
        assert sorted(path.name for path in ground.output.iterdir()) == ["result.txt"] or host.is_degraded
        assert ground.damage() == []
    assert host.temporary == temporary


def test_runs_cut_off_at_every_moment_leave_nothing(host: HostProcess) -> None:
    ground = host.playground()
    before, temporary = host.ask("renew"), host.temporary

    walls = [each * 0.15 / (CUTS - 1) for each in range(CUTS)]
    seen = [host.end(number) for number in [host.start(ENDLESS, "python", ground, wall=wall) for wall in walls]]

    assert "wall" in {observed.reason for observed in seen}
    nothing_is_left(host, before, seen, token_of(ground))
    assert host.temporary == temporary


def test_scripts_do_not_find_each_other(host: HostProcess) -> None:
    began = host.folder / "planted"
    planting = host.start(PLANTS, "python", host.playground(), began=str(began))
    wait_until(began.exists)

    looked = host.end(host.start(LOOKS, "python", host.playground()))
    host.ask("stop", number=planting)

    assert looked.verdicts == [[[], "nothing"]], looked
    assert host.end(planting).verdicts == [["planted", ""]]
    began.unlink()


@pytest.mark.parametrize("name", list(HOSTS))
@pytest.mark.parametrize(
    "after", [None, *(pytest.param(each, marks=pytest.mark.extended) for each in (0, 0.005, 0.01, 0.02, 0.04, 0.08))]
)
def test_scripts_of_a_killed_host_end_with_it(name: str, after: float | None) -> None:
    """Kill it so many seconds after it was told to run a script, or once the script and its children run."""
    try:
        host = start(name)
    except Unavailable as error:
        pytest.skip(f"{name}: {error}")
    try:
        ground, temporary = host.playground(), host.temporary
        host.start(ENDLESS, "python", ground)
        if after is None:
            wait_until(lambda: len(processes_of(Observed(), token_of(ground))) >= 4)  # the script and its children
        else:
            time.sleep(after)

        host.kill()

        assert wait_for_nothing(token_of(ground), seconds=60) == []
        wait_until(lambda: host.temporary == temporary)
    finally:
        host.kill()
        host.free()


def nothing_is_left(host: HostProcess, before: dict[str, object], seen: Sequence[Observed], token: str) -> None:
    for observed in {observed.namespace: observed for observed in seen}.values():
        assert processes_of(observed, token) == []
    after = host.ask("state")
    for kind in ("descriptors", "children", "mounts", "groups"):
        assert after[kind] == before[kind], f"the host has other {kind} than before"


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 100
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)
