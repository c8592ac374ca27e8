"""What goes into a program in the sandbox and comes out of it, and how it ends; `attacks` show that limits hold."""

from __future__ import annotations

import asyncio
import os
import resource
import time
import venv
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from helpers.repetition import Failures

from tavern_host.contracts.scripts import SandboxLaunch, ScriptBackend
from tavern_scripts.sandbox import landlock as kernel
from tests.scripts.sandboxes import IS_ROOT, LIMITS, MB, PYTHON, bubblewrap, given, landlock, launch, limits, read, run


@pytest.fixture(params=["bubblewrap", "landlock"])
def backend(request: pytest.FixtureRequest) -> ScriptBackend:
    """Each sandbox that the user who runs the tests can have."""
    if request.param == "bubblewrap":
        return bubblewrap()
    if IS_ROOT or kernel.version() < kernel.NEEDED:
        pytest.skip(f"Landlock: version {kernel.version()}, and for an ordinary user only")
    return landlock()


async def test_what_is_given_to_stdin_comes_out_of_stdout(backend: ScriptBackend) -> None:
    came = await run(backend, "import sys; sys.stdout.write(sys.stdin.read()[::-1])", "schön ✓".encode())

    assert came.stdout.decode() == "✓ nöhcs"
    assert came.ended.exit_code == 0
    assert (came.ended.usage.input, came.ended.usage.output) == (10, 10)


async def test_a_result_has_a_channel_of_its_own(backend: ScriptBackend) -> None:
    code = "import os, sys; print('noise'); sys.stderr.write('log'); os.write(3, b'result')"

    came = await run(backend, code, channel=True)

    assert (came.stdout, came.stderr, came.channel) == (b"noise\n", b"log", b"result")


async def test_without_a_channel_there_is_no_third_descriptor(backend: ScriptBackend) -> None:
    came = await run(backend, "import os; os.write(3, b'x')")

    assert b"Bad file descriptor" in came.stderr
    assert came.channel == b""


async def test_the_exit_code_says_how_it_ended(backend: ScriptBackend) -> None:
    ends = {"raise SystemExit(7)": 7, "import os; os.kill(os.getpid(), 9)": -9, "import os; os.abort()": -6, "": 0}

    came = [(await run(backend, code)).ended for code in ends]

    assert [(ended.exit_code, ended.reason) for ended in came] == [(code, None) for code in ends.values()]


async def test_the_environment_is_only_what_is_given(backend: ScriptBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "of-the-host")

    came = await run(backend, "import os; print(sorted(os.environ))", environment={"GIVEN": "1"})

    names = set(eval(came.stdout))
    assert "GIVEN" in names
    assert names <= {"GIVEN", "PWD", "LC_CTYPE", "TMPDIR"}


async def test_what_is_given_in_the_environment_is_on_no_command_line() -> None:
    token = f"word-{os.getpid()}-of-the-environment"
    seen = []
    what = launch("print('began', flush=True); input()", environment={"SECRET": token})
    async with aclosing(bubblewrap().run(what, _forever())) as outputs:
        async for each in outputs:
            if each.kind == "stdout":
                seen = [pid for pid in _pids() if token.encode() in _cmdline(pid)]
                began = [pid for pid in _pids() if b"print('began'" in _cmdline(pid)]
                break

    assert began
    assert not seen


async def test_a_program_that_is_not_there_never_begins(backend: ScriptBackend) -> None:
    came = await run(backend, SandboxLaunch(argv=["/usr/bin/no-such-program"], limits=LIMITS))

    assert came.ended.reason == "broken"
    assert "no-such-program" in came.said


async def test_what_cannot_be_mounted_is_said(backend: ScriptBackend, tmp_path: Path) -> None:
    if backend.__class__.__name__ != "Bubblewrap":
        pytest.skip("Landlock mounts nothing")

    came = await run(backend, "print(1)", mounts=[read("/work", tmp_path / "missing")])

    assert came.ended.reason == "broken"
    assert came.said == f"{tmp_path / 'missing'} cannot be mounted at /work: No such file or directory"
    assert came.stdout == b""


HIDING = ("/", "/proc", "/etc/passwd", "/dev/null", "/usr", "/tmp", "work", "/a/../b", "/a//b")


