"""A plugin of pytest: runs real tests that failed once more, alone, and lists those that pass then.

Alone is in a process of its own, one after another, when all others have ended. What passes then does not fail the run:
it stands in the last lines, and in the ledger (`--ledger FILE`), a line of JSON each, with its first failure. Fast
tests, and more failures than chance brings, are not retried.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.lanes import is_real

MOST_TRIES = 2
MOST_TESTS = 10
"""How many failed tests are run again at most; where more fail, that is no chance."""

_ALONE = "TAVERN_TESTS_ALONE"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ledger", metavar="FILE", help="add a line of JSON for each real test that failed by chance")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and _ALONE not in os.environ:
        config.pluginmanager.register(Reruns(config), "reruns")


class Reruns:
    """What failed in this session, and what passed when it was run again, alone."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._failed: dict[str, list[pytest.TestReport]] = {}
        self._passed: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.setdefault(report.nodeid, []).append(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        result = yield
        tests = [test for test in self._failed if is_real(test)]
        if len(tests) <= MOST_TESTS:
            for test in tests:
                self._try_again(session, test)
        return result

    def _try_again(self, session: pytest.Session, test: str) -> None:
        for tries in range(1, MOST_TRIES + 1):
            if self._passes_alone(test):
                self._forgive(session, test, tries)
                return

    def _passes_alone(self, test: str) -> bool:
        options = ["--extended"] if self._config.getoption("extended", False) else []
        if placement := self._config.getoption("placement", None):
            options += ["--placement", placement]
        command = [sys.executable, "-m", "pytest", "-n0", "-q", *options, test]
        left = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
        environment = {**left, _ALONE: "1"}
        done = subprocess.run(command, cwd=self._config.rootpath, env=environment, capture_output=True, check=False)
        return done.returncode == 0

    def _forgive(self, session: pytest.Session, test: str, tries: int) -> None:
        reports = self._failed[test]
        session.testsfailed -= len(reports)
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        for kind in ("failed", "error") if terminal is not None else ():
            kept = [report for report in terminal.stats.get(kind, []) if report not in reports]
            terminal.stats[kind] = kept
            if not kept:
                del terminal.stats[kind]
        if terminal is not None:
            terminal.stats.setdefault("rerun", []).extend(reports[:1])
            terminal._set_main_color()
        first = reports[0].longreprtext
        self._passed.append({"test": test, "tries": tries, "first": first})
        if ledger := self._config.getoption("ledger"):
            with Path(ledger).open("a", encoding="utf-8") as file:
                file.write(json.dumps(self._passed[-1]) + "\n")

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self._passed:
            return
        terminalreporter.section("failed by chance: passed when run again, alone", sep="=", yellow=True)
        for one in self._passed:
            why = next((line[1:].strip() for line in one["first"].splitlines() if line.startswith("E ")), one["first"])
            terminalreporter.line(f"{one['test']}: passed at try {one['tries']} after: {why[:200]}")
        terminalreporter.line("Mend the cause of each, or put it into tests/quarantine.txt with a reason.")
