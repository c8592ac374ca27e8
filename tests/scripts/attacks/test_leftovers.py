"""Nothing is left of scripts: of many runs, of runs that are cut off, of runs at the same time, of a host that is killed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from helpers.repetition import repetitions

from tests.scripts.attacks.attack import Attack, Language, Observed
from tests.scripts.attacks.hosts import HOSTS, HostProcess, Unavailable, processes_of, start, token_of, wait_for_nothing
from tests.scripts.attacks.playground import Playground

BUSY = Attack(
    "does what scripts do",
    python="""
        open(target['output'] + '/result.txt', 'w').write('x' * 1000)
        open(target['cache'] + '/kept.txt', 'w').write('x' * 1000)
        open('/tmp/scratch', 'w').close() if not target['degraded'] else None
        children = [subprocess.Popen(['sleep', '100']) for _ in range(2)]
        socket.socketpair()
        return 'done'
    """,
    nodejs="""
        fs.writeFileSync(target.output + '/result.txt', 'x');
        spawn('sleep', ['100'], { detached: true, stdio: 'ignore' }).unref();
        return 'done';
    """,
    wall=20,
)
ENDLESS = Attack(
    "goes on for ever, with children",
    python="""
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                break
        print('ended {"loot": "it goes on"}', flush=True)
        while True:
            time.sleep(0.1)
    """,
    wall=20,
)
PLANTS = Attack(
    "leaves things where another script may find them",
    python="""
        import tempfile
        if not target['degraded']:
            for place in ('/tmp', '/dev/shm', target['output'], target['cache']):
                open(place + '/planted', 'w').write('planted')
            server = socket.socket(socket.AF_UNIX)
            server.bind('\\0planted')
            server.listen()
            other = socket.create_server(('127.0.0.1', 45671))
        open(tempfile.gettempdir() + '/planted', 'w').write('planted')
        print('ended {"loot": "planted"}', flush=True)
        while True:
            time.sleep(0.1)
    """,
    wall=6,
)
LOOKS = Attack(
    "looks for what another script has left",
    python="""
        import tempfile
        found = []
        for place in ('/tmp', '/dev/shm', target['output'], target['cache'], tempfile.gettempdir()):
            if os.path.exists(place + '/planted'):
                found.append(place)
        for family, address in ((socket.AF_UNIX, '\\0planted'), (socket.AF_INET, ('127.0.0.1', 45671))):
            try:
                socket.socket(family).connect(address)
                found.append(str(address))
            except OSError:
                pass
        for pid in range(2, 50):
            if pid != os.getpid():
                try:
                    os.kill(pid, 0)
                    found.append(pid)
                except OSError:
                    pass
        return found
    """,
)
RUNS = int(os.environ.get("TAVERN_ATTACK_RUNS", repetitions(8, 334)))
"""How many times a script is run in each of the three sandboxes; the environment asks for more."""

AT_ONCE = 4
CUTS = repetitions(8, 40)


@pytest.mark.timeout(120 + RUNS)
def test_many_runs_leave_nothing_behind(host: HostProcess) -> None:
    grounds: dict[Language, Playground] = {each: host.playground(BUSY, each) for each in BUSY.languages()}
    for language, ground in grounds.items():
        host.attack(BUSY, language, ground, inside=True)
    before = host.ask("renew")
    temporary = _temporary(host)

    seen = []
    for number in range(-(-RUNS // AT_ONCE)):
        language, ground = list(grounds.items())[number % 2]
        numbers = [host.start(BUSY, language, ground, inside=True) for _ in range(AT_ONCE)]
        seen += [host.end(number) for number in numbers]

    assert [observed for observed in seen if observed.loot != "done"] == []
    for ground in grounds.values():
        _nothing_is_left(host, before, seen, token_of(ground))
        assert sorted(path.name for path in ground.output.iterdir()) == ["result.txt"] or host.is_degraded
        assert ground.damage() == []
    assert _temporary(host) == temporary


def test_runs_that_are_cut_off_at_every_moment_leave_nothing_behind(host: HostProcess) -> None:
    ground = host.playground(ENDLESS, "python")
    before = host.ask("renew")
    temporary = _temporary(host)

    walls = [each * 0.15 / (CUTS - 1) for each in range(CUTS)]
    cuts = [Attack(ENDLESS.name, python=ENDLESS.python, wall=wall) for wall in walls]
    numbers = [host.start(cut, "python", ground, inside=True, at_once=True) for cut in cuts]
    seen = [host.end(number) for number in numbers]

    assert "wall" in {observed.reason for observed in seen}
    _nothing_is_left(host, before, seen, token_of(ground))
    assert _temporary(host) == temporary


def test_scripts_that_run_at_the_same_time_do_not_find_each_other(host: HostProcess) -> None:
    planting, looking = host.playground(PLANTS, "python"), host.playground(LOOKS, "python")
    began = host.folder / f"began-{token_of(planting)}"
    number = host.start(PLANTS, "python", planting, inside=True, began=str(began))
    _wait_for(began)
    time.sleep(0.3)

    observed = host.end(host.start(LOOKS, "python", looking, inside=True))

    assert observed.began(token_of(looking)) and observed.error == "nothing", observed
    assert host.end(number).loot == "planted"


@pytest.mark.parametrize("name", list(HOSTS))
@pytest.mark.parametrize(
    "after", [None, *(pytest.param(each, marks=pytest.mark.extended) for each in (0, 0.005, 0.01, 0.02, 0.04, 0.08))]
)
def test_when_the_host_is_killed_its_scripts_end_with_it(name: str, after: float | None) -> None:
    """Kill it so many seconds after it was told to run a script, or once the script and its children run."""
    try:
        host = start(name)
    except Unavailable as error:
        pytest.skip(f"{name}: {error}")
    try:
        ground = host.playground(ENDLESS, "python")
        temporary = _temporary(host)
        began = host.folder / "began"
        host.start(ENDLESS, "python", ground, inside=True, began=str(began))
        nothing = Observed("", "", None, None)
        if after is None:
            _wait_for(began)
            while len(processes_of(nothing, token_of(ground))) < 4:  # the script and its children
                time.sleep(0.02)
        else:
            time.sleep(after)

        host.kill()

        assert wait_for_nothing(nothing, token_of(ground), seconds=60) == []
        until = time.monotonic() + 60
        while _temporary(host) != temporary and time.monotonic() < until:
            time.sleep(0.02)
        assert _temporary(host) == temporary
    finally:
        host.kill()
        host.free()


def _nothing_is_left(host: HostProcess, before: dict[str, object], seen: list[Observed], token: str) -> None:
    for observed in {observed.namespace: observed for observed in seen}.values():
        assert processes_of(observed, token) == []
    after = host.ask("state")
    for kind in ("descriptors", "children", "mounts", "groups"):
        assert after[kind] == before[kind], f"the host has other {kind} than before"


def _temporary(host: HostProcess) -> list[str]:
    return sorted(path.name for path in host.temporary.iterdir())


def _wait_for(path: Path) -> None:
    until = time.monotonic() + 100
    while not path.exists():
        assert time.monotonic() < until, "it did not begin"
        time.sleep(0.02)
