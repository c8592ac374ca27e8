"""What the provider of a host's service records through `context.audit`, in the name of whoever calls it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tavern_host.audit.file import tail, verify
from tavern_host.audit.forms import PluginAudit
from tavern_host.audit.log import AuditLog
from tavern_host.contracts.audit import AuditCheck, AuditEntry
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import Forbidden, InvalidInput, PermissionDenied
from tavern_host.contracts.settings import MASK
from tavern_host.runtime.in_flight import InFlight

WRITER = Principal(kind="agent", id="writer")


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[AuditLog]:
    log = AuditLog(tmp_path / "audit" / "audit.jsonl", anchor=tmp_path / "state" / "audit.json")
    yield log
    await log.close()


@pytest.fixture
def facility(log: AuditLog) -> PluginAudit:
    return PluginAudit(log, InFlight("acme"), lambda: True)


def newest(log: AuditLog) -> AuditEntry:
    log.flush()
    return tail(log.path, 1)[0]


async def test_a_provider_records_in_the_name_of_whoever_calls_it(log: AuditLog, facility: PluginAudit) -> None:
    call = CallContext(principal=WRITER)
    number = facility.record("tool.denied", subject="FileOperator.Delete", details={"path": "a", "pin": 7}, call=call)
    await facility.written(number)
    entry = newest(log)
    assert (entry.actor, entry.action, entry.subject) == ("agent:writer", "tool.denied", "FileOperator.Delete")
    assert entry.details == {"path": "a", "pin": MASK}


def test_a_plugin_that_provides_no_service_records_nothing_here(log: AuditLog) -> None:
    facility = PluginAudit(log, InFlight("acme"), lambda: False)
    with pytest.raises(Forbidden, match="acme provides none of the host's services"):
        facility.record("tool.called")
    with pytest.raises(Forbidden):
        facility.form("tool.called")


@pytest.mark.parametrize("action", ["plugin.granted", "audit.lost", "host.started", "plugins", "settings.saved"])
def test_what_the_host_records_nobody_else_does(facility: PluginAudit, action: str) -> None:
    with pytest.raises(Forbidden, match=f"may not record {action}"):
        facility.record(action)
    with pytest.raises(Forbidden):
        facility.form(action)


def test_an_action_is_a_dotted_name(facility: PluginAudit) -> None:
    with pytest.raises(InvalidInput):
        facility.record('tool.called","actor":"user:x')


def test_a_plugin_that_was_taken_out_records_nothing(log: AuditLog) -> None:
    in_flight = InFlight("acme")
    facility = PluginAudit(log, in_flight, lambda: True)
    in_flight.close()
    with pytest.raises(PermissionDenied):
        facility.record("tool.called")


# --- forms --------------------------------------------------------------------------------------------


def recorded(log: AuditLog, facility: PluginAudit, arguments: Any, **options: Any) -> dict[str, Any]:
    """Return the details of an entry that a form recorded."""
    form = facility.form("tool.called", subject="a", names=["path", "limit", "text"], **options)
    form.record(WRITER, arguments, call="c1", outcome="done", ms=1.5)
    entry = newest(log)
    assert (entry.actor, entry.action, entry.subject) == ("agent:writer", "tool.called", "a")
    facts = {"call": "c1", "outcome": "done", "ms": 1.5}
    assert {key: value for key, value in entry.details.items() if key != "arguments"} == facts
    arguments = entry.details["arguments"]
    assert isinstance(arguments, dict)
    return arguments


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ({}, {}),
        ({"path": "a\n日本「始」\x00", "limit": 3}, {"path": "a\n日本「始」\x00", "limit": 3}),
        ({"text": "a { b } [ c"}, {"text": "a { b } [ c"}),
        ({"text": {"password": "x", "a": 1}}, {"text": {"password": MASK, "a": 1}}),
        ({"text": [{"token": "x"}]}, {"text": [{"token": MASK}]}),
        ({"apiKey": "x", "limit": 1}, {"apiKey": MASK, "limit": 1}),
        ({"key": "apiKey", "value": "x"}, {"key": "apiKey", "value": MASK}),
        ({"other": "y"}, {"other": "y"}),
        ({"limit": float("inf")}, {"limit": "Infinity"}),
        ({"text": "x" * 1500}, {"text": "x" * 1000 + "… (1500 characters)"}),
        ({"text": "\ud800"}, {"text": "?"}),
    ],
    ids=repr,
)
def test_arguments_are_recorded_without_their_secrets(
    log: AuditLog, facility: PluginAudit, arguments: dict[str, Any], kept: dict[str, Any]
) -> None:
    assert recorded(log, facility, arguments) == kept


def test_names_that_hold_secrets_can_be_given(log: AuditLog, facility: PluginAudit) -> None:
    arguments = {"path": "s3cret", "limit": 1, "text": {"path": "s3cret", "x": 2}}
    kept = {"path": MASK, "limit": 1, "text": {"path": MASK, "x": 2}}
    assert recorded(log, facility, arguments, secrets=["path"]) == kept
    facility.record("tool.denied", details={"arguments": arguments}, secrets=["path"])
    assert newest(log).details == {"arguments": kept}


def test_what_happens_to_the_arguments_later_is_not_seen(log: AuditLog, facility: PluginAudit) -> None:
    arguments: dict[str, Any] = {"path": "a", "text": [1]}
    facility.form("tool.called", names=["path", "text"]).record(WRITER, arguments)
    arguments["path"] = "b"
    arguments["text"].append(2)
    assert newest(log).details == {"arguments": {"path": "a", "text": [1]}}


def test_the_names_of_principals_and_tools_are_no_way_into_another_entry(log: AuditLog, facility: PluginAudit) -> None:
    who = Principal(kind="agent", id='x","action":"plugin.granted\n')
    form = facility.form("tool.called", subject='a"}\n{"seq":1')
    form.record(who, {})
    form.record(who, {"path": '"}\n'}, call='"}}\n')
    log.flush()
    assert [entry.actor for entry in tail(log.path, 10)] == [f"agent:{who.id}"] * 2
    assert verify(log.path, log.anchor) == AuditCheck(entries=2)


def test_many_principals_cost_little_memory(log: AuditLog, facility: PluginAudit) -> None:
    form = facility.form("tool.called", subject="a")
    for number in range(1000):
        form.record(Principal(kind="agent", id=f"a{number}"), {})
    log.flush()
    assert [entry.actor for entry in tail(log.path, 1000)] == [f"agent:a{number}" for number in range(1000)]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(arguments=st.dictionaries(st.sampled_from(["path", "limit", "text", "token", "x"]), _VALUES))
def test_a_form_hides_what_an_entry_hides(arguments: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    class Kept(AuditLog):
        bodies: list[bytes]

        def add(self, body: bytes, *, foreign: bool = False) -> int:
            self.bodies.append(body)
            return 1

    log = Kept(tmp_path_factory.getbasetemp() / "never")
    log.bodies = []
    facility = PluginAudit(log, InFlight("acme"), lambda: True)
    facility.form("tool.called", subject="a", names=["path", "limit", "text"]).record(WRITER, arguments)
    facility.record("tool.called", subject="a", details={"arguments": arguments}, call=CallContext(principal=WRITER))
    quick, slow = (json.loads(b"{" + body) for body in log.bodies)
    assert _finite(quick) == _finite(slow)
    assert all(body.count(b"\n") == 0 for body in log.bodies)


def _finite(value: Any) -> Any:
    text = json.dumps(value)
    for quick, slow in (('"Infinity"', '"<inf>"'), ('"-Infinity"', '"<-inf>"')):
        text = text.replace(quick, slow)
    return json.loads(text)
