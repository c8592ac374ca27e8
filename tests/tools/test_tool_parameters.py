"""How arguments are matched, converted and checked before a tool is called."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.repetition import Failures
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tavern_tools.catalog.parameters import Bound, Parameters
from tavern_tools.catalog.schemas import Schema, schema_problems


def bind(properties: dict[str, Any], arguments: dict[str, Any], *, text: bool = True, **schema: Any) -> Bound:
    return Parameters({"type": "object", "properties": properties, **schema}).bind(arguments, text=text)


def test_text_becomes_what_the_schema_asks_for() -> None:
    rows: Any = [
        ({"type": "integer"}, "3", 3),
        ({"type": "integer"}, " -12\n", -12),
        ({"type": "integer"}, "3.0", 3),
        ({"type": "number"}, "3", 3),
        ({"type": "number"}, "2.5e3", 2500.0),
        ({"type": "number"}, "9" * 30, 1e30),
        ({"type": "boolean"}, "True", True),
        ({"type": "boolean"}, "no", False),
        ({"type": "boolean"}, "1", True),
        ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
        ({"type": "array"}, '["x"]', ["x"]),
        ({"type": ["integer", "null"]}, "null", None),
        ({"enum": [1, 2]}, "2", 2),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, "7", 7),
        ({"$ref": "#/$defs/count"}, "5", 5),
        ({"type": "string", "enum": ["short", "long"]}, " short ", "short"),
    ]
    with Failures() as failures:
        for schema, text, value in rows:
            with failures.row(schema):
                bound = bind({"p": schema}, {"p": text}, **{"$defs": {"count": {"type": "integer"}}})
                assert bound.arguments == {"p": value}
                assert type(bound.arguments["p"]) is type(value)
                assert bound.problems == []
                assert len(bound.coercions) == 1


def test_text_stays_text_where_text_is_allowed() -> None:
    rows: Any = [
        ({"type": "string"}, "3"),
        ({"type": "string"}, '{"a": 1}'),
        ({"type": ["string", "integer"]}, "3"),
        ({}, "3"),
        ({"anyOf": [{"type": "integer"}, {}]}, "3"),
    ]
    with Failures() as failures:
        for schema, text in rows:
            with failures.row(schema):
                bound = bind({"p": schema}, {"p": text})
                assert (bound.arguments, bound.coercions, bound.problems) == ({"p": text}, [], [])


def test_text_that_does_not_fit_is_reported_and_not_guessed() -> None:
    rows: Any = [
        ("integer", "three"),
        ("integer", "1_000"),
        ("integer", "2.5"),
        ("integer", "9" * 5000),
        ("integer", str(2**63)),
        ("number", "nan"),
        ("number", "inf"),
        ("number", "1e999"),
        ("number", "٣"),
        ("boolean", "maybe"),
        ("object", "[1]"),
        ("object", '{"a": NaN}'),
        ("array", "[" * 100_000),
        ("array", "a, b"),
    ]
    with Failures() as failures:
        for kind, text in rows:
            with failures.row(kind):
                bound = bind({"p": {"type": kind}}, {"p": text})
                assert bound.arguments == {"p": text}
                [problem] = bound.problems
                assert (problem.parameter, problem.path) == ("p", "$.p")
                assert f'is not of type "{kind}"' in problem.message or len(text) > 300


def test_a_structured_call_is_taken_as_it_is() -> None:
    bound = bind({"count": {"type": "integer"}}, {"count": "3"}, text=False)
    assert bound.coercions == []
    assert [str(p) for p in bound.problems] == ['count: "3" is not of type "integer"']


def test_keys_of_text_match_without_case_and_separators() -> None:
    rows: Any = ["filePath", "file_path", "File-Path", "FILE PATH"]
    with Failures() as failures:
        for key in rows:
            with failures.row(key):
                assert bind({"filePath": {"type": "string"}}, {key: "/a"}).arguments == {"filePath": "/a"}


def test_an_exact_key_comes_before_a_similar_one() -> None:
    properties = {"file_path": {"type": "string"}, "filePath": {"type": "string"}}
    bound = bind(properties, {"filePath": "exact", "file_path": "too"})
    assert bound.arguments == {"filePath": "exact", "file_path": "too"}
    bound = bind({"a_b": {"type": "string"}}, {"AB": "similar", "a_b": "exact"})
    assert bound.arguments == {"AB": "similar", "a_b": "exact"}


def test_a_key_that_could_mean_two_parameters_means_none() -> None:
    bound = bind({"a_b": {"type": "string"}, "ab": {"type": "string"}}, {"A-B": "x"})
    assert [p.message for p in bound.problems] == ["is no parameter of this tool (did you mean ab?)"]


def test_every_problem_is_listed_with_its_parameter() -> None:
    bound = bind(
        {
            "url": {"type": "string"},
            "count": {"type": "integer", "maximum": 5},
            "o": {"type": "object", "required": ["x"]},
        },
        {"count": "9", "o": "{}", "contents": "?"},
        required=["url"],
    )
    assert [(p.parameter, str(p)) for p in bound.problems] == [
        ("contents", "contents: is no parameter of this tool (did you mean count?)"),
        ("count", "count: 9 is greater than the maximum of 5"),
        ("o", "o.x: is required and missing"),
        ("url", "url: is required and missing"),
    ]


def test_further_parameters_are_allowed_where_the_schema_says_so() -> None:
    assert bind({}, {"x": "y"}, additionalProperties=True).problems == []
    assert [p.parameter for p in bind({}, {"x": "y"}).problems] == ["x"]


def test_a_missing_parameter_takes_its_default() -> None:
    default: list[int] = [1]
    parameters = Parameters({"type": "object", "properties": {"p": {"type": "array", "default": default}}})
    given_out = parameters.bind({}).arguments["p"]
    assert given_out == [1]
    assert given_out is not default


def test_a_value_nested_without_end_is_a_problem_and_no_crash() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    schema = {"type": "object", "properties": {"p": {"$ref": "#/$defs/list"}}}
    bound = Parameters({**schema, "$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/list"}}}}).bind(
        {"p": deep}
    )
    assert [p.message for p in bound.problems] == ["the value is nested too deeply"]


@given(st.dictionaries(st.text(), st.text()))
def test_binding_any_text_never_raises_and_never_changes_what_it_was_given(arguments: dict[str, str]) -> None:
    before = dict(arguments)
    bind({"n": {"type": "number"}, "o": {"type": ["object", "null"]}, "b": {"type": "boolean"}}, arguments)
    assert arguments == before


def test_arguments_that_are_right_come_back_as_they_are() -> None:
    arguments = {"n": 1, "o": {"deep": [1]}}
    parameters = Parameters({"type": "object", "properties": {"n": {"type": "integer"}, "o": {}}, "required": ["n"]})
    bound = parameters.bind(arguments)
    assert bound.arguments is arguments
    assert (bound.coercions, bound.problems) == ([], [])


def test_wrong_arguments_are_problems() -> None:
    rows: Any = [{}, {"n": "1"}, {"n": 1, "m": 2}, {"n": b"1"}]
    with Failures() as failures:
        for arguments in rows:
            with failures.row(arguments):
                parameters = Parameters({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
                assert parameters.bind(arguments).problems


def test_filling_in_defaults_leaves_what_was_given_alone() -> None:
    arguments: dict[str, Any] = {"a": 1}
    properties: dict[str, Any] = {"a": {}, "b": {"default": 2}}
    bound = Parameters({"type": "object", "properties": properties}).bind(arguments)
    assert (arguments, bound.arguments) == ({"a": 1}, {"a": 1, "b": 2})


def test_what_is_wrong_is_said_in_plain_words() -> None:
    rows: Any = [
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 3, 'p: 3 is not of type "string" or "null"'),
        ({"type": "object", "additionalProperties": False}, {"z": 1}, "p.z: is not allowed here"),
        (
            {"type": "object", "properties": {"a": {}}, "unevaluatedProperties": False},
            {"z": 1},
            "p.z: is not allowed here",
        ),
        ({"type": "number"}, float("nan"), "p: expected a number that JSON can write, got nan"),
        (False, 1, "p: is not allowed here"),
        ({"type": "array", "items": {"type": "integer"}}, [1, "x"], 'p[1]: "x" is not of type "integer"'),
        ({"type": "string"}, {1: 2}, "the value is no JSON: Dict key must be str or str enum. Got 'int'"),
    ]
    with Failures() as failures:
        for schema, value, message in rows:
            with failures.row(schema):
                [problem] = bind({"p": schema}, {"p": value}, text=False).problems
                assert str(problem) == message


def test_a_choice_says_why_each_of_its_branches_is_wrong() -> None:
    choice = {"anyOf": [{"type": "string", "minLength": 3}, {"type": "integer", "minimum": 5}]}
    [problem] = bind({"p": choice}, {"p": "ab"}, text=False).problems
    assert problem.message.endswith('"ab" is shorter than 3 characters; "ab" is not of type "integer"')


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(.*,){20}P$"])
def test_a_pattern_takes_linear_time_whatever_the_text(pattern: str) -> None:
    text = "a" * 1_000_000 + "!"
    [problem] = bind({"p": {"type": "string", "pattern": pattern}}, {"p": text}, text=False).problems
    assert "does not match" in problem.message or problem.message.endswith("…")


@pytest.mark.parametrize(
    "text", ['{"a": NaN}', '{"a": 1e999}', r'{"a": "\ud800"}', '{"a": ' + "[" * 2000 + "]" * 2000 + "}"]
)
def test_json_that_cannot_be_written_again_stays_text(text: str) -> None:
    bound = bind({"p": {"type": "object"}}, {"p": text})
    assert bound.arguments == {"p": text}
    assert len(bound.problems) == 1


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"]),
            "minimum": st.integers(-3, 3),
            "maxLength": st.integers(0, 3),
            "minItems": st.integers(0, 2),
            "uniqueItems": st.booleans(),
            "required": st.lists(st.sampled_from("abc"), unique=True, max_size=2),
            "enum": st.lists(VALUES, min_size=1, max_size=2),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "items": inner,
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
            "additionalProperties": inner | st.booleans(),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
        },
    ),
    max_leaves=5,
)


@given(SCHEMAS, VALUES)
def test_a_value_is_allowed_where_the_reference_validator_allows_it_and_else_has_problems(
    schema: dict[str, Any], value: Any
) -> None:
    assert schema_problems(schema, ()) == []
    allowed = Draft202012Validator(schema).is_valid(value)
    assert Schema(schema).allows(value) is allowed
    assert (Schema(schema).problems(value) == []) is allowed


DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def test_a_schema_with_conditions_is_not_closed() -> None:
    rows: Any = [
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1, "b": 2}, {"a": 1}, "b: is required"),
        ({"if": {"required": ["b"]}, "else": {"required": ["a"]}}, {"a": 1, "z": 2}, {"z": 2}, "a: is required"),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1, "b": 2}, {"a": 1}, "b: is required"),
        ({"propertyNames": {"pattern": "^[ab]$"}}, {"a": 1, "b": 2}, {"z": 1}, "z"),
        ({"minProperties": 2}, {"a": 1, "b": 2}, {"a": 1}, "properties"),
        ({"$schema": DRAFT_7, "dependencies": {"a": ["b"]}}, {"a": 1, "b": 2}, {"a": 1}, "b"),
    ]
    with Failures() as failures:
        for more, right, wrong, reason in rows:
            with failures.row(more):
                assert schema_problems(more, ()) == []
                assert bind({"a": {}}, right, text=False, **more).problems == []
                [problem] = bind({"a": {}}, wrong, text=False, **more).problems
                assert reason in str(problem)


def test_a_refusal_always_says_why() -> None:
    rows: Any = [
        ({"required": ["b"]}, {"a": 1}, "b: is required and missing"),
        ({"not": {"required": ["a"]}}, {"a": 1}, "is not allowed"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "b"),
        ({"maxProperties": 0}, {"a": 1}, "properties"),
        ({"properties": {"a": False}}, {"a": 1}, "a: is not allowed here"),
        ({"properties": {"a": {"oneOf": [{}, {}]}}}, {"a": 1}, "more than one"),
        ({"unevaluatedProperties": False}, {"z": 1}, "z: is not allowed here"),
    ]
    with Failures() as failures:
        for schema, arguments, reason in rows:
            with failures.row(schema):
                bound = Parameters({"type": "object", "properties": {"a": {}}, **schema}).bind(arguments)
                assert bound.problems
                assert all("what the schema allows" not in str(problem) for problem in bound.problems)
                assert any(reason in str(problem) for problem in bound.problems), bound.problems


def test_a_schema_is_read_by_its_own_draft() -> None:
    pair = {"items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False}
    rows: Any = [
        ({"$schema": DRAFT_7}, pair, ["a", 1], ["a", "b"]),
        ({"$schema": "https://json-schema.org/draft/2019-09/schema"}, pair, ["a", 1], [1, 1]),
        ({"$schema": "http://json-schema.org/draft-04/schema"}, {"maximum": 5, "exclusiveMaximum": True}, 4, 5),
        ({}, {"prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", "b"]),
    ]
    with Failures() as failures:
        for draft, part, right, wrong in rows:
            with failures.row(draft):
                assert schema_problems({**draft, "properties": {"p": part}}, ()) == []
                assert bind({"p": part}, {"p": right}, text=False, **draft).problems == []
                assert bind({"p": part}, {"p": wrong}, text=False, **draft).problems != []

    [(place, said)] = schema_problems({"properties": {"p": pair}}, ("parameters",))
    assert (place, 'a list of them is "prefixItems"' in said) == (("parameters", "properties", "p", "items"), True)
    [(place, said)] = schema_problems({"$schema": "http://json-schema.org/draft-03/schema#"}, ("parameters",))
    assert (place, said.endswith('got "http://json-schema.org/draft-03/schema#"')) == (("parameters", "$schema"), True)
    inner = schema_problems({"properties": {"p": {"$schema": DRAFT_7}}}, ())
    assert [place for place, _ in inner] == [("properties", "p", "$schema")]
