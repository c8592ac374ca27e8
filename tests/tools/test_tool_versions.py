"""Which version of a tool a range picks."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures
from hypothesis import given
from hypothesis import strategies as st

from tavern_tools.catalog.versions import newest_first, read_range, read_version


def fitting(wanted: str, versions: str) -> str:
    asked = read_range(wanted)
    read = {text: read_version(text) for text in versions.split()}
    return " ".join(text for text, version in read.items() if version is not None and asked.fits(version))


def test_a_range_takes_the_versions_that_it_names() -> None:
    rows: Any = [
        ("^1.2", "1.1.9 1.2.0 1.9.9 2.0.0", "1.2.0 1.9.9"),
        ("^0.2.3", "0.2.2 0.2.3 0.2.9 0.3.0", "0.2.3 0.2.9"),
        ("^0.0.3", "0.0.3 0.0.4", "0.0.3"),
        ("^0", "0.9 1.0", "0.9"),
        ("~1.2.3", "1.2.2 1.2.3 1.2.9 1.3.0", "1.2.3 1.2.9"),
        ("~1", "1.9 2.0", "1.9"),
        ("1.2.3", "1.2.3 1.2.4", "1.2.3"),
        ("=1.2.3", "1.2.3 1.2.4", "1.2.3"),
        ("1.2", "1.2 1.2.9 1.3", "1.2 1.2.9"),
        ("1", "1.9 2", "1.9"),
        (">=1,<2", "0.9 1.0.0 1.99 2.0.0", "1.0.0 1.99"),
        (">1", "1.9 2.0", "2.0"),
        ("<=1", "1.9 2.0", "1.9"),
        ("*", "0.0.1 3", "0.0.1 3"),
        ("^1", "1.0.0-rc.1 1.1.0-rc.1 2.0.0-rc.1", ""),
        (">=1.0.0-rc.1", "1.0.0-alpha 1.0.0-rc.2 1.0.0 2.0.0-a", "1.0.0-rc.2 1.0.0"),
        ("^1.0.0-rc.1", "1.0.0-rc.1 1.5.0 2.0.0-0", "1.0.0-rc.1 1.5.0"),
        ("v1.2.3+build", "1.2.3 v1.2.3+other", "1.2.3 v1.2.3+other"),
    ]
    with Failures() as failures:
        for wanted, versions, expected in rows:
            with failures.row(wanted):
                assert fitting(wanted, versions) == expected


def test_a_text_that_is_no_range_is_none() -> None:
    rows: Any = ["", "latest", "^", ">=", "1..2", "1.2.3.4", "1 2", "01.2", "1,", "9" * 200, "^1.٣"]
    with Failures() as failures:
        for text in rows:
            with failures.row(text):
                assert read_range(text) is None


def test_releases_come_before_what_precedes_a_release_and_before_what_is_no_version() -> None:
    versions = ["1.2", "1.10", "abc", "2.0.0-rc.2", "2.0.0-rc.10", "2.0.0-rc.x", "0", "v3"]
    assert [version for version, _ in newest_first((version, None) for version in versions)] == [
        *("v3", "1.10", "1.2", "0"),
        *("2.0.0-rc.x", "2.0.0-rc.10", "2.0.0-rc.2"),
        "abc",
    ]


@given(st.text())
def test_no_text_makes_reading_raise(text: str) -> None:
    version, asked = read_version(text), read_range(text)
    if version is not None and asked is not None:
        assert asked.fits(version)
