"""Every test gets operator folders and a log of its own, so that none sees this machine or another test.

`--extended` repeats more: examples of hypothesis, cycles, data, and the tests that are marked `extended`.
Where Python may keep no bytecode beside its sources, all processes of a session keep it in a temporary folder.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from helpers.forking import fork_what_is_preloaded
from helpers.read_once import read_installation_once
from helpers.repetition import repetitions, set_extended
from hypothesis import HealthCheck, settings

from tavern_host.hooks import dispatch
from tavern_host.plugins import lifecycle
from tavern_metrics import watchdog
from tavern_scripts.sandbox import canary, running

pytest_plugins = ["pytester", "tavern_devtools.testing"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--extended", action="store_true", help="repeat what is repeated many times, on much data")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "extended: repeats what another test shows; run with --extended only")
    os.environ["LC_ALL"] = "C.UTF-8"  # messages are in English, whoever runs the tests
    set_extended(config.getoption("extended"))
    watchdog.LIMIT = 60.0  # on a busy machine whatever runs may stand still for seconds, which is no plugin's fault
    dispatch.DEADLINE = lifecycle.IMPORT_DEADLINE = lifecycle.OPEN_DEADLINE = lifecycle.SHUTDOWN_DEADLINE = 100.0
    running._PATIENCE = canary._SECONDS = 100.0
    settings.register_profile(
        "tests",
        max_examples=repetitions(15, 200),
        deadline=None,
        derandomize=not config.getoption("extended"),  # the same examples everywhere; more are looked for with it
        suppress_health_check=[HealthCheck.too_slow],  # which is the machine's fault
    )
    settings.load_profile("tests")
    _keep_bytecode(config)
    _begin_elsewhere(config)


def _keep_bytecode(config: pytest.Config) -> None:
    """Compile each module once a session: otherwise each of the hundreds of processes compiles the whole host."""
    if os.environ.get("PYTHONDONTWRITEBYTECODE") and not os.environ.get("PYTHONPYCACHEPREFIX"):
        del os.environ["PYTHONDONTWRITEBYTECODE"]
        folder = tempfile.mkdtemp(prefix="tavern-bytecode-")
        Path(folder).chmod(0o755)  # some tests are run as an ordinary user too
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    _write_bytecode(False)


def _write_bytecode(is_collecting: bool) -> None:
    """Keep what collecting compiles, test files with their assertions above all; later what tests compile in this
    process lies where it does for everybody, and none is written: tests change packages twice in a second, which
    Python's check does not notice."""
    sys.pycache_prefix = os.environ.get("PYTHONPYCACHEPREFIX") if is_collecting else None
    sys.dont_write_bytecode = not is_collecting


def _begin_elsewhere(config: pytest.Config) -> None:
    """Let each worker begin to collect in another folder, so that what one compiled the others only read."""
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    inner = [path for path in sorted((config.rootpath / "tests").iterdir()) if _has_tests(path)]
    places = [*map(str, inner), *config.args[1:]]
    first = int(worker["workerid"].removeprefix("gw")) * len(places) // worker["workercount"]
    config.args = [*places[first:], *places[:first]]


def _has_tests(path: Path) -> bool:
    return path.match("test_*.py") or (path.is_dir() and any(path.rglob("test_*.py")))


LONG = (
    "attacks",
    "install",
    "broken",
    "test_sandbox_as_an_ordinary_user",
    "test_many_cycles",
    "test_docs",
    "test_testing",
    "test_author_commands",
    "test_disk_cache",
    "test_faults",
    "test_end_of_the_process",
    "test_task_faults",
    "test_benchmarks",
    "e2e",
)
"""What takes longest: folders of tests, and files."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """With `-n auto` start two workers for each processor: tests wait for processes, sandboxes and the disk."""
    return None if config.option.numprocesses == "logical" else len(os.sched_getaffinity(0)) * 2


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that several workers end at about the same time."""
    if not config.getoption("extended"):
        repeating = [item for item in items if item.get_closest_marker("extended")]
        config.hook.pytest_deselected(items=repeating)
        items[:] = [item for item in items if not item.get_closest_marker("extended")]
    items.sort(key=lambda i: (i.path.stem not in LONG and i.path.parent.name not in LONG, i.path))


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Name what has an address in its text by its type: with several workers all must find the same tests."""
    try:
        has_address = " at 0x" in repr(val)
    except Exception:  # too deep, or meant to fail
        has_address = True
    return f"{argname}-{type(val).__name__}" if has_address else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let garbage collections leave out what thousands of collected tests hold, and be rare: a tenth of all else."""
    gc.disable()
    _write_bytecode(True)
    try:
        return (yield)
    finally:
        _write_bytecode(False)
        read_installation_once()
        fork_what_is_preloaded(at_once=hasattr(session.config, "workerinput"))
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a report hold only what can be sent: what was logged may have lone surrogates."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(autouse=True)
def operator_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point the operator's folders below a temporary one and return it."""
    root = tmp_path / "operator"
    for kind in ("CONFIG", "STATE", "DATA"):
        monkeypatch.setenv(f"TAVERN_{kind}_DIR", str(root / kind.lower()))
    monkeypatch.delenv("TAVERN_PROJECT", raising=False)
    monkeypatch.delenv("TAVERN_SETTINGS", raising=False)
    return root


@pytest.fixture(autouse=True)
def plain_log() -> Iterator[None]:
    """Undo what `tavern`, run in this process by a test, does to the log."""
    loggers = [logging.getLogger(name) for name in ("tavern", "tavern.audit", "asyncio", "aiohttp")]
    before = [(logger.propagate, logger.handlers, logger.level) for logger in loggers]
    plain = [(True, list[logging.Handler](), logging.NOTSET) for _ in loggers]
    _set_loggers(loggers, plain)
    yield
    _set_loggers(loggers, before)


def _set_loggers(loggers: list[logging.Logger], wanted: list[tuple[bool, list[logging.Handler], int]]) -> None:
    for logger, (propagate, handlers, level) in zip(loggers, wanted, strict=True):
        logger.propagate, logger.handlers = propagate, handlers
        if logger.level != level:  # setting it makes all loggers forget what they know
            logger.setLevel(level)
