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

from tavern_scripts.api.scripts import SandboxLaunch, ScriptBackend
from tavern_scripts.sandbox import landlock as kernel
from tavern_scripts.sandbox.bubblewrap import Bubblewrap
from tavern_scripts.sandbox.cgroups import find_groups
from tests.scripts.sandboxes import (
    IS_ROOT,
    LIMITS,
    MB,
    bubblewrap,
    landlock,
    launch,
    processes_with,
    read,
    run,
    stdin_of,
)


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

    without = await run(backend, "import os; os.write(3, b'x')")

    assert (came.stdout, came.stderr, came.channel) == (b"noise\n", b"log", b"result")
    assert b"Bad file descriptor" in without.stderr and without.channel == b""


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
                seen, began = (processes_with(word, everywhere=True) for word in (token, "print('began'"))
                break

    assert began
    assert not seen


async def test_what_cannot_begin_says_why_and_leaves_nothing(backend: ScriptBackend, tmp_path: Path) -> None:
    def there_is() -> tuple[object, ...]:
        groups = find_groups()
        made = [path.name for path in groups.folder.glob(f"tavern-{os.getpid()}-*")] if groups is not None else []
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        return len([*Path("/proc/self/fd").iterdir()]), Path("/proc/self/mountinfo").read_text(), children, made

    await run(backend, "print(1)")
    before = there_is()
    came = await run(backend, SandboxLaunch(argv=["/usr/bin/no-such-program"], limits=LIMITS))
    assert came.ended.reason == "broken" and "no-such-program" in came.said
    if isinstance(backend, Bubblewrap):  # Landlock mounts nothing
        came = await run(backend, "print(1)", mounts=[read("/work", tmp_path / "missing")])
        assert came.ended.reason == "broken" and came.stdout == b""
        assert came.said == f"{tmp_path / 'missing'} cannot be mounted at /work: No such file or directory"
    assert there_is() == before


HIDING = ("/", "/proc", "/etc/passwd", "/dev/null", "/usr", "/tmp", "work", "/a/../b", "/a//b")


async def test_nothing_is_mounted_over_what_the_sandbox_rests_on(backend: ScriptBackend, tmp_path: Path) -> None:
    with Failures() as failures:
        for target in HIDING:
            with failures.row(target):
                came = await run(backend, "print(1)", mounts=[read(target, tmp_path)])

                assert came.ended.reason == "broken" and target in came.said


async def test_variables_that_would_do_harm_are_refused() -> None:
    rows = {"A": ("x\0--bind\0/\0/host", "zero byte"), "A=B": ("x", "not the name of an environment variable")}
    if IS_ROOT:  # it would act before its rights are gone
        rows["LD_PRELOAD"] = ("/tmp/x.so", "LD_PRELOAD")
    for name, (text, said) in rows.items():
        came = await run(bubblewrap(), "print(1)", environment={name: text})
        assert came.ended.reason == "broken" and said in came.said


async def test_closing_early_ends_everything(backend: ScriptBackend) -> None:
    token = f"closed-{os.getpid()}-{time.monotonic_ns()}"
    code = "import os, time\nfor _ in range(3): os.fork()\nprint('began', flush=True)\ntime.sleep(60)"
    async with aclosing(backend.run(launch(code, token), stdin_of())) as outputs:
        async for each in outputs:
            assert each.kind == "stdout"
            running = processes_with(token)
            break

    assert running
    assert not processes_with(token, everywhere=True)


async def test_a_flood_waits_for_its_reader_and_costs_no_memory(backend: ScriptBackend) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = "import os\nchunk = bytes(65536)\nwhile True: os.write(1, chunk)"
    taken = 0
    async with aclosing(backend.run(launch(code), stdin_of())) as outputs:
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


async def _forever() -> AsyncIterator[bytes]:
    await asyncio.sleep(60)
    yield b""
