"""Finds out whether the sandbox of modules holds, by modules that try to break it."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from tavern_scripts.api.scripts import (
    IsolationCheck,
    SandboxLaunch,
    SandboxMount,
    SandboxOutput,
    ScriptBackend,
    ScriptLimits,
    no_input,
)

_MB = 1 << 20
_PAGES = 256
_LIMITS = ScriptLimits(
    wall=10, cpu=10, memory=_PAGES << 16, processes=1, files=64, file_size=_MB, scratch=_MB, input=1, output=1, log=1
)
_SECONDS = 30.0
_NO_DEADLINE = 3600.0
_OUTPUT, _READ = 4, 5
"""The descriptors of the folders, in the order in which they are given; 3 is /tmp."""

_ATTEMPTS: Sequence[tuple[str, int, str, bool, bool]] = (
    ("reading what was granted", _READ, "given", False, True),
    ("writing to what was granted for it", _OUTPUT, "kept", True, True),
    ("reading above a folder", _READ, "../secret/secret", False, False),
    ("reading from the root", _READ, "/etc/passwd", False, False),
    ("following a link that leads out", _READ, "link", False, False),
    ("following a folder that is a link", _READ, "folder/secret", False, False),
    ("writing to what is to be read", _READ, "new", True, False),
    ("writing above a folder", _OUTPUT, "../escaped", True, False),
)
"""What is tried with files: the descriptor and the path, whether it is to be written, and whether that must work."""

_IMPORTS = """
(import "wasi_snapshot_preview1" "path_open"
  (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ (param i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "sock_accept" (func $accept (param i32 i32 i32) (result i32)))
"""
_LOOP = '(module (memory (export "memory") 1) (func (export "_start") (loop $on (br $on))))'
_SLEEP = """(module (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
(memory (export "memory") 1) (data (i32.const 200) "began")
(func (export "_start")
  (i32.store (i32.const 192) (i32.const 200)) (i32.store (i32.const 196) (i32.const 5))
  (drop (call $write (i32.const 1) (i32.const 192) (i32.const 1) (i32.const 188)))
  (i32.store (i32.const 16) (i32.const 1)) (i64.store (i32.const 24) (i64.const 3600000000000))
  (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))))"""
_FOREIGN = '(module (import "env" "system" (func)) (memory (export "memory") 1) (func (export "_start")))'


async def prove(backend: ScriptBackend) -> list[IsolationCheck]:
    """Try out every property and return what was observed of each."""
    with tempfile.TemporaryDirectory(prefix="tavern-canary-") as name:
        folder = Path(name)
        modules = await asyncio.to_thread(_lay_out, folder)
        tries = [
            _attempts(backend, folder, modules),
            _interruption(backend, modules / "loop.wasm"),
            _end(backend, folder / "alone" / "sleep.wasm"),
            _foreign(backend, modules / "foreign.wasm"),
        ]
        async with asyncio.timeout(_SECONDS), asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in tries]
        return [check for task in tasks for check in task.result()]


async def _attempts(backend: ScriptBackend, folder: Path, modules: Path) -> list[IsolationCheck]:
    read = SandboxMount(target="/read", source=str(folder / "read"))
    output = SandboxMount(target="/output", source=str(folder / "output"), mode="staged")
    stdout, stderr, ended = await _run(backend, _launch(modules / "attempts.wasm", read, output))
    if ended.exit_code != 0 or len(stdout) != len(_ATTEMPTS) + 4:
        said = (stderr or ended.data).decode("utf-8", "replace").strip()
        return [IsolationCheck(name="running", holds=False, observed=f"a module did not get to its end: {said}")]
    worked = [byte == ord("0") for byte in stdout]
    checks = [
        IsolationCheck(name=name, holds=did == must, observed="it worked" if did else "it was refused")
        for (name, _, _, _, must), did in zip(_ATTEMPTS, worked[: len(_ATTEMPTS)], strict=True)
    ]
    variables, sockets, allowed, above = worked[len(_ATTEMPTS) :]
    kept = sorted(path.name for path in (folder / "output").iterdir())
    return [
        *checks,
        _check("environment", variables, "the module sees", "its own variables alone", "others"),
        _check("network", not sockets, "a connection was", "refused", "accepted"),
        _check("memory", allowed and not above, f"{_PAGES} pages are", "the most", "not what it gets"),
        IsolationCheck(name="copying out", holds=kept == ["kept"], observed=f"copied: {kept}"),
    ]


def _check(name: str, holds: bool, what: str, right: str, wrong: str) -> IsolationCheck:
    return IsolationCheck(name=name, holds=holds, observed=f"{what} {right if holds else wrong}")


async def _interruption(backend: ScriptBackend, module: Path) -> list[IsolationCheck]:
    _, stderr, ended = await _run(backend, _launch(module, wall=0.2))
    held = ended.exit_code == -9 and b"interrupt" in stderr
    return [_check("interruption", held, "an endless loop was", "interrupted", "not interrupted")]


async def _end(backend: ScriptBackend, module: Path) -> list[IsolationCheck]:
    before: list[int] = []
    running = backend.run(_launch(module, wall=_NO_DEADLINE), no_input())
    async with aclosing(running):  # type: ignore[type-var]
        async for output in running:
            before = await asyncio.to_thread(_holding, module.parent) if output.kind == "stdout" else []
            break
    left = await asyncio.to_thread(_holding, module.parent)
    observed = f"processes before it: {len(before)}, after it: {left or 'none'}"
    return [IsolationCheck(name="ending", holds=bool(before) and not left, observed=observed)]


async def _foreign(backend: ScriptBackend, module: Path) -> list[IsolationCheck]:
    _, stderr, ended = await _run(backend, _launch(module))
    holds = ended.exit_code == 1 and b"unknown import" in stderr
    return [_check("imports", holds, "a function that is not of WASI was", "refused", "found")]


def _launch(module: Path, *mounts: SandboxMount, wall: float = _SECONDS) -> SandboxLaunch:
    places = [*mounts, SandboxMount(target="/module", source=str(module.parent))]
    limits = _LIMITS.model_copy(update={"wall": wall})
    return SandboxLaunch(argv=[f"/module/{module.name}"], environment={"ONE": "1"}, mounts=places, limits=limits)


async def _run(backend: ScriptBackend, launch: SandboxLaunch) -> tuple[bytes, bytes, SandboxOutput]:
    async with aclosing(backend.run(launch, no_input())) as outputs:  # type: ignore[type-var]
        came = [output async for output in outputs]
    said = {kind: b"".join(output.data for output in came if output.kind == kind) for kind in ("stdout", "stderr")}
    return said["stdout"], said["stderr"], came[-1]


def _lay_out(folder: Path) -> Path:
    """Make the folders, the baits and the modules; return where the modules are. Blocking."""
    from wasmtime import wat2wasm

    for name in ("read", "output", "secret", "modules", "alone"):
        (folder / name).mkdir()
    (folder / "read" / "given").write_text("given", encoding="utf-8")
    (folder / "secret" / "secret").write_text("secret", encoding="utf-8")
    (folder / "read" / "link").symlink_to(folder / "secret" / "secret")
    (folder / "read" / "folder").symlink_to("../secret")
    modules = {"modules/attempts": _attempting(), "modules/loop": _LOOP}
    modules |= {"modules/foreign": _FOREIGN, "alone/sleep": _SLEEP}
    for name, text in modules.items():
        (folder / f"{name}.wasm").write_bytes(wat2wasm(text))
    return folder / "modules"


def _attempting() -> str:
    """Return a module that writes a 0 for each attempt that works, and something else for one that does not."""
    said = 4096
    texts, code = [], []
    for number, (_, descriptor, path, writes, _) in enumerate(_ATTEMPTS):
        texts.append(f'(data (i32.const {1024 + number * 64}) "{path}")')
        rights = 0x40 if writes else 0x2
        arguments = f"(i32.const {descriptor}) (i32.const 1) (i32.const {1024 + number * 64}) (i32.const {len(path)})"
        arguments += f" (i32.const {int(writes)}) (i64.const {rights}) (i64.const 0) (i32.const 0) (i32.const 512)"
        code.append(_say(said + number, f"(call $open {arguments})"))
    at = said + len(_ATTEMPTS)
    code.append("(drop (call $environ (i32.const 600) (i32.const 604)))")
    code.append(_say(at, "(i32.ne (i32.load (i32.const 600)) (i32.const 1))"))
    code.append(_say(at + 1, "(call $accept (i32.const 4) (i32.const 0) (i32.const 608))"))
    code.append(_say(at + 2, f"(i32.lt_s (memory.grow (i32.const {_PAGES - 1})) (i32.const 0))"))
    code.append(_say(at + 3, "(i32.lt_s (memory.grow (i32.const 1)) (i32.const 0))"))
    ending = f"(i32.store (i32.const 700) (i32.const {said}))"
    ending += f"(i32.store (i32.const 704) (i32.const {len(_ATTEMPTS) + 4}))"
    ending += "(drop (call $write (i32.const 1) (i32.const 700) (i32.const 1) (i32.const 708)))"
    parts = [_IMPORTS, '(memory (export "memory") 1)', *texts, '(func (export "_start")', *code, ending, "))"]
    return "(module " + "\n".join(parts)


def _say(at: int, failed: str) -> str:
    return f"(i32.store8 (i32.const {at}) (i32.add (i32.const 48) (i32.ne {failed} (i32.const 0))))"


def _holding(folder: Path) -> list[int]:
    """Return the processes other than this one that have a folder open."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        if int(entry.name) == os.getpid():
            continue
        try:
            if any(one.readlink() == folder for one in (entry / "fd").iterdir()):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
