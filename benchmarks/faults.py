"""Kills a host at random moments of its runs, and accounts afterwards for every run that it had accepted.

What is promised, and checked: a run whose id `submit` returned is never lost; the next host takes it up and completes
it with the right outputs. (One with a value that cannot be kept is marked as interrupted instead; there is none here.)
A node whose result is in the journal is not run again, every other one is run at least once. A result is in the
journal at most 50 ms after its node ended, so nodes that ended just before the kill may be run twice.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks.enginegraphs import Graph, node_id
from benchmarks.faultchild import Place, graph_of
from benchmarks.harness import Result
from benchmarks.writes import writes
from tavern_engine.api.executions import ExecutionEngine
from tavern_host import EXECUTION_ENGINE
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.executions import Run, RunStatus

KILLS = 200
SEED = 20_240_229
RUNS = 3
"""How many runs each host accepts."""
NODES = sum(len(graph_of(number)) for number in range(RUNS))
LATER = 0.06
"""Up to how many seconds a kill comes after the nodes that it waits for have ended."""
AGAIN = 0.3
"""How often, of all kills, the host that takes the runs up is killed, too."""
DEADLINE = 60.0
TICK = 0.002


class Moment(NamedTuple):
    """When a host is killed: by how far it is, since a time would come before or after everything on some machines."""

    ended: int
    """How many nodes have ended since it is ready."""
    later: float
    """How many seconds after that."""


Executions = Counter[tuple[str, str]]
"""How often each node of each run was begun."""


@dataclass
class Account:
    """What became of the runs and nodes of some kills: counts, and why what was broken is, by run or node. Nothing is
    broken where all promises were kept."""

    kills: int = 0
    runs: int = 0
    resumed: int = 0
    nodes: int = 0
    ended: int = 0
    journalled: int = 0
    lost: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    again: dict[str, str] = field(default_factory=dict)
    never: dict[str, str] = field(default_factory=dict)
    late: float = 0.0
    """For how many seconds at most a node had ended whose result was not in the journal."""

    @property
    def broken(self) -> list[str]:
        """Every promise that was not kept."""
        sorts = (self.lost, self.wrong, self.again, self.never)
        return [f"{what}: {why}" for broken in sorts for what, why in broken.items()]

    def add(self, other: Account) -> None:
        """Count another account in."""
        late = max(self.late, other.late)
        for name, value in vars(other).items():
            mine = getattr(self, name)
            setattr(self, name, mine | value if isinstance(value, dict) else mine + value)
        self.late = late


async def kill_many(kills: int, seed: int, folder: Path, *, at_once: int = 2) -> Account:
    """Kill hosts at random moments, `at_once` at a time, each in a folder of its own; return what became of all."""
    total, chance, turns = Account(), random.Random(seed), asyncio.Semaphore(at_once)
    early = kills // 4  # while runs are being accepted; the others are spread over all that their nodes do
    parts = [0.0] * early + [(i + chance.random()) / (kills - early) for i in range(kills - early)]
    all_moments = [Moment(int(part * NODES), chance.uniform(0, LATER)) for part in parts]
    chance.shuffle(all_moments)

    async def one(number: int, moments: list[Moment]) -> None:
        async with turns:
            total.add(await kill_one(Place(folder / str(number)), moments))

    async with asyncio.TaskGroup() as group:
        number = 0
        while all_moments:
            count = 2 if chance.random() < AGAIN else 1
            group.create_task(one(number, all_moments[:count]))
            del all_moments[:count]
            number += 1
    return total


async def kill_one(place: Place, moments: list[Moment]) -> Account:
    """Kill a host at the first moment, and those that take its runs up at the others; then let one complete them."""
    place.fill()
    account = Account(kills=len(moments))
    runs: dict[str, Graph] = {}
    known: dict[tuple[str, str], int] = {}
    """How often the nodes had been begun whose results were in the journal after a kill."""
    for number, moment in enumerate(moments):
        began_at = time.monotonic()
        accepted, killed_at = await _killed(place, moment, first=number * RUNS)
        runs |= {run_id: graph_of(number * RUNS + i) for i, run_id in enumerate(accepted)}
        begun, ended = _executions(place)
        journalled = await _journalled(place, runs, account)
        known |= {node: begun[node] for node in journalled if node not in known}
        unkept = [at for node, at in ended.items() if node not in journalled and node[0] in runs and at > began_at]
        account.late = max([account.late, *(killed_at - at for at in unkept)])
        account.ended = sum(node[0] in runs for node in ended)
    account.runs, account.journalled = len(runs), len(known)
    async with place.host(serving=True) as host:
        engine = host.services.get(EXECUTION_ENGINE)
        for run_id, graph in runs.items():
            await await_end(engine, run_id, graph, account)
    begun, _ = _executions(place)
    for node, count in known.items():
        if begun[node] != count:
            account.again[" ".join(node)] = "it was run again although its result was in the journal"
    for run_id, graph in runs.items():
        account.nodes += len(graph)
        if run_id not in account.lost and run_id not in account.wrong:
            missing = [node_id(i) for i in range(len(graph)) if not begun[run_id, node_id(i)]]
            account.never |= {f"{run_id} {node}": "it was never run" for node in missing}
    return account


async def _killed(place: Place, moment: Moment, first: int) -> tuple[list[str], float]:
    """Start a host, kill it; return the runs that it had accepted, and when it was killed."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "benchmarks.faultchild", str(place.root), str(first), str(RUNS)),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE):
            line = await child.stdout.readline()
        if line != b'"ready"\n':
            raise RuntimeError(f"the host that was to be killed did not start; it said {line!r}")
        wanted = _ends(place) + moment.ended
        for _ in range(round(DEADLINE / TICK)):
            if _ends(place) >= wanted:
                break
            await asyncio.sleep(TICK)
        await asyncio.sleep(moment.later)
    finally:
        killed_at = time.monotonic()
        if child.returncode is None:
            child.send_signal(signal.SIGKILL)
        rest = await child.stdout.read()
        code = await child.wait()
    if code != -signal.SIGKILL:
        raise RuntimeError(f"the host that was to be killed ended by itself, with {code}")
    *whole, _ = rest.decode().split("\n")  # the last one may be cut off
    return [json.loads(line) for line in whole], killed_at


