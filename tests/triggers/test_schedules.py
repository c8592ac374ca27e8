"""When schedules are due: across both changes of daylight saving time, and after a stop."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from helpers.repetition import Failures

from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import InvalidInput
from tavern_triggers.api.triggers import FiringStatus, Schedule, Trigger
from tavern_triggers.schedule import checked, coming, due_times, times
from tavern_triggers.store import KeptTrigger, micros
from tavern_triggers.watching import due_firings

BERLIN, MINUTE = ZoneInfo("Europe/Berlin"), timedelta(minutes=1)
SPRING, AUTUMN = datetime(2027, 3, 28, 1, tzinfo=UTC), datetime(2027, 10, 31, 1, tzinfo=UTC)
"""When clocks go from 2:00 to 3:00, and from 3:00 back to 2:00."""
NOON = datetime(2027, 6, 1, 12, tzinfo=UTC)
CALL = CallContext(principal=Principal(kind="user", id="operator"))


def local(cron: str, change: datetime, hours: float = 2) -> list[str]:
    """Return the local times that are due around a change."""
    plan, begun = checked(Schedule(cron=cron, time_zone="Europe/Berlin")), change - timedelta(hours=hours)
    found = coming(plan, begun, begun, 100)
    return [f"{due.astimezone(BERLIN):%H:%M}" for due in found if due < change + timedelta(hours=hours)]


def test_a_time_that_is_skipped_is_due_at_the_first_moment_after_it_and_one_that_comes_twice_once() -> None:
    assert local("30 2 * * *", SPRING) == ["03:00"]
    assert local("15,45 2 * * *", SPRING) == ["03:00"]
    assert local("30 2 * * *", AUTUMN) == ["02:30"]
    assert local("0 1,2,3 * * *", AUTUMN, 2.5) == ["01:00", "02:00", "03:00"]
    assert local("0 3 * * *", SPRING) == ["03:00"]


def test_what_is_due_each_so_many_minutes_follows_the_time_that_passes() -> None:
    assert local("*/30 * * * *", SPRING, 1) == ["01:30", "03:00", "03:30"]
    assert local("*/30 * * * *", AUTUMN, 1) == ["02:30", "02:00", "02:30"]


@pytest.mark.parametrize("change", [SPRING, AUTUMN], ids=["spring", "autumn"])
def test_no_time_is_lost_or_doubled_whenever_a_host_looks_around_a_change(change: datetime) -> None:
    with Failures() as failures:
        for cron in (
            "30 2 * * *",
            "*/7 * * * *",
            "0 * * * *",
            "59 1 * * *",
            "0 3 * * *",
            "0,30 2-3 * * *",
            "* 2 * * *",
        ):
            plan = checked(Schedule(cron=cron, time_zone="Europe/Berlin"))
            for step in (MINUTE, timedelta(seconds=47), timedelta(minutes=13)):
                begun = change - timedelta(minutes=30)
                now, seen, due = begun, list[datetime](), next(times(plan, begun, begun))
                while now < change + timedelta(minutes=90):
                    now += step
                    if due <= now:
                        seen += due_times(plan, begun, due, now)
                        due = next(times(plan, begun, now))
                with failures.row(f"{cron} each {step}"):
                    assert seen == [one for one in coming(plan, begun, begun, 200) if one <= now]


def test_an_interval_counts_from_when_it_was_enabled_and_a_moment_comes_once() -> None:
    plan = checked(Schedule(every_seconds=90))
    assert [due - NOON for due in coming(plan, NOON, NOON + MINUTE, 2)] == [1.5 * MINUTE, 3 * MINUTE]
    once = checked(Schedule(at=NOON.astimezone(BERLIN)))
    assert coming(once, NOON, NOON - MINUTE, 3) == [NOON]
    assert coming(once, NOON, NOON, 3) == []


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (Schedule(), "one of cron, everySeconds and at"),
        (Schedule(cron="0 7 * *"), "five fields"),
        (Schedule(cron="0 7 * * * *"), "five fields"),
        (Schedule(cron="61 * * * *"), "Bad minute"),
        (Schedule(cron="0 0 30 2 *"), "Bad day-of-month"),
        (Schedule(cron="0 7 * * *", time_zone="Europe/Atlantis"), "no time zone 'Europe/Atlantis'"),
        (Schedule(cron="0 7 * * *", time_zone="../../etc/passwd"), "no time zone"),
        (Schedule(at=datetime(2027, 1, 1)), "with its offset"),
    ],
)
def test_a_schedule_that_cannot_be_used_says_why(schedule: Schedule, says: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(says)):
        checked(schedule)


def after_a_stop(missed: str, cron: str, minutes: float) -> list[tuple[str, str]]:
    """Return what is fired once a host looks again after so many minutes."""
    trigger = Trigger.model_validate(
        {"name": "t", "kind": "schedule", "config": {"cron": cron}, "workflow": "w", "missed": missed}
    )
    kept = KeptTrigger("t", trigger, CALL, begun=micros(NOON), due=micros(NOON + 5 * MINUTE))
    firings, following = due_firings(kept, now := NOON + minutes * MINUTE)
    assert following is not None
    assert following > micros(now)
    said = [(one, f"{NOON + timedelta(microseconds=one.due - micros(NOON)):%H:%M}") for one in firings]
    return [(one.reason if one.status is FiringStatus.MISSED else "fired", at) for one, at in said]


def test_what_was_missed_is_made_up_for_as_the_trigger_says() -> None:
    gone = "no host served the project: {} due from {} UTC, missed: {}"
    assert after_a_stop("skip", "*/5 * * * *", 18) == [
        (gone.format(3, "2027-06-01 12:05 to 2027-06-01 12:15", "skip"), "12:15")
    ]
    assert after_a_stop("skip", "*/5 * * * *", 5.5) == [("fired", "12:05")]
    assert after_a_stop("once", "*/5 * * * *", 18) == [
        (gone.format(2, "2027-06-01 12:05 to 2027-06-01 12:10", "once"), "12:10"),
        ("fired", "12:15"),
    ]
    assert after_a_stop("all", "*/5 * * * *", 18) == [("fired", f"12:{minute:02}") for minute in (5, 10, 15)]


def test_all_that_was_missed_is_a_hundred_at_most() -> None:
    (first, _), *fired = after_a_stop("all", "* * * * *", 60 * 24 * 365 * 3)
    assert first.startswith("no host served the project: more than 99 due")
    assert len(fired) == 100
