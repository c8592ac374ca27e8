"""The sandbox in force is the first one that holds; where none does, nothing runs, and it is said what to install."""

from __future__ import annotations

import functools
import logging
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tavern_scripts.api.scripts import IsolationCheck, SandboxLaunch, SandboxOutput
from tavern_scripts.sandbox import canary
from tavern_scripts.sandbox import choose as choosing
from tavern_scripts.sandbox import landlock as kernel
from tavern_scripts.sandbox.canary import prove
from tavern_scripts.sandbox.canary_program import CHECKS
from tavern_scripts.sandbox.choose import Candidate, choose, host_candidates, refusal
from tavern_scripts.sandbox.executables import INSTALL_BUBBLEWRAP
from tavern_scripts.sandbox.supervised import Supervised
from tests.scripts.sandboxes import IS_ROOT, landlock, run

LOG = logging.getLogger("tavern.test")


class Offered:
    """A sandbox of a plugin, which says of itself whether it holds."""

    def __init__(self, *, holds: bool = True, fails: bool = False) -> None:
        self._holds = holds
        self._fails = fails

    async def prove(self) -> list[IsolationCheck]:
        if self._fails:
            raise RuntimeError("no daemon")
        return [IsolationCheck(name="files", holds=self._holds, observed="a file was read")]

    async def prepare(self, launch: SandboxLaunch) -> None:
        return None

    async def run(self, launch: SandboxLaunch, stdin: AsyncIterator[bytes]) -> AsyncIterator[SandboxOutput]:
        yield SandboxOutput(kind="ended", exit_code=0)


def of_the_host(**allowed: bool) -> list[Candidate]:
    """Return the host's sandboxes."""
    return host_candidates(**{"allow_degraded": False, "allow_unsandboxed": False, **allowed}, log=LOG)


FROM_OUTSIDE = {"leftovers", "copying out", "memory", "ending"}
NOT_BY_LANDLOCK = {"namespaces", "processes", "forks", "sizes"}
HOLD_ANYWAY = {
    "environment",  # the supervisor is given none of the host's
    "file size",
    "limits",
    "session",
    "descriptors",
    "forks",  # they are counted from outside, and all of it is ended
}
"""What a supervisor sees to without any sandbox."""


async def test_bubblewrap_isolates_and_is_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("long" * 30)  # a long path of temporary files is no obstacle
    folder.mkdir(mode=0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    chosen, reports = await choose(of_the_host())

    assert chosen.name == ("bubblewrap-root" if IS_ROOT else "bubblewrap")
    (in_force,) = [report for report in reports if report.chosen]
    assert in_force.name == chosen.name
    assert {check.name for check in in_force.checks} == {*CHECKS, *FROM_OUTSIDE}
    assert [f"{check.name}: {check.observed}" for check in in_force.checks if not check.holds] == []
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(IS_ROOT, reason="the ordinary user's run of this file does it")
async def test_landlock_isolates_as_far_as_it_says() -> None:
    if kernel.version() < kernel.NEEDED:
        pytest.skip(f"the kernel's Landlock is of version {kernel.version()}")

    checks = await landlock().prove()

    assert {check.name for check in checks} == {*CHECKS, *FROM_OUTSIDE} - NOT_BY_LANDLOCK
    assert [f"{check.name}: {check.observed}" for check in checks if not check.holds] == []
    assert len(landlock().weaker) >= 4


@pytest.mark.skipif(IS_ROOT, reason="nothing is run without a sandbox by root; the ordinary user's run does it")
async def test_each_check_notices_that_there_is_no_sandbox() -> None:
    checks = await prove(Supervised(is_limited=False), without={*HOLD_ANYWAY, *FROM_OUTSIDE})

    assert {check.name: check.observed for check in checks if check.holds} == {}
    assert {check.name for check in checks} == set(CHECKS) - HOLD_ANYWAY


async def test_one_of_a_plugin_goes_before_those_of_the_host() -> None:
    chosen, reports = await choose([*of_the_host(), Candidate("acme", Offered, 10)])

    assert chosen is not None and chosen.name == "acme"
    assert [report.reason for report in reports[1:2]] == ["not tried: another one is in force"]


async def test_one_that_does_not_hold_is_passed_over() -> None:
    offered = [
        Candidate("acme", functools.partial(Offered, **fault), 10) for fault in ({"holds": False}, {"fails": True})
    ]
    chosen, reports = await choose([*offered, *of_the_host()])

    assert chosen is not None and chosen.name != "acme"
    assert [report.reason for report in reports[:2]] == [
        "these do not hold: files (a file was read)",
        "it could not be tried out: RuntimeError: no daemon",
    ]


@pytest.mark.parametrize("there_is", [False, True])
async def test_without_a_bubblewrap_that_works_nothing_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there_is: bool
) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho bwrap: setting up uid map: Permission denied >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(choosing, "find_bubblewrap", lambda: [program] * there_is)

    chosen, reports = await choose(of_the_host())

    said = ["setting up uid map: Permission denied"] if there_is else ["bubblewrap was not found", INSTALL_BUBBLEWRAP]
    assert chosen is None
    assert [each for each in said if each not in refusal(reports)] == []


async def test_a_bubblewrap_that_isolates_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if IS_ROOT:
        pytest.skip("nothing is run without a sandbox by root; the ordinary user's run of this file does it")
    program = tmp_path / "bwrap"
    program.write_text(
        "#!/bin/sh\n"
        'echo "{\\"child-pid\\": $$}" >&6; exec 6>&-; cat <&5 >/dev/null\n'
        'while [ "$1" != -- ]; do shift; done; shift\n'
        'exec "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(choosing, "find_bubblewrap", lambda: [program])
    monkeypatch.setattr(canary, "_SECONDS", 3.0)  # some of it waits for what the sandbox should end

    chosen, _ = await choose(of_the_host())

    assert chosen is None


async def test_the_weaker_one_needs_the_operators_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "find_bubblewrap", list)

    chosen, reports = await choose(of_the_host(allow_degraded=True))

    if IS_ROOT:
        assert chosen is None
        assert "it is for an ordinary user, and this is root" in refusal(reports)
    else:
        assert chosen is not None and chosen.name == "landlock"
        assert len(chosen.weaker) >= 4


async def test_without_any_sandbox_it_shouts_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(choosing, "find_bubblewrap", list)
    chosen, _ = await choose(of_the_host(allow_unsandboxed=True))

    assert chosen is not None and chosen.name == "unsandboxed"
    with caplog.at_level(logging.WARNING, "tavern.test"):
        came = await run(chosen.backend, "import os; print(os.getuid())")

    assert came.stdout.decode().strip() == str(os.getuid())
    assert "NOTHING IS ENFORCED" in chosen.weaker[0]
    assert "WITHOUT A SANDBOX" in caplog.text
