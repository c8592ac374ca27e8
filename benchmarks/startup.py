"""How long processes take: `tavern --version`, and `tavern serve` from nothing to its first answer.

The floor of `serve` is a bare aiohttp application that imports the same third-party libraries by their names,
without using them. The first run of each process is not counted; it leaves the bytecode.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Result, Timed, compare_once
from benchmarks.thirdparty import fill_site

DISTRIBUTIONS = 200
PLUGINS = 20
PHASE_RUNS = 5
DEADLINE = 60.0
"""How many times the phases are measured, and how many seconds a process may take to answer."""

_TOKEN = "benchmark"
_TAVERN = [sys.executable, "-m", "tavern_host.cli"]

_BARE = """
import sys
from importlib import import_module

for name in sys.argv[1:]:
    import_module(name)

import asyncio
from aiohttp import web

async def plugins(request):
    return web.json_response([])

async def main():
    app = web.Application()
    app.router.add_get("/api/plugins", plugins)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"Open http://127.0.0.1:{runner.addresses[0][1]}/", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""

_PHASES = """
import sys, time
before, marks = set(sys.modules), [("", time.perf_counter())]

def mark(name):
    marks.append((name, time.perf_counter()))

from tavern_host.cli.garbage import put_off
put_off()
import os
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # both as `tavern` does

import asyncio, json
from contextlib import aclosing
import tavern_host.cli.terminal
from tavern_host.host import Host
mark("importing the host")

async def main():
    host = Host()
    host.link()
    mark("finding plugins, reading manifests")
    try:
        await host.load()
        mark("importing and admitting plugins")
        await host.start()
        mark("starting plugins")
        import aiohttp.web
        mark("importing aiohttp")
        from tavern_host.server.serve import serve
        from tavern_host.server.reach import Reach
        async with aclosing(serve(host, Reach(0))) as outputs:
            async for output in outputs:
                if output.kind == "result":
                    break
            mark("listening")
        phases = {name: end - began for (_, began), (name, end) in zip(marks, marks[1:])}
        modules = [n for n, m in sys.modules.items() if n not in before and getattr(m, "__spec__", None)]
        print(json.dumps({"phases": phases, "modules": modules}))
    finally:
        await host.stop()

asyncio.run(main())
"""


_LIBRARIES = "import asyncio, pydantic"


def version() -> list[Result]:
    """Measure `tavern --version` and `tavern --help`, and return their times as ratios to those of interpreters that
    import nothing, and what each command imports."""
    with tempfile.TemporaryDirectory() as folder:
        place = _Place(Path(folder))
        place.make_project()
        return [
            compare_once(
                "tavern --version",
                place.until_ended([*_TAVERN, "--version"]),
                place.until_ended([sys.executable, "-c", "pass"]),
                floor_name="python -c pass",
                limit=4.0,
            ),
            compare_once(
                "tavern --help",
                place.until_ended([*_TAVERN, "--help"]),
                place.until_ended([sys.executable, "-c", _LIBRARIES]),
                floor_name=f"python -c '{_LIBRARIES}'",
                limit=4.0,
            ),
        ]


def ready() -> list[Result]:
    """Measure the time until a host with many plugins answers, and return it with its phases."""
    with tempfile.TemporaryDirectory() as folder:
        place = _Place(Path(folder))
        place.install()
        libraries = _libraries(place.phases()["modules"])
        whole = compare_once(
            f"ready, {PLUGINS} plugins of {DISTRIBUTIONS} distributions",
            place.until_answered([*_TAVERN, "serve", "--port", "0"], _check_plugins),
            place.until_answered([sys.executable, "-c", _BARE, *libraries], lambda plugins: None),
            floor_name="bare aiohttp, same libraries",
            limit=2.0,
        )
        return [whole, *_parts([place.phases()["phases"] for _ in range(PHASE_RUNS)])]