async def test_nothing_is_mounted_over_what_the_sandbox_rests_on(backend: ScriptBackend, tmp_path: Path) -> None:
    with Failures() as failures:
        for target in HIDING:
            with failures.row(target):
                came = await run(backend, "print(1)", mounts=[read(target, tmp_path)])

                assert came.ended.reason == "broken" and target in came.said


async def test_zero_bytes_and_odd_names_are_refused() -> None:
    zero = await run(bubblewrap(), "print(1)", environment={"A": "x\0--bind\0/\0/host"})
    name = await run(bubblewrap(), "print(1)", environment={"A=B": "x"})

    assert "zero byte" in zero.said
    assert "not the name of an environment variable" in name.said


async def test_root_gives_no_variables_that_act_before_its_rights_are_gone() -> None:
    if not IS_ROOT:
        pytest.skip("only root has rights to give up")

    came = await run(bubblewrap(), "print(1)", environment={"LD_PRELOAD": "/tmp/x.so"})

    assert came.ended.reason == "broken"
    assert "LD_PRELOAD" in came.said


async def test_closing_early_ends_everything(backend: ScriptBackend) -> None:
    token = f"closed-{os.getpid()}-{time.monotonic_ns()}"
    code = "import os, time\nfor _ in range(3): os.fork()\nprint('began', flush=True)\ntime.sleep(60)"
    async with aclosing(backend.run(launch(code, token), given())) as outputs:
        async for each in outputs:
            assert each.kind == "stdout"
            running = _with(token)
            break

    assert running
    assert not _with(token)


async def test_a_flood_waits_for_its_reader_and_costs_no_memory(backend: ScriptBackend) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = "import os\nchunk = bytes(65536)\nwhile True: os.write(1, chunk)"
    taken = 0
    async with aclosing(backend.run(launch(code), given())) as outputs:
        async for each in outputs:
            taken += len(each.data)
            if taken < 2 * MB:
                await asyncio.sleep(0.005)
            if taken > 64 * MB:
                break

    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert taken > 64 * MB
    assert grown < 16 * MB


async def test_a_program_that_reads_nothing_holds_nobody_up(backend: ScriptBackend) -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 65536
            yield bytes(65536)

    async with aclosing(backend.run(launch("import time; time.sleep(0.3); print('done')"), endless())) as outputs:
        came = [each async for each in outputs]

    assert came[0].data == b"done\n"
    assert came[-1].exit_code == 0
    assert taken < MB


async def test_input_that_fails_ends_the_input_only(backend: ScriptBackend) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"some"
        raise ValueError("the source is gone")

    async with aclosing(backend.run(launch("import sys; print(sys.stdin.read())"), failing())) as outputs:
        came = [each async for each in outputs]

    assert came[0].data == b"some\n"
    assert came[-1].exit_code == 0


async def test_an_interpreter_outside_of_usr_is_seen_with_its_libraries(backend: ScriptBackend) -> None:
    came = await run(
        backend, SandboxLaunch(argv=[PYTHON, "-c", "import json, decimal; print(json.dumps([1]))"], limits=LIMITS)
    )

    assert came.stdout == b"[1]\n", came.stderr


async def test_a_virtual_environment_is_seen_with_what_it_was_made_from(backend: ScriptBackend, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == Path.home().owner() and not folder.stat().st_mode & 1:
            folder.chmod(0o755)

    came = await run(
        backend,
        SandboxLaunch(
            argv=[str(tmp_path / "env" / "bin" / "python"), "-c", "import sys, json; print(sys.prefix)"], limits=LIMITS
        ),
    )

    assert came.stdout.decode().strip() == str(tmp_path / "env"), came.stderr + came.ended.data


async def test_nodejs_runs_without_a_limit_of_the_address_space() -> None:
    node = Path("/usr/bin/node")
    if not node.exists():
        pytest.skip("there is no /usr/bin/node")
    what = SandboxLaunch(
        argv=[str(node), "-e", "console.log(1 + 1)"], limits=limits(memory=256 * MB, processes=32), address_space=False
    )

    came = await run(bubblewrap(), what)

    assert came.stdout == b"2\n", came.stderr


async def _forever() -> AsyncIterator[bytes]:
    await asyncio.sleep(60)
    yield b""


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _with(token: str, besides: str = "pytest") -> list[int]:
    lines = {pid: _cmdline(pid) for pid in _pids()}
    return [pid for pid, line in lines.items() if token.encode() in line and besides.encode() not in line]
