"""Every test gets operator folders and a log of its own, so that none sees this machine or another test.

`--extended` repeats more: examples of hypothesis, cycles, data, and the tests that are marked `extended`.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from helpers.repetition import repetitions, set_extended
from hypothesis import HealthCheck, settings

pytest_plugins = [
    "pytester",
    "tavern_devtools.testing",
    "helpers.lanes",
    "helpers.reruns",
    "helpers.summary",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--extended", action="store_true", help="repeat what is repeated many times, on much data")
    parser.addoption(
        "--cluster", action="store_true", help="run the nodes of tests/engine on a Dask cluster; with -m real"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "extended: repeats what another test shows; run with --extended only")
    os.environ["LC_ALL"] = "C.UTF-8"  # messages are in English, whoever runs the tests
    set_extended(config.getoption("extended"))
    settings.register_profile(
        "tests",
        max_examples=repetitions(15, 200),
        deadline=None,
        derandomize=not config.getoption("extended"),  # the same examples everywhere; more are looked for with it
        suppress_health_check=[HealthCheck.too_slow],  # which is the machine's fault
    )
    settings.load_profile("tests")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """With `-n auto` start two workers for each processor where tests wait for processes, sandboxes and the disk."""
    is_fast_alone = config.option.markexpr == "fast"
    return None if config.option.numprocesses == "logical" or is_fast_alone else len(os.sched_getaffinity(0)) * 2


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only repeats."""
    if not config.getoption("extended"):
        repeating = [item for item in items if item.get_closest_marker("extended")]
        config.hook.pytest_deselected(items=repeating)
        items[:] = [item for item in items if not item.get_closest_marker("extended")]


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
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = True  # tests change packages twice in a second, which Python's check does not notice
        sys.pycache_prefix = None  # what they import has its bytecode where it has for everybody
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
