"""Each property that isolation rests on holds, and is noticed where it does not."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping

import pytest

from tavern_host.contracts.scripts import IsolationCheck
from tavern_scripts.sandbox import landlock as kernel
from tavern_scripts.sandbox.canary import prove
from tavern_scripts.sandbox.canary_program import CHECKS
from tavern_scripts.sandbox.supervised import Supervised
from tests.scripts.sandboxes import IS_ROOT, bubblewrap, landlock

FROM_OUTSIDE = ("leftovers", "copying out", "memory", "ending")
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


@functools.cache
def found(name: str) -> Mapping[str, IsolationCheck]:
    """Return what was found out about a sandbox, tried out once."""
    backend = bubblewrap() if name == "bubblewrap" else landlock()
    checks = asyncio.run(backend.prove())
    return {check.name: check for check in checks}


@pytest.mark.parametrize("name", [*CHECKS, *FROM_OUTSIDE])
def test_bubblewrap_isolates(name: str) -> None:
    check = found("bubblewrap")[name]

    assert check.holds, check.observed


@pytest.mark.parametrize("name", sorted({*CHECKS, *FROM_OUTSIDE} - NOT_BY_LANDLOCK))
def test_landlock_isolates_as_far_as_it_says(name: str) -> None:
    if IS_ROOT:
        pytest.skip("the sandbox of Landlock is for an ordinary user, and this is root")
    if kernel.version() < kernel.NEEDED:
        pytest.skip(f"the kernel's Landlock is of version {kernel.version()}")

    check = found("landlock")[name]

    assert check.holds, check.observed


def test_landlock_claims_nothing_else() -> None:
    if IS_ROOT:
        pytest.skip("the sandbox of Landlock is for an ordinary user, and this is root")

    assert NOT_BY_LANDLOCK.isdisjoint(found("landlock"))
    assert len(landlock().weaker) >= 4


def test_each_check_notices_that_there_is_no_sandbox() -> None:
    if IS_ROOT:
        pytest.skip("nothing is run without a sandbox by root; the ordinary user's run of this file does it")

    checks = asyncio.run(prove(Supervised(is_limited=False), without={*HOLD_ANYWAY, *FROM_OUTSIDE}))

    assert {check.name: check.observed for check in checks if check.holds} == {}
    assert {check.name for check in checks} == set(CHECKS) - HOLD_ANYWAY
