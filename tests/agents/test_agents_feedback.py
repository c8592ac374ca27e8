"""What an agent is told of its tool calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tavern_agents.feedback import cut_middle, limit_for, observation


def test_many_observations_of_one_step_share_the_room() -> None:
    assert limit_for(1) == limit_for(4) == 16_000
    assert limit_for(8) == 8_000
    assert limit_for(10_000) == 500
