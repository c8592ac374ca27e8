"""What a plugin may declare as a setting, and which values each control type takes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tavern_host.contracts.settings import SettingItem

CHOICES = [{"value": "a", "label": "A"}, {"value": 2, "label": "Two"}, {"value": True, "label": "Yes"}]
DEEP: Any = []
for _ in range(100):
    DEEP = [DEEP]


def item(kind: str, **more: Any) -> SettingItem:
    return SettingItem.model_validate({"key": "extensions.acme.it", "type": kind, "label": "It", **more})


def test_a_value_fits_its_control() -> None:
    rows: list[tuple[SettingItem, list[Any]]] = [
        (item("string"), ["", "one line 酒"]),
        (item("textarea"), ["two\nlines"]),
        (item("password"), ["hunter2"]),
        (item("avatar"), ["data:image/png;base64,AAAA"]),
        (item("number"), [5, -2.5]),
        (item("number", min=1, max=9), [9, 1]),
        (item("number", min=0, step=2), [3]),
        (item("slider", min=0.5, max=1), [0.5]),
        (item("boolean"), [False]),
        (item("select", options=CHOICES), ["a", 2, 2.0]),
        (item("button-group", options=CHOICES), [True]),
        (item("json"), [None, {"a": [1, 2.5, None, True, {"b": "c"}]}]),
    ]
    for kind in ("select", "button-group"):
        choices = [{"value": True, "label": "Yes"}, {"value": 1, "label": "One"}]  # which are different
        rows.append((item(kind, options=choices), [True, 1]))
    found = [(declared.type, value, declared.problem(value)) for declared, values in rows for value in values]
    assert [row for row in found if row[2] is not None] == []


@pytest.mark.parametrize(
    ("declared", "value", "problem"),
    [
        (item("string"), 5, "must be a text, found 5"),
        (item("string"), None, "must be a text, found None"),
        (item("string"), "two\nlines", r"must be a single line, found 'two\nlines'"),
        (item("textarea"), ["a"], "must be a text, found ['a']"),
        (item("textarea"), "\ud800", r"must be a text, found '\ud800'"),
        (item("avatar"), b"png", "must be a text, found b'png'"),
        (item("number"), "5", "must be a number, found '5'"),
        (item("number"), True, "must be a number, found True"),
        (item("number"), float("nan"), "must be a number, found nan"),
        (item("number"), float("inf"), "must be a number, found inf"),
        (item("number"), 2**63, "must be a number, found 9223372036854775808"),
        (item("number", min=1), 0.5, "must be at least 1, found 0.5"),
        (item("slider", max=1.5), 2, "must be at most 1.5, found 2"),
        (item("boolean"), 1, "must be true or false, found 1"),
        (item("boolean"), "true", "must be true or false, found 'true'"),
        (item("select", options=CHOICES), "b", "must be one of 'a', 2, True, found 'b'"),
        (item("select", options=CHOICES), "2", "must be one of 'a', 2, True, found '2'"),
        (item("select", options=CHOICES), 1, "must be one of 'a', 2, True, found 1"),
        (item("select", options=CHOICES), False, "must be one of 'a', 2, True, found False"),
        (item("select", options=CHOICES), ["a"], "must be one of 'a', 2, True, found ['a']"),
        (item("json"), {1: "a"}, "must be JSON, nested at most 64 deep, found {1: 'a'}"),
        (item("json"), {"a": {1, 2}}, "must be JSON, nested at most 64 deep, found {'a': {1, 2}}"),
        (item("json"), [float("-inf")], "must be JSON, nested at most 64 deep, found [-inf]"),
        (item("json"), {"\udfff": 1}, r"must be JSON, nested at most 64 deep, found {'\udfff': 1}"),
        (item("action"), "x", "must be left alone: it is a button, found 'x'"),
        (item("action-button", buttonText="Go"), None, "must be left alone: it is a button, found None"),
    ],
)
def test_a_value_that_does_not_fit_is_told(declared: SettingItem, value: Any, problem: str) -> None:
    assert declared.problem(value) == problem


def test_oversized_values_are_told_shortly() -> None:
    assert str(item("json").problem(DEEP)).startswith("must be JSON, nested at most 64 deep, found [[[")
    assert len(str(item("number").problem("5" * 10_000))) < 200
    assert item("number").problem(10**5000) == "must be a number, found a int"


@pytest.mark.parametrize(
    "declared",
    [item("password"), item("number", secret=True, max=3), item("json", secret=True), item("json", secretKeys=["key"])],
)
def test_possible_secrets_are_never_shown(declared: SettingItem) -> None:
    assert "77777" not in str(declared.problem({7: "77777"}))
    assert declared.problem({7: "77777"}) is not None


@pytest.mark.parametrize(
    ("declaration", "problem"),
    [
        ({"type": "select"}, "a select needs options"),
        ({"type": "button-group", "options": []}, "a button-group needs options"),
        ({"type": "string", "options": CHOICES}, "options belong to a select or a button-group, not to a string"),
        ({"type": "select", "options": [CHOICES[0], CHOICES[0]]}, "two of the options have the same value"),
        ({"type": "select", "options": [{"value": float("inf"), "label": "All"}]}, "finite"),
        ({"type": "string", "min": 1}, "min, max and step belong to a number or a slider, not to a string"),
        ({"type": "number", "min": 2, "max": 1}, "min 2 is above max 1"),
        ({"type": "slider", "step": 0}, "step must be above 0"),
        ({"type": "number", "max": float("nan")}, "finite"),
        ({"type": "action", "secret": True}, "a button cannot be secret"),
        ({"type": "string", "secret": True, "defaultValue": "x"}, "a secret cannot have a default value"),
        ({"type": "password", "defaultValue": "x"}, "a secret cannot have a default value"),
        ({"type": "number", "defaultValue": "x"}, "defaultValue must be a number, found 'x'"),
        ({"type": "number", "max": 3, "defaultValue": 5}, "defaultValue must be at most 3, found 5"),
        ({"type": "string", "secretKeys": ["key"]}, "secretKeys belong to a json"),
        ({"type": "json", "secret": True, "secretKeys": ["key"]}, "secretKeys belong to a json"),
        ({"type": "colour"}, "Input should be 'string', 'textarea'"),
        ({"type": "string", "labels": "x"}, "Extra inputs are not permitted"),
        ({"type": "string", "key": "extensions.acme.x; rm -rf ~"}, "String should match pattern"),
        ({"type": "string", "key": "extensions.acme.x\n"}, "String should match pattern"),
        ({"type": "string", "key": "extensions.acme." + "x" * 200}, "at most 200 characters"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(declaration: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        item(declaration.pop("type"), **declaration)
    assert problem in str(refused.value)