async def _journalled(place: Place, runs: Iterable[str], account: Account) -> set[tuple[str, str]]:
    """Return the nodes whose results are in the journal, as a host shows them that takes nothing up."""
    found = set()
    async with place.host(serving=False) as host:
        engine = host.services.get(EXECUTION_ENGINE)
        for run_id in runs:
            try:
                run = await engine.get(run_id)
            except NotFound as error:
                account.lost[run_id] = f"it was accepted and is not there after the kill: {error}"
            else:
                found |= {(run_id, node) for node, state in run.nodes.items() if state.status is RunStatus.COMPLETE}
    return found


async def await_end(engine: ExecutionEngine, run_id: str, graph: Graph, account: Account) -> None:
    """Wait for the end of a run that was taken up, and look at how it ended."""
    try:
        async with asyncio.timeout(DEADLINE):
            run = await engine.wait(run_id)
    except NotFound as error:
        account.lost[run_id] = f"it was accepted and is not there after a new start: {error}"
    except TimeoutError:
        account.lost[run_id] = f"it was accepted and has not ended {DEADLINE:g} s after a new start"
    else:
        _judge(run, graph, account)


def _judge(run: Run, graph: Graph, account: Account) -> None:
    if run.status is not RunStatus.COMPLETE:  # all values of these runs can be kept, so each can be completed
        account.wrong[run.id] = f"it ended as {run.status}: {run.not_resumable or run.error}"
        return
    account.resumed += run.attempt > 1
    for number, values in graph.results.items():
        output = run.nodes[node_id(number)].output
        if output != values:
            account.wrong[run.id] = f"{node_id(number)} gave {output}, expected {values}"


def _ends(place: Place) -> int:
    """Return how many nodes have ended by now."""
    return place.log.read_bytes().count(b" ends ")


def _executions(place: Place) -> tuple[Executions, dict[tuple[str, str], float]]:
    """Return how often each node was begun, and when each ended last, by what the nodes wrote themselves."""
    begun: Executions = Counter()
    ended: dict[tuple[str, str], float] = {}
    for line in place.log.read_text(encoding="utf-8").splitlines() if place.log.exists() else ():
        run_id, node, what, at = line.split()
        if what == "begins":
            begun[run_id, node] += 1
        else:
            ended[run_id, node] = float(at)
    return begun, ended


def kills() -> list[Result]:
    """Kill many hosts while they run workflows, and count the runs that were lost, wrong, resumed or run again."""
    with tempfile.TemporaryDirectory() as folder:
        account = asyncio.run(kill_many(KILLS, SEED, Path(folder)))
    for sentence in account.broken:
        print(sentence, file=sys.stderr)
    return [
        _counted("runs that were lost", len(account.lost), account.runs, "accepted runs", "runs", 0),
        _counted("runs with a wrong end", len(account.wrong), account.runs, "accepted runs", "runs", 0),
        _counted("runs that were resumed", account.resumed, account.runs, "accepted runs", "runs"),
        _counted("results used, nodes run again", len(account.again), account.journalled, "journalled", "nodes", 0),
        _counted("nodes that were never run", len(account.never), account.nodes, "nodes", "nodes", 0),
        _counted("oldest result not in the journal", account.late * 1e3, 50, "the promise", "ms", 1),
    ]


def _counted(name: str, value: float, of: float, what: str, unit: str, limit: float | None = None) -> Result:
    ratio = round(value / of, 3) if of else 0.0
    return Result(name, round(value, 3), unit, of, what, ratio, runs=KILLS, limit=limit)


FIGURES = {"kills": kills, "writes": writes}
