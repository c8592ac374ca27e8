"""The macros of prompts and characters."""

from __future__ import annotations

import re

import pytest
from helpers.repetition import Failures

from tavern_host import InvalidInput
from tavern_nodes.api.macros import MAX_TEXT, Macros

VALUES = {"user": "Ada", "char": "Mira", "persona": "{{char}} <USER>", "original": ""}


def fill(text: str, seed: str = "s", **more: str) -> str:
    return Macros(VALUES, "here", seed, "chat").fill(text, **more)


def test_macros_are_filled_in() -> None:
    rows = [
        ("{{char}} and {{User}} and <BOT> <user>", "Mira and Ada and Mira Ada"),
        ("{{persona}}", "{{char}} <USER>"),  # what a value brings in is not looked at again
        ("{{ char }}{{newline}}{{noop}}{{// a note}}{{comment: x}}{{hidden_key:y}}.", "Mira\n."),
        ("a  {{trim}}  b", "ab"),
        ("{{random:one}}{{random::two}}{{pick::three}}", "onetwothree"),
        ("{{random::{{user}}}}", "Ada"),
        ("{{random: a\\,b}}", "a,b"),
        ("{{reverse:abc}}{{reverse:{{user}}}}", "cbaadA"),
        ("{{setvar::n::3}}{{addvar::n::4}}{{getvar::n}} {{getvar::nothing}}", "7 "),
        ("{{addvar::w::a}}{{addvar::w::b}}{{getvar::w}}", "ab"),
        ("{{roll:1d1}} {{roll:3d1+2}} {{roll:d1}} {{roll:x}} {{roll:99999d6}}", "1 5 1  "),
        ("{{original}}", "before"),
        ("{{unknown}} {{ {{unknown}} }}", "{{unknown}} {{ {{unknown}} }}"),
        ("{{char", "{{char"),
        ("char}} {{user}}", "char}} Ada"),
        ("{{{system:time}}} {}", "{{{system:time}}} {}"),
        ("{{" * 200 + "user" + "}}" * 200, None),
        ("no macro < here", "no macro < here"),
    ]
    with Failures() as failures:
        for text, expected in rows:
            with failures.row(text[:60]):
                found = fill(text, original="before") if "original" in text else fill(text)
                assert found == (text if expected is None else expected)


def test_what_time_it_is() -> None:
    for macro, pattern in [
        ("{{time}}", r"\d\d:\d\d"),
        ("{{isodate}} {{isotime}}", r"\d{4}-\d\d-\d\d \d\d:\d\d"),
        ("{{date}}", r"[A-Z][a-z]+ \d{1,2}, \d{4}"),
        ("{{weekday}}", r"[A-Z][a-z]+day"),
        ("{{time_UTC+2}}", r"\d\d:\d\d"),
    ]:
        assert re.fullmatch(pattern, fill(macro)), macro


def test_chance_comes_from_the_seed() -> None:
    text = "{{random::a::b::c}}{{random::a::b::c}}{{roll:d20}}"
    assert fill(text) == fill(text)
    assert len({fill(text, str(seed)) for seed in range(20)}) > 5
    assert len({fill("{{pick::a::b::c}}", str(seed)) for seed in range(20)}) == 1


def test_texts_stay_in_bounds() -> None:
    long = Macros({"x": "y" * 1_000_000}, "here")
    with pytest.raises(InvalidInput, match=f"here: the result would have .* at most {MAX_TEXT:,}"):
        long.fill("{{x}}" * 5)
    with pytest.raises(InvalidInput, match="the variable 'a' would be too long"):
        Macros({"x": "y" * 60_000}, "here").fill("{{addvar::a::{{x}}}}{{addvar::a::{{x}}}}")
