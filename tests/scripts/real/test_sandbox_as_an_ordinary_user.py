"""All tests of the sandbox, and of what runs in one, hold for an ordinary user as well as for root."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.scripts.ordinary import run_as_ordinary_user, why_not

HERE = Path(__file__).parent
ALL = (
    "test_sandbox_*.py",
    "test_pool.py",
    "test_sessions.py",
    "test_calls_from_code.py",
    "../../mcp/real/test_mcp_rights.py",
    "attacks/test_service_attacks.py",
)
SOME = (
    "test_sandbox and not (too_much or filter)"
    " or test_pool and (cannot_tell or closing or isolation or limits)"
    " or test_sessions and (live_on or files_come_back or closing)"
    " or test_calls_from_code and (functions or forged or withdrawn or caller_may) or test_mcp_rights"
    " or test_service_attacks and not (no_shell or no_setting)"
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("patterns", "only"), [(ALL, SOME), *(pytest.param([pattern], "", marks=pytest.mark.extended) for pattern in ALL)]
)
def test_what_holds_for_root_holds_for_an_ordinary_user(patterns: Sequence[str], only: str) -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    found = sorted(path for pattern in patterns for path in HERE.glob(pattern))
    files = [str(path) for path in found if path != Path(__file__)]
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(HERE.parents[2]), "-k", only]

    done = run_as_ordinary_user([sys.executable, "-m", "pytest", *options, *files])

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "no sandbox holds" not in done.stdout, done.stdout[-1000:]