class _Place:
    """A folder to start processes in, with an operator and installed distributions of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        paths = [str(folder / "site"), os.environ.get("PYTHONPATH", "")]
        self._environment = {
            **{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE" and not k.startswith("TAVERN_")},
            **{f"TAVERN_{kind.upper()}_DIR": str(folder / kind) for kind in ("config", "state", "data")},
            "TAVERN_PROJECT": str(folder / "project"),
            "TAVERN_TOKEN": _TOKEN,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }

    def install(self) -> None:
        """Write the distributions, let the operator trust their plugins, make an empty project."""
        names = fill_site(self._folder / "site", distributions=DISTRIBUTIONS, plugins=PLUGINS)
        (self._folder / "config").mkdir()
        (self._folder / "config" / "host.yaml").write_text(f"trust: {json.dumps(names)}\n", encoding="utf-8")
        self.make_project()

    def make_project(self) -> None:
        """Make the empty project that the commands are for."""
        self._run([*_TAVERN, "init", str(self._folder / "project")])

    def until_ended(self, command: list[str]) -> Timed:
        """Return how to time a process from its start to its end."""

        def timed(times: int) -> float:
            began = time.perf_counter()
            for _ in range(times):
                self._run(command)
            return time.perf_counter() - began

        return timed

    def until_answered(self, command: list[str], check: Callable[[Any], None]) -> Timed:
        """Return how to time a server from the start of its process to its first answer, which is checked."""

        def once() -> float:
            began = time.perf_counter()
            with self._start(command) as process:
                try:
                    plugins = _ask(self._port_of(process))
                    took = time.perf_counter() - began
                finally:
                    process.terminate()
            check(plugins)
            return took

        return lambda times: sum(once() for _ in range(times))

    def phases(self) -> dict[str, Any]:
        """Return `phases`, the seconds that each part of a start took, and the `modules` that it imported."""
        result: dict[str, Any] = json.loads(self._run([sys.executable, "-c", _PHASES]).splitlines()[-1])
        return result

    @property
    def _errors(self) -> Path:
        return self._folder / "errors.txt"

    def _run(self, command: list[str]) -> str:
        with self._start(command) as process:
            printed, _ = process.communicate(timeout=DEADLINE)
        if process.returncode != 0:
            raise self._failure(process)
        return printed

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        with self._errors.open("w") as errors:
            return subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=self._folder, env=self._environment
            )

    def _port_of(self, process: subprocess.Popen[str]) -> int:
        assert process.stdout is not None
        for line in process.stdout:
            address = re.match(r"Open http://127\.0\.0\.1:(\d+)/", line)
            if address is not None:
                return int(address[1])
        raise self._failure(process)

    def _failure(self, process: subprocess.Popen[str]) -> RuntimeError:
        return RuntimeError(f"{process.args!r} failed: {self._errors.read_text(errors='replace')[-2000:]}")


def _ask(port: int) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    connection.request("GET", "/api/plugins", headers={"Authorization": f"Bearer {_TOKEN}"})
    return json.loads(connection.getresponse().read())


def _check_plugins(plugins: Any) -> None:
    """Raise where what was measured is not a host with all of its plugins."""
    third_party = [plugin for plugin in plugins if not plugin["firstParty"]]
    bad = [f"{p['name']} is {p['state']}: {p['problems']}" for p in plugins if p["state"] != "started"]
    if bad or len(third_party) < PLUGINS:
        raise RuntimeError(f"{len(third_party)} third-party plugins; " + "; ".join(bad))


def _libraries(modules: list[str]) -> list[str]:
    """Return the third-party libraries among imported modules, by their topmost names."""
    names = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    return sorted(name for name in names if not name.startswith(("tavern_", "benchmark_", "_sysconfigdata")))


def _parts(runs: list[dict[str, float]]) -> list[Result]:
    """Return the median of each phase, as a share of all of them: of the start without interpreter and command line."""
    phases = {name: statistics.median(run[name] for run in runs) * 1e3 for name in runs[0]}
    together = sum(phases.values())
    return [
        Result(
            name=f"  {name}",
            value=round(value, 4),
            unit="ms",
            floor=round(together, 4),
            floor_name="all phases",
            ratio=round(value / together, 3),
            runs=len(runs),
        )
        for name, value in phases.items()
    ]
