"""Interpreters that wait: a script finds one and cannot tell, none is used twice, and nothing of them is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_scripts.api.scripts import SandboxLaunch, SandboxOutput, ScriptBackend
from tavern_scripts.sandbox import landlock as kernel
from tavern_scripts.sandbox.canary import prove
from tavern_scripts.sandbox.canary_program import CHECKS
from tavern_scripts.workers.pool import WarmPool
from tavern_scripts.workers.warm_interpreter import shape_of
from tests.scripts.sandboxes import (
    IS_ROOT,
    PYTHON,
    Came,
    Launches,
    bubblewrap,
    landlock,
    left_by,
    limits,
    processes_with,
    read,
    run,
    staged,
    stdin_of,
)

SHOWS_ITSELF = """
import inspect, json, os, sys
left = open("left.txt", "w")
left.write("not closed")
print("to stderr", file=sys.stderr)
print(json.dumps({
    "stdin": json.load(sys.stdin), "argv": sys.argv, "orig_argv": sys.orig_argv[1:], "path": sys.path,
    "name": __name__, "file": __file__, "main": sys.modules["__main__"].__dict__ is globals(),
    "environ": {name: os.environ[name] for name in ("ONE", "PATH")}, "variables": sorted(os.environ),
    "folder": os.getcwd(), "descriptors": sorted(os.listdir("/proc/self/fd"))[:4],
    "source": inspect.getsource(sys.modules["__main__"])[:20], "globals": sorted(globals()),
}))
"""


BROKEN = "no interpreter could be started beforehand, scripts start as ever: no room"


class Rooms(Launches):
    """A pool beside a sandbox."""

    def __init__(self, folder: Path, backend: ScriptBackend, *, size: int = 1, idle: float = 60.0) -> None:
        super().__init__(folder)
        self.backend = backend
        self.size = size
        self.idle = idle
        self.pool = WarmPool(self.make, logging.getLogger("pool"), size=lambda: self.size, idle=lambda: self.idle)

    async def run(self, what: SandboxLaunch | str, stdin: bytes = b"null") -> Came:
        """Run through the pool."""
        return await run(_Pooled(self), self.launch(what) if isinstance(what, str) else what, stdin)

    async def warmed(self, like: SandboxLaunch | None = None) -> None:
        """Wait until an interpreter waits."""
        if not self.pool.waiting:
            await self.run(like if like is not None else self.launch("pass"))
        async with asyncio.timeout(60):
            while self.pool.waiting < self.size:
                await asyncio.sleep(0.01)

    async def warm(self, what: SandboxLaunch | str, stdin: bytes = b"null") -> Came:
        """Run in an interpreter that waits."""
        wanted = self.launch(what) if isinstance(what, str) else what
        like = {"limits": wanted.limits, "environment": wanted.environment}
        while shape_of(wanted) != self.pool.shape:
            await self.run(self.launch("pass", **like))
        await self.warmed()
        used = self.pool.used
        came = await self.run(wanted, stdin)
        assert self.pool.used == used + 1, "no interpreter that waited was used"
        return came


class _Pooled:
    """A pool in the place of its sandbox; with `warm`, whatever can be run in an interpreter that waits is."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    async def prove(self) -> list[Any]:
        return []

    async def prepare(self, launch: SandboxLaunch) -> None:
        pass

    def run(self, launch: SandboxLaunch, stdin: AsyncIterator[bytes]) -> AsyncGenerator[SandboxOutput, None]:
        return self._rooms.pool.run(self._rooms.backend, launch, stdin)


@asynccontextmanager
async def rooms_of(folder: Path, **others: Any) -> AsyncIterator[Rooms]:
    rooms = Rooms(folder, bubblewrap(), **others)
    try:
        yield rooms
    finally:
        await rooms.pool.close()


