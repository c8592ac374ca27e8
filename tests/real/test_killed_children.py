"""Processes that tests start and kill: what they said until then is heard, and why they ended early is told."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from helpers.survival import Child, killed, say


def speak() -> None:
    """Say two things and begin a third at once, and wait."""
    os.write(1, b'"a"\n{"b": 2}\n"cut')
    signal.pause()


def end_early(number: int) -> None:
    say(number)
    sys.exit(f"number {number} ends")


async def test_all_whole_lines_until_the_kill_are_heard() -> None:
    assert await killed(speak, lines=1) == ["a", {"b": 2}]


async def test_a_child_that_ends_early_fails_the_test_with_its_errors() -> None:
    async with Child(end_early, 7) as child:
        assert await child.said() == 7
        with pytest.raises(AssertionError, match=r"end_early ended early \(exit code 1\):\nnumber 7 ends\n"):
            await child.said()
        with pytest.raises(AssertionError, match="end_early ended early"):
            await child.killed()
        with pytest.raises(AssertionError, match="end_early ended, but not with 0"):
            await child.ended()


async def test_a_child_is_killed_at_the_end_whatever_it_is_at() -> None:
    async with Child(speak) as stopped, Child(speak) as ended:
        stopped.send(signal.SIGSTOP)
        assert await ended.said() == "a"
        ended.send(signal.SIGTERM)
        assert await ended.ended(-signal.SIGTERM) == [{"b": 2}]
    assert stopped.process.returncode == -signal.SIGKILL
