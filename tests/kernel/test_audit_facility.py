"""What the provider of a host's service records through `context.audit`, in the name of whoever calls it."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.audit_logs import tail

from tavern_host.audit.log import AuditLog, PluginAudit
from tavern_host.contracts.audit import AuditEntry
from tavern_host.contracts.calls import CallContext, Principal, system_call
from tavern_host.contracts.errors import Forbidden, InvalidInput, PermissionDenied
from tavern_host.contracts.settings import MASK
from tavern_host.runtime.in_flight import InFlight

WRITER = Principal(kind="agent", id="writer")


@pytest.fixture
def facility(log: AuditLog) -> PluginAudit:
    return PluginAudit(log, InFlight("acme"), lambda: True, lambda call, _: call or system_call())


def newest(log: AuditLog) -> AuditEntry:
    log.flush()
    return tail(log.path, 1)[0]


async def test_a_provider_records_its_callers_name(log: AuditLog, facility: PluginAudit) -> None:
    call = CallContext(principal=WRITER)
    number = facility.record("tool.denied", subject="FileOperator.Delete", details={"path": "a", "pin": 7}, call=call)
    await facility.written(number)
    entry = newest(log)
    assert (entry.actor, entry.action, entry.subject) == ("agent:writer", "tool.denied", "FileOperator.Delete")
    assert entry.details == {"path": "a", "pin": MASK}


def test_a_plugin_without_services_records_nothing(log: AuditLog) -> None:
    facility = PluginAudit(log, InFlight("acme"), lambda: False, lambda call, _: call or system_call())
    with pytest.raises(Forbidden, match="acme provides none of the host's services"):
        facility.record("tool.called")


def test_what_the_host_records_nobody_else_does(facility: PluginAudit) -> None:
    for action in ("plugin.granted", "audit.lost", "host.started", "plugins", "settings.saved"):
        with pytest.raises(Forbidden, match=f"may not record {action}"):
            facility.record(action)
    with pytest.raises(InvalidInput):
        facility.record('tool.called","actor":"user:x')


def test_a_plugin_that_was_taken_out_records_nothing(log: AuditLog) -> None:
    in_flight = InFlight("acme")
    facility = PluginAudit(log, in_flight, lambda: True, lambda call, _: call or system_call())
    in_flight.close()
    with pytest.raises(PermissionDenied):
        facility.record("tool.called")


# --- arguments ----------------------------------------------------------------------------------------


def test_arguments_are_recorded_without_their_secrets(log: AuditLog, facility: PluginAudit) -> None:
    arguments = {"path": "a\n日本「始」\x00", "limit": 3, "text": [{"token": "x", "a": 1}], "apiKey": "x"}
    facility.record("tool.called", details={"call": "c1", "ms": 1.5, "arguments": arguments})
    kept = {**arguments, "text": [{"token": MASK, "a": 1}], "apiKey": MASK}
    arguments["path"] = "later"
    assert newest(log).details == {"call": "c1", "ms": 1.5, "arguments": kept}


def test_names_that_hold_secrets_can_be_given(log: AuditLog, facility: PluginAudit) -> None:
    arguments: dict[str, Any] = {"path": "s3cret", "limit": 1, "text": {"path": "s3cret", "x": 2}}
    kept = {"path": MASK, "limit": 1, "text": {"path": MASK, "x": 2}}
    facility.record("tool.denied", details={"arguments": arguments}, secrets=["path"])
    assert newest(log).details == {"arguments": kept}