@pytest.fixture
async def rooms(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with rooms_of(tmp_path) as made:
        yield made


async def test_a_script_cannot_tell_that_its_interpreter_waited(rooms: Rooms) -> None:
    first, second = (rooms.launch(SHOWS_ITSELF, "a b", "ü", environment={"ONE": "1"}) for _ in range(2))

    cold = await run(rooms.backend, first, b'{"x": 1}')
    warm = await rooms.warm(second, b'{"x": 1}')

    assert json.loads(warm.stdout) == json.loads(cold.stdout)
    assert json.loads(warm.stdout)["stdin"] == {"x": 1}
    assert warm.stderr == cold.stderr == b"to stderr\n"
    assert (warm.ended.exit_code, warm.ended.reason) == (0, None)
    assert left_by(second) == left_by(first) == {"left.txt": "not closed"}


async def test_it_ends_as_python_would(rooms: Rooms) -> None:
    rows: list[Any] = [
        "import sys; sys.exit('a reason')",
        "raise SystemExit",
        "def f():\n    return 1 / 0\n\n\nf()",
        "x = = 1",
        "import os; os._exit(5)",
        "import os; os.abort()",
        "import sys; sys.excepthook = lambda *_: print('my own'); 1 / 0",
        "import atexit; atexit.register(print, 'at the end'); print('first')",
        "import threading, time; threading.Thread(target=lambda: (time.sleep(0.2), print('later'))).start()",
        "import sys; sys.stdout.close()",
        "raise KeyboardInterrupt",
        "print('\\ud800')",
    ]
    with Failures() as failures:
        for code in rows:
            with failures.row(code):
                cold = await run(rooms.backend, rooms.launch(code))
                warm = await rooms.warm(code)

                said = [(came.stdout, came.stderr, came.ended.exit_code) for came in (warm, cold)]
                assert said[0] == said[1]


async def test_the_results_own_channel_is_the_scripts(rooms: Rooms) -> None:
    came = await rooms.warm(rooms.launch("import os; os.write(3, b'42'); print('log')", channel=True))
    without = await rooms.warm("import os; os.write(3, b'42')")

    for _ in range(3):
        await rooms.warmed()
        asyncio.get_running_loop().call_later(0.001, time.sleep, 0.2)  # both come before anything is read
        early = await rooms.warm(rooms.launch("import os; os.write(3, b'[1]\\n[2]')", channel=True))
        assert early.channel == b"[1]\n[2]"

    assert (came.channel, came.stdout) == (b"42", b"log\n")
    assert without.ended.exit_code == 1
    assert b"Bad file descriptor" in without.stderr


async def test_usage_is_that_of_the_script_alone(rooms: Rooms) -> None:
    await rooms.warmed()
    await asyncio.sleep(0.5)

    began = time.monotonic()
    came = await rooms.warm("import sys; print(sys.stdin.read(), file=sys.stderr); print(12345)", b"[1, 2]")

    took, usage = time.monotonic() - began, came.ended.usage
    assert (usage.input, usage.output, usage.log) == (6, 6, 7)
    assert usage.wall_ms <= took * 1000 + 1


async def test_isolation_holds_in_a_warm_interpreter(rooms: Rooms) -> None:

    class Warmed(_Pooled):
        """Runs the attacking program in an interpreter that waited for one of its shape."""

        async def run(self, launch: SandboxLaunch, stdin: AsyncIterator[bytes]) -> Any:
            if shape_of(launch) is not None:
                first = rooms.make() / "empty"
                first.mkdir()
                (first / "program.py").write_text("pass")
                mounts = [read("/canary/read", first), staged("/canary/staged", rooms.make())]
                like = launch.model_copy(update={"mounts": mounts})
                await rooms.warmed(like)
            async with aclosing(rooms.pool.run(rooms.backend, launch, stdin)) as outputs:
                async for each in outputs:
                    yield each

    checks = await prove(Warmed(rooms))

    assert rooms.pool.used == 1
    assert {check.name for check in checks} > set(CHECKS)
    assert [f"{check.name}: {check.observed}" for check in checks if not check.holds] == []


FOUR = """
import ctypes, os, threading, time

def hold():
    time.sleep(0.2)  # until the first thread has ended
    kept = bytearray(b"x") * (60 << 20)
    time.sleep(60)

for _ in range(4):
    if os.fork() == 0:
"""


async def test_limits_hold_from_the_start_of_a_script(rooms: Rooms) -> None:
    small = limits(cpu=1, memory=96 << 20)

    endless = await rooms.warm(rooms.launch("while True: pass", limits=small))
    many, headless = [
        await rooms.warm(rooms.launch(FOUR + f"        {one}\ntime.sleep(60)", limits=small))
        for one in ("hold()", "threading.Thread(target=hold).start(); ctypes.CDLL(None).pthread_exit(None)")
    ]
    raised = await rooms.warm(rooms.launch("import resource as r; r.setrlimit(r.RLIMIT_CPU, (100, 100))", limits=small))

    assert endless.ended.reason == "cpu"
    assert (many.ended.reason, headless.ended.reason) == ("memory", "memory")
    assert b"ValueError" in raised.stderr or b"PermissionError" in raised.stderr


async def test_closing_ends_a_script_and_its_processes(rooms: Rooms) -> None:
    await rooms.warmed()
    token = f"token-{os.getpid()}-{id(rooms)}"
    code = f"import os, time\nif os.fork() == 0: os.execv('/bin/sh', ['{token}', '-c', 'sleep 600; true'])\n"
    what = rooms.launch(f"{code}time.sleep(0.3); print('began', flush=True); time.sleep(600)")

    async with aclosing(rooms.pool.run(rooms.backend, what, stdin_of())) as outputs:
        assert (await anext(outputs)).data == b"began\n"
        while not processes_with(token):
            await asyncio.sleep(0.02)

    assert not processes_with(token)


async def test_a_dead_interpreter_costs_no_script(rooms: Rooms) -> None:
    await rooms.warmed()
    for pid in processes_with("/tavern/zygote.py"):
        with contextlib.suppress(ProcessLookupError):  # those within go with the one around them
            os.kill(pid, 9)

    came = await rooms.run("print('ran')")
    await rooms.warmed()

    assert came.stdout == b"ran\n"


async def test_one_that_waited_too_long_is_thrown_away(rooms: Rooms) -> None:
    await rooms.warmed()
    rooms.idle = 0.2
    await rooms.run(rooms.launch("pass", limits=limits(cpu=2.0)))  # of another shape: the one that waits stays

    async with asyncio.timeout(60):
        while rooms.pool.waiting or processes_with("/tavern/zygote.py"):
            await asyncio.sleep(0.02)
    came = await rooms.run("print('still')")

    assert came.stdout == b"still\n"


UNFIT: list[dict[str, Any]] = [
    {"proxy": "/run/some.sock"},
    {"address_space": False},
    {"argv": [PYTHON, "-c", "pass"]},
    {"argv": [PYTHON, "-m", "json.tool"]},
    {"argv": ["/usr/bin/node", "/script/main.py"]},
    {"argv": [PYTHON]},
    {"mounts": [read("/script", "/usr/lib")]},
    {"mounts": [read("/script/main.py", __file__)]},
    {"mounts": [read("/script", "/there/is/none")]},
    {"mounts": [staged("/script/.cache", "/tmp/x", filled=True)]},
    {"mounts": [read("/tavern/own.py", __file__)]},
]
"""What an interpreter that started already cannot run."""


def test_early_limits_and_variables_make_the_shape(tmp_path: Path) -> None:
    rooms = Rooms(tmp_path, bubblewrap())
    what, linked, nested, large = (rooms.launch("pass") for _ in range(4))
    Path(linked.mounts[0].source, "link").symlink_to("/etc/passwd")
    Path(nested.mounts[0].source, "inner").mkdir()
    Path(large.mounts[0].source, "data").write_bytes(bytes(2 << 20))
    shape = shape_of(what)

    def with_variable(name: str) -> SandboxLaunch:
        return what.model_copy(update={"environment": {**what.environment, name: "x"}})

    assert shape is not None
    assert [shape_of(each) for each in (linked, nested, large)] == [None, None, None]
    assert [change for change in UNFIT if shape_of(what.model_copy(update=change)) is not None] == []
    for change in ({"memory": 1}, {"processes": 3}, {"scratch": 5}, {"cpu": 2.0}, {"files": 9}):
        assert shape_of(what.model_copy(update={"limits": limits(**change)})) not in (None, shape), change
    assert shape_of(what.model_copy(update={"limits": limits(wall=1)})) == shape
    for name in ("PYTHONPATH", "LD_PRELOAD", "LANG", "LC_ALL", "PYTHONHASHSEED"):
        assert shape_of(with_variable(name)) != shape, name
    assert shape_of(with_variable("TAVERN_CONFIG_X")) == shape


async def test_the_pool_turns_to_what_is_run_now(rooms: Rooms) -> None:
    await rooms.warmed()
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    other = rooms.launch(code, limits=limits(files=100))

    async with asyncio.timeout(60):
        while rooms.pool.used == 0 or rooms.pool.shape != shape_of(other):
            assert (await rooms.run(other)).stdout == b"100\n", "it ran in what waited with other limits"
            await asyncio.sleep(0.05)


async def test_a_broken_backend_costs_only_warmth(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(_Pooled):
        async def run(self, launch: SandboxLaunch, stdin: AsyncIterator[bytes]) -> Any:
            if launch.argv[-1] == "/script/main.py":
                yield SandboxOutput(kind="ended", exit_code=0)
            else:
                yield SandboxOutput(kind="ended", data=b"no room", reason="broken")

    rooms = Rooms(tmp_path, bubblewrap())
    rooms.backend = Broken(rooms)
    try:
        for _ in range(3):
            assert (await rooms.run("pass")).ended.exit_code == 0
            while (told := caplog.messages.count(BROKEN)) == 0:
                await asyncio.sleep(0.02)
        assert told == 1
    finally:
        await rooms.pool.close()


async def test_interpreters_wait_in_the_weaker_sandbox_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if IS_ROOT or kernel.version() < kernel.NEEDED:
        pytest.skip("the sandbox of Landlock is for an ordinary user, and for a kernel that has it")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    rooms = Rooms(tmp_path, landlock())
    code = (
        "import os, sys, tempfile\nopen('left.txt', 'w').write(sys.stdin.read())\n"
        "with tempfile.NamedTemporaryFile() as file: print('zipfile' in sys.modules, os.path.dirname(file.name))\n"
        "try: open(%r)\nexcept PermissionError: print('kept out')"
    )
    secret = tmp_path / "secret"
    secret.write_text("secret")
    try:
        for number in range(3):
            what = rooms.launch(code % str(secret), environment={"PATH": "/usr/bin:/bin", "TMPDIR": "/tmp"})

            came = await rooms.warm(what, b"%d" % number)

            first, second = came.stdout.decode().splitlines()
            assert first.startswith(f"True {temporary}/tavern-script-") and second == "kept out"
            assert left_by(what) == {"left.txt": str(number)}
        assert rooms.pool.used == 3
    finally:
        await rooms.pool.close()

    assert list(temporary.iterdir()) == [] and not processes_with("/tavern/zygote.py")


async def test_closing_the_pool_leaves_nothing(tmp_path: Path) -> None:
    descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    async with rooms_of(tmp_path, size=0) as rooms:
        assert (await rooms.run("print(1)")).stdout == b"1\n"
        assert rooms.pool.used == rooms.pool.waiting == 0 and not processes_with("/tavern/zygote.py")
        rooms.size = 3
        await rooms.warmed()
        scripts = {Path(mount.source).parent for mount in rooms.launch("pass").mounts}
        before = {path for path in tmp_path.iterdir() if not (path / "script").exists()} - scripts
        assert len(before) == 3

    assert not processes_with("/tavern/zygote.py")
    assert not any(path.exists() for path in before)
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) <= descriptors  # garbage of earlier tests may have had some
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_a_cancelled_start_leaves_nothing(tmp_path: Path) -> None:
    for delay in (0.0, 0.01, 0.05, 0.1):
        folder = tmp_path / str(delay)
        folder.mkdir()
        async with rooms_of(folder, size=4) as rooms:
            await rooms.run("pass")
            await asyncio.sleep(delay)

        assert not processes_with("/tavern/zygote.py")
