"""Modules of WebAssembly as scripts: what they are given and give, and what they cannot do."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from helpers.waiting import until

from tavern_host import Host
from tavern_host.contracts.errors import InvalidInput
from tavern_host.projects import make_project
from tavern_scripts.api.scripts import SandboxLaunch, ScriptErrorType
from tavern_wasm import backend
from tavern_wasm.backend import Wasmtime
from tests.scripts.sandboxes import LIMITS, collected, limits, processes_with, read, run, staged, stdin_of
from tests.scripts.scripthost import PREFIX, Scripts
from tests.scripts.wasm_modules import ECHO, ENDLESS, FLOOD, SLEEPING, module, opening, put, writing

REFUSED = {b"2", b"44", b"63", b"69", b"76"}
"""How WASI says that something may not be opened: acces, noent, perm, rofs, notcapable."""


@asynccontextmanager
async def modules_of(tmp_path: Path, **settings: Any) -> AsyncIterator[Scripts]:
    if not (tmp_path / "project").exists():
        make_project(tmp_path / "project")
    async with Host(tmp_path / "project", settings={f"{PREFIX}{k}": v for k, v in settings.items()}) as host:
        yield Scripts(host)


@pytest.fixture
async def modules(tmp_path: Path) -> AsyncIterator[Scripts]:
    async with modules_of(tmp_path, memoryMegabytes=32, scratchMegabytes=2, fileMegabytes=4) as opened:
        yield opened


def add(scripts: Scripts, name: str, text: str) -> str:
    return put(scripts.host.project.root / "scripts", name, text).name


def launch_of(folder: Path, text: str, **others: Any) -> SandboxLaunch:
    """Return the launch of a module whose folder has the descriptor 5 and whose output has 4."""
    put(folder / "script", "main.wasm", text)
    (folder / "output").mkdir(exist_ok=True)
    mounts = [read("/script", folder / "script"), staged("/output", folder / "output")]
    return SandboxLaunch(**{"argv": ["/script/main.wasm"], "mounts": mounts, "limits": LIMITS, **others})


async def runners() -> list[int]:
    return await asyncio.to_thread(processes_with, "tavern_wasm/runner.py")


# --- input and result -----------------------------------------------------------------------------


async def test_a_module_reads_json_and_gives_json(modules: Scripts) -> None:
    path = add(modules, "echo.wasm", ECHO)
    for value in ({"a": [1, None, "任务 😀"]}, None, "x" * 200_000):
        assert await modules.output(script_path=path, input_data=value) == value
    result = await modules.run(script_path=path, input_data=1)
    assert result.enforced is not None and result.enforced.backend == "tavern-wasm:wasmtime"
    assert result.usage is not None and result.usage.cpu_ms and result.usage.peak_memory


async def test_a_module_has_its_arguments_and_its_own_environment_alone(tmp_path: Path) -> None:
    said = """(drop (call $args_sizes_get (i32.const 0) (i32.const 4)))
        (drop (call $args_get (i32.const 1024) (i32.const 2048)))
        (call $put (i32.const 2048) (i32.load (i32.const 4)))
        (drop (call $environ_sizes_get (i32.const 0) (i32.const 4)))
        (drop (call $environ_get (i32.const 1024) (i32.const 2048)))
        (call $put (i32.const 2048) (i32.load (i32.const 4)))"""
    os.environ["A_SECRET_OF_THE_HOST"] = "secret"
    try:
        environment = {"TAVERN_CONFIG_KEY": "v"}
        launch = launch_of(tmp_path, module(said), argv=["/script/main.wasm", "--fast"], environment=environment)
        came = await run(Wasmtime(), launch)
    finally:
        del os.environ["A_SECRET_OF_THE_HOST"]
    assert came.stdout.split(b"\0")[:-1] == [b"/script/main.wasm", b"--fast", b"TAVERN_CONFIG_KEY=v"]


async def test_what_no_module_can_be_is_said_before(modules: Scripts) -> None:
    path = add(modules, "echo.wasm", ECHO)
    rows: list[tuple[dict[str, Any], str]] = [
        ({"code": "(module)", "language": "wasm"}, "hand over no code"),
        ({"script_path": path, "entry_point": "f"}, "leave out entryPoint"),
        ({"script_path": path, "protocol": "channel"}, "leave out entryPoint"),
        ({"script_path": path, "tools": ["a"]}, "leave out entryPoint"),
    ]
    with Failures() as failures:
        for request, said in rows:
            with failures.row(str(request)):
                with pytest.raises(InvalidInput) as raised:
                    await modules.run(**request)
                assert said in raised.value.message
    assert await modules.output(command="wasmtime run echo.wasm --fast", input_data=3) == 3


async def test_what_is_no_module_or_fails_says_why(modules: Scripts) -> None:
    folder = put(modules.host.project.root / "scripts", "echo.wasm", ECHO).parent
    (folder / "text.wasm").write_text(ECHO)
    (folder / "component.wasm").write_bytes(b"\0asm\x0d\0\1\0")
    (folder / "broken.wasm").write_bytes(b"\0asm\1\0\0\0\xff")
    foreign = '(module (import "env" "system" (func)) (memory (export "memory") 1) (func (export "_start")))'
    leaving = '(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))'
    leaving += '(memory (export "memory") 1) (func (export "_start") (call $exit (i32.const 3))))'
    rows = [
        ("text.wasm", None, ScriptErrorType.SCRIPT, "is no module of WebAssembly"),
        ("component.wasm", None, ScriptErrorType.SCRIPT, "is a component"),
        ("broken.wasm", None, ScriptErrorType.SCRIPT, "malformed section"),
        ("foreign.wasm", foreign, ScriptErrorType.SCRIPT, "env::system"),
        ("library.wasm", '(module (func (export "f")))', ScriptErrorType.SCRIPT, "has no function _start"),
        ("exit.wasm", leaving, ScriptErrorType.SCRIPT, "exit code 3"),
        ("trap.wasm", module("unreachable"), ScriptErrorType.SCRIPT, "unreachable"),
        ("deep.wasm", module("(call $f)", more="(func $f (call $f))"), ScriptErrorType.SCRIPT, "call stack exhausted"),
        ("big.wasm", module("", pages=600), ScriptErrorType.RESOURCE, "more memory than 32 MB"),
        ("silent.wasm", module(""), ScriptErrorType.OUTPUT, "printed no result"),
        (
            "prose.wasm",
            module("(call $put (i32.const 0) (i32.const 4))", data=[(0, "{a:}")]),
            "OutputError",
            "is no JSON",
        ),
    ]
    with Failures() as failures:
        for name, text, type, said in rows:
            with failures.row(name):
                if text is not None:
                    add(modules, name, text)
                assert said in await modules.error(ScriptErrorType(type), script_path=name)


async def test_without_wasmtime_it_says_how_to_get_it(modules: Scripts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_packages", lambda: None)
    said = await modules.error(ScriptErrorType.SECURITY, script_path=add(modules, "echo.wasm", ECHO))
    assert "pip install tavern-host[wasm]" in said
    reports = {report.name: report for report in await modules.service.backends()}
    assert not reports["tavern-wasm:wasmtime"].usable


async def test_every_property_of_the_sandbox_is_tried_out(modules: Scripts) -> None:
    (report,) = [one for one in await modules.service.backends() if one.name == "tavern-wasm:wasmtime"]
    assert report.chosen and report.languages == ["wasm"]
    assert {"environment", "network", "memory", "interruption", "ending", "imports"} < {c.name for c in report.checks}
    assert [check for check in report.checks if not check.holds] == []


# --- what it cannot do ----------------------------------------------------------------------------


async def test_a_module_sees_the_folders_that_it_was_granted_and_nothing_else(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    folder = tmp_path / "run"
    put(folder / "script", "given.wasm", ECHO)
    (folder / "script" / "link").symlink_to(secret)
    (folder / "script" / "up").symlink_to("../..")
    (folder / "script" / "round").symlink_to("given.wasm")
    rows: list[tuple[str, bool, bool]] = [
        ("given.wasm", False, True),
        ("round", False, True),
        ("./../script/given.wasm", False, False),
        ("../../secret", False, False),
        (str(secret), False, False),
        ("link", False, False),
        ("up/secret", False, False),
        ("new", True, False),
        ("given.wasm", True, False),
    ]
    with Failures() as failures:
        for path, writes, works in rows:
            with failures.row(path):
                came = await run(Wasmtime(), launch_of(folder, opening(path, descriptor=5, writes=writes)))
                assert came.ended.exit_code == 0, came
                assert (came.stdout == b"0") == works and (works or came.stdout in REFUSED), came.stdout
    assert secret.read_text() == "secret"


async def test_links_that_a_module_makes_lead_nowhere_and_are_not_kept(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    link = """(call $say
          (call $path_symlink (i32.const 1024) (i32.const 9) (i32.const 4) (i32.const 1100) (i32.const 1)))
        (call $put (i32.const 1200) (i32.const 1))
        (call $say (call $path_open (i32.const 4) (i32.const 1) (i32.const 1110) (i32.const 8)
          (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 512)))
        (call $put (i32.const 1200) (i32.const 1))
        (call $say (call $path_symlink (i32.const 1120) (i32.const 4) (i32.const 4) (i32.const 1130) (i32.const 1)))
        (call $put (i32.const 1200) (i32.const 1))
        (call $say (call $path_link (i32.const 5) (i32.const 0) (i32.const 1140) (i32.const 9) (i32.const 4)
          (i32.const 1150) (i32.const 1)))"""
    data = [(1024, "../../../"), (1100, "l"), (1110, "l/secret"), (1120, "/etc"), (1130, "m"), (1140, "main.wasm")]
    launch = launch_of(tmp_path, module(link, data=[*data, (1150, "h"), (1200, " ")]))
    came = await run(Wasmtime(), launch)
    made, followed, absolute, hard = came.stdout.split()
    assert made == b"0" and followed in REFUSED and absolute in REFUSED and hard in REFUSED, came
    assert [*(tmp_path / "output").iterdir()] == []
    assert "neither a file nor a folder" in came.said


async def test_single_files_are_seen_where_they_were_granted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    launch = launch_of(tmp_path, opening("data/a.txt", descriptor=5))
    mounts = [read("/script/main.wasm", tmp_path / "script" / "main.wasm"), staged("/output", tmp_path / "output")]
    launch = launch.model_copy(update={"mounts": [*mounts, read("/script/data/a.txt", tmp_path / "a.txt")]})
    assert (await run(Wasmtime(), launch)).stdout == b"0"
    (tmp_path / "script" / "hidden").write_text("x")
    put(tmp_path / "script", "main.wasm", opening("hidden", descriptor=5))
    assert (await run(Wasmtime(), launch)).stdout in REFUSED


async def test_what_a_module_writes_is_kept_after_a_clean_end_alone(tmp_path: Path) -> None:
    text = writing("x", descriptor=4, pieces=1)
    await run(Wasmtime(), launch_of(tmp_path, text.replace("(call $say (global", "unreachable (call $say (global")))
    assert [*(tmp_path / "output").iterdir()] == []
    await run(Wasmtime(), launch_of(tmp_path, text))
    assert [path.name for path in (tmp_path / "output").iterdir()] == ["xa"]


async def test_memory_ends_at_the_limit(modules: Scripts) -> None:
    grow = """(loop $on (br_if $on (i32.ge_s (memory.grow (i32.const 16)) (i32.const 0))))
        (call $say (memory.size))"""
    pages = await modules.output(script_path=add(modules, "grow.wasm", module(grow)))
    assert 32 * 16 - 16 < pages <= 32 * 16
    table = module("", more="(table 9000000 funcref)")
    assert "table" in await modules.error(ScriptErrorType.SCRIPT, script_path=add(modules, "table.wasm", table))


async def test_space_and_files_end_at_the_limit(modules: Scripts) -> None:
    for name, text in (
        ("long.wasm", writing("x", descriptor=4, pieces=1000)),
        ("many.wasm", writing("x", descriptor=4, pieces=20, files=20)),
        ("scratch.wasm", writing("x", descriptor=3, pieces=20, files=20)),
    ):
        said = await modules.error(ScriptErrorType.RESOURCE, script_path=add(modules, name, text))
        assert "filled the space" in said
    kept = writing("x", descriptor=4, pieces=4)
    assert (await modules.run(script_path=add(modules, "kept.wasm", kept))).files[0].size == 4 << 16


async def test_output_ends_at_the_limit(modules: Scripts) -> None:
    path = add(modules, "flood.wasm", FLOOD)
    assert "gave more than" in await modules.error(ScriptErrorType.OUTPUT, script_path=path)
    assert await runners() == []


async def test_time_ends_loops_and_sleep(tmp_path: Path) -> None:
    async with modules_of(tmp_path, timeoutSeconds=0.5) as scripts:
        for name, text in (("loop.wasm", ENDLESS), ("sleep.wasm", SLEEPING)):
            said = await scripts.error(ScriptErrorType.TIMEOUT, script_path=add(scripts, name, text))
            assert "did not end within 0.5 s" in said
        assert await runners() == []
    async with modules_of(tmp_path, cpuSeconds=1) as scripts:
        said = await scripts.error(ScriptErrorType.RESOURCE, script_path="loop.wasm")
        assert "computed for more than 1 s" in said


async def test_a_deadline_interrupts_a_loop_by_itself(tmp_path: Path) -> None:
    came = await run(Wasmtime(), launch_of(tmp_path, ENDLESS, limits=limits(wall=0.2)))
    assert came.ended.exit_code == -9 and b"interrupt" in came.stderr
    came = await run(Wasmtime(), launch_of(tmp_path, SLEEPING, limits=limits(wall=0.2)))
    assert came.ended.exit_code == -9 and came.stdout == b"began\n"


async def test_cancelling_leaves_nothing(modules: Scripts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "boxes"))
    (tmp_path / "boxes").mkdir()
    path = add(modules, "sleep.wasm", SLEEPING)
    assert [report for report in await modules.service.backends() if report.languages]
    tasks = [asyncio.create_task(modules.run(script_path=path)) for _ in range(4)]
    await until(lambda: len(processes_with("tavern_wasm/runner.py")) == len(tasks))
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert await runners() == []
    assert [*(tmp_path / "boxes").rglob("*")] == []


async def test_twenty_at_once_do_not_hold_the_loop(modules: Scripts) -> None:
    path = add(modules, "echo.wasm", ECHO)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    counting = asyncio.create_task(count())
    outputs = await asyncio.gather(*(modules.output(script_path=path, input_data=number) for number in range(20)))
    counting.cancel()
    assert outputs == [*range(20)]
    assert turns > 20
    assert await runners() == []


async def test_what_a_launch_asks_for_that_no_module_has_is_refused(tmp_path: Path) -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"proxy": "/run/proxy"}, "no network"),
        ({"channel": True}, "result on stdout"),
        ({"argv": ["/usr/bin/python3"]}, "nothing that the module was granted"),
        ({"argv": ["/script/../secret.wasm"]}, "nothing that the module was granted"),
        ({"argv": ["/script/main.wasm", "a\0b"]}, "zero byte"),
    ]
    with Failures() as failures:
        for others, said in rows:
            with failures.row(said):
                came = await run(Wasmtime(), launch_of(tmp_path, ECHO, **others))
                assert came.ended.reason == "broken" and said in came.said


async def test_input_that_is_not_read_holds_nobody_up(tmp_path: Path) -> None:
    stdin = stdin_of(*(b"x" * 65536 for _ in range(100)))
    came = await collected(Wasmtime().run(launch_of(tmp_path, module("(call $say (i32.const 7))")), stdin))
    assert (came.stdout, came.ended.exit_code) == (b"7", 0)
    assert json.loads(came.stdout) == 7
