"""Ids of what lets somebody act cannot be guessed; those of requests and traces are numbers behind random bits."""

from __future__ import annotations

from tavern_host.contracts.calls import CallContext, Principal


def test_contexts_of_one_request_share_no_part_of_their_ids_but_traces_may() -> None:
    calls = [CallContext(principal=Principal(kind="user", id="ann")) for _ in range(100)]
    assert len({call.id.removeprefix("call_")[:8] for call in calls}) == 100
    assert len({call.id.removeprefix("call_")[-8:] for call in calls}) == 100
    assert len({call.trace_id for call in calls}) == 100
    assert len({call.trace_id[:-10] for call in calls}) == 1
