"""A plugin of pytest: says at the end which files took longest, and in one table what was not tested and why."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

SLOWEST = 10


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Summary(), "summary")


class Summary:
    """The seconds of each file, and the tests that were skipped, by reason."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._skipped: dict[str, list[str]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration
        if report.skipped and isinstance(report.longrepr, tuple) and not hasattr(report, "wasxfail"):
            self._skipped[report.longrepr[2].removeprefix("Skipped: ")].append(report.nodeid.partition("::")[0])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skipped[report.longrepr[2].removeprefix("Skipped: ")].append(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._skipped:
            terminalreporter.section("not tested")
            for reason, files in sorted(self._skipped.items()):
                places = sorted({*files})
                more = f" and {len(places) - 1} more files" if len(places) > 1 else ""
                terminalreporter.line(f"{len(files):>4}  {reason}  ({places[0]}{more})")
        if len(self._seconds) > SLOWEST:
            terminalreporter.section("slowest files, seconds of all workers")
            for file, seconds in sorted(self._seconds.items(), key=lambda one: -one[1])[:SLOWEST]:
                terminalreporter.line(f"{seconds:>7.1f}  {file}")
