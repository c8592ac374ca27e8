"""A plugin acts for the run of an agent that it was given a context of, and for no other."""

from __future__ import annotations

import pytest
from helpers.issued_contexts import issued

from tavern_host import CallContext, Principal
from tavern_host.runtime.issued import passed_on

PLUGIN = Principal(kind="plugin", id="acme")


@pytest.fixture
def call() -> CallContext:
    """Return the call of an agent as the plugin receives it."""
    return issued(CallContext(principal=Principal(kind="agent", id="keeper"), agent_run_id="agent_1"))


def test_children_belong_to_the_same_run(call: CallContext) -> None:
    for child in (call.child(), call.child(principal=PLUGIN), call.child(run_id="run_1").child()):
        assert child.agent_run_id == "agent_1"
    assert call.child(agent_run_id="agent_2").agent_run_id == "agent_2"


def test_a_plugin_names_no_other_run(call: CallContext) -> None:
    forged = {"agent_run_id": "agent_2"}
    for mine in (call, call.child(), call.child(principal=PLUGIN)):
        passed = passed_on(mine.model_copy(update=forged), PLUGIN)
        assert passed is not None and passed.agent_run_id == "agent_1"
    own = passed_on(CallContext(principal=PLUGIN, agent_run_id="agent_2"), PLUGIN)
    assert own is not None and own.agent_run_id is None
