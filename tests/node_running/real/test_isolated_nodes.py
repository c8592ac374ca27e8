"""Isolated nodes: a function in a process of its own, which ends when it has answered or nobody waits any more."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import isolated_nodes
import pytest
from helpers.survival import Child
from node_runners import RunnerOf, direct

from tavern_host.contracts.errors import InvalidInput, PluginFailure, TavernError
from tavern_host.runtime.source import FolderSource
from tavern_nodes import worker_process
from tavern_nodes.worker_process import Request, run_in_process

HERE = Path(__file__).parent


async def run(target: Any, inputs: dict[str, Any], config: dict[str, Any] | None = None) -> dict[str, Any]:
    return await direct(target).open(config or {}).run(inputs, None)


def is_there(pid: int) -> bool:
    """Return whether a process goes on; one that has ended and was not waited for does not."""
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # it ended before it was looked at, or meanwhile
        return False


async def gone(pids: list[int]) -> None:
    async with asyncio.timeout(60):
        while any(map(is_there, pids)):
            await asyncio.sleep(0.01)


async def written(note: Path) -> list[int]:
    async with asyncio.timeout(60):
        while not note.is_file():
            await asyncio.sleep(0.01)
    return [int(pid) for pid in note.read_text().split()]


async def test_values_go_into_the_process_and_come_back(runner_of: RunnerOf) -> None:
    value = {"text": "ä\ud800", "bytes": b"\x00\xff", "when": datetime(2026, 1, 2, tzinfo=UTC), "$bytes": [1.5, None]}

    result = await runner_of(isolated_nodes.echo).open({"times": 2}).run({"value": value}, None)

    assert result == {"result": [value, value]}


async def test_a_dict_of_outputs_and_a_raw_node_work_as_elsewhere() -> None:
    assert await run(isolated_nodes.halve, {"text": "abcd"}) == {"left": "ab", "right": "cd"}
    first = await run(isolated_nodes.raw, {"a": 1}, {"b": 2})
    second = await run(isolated_nodes.raw, {"a": 1}, {"b": 2})
    assert (first["inputs"], first["config"]) == ({"a": 1}, {"b": 2})
    assert len({first["pid"], second["pid"], os.getpid()}) == 3


async def test_what_the_function_prints_does_not_get_into_its_result(capfd: pytest.CaptureFixture[str]) -> None:
    assert await run(isolated_nodes.talk, {"text": "hello\n"}) == {"result": "hello\n"}
    printed = capfd.readouterr()
    assert (printed.out, printed.err.count("hello")) == ("", 3)


BEFORE, CANNOT = "before it answered", "has no codec and cannot go from one process to another"
ENDS = [
    ("crash", f"node EndBadly: its process was killed by SIGSEGV {BEFORE}"),
    ("exit", f"node EndBadly: its process exited with status 3 {BEFORE}"),
    ("sys.exit", "node EndBadly tried to end the program (SystemExit: 3)"),
    ("kill the group", f"node EndBadly: its process was killed by SIGKILL (perhaps for want of memory) {BEFORE}"),
    ("raise", "ValueError: boom"),
    ("odd error", "InvalidInput: odd"),
    ("set", f"node EndBadly: its result holds a value of the type set, which {CANNOT}"),
    ("nan", f"node EndBadly: its result holds the float nan, which {CANNOT}"),
    ("deep", "node EndBadly: its result is too large, nested too deeply, or has keys that are not str, and no codec "
        "knows it"),
]  # fmt: skip


async def test_a_node_fails_saying_how_its_process_ended() -> None:
    results = await asyncio.gather(
        *(run(isolated_nodes.end_badly, {"how": how}) for how, _ in ENDS), return_exceptions=True
    )
    for (_, message), error in zip(ENDS, results, strict=True):
        assert isinstance(error, PluginFailure)
        assert error.message == message


async def test_an_error_with_a_code_keeps_it_and_brings_its_traceback() -> None:
    with pytest.raises(InvalidInput, match="not that") as refused:
        await run(isolated_nodes.end_badly, {"how": "refuse"})
    assert refused.value.info.details == {"wanted": ["this"]}
    (note,) = refused.value.__notes__
    assert 'raise InvalidInput("not that"' in note


async def test_an_input_without_a_codec_is_named() -> None:
    with pytest.raises(InvalidInput) as refused:
        await run(isolated_nodes.echo, {"value": [object()]})
    assert refused.value.message == f"node Echo: the input 'value' holds a value of the type object, which {CANNOT}"


async def test_nothing_that_the_function_started_outlives_it() -> None:
    kinds = ("thread", "fork", "program")
    for found in await asyncio.gather(*(run(isolated_nodes.leave_behind, {"what": what}) for what in kinds)):
        await gone(found["result"])


@pytest.mark.parametrize("how", ["hold", "stop", "leave", "close"])
async def test_an_interrupt_ends_the_process_and_what_it_started(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "ENDS_BY_ITSELF", 0.5 if how == "stop" else 60)
    note = tmp_path / "pids"
    running = asyncio.create_task(run(isolated_nodes.hang, {"note": str(note), "how": how}))
    pids = await written(note)
    assert all(map(is_there, pids))

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    if how != "stop":  # else it is killed with its watcher, which alone can be waited for
        assert not is_there(pids[0])
    assert not Path(f"/proc/{pids[1]}").exists()  # it has been waited for
    await gone(pids)


async def test_cancelling_before_the_process_has_started_leaves_none() -> None:
    for _ in range(5):
        running = asyncio.create_task(run(isolated_nodes.echo, {"value": 1}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert children() == []


def children() -> list[str]:
    """Return the command lines of the processes of nodes that this one has started."""
    listed = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True, check=False
    )
    return [line for line in listed.stdout.splitlines() if "worker_main" in line]


async def hang(note: str) -> None:
    """Run a node that begins a process, and does not end."""
    await run(isolated_nodes.hang, {"note": note})


def someone_else() -> list[str]:
    """Return the beginning of a command that runs another as an ordinary user, one that may read the tests."""
    return [
        *("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"),
        *("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"),
    ]


def may_be_someone_else() -> bool:
    try:
        return os.geteuid() == 0 and subprocess.run([*someone_else(), "true"], check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "ordinary",
    [
        False,
        pytest.param(True, marks=pytest.mark.skipif(not may_be_someone_else(), reason="needs root and setpriv")),
    ],
    ids=["this user", "ordinary user"],
)
async def test_a_host_that_is_killed_leaves_no_process(tmp_path: Path, ordinary: bool) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    for parent in folder.parents:
        if parent.owner() == Path("/").owner() and str(parent).startswith(str(tmp_path.parent.parent)):
            parent.chmod(parent.stat().st_mode | 0o001)
    note = folder / "pids"
    async with Child(hang, str(note), before=someone_else() if ordinary else []) as host:
        pids = await written(note)
        await host.killed()
    await gone(pids)


async def test_a_module_that_no_other_process_can_import_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if Path(path) != HERE])
    with pytest.raises(TavernError, match="No module named 'isolated_nodes'"):
        await run(isolated_nodes.echo, {"value": 1})


async def test_the_process_imports_a_folder_plugin_only_as_it_was_reviewed(tmp_path: Path) -> None:
    code = b"def double(value):\n    from .more import times\n    return times(value)\n"
    more = b"def times(value):\n    return 2 * value\n"
    (tmp_path / "nodes.py").write_bytes(code)
    (tmp_path / "more.py").write_bytes(more)
    reviewed = {name: hashlib.sha256(text).digest() for name, text in (("nodes.py", code), ("more.py", more))}
    source = FolderSource("tavern_plugins.acme", tmp_path, reviewed)

    async def double() -> Any:
        return await run_in_process(
            Request("tavern_plugins.acme.nodes:double", source, (), {"value": 4}, "node Double")
        )

    assert await double() == 8
    (tmp_path / "more.py").write_text("def times(value):\n    return 3 * value\n")
    with pytest.raises(TavernError, match=r"more\.py was changed after it was reviewed") as refused:
        await double()
    assert refused.value.info.code == "not_reviewed"
