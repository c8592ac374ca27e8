"""How arguments are matched, converted and checked before a tool is called."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tavern_tools.catalog.parameters import Bound, Parameters
from tavern_tools.catalog.schemas import Schema, schema_problems


def bind(properties: dict[str, Any], arguments: dict[str, Any], *, text: bool = True, **schema: Any) -> Bound:
    return Parameters({"type": "object", "properties": properties, **schema}).bind(arguments, text=text)


DEEP = '{"a": ' + "[" * 2000 + "]" * 2000 + "}"
TEXTS: Any = [
    # a type or schema, a text, what becomes of it
    *(
        ("integer", "3", 3),
        ("integer", " -12\n", -12),
        ("integer", "3.0", 3),
        ("number", "3", 3),
        ("number", "2.5e3", 2500.0),
    ),
    *(("number", "9" * 30, 1e30), ("boolean", "True", True), ("boolean", "no", False), ("boolean", "1", True)),
    *(("object", '{"a": [1]}', {"a": [1]}), ("array", '["x"]', ["x"]), (["integer", "null"], "null", None)),
    *(({"enum": [1, 2]}, "2", 2), ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, "7", 7)),
    *(({"$ref": "#/$defs/count"}, "5", 5), ({"type": "string", "enum": ["short", "long"]}, " short ", "short")),
    # where text is allowed it stays text
    *(("string", "3", "3"), ("string", '{"a": 1}', '{"a": 1}'), (["string", "integer"], "3", "3"), ({}, "3", "3")),
    ({"anyOf": [{"type": "integer"}, {}]}, "3", "3"),
]
NOT_GUESSED = [
    *(("integer", "three"), ("integer", "1_000"), ("integer", "2.5"), ("integer", "9" * 5000)),
    *(("integer", str(2**63)), ("number", "nan"), ("number", "inf"), ("number", "1e999"), ("number", "٣")),
    *(("boolean", "maybe"), ("object", "[1]"), ("object", '{"a": NaN}'), ("object", '{"a": 1e999}')),
    *(("object", r'{"a": "\ud800"}'), ("object", DEEP), ("array", "[" * 100_000), ("array", "a, b")),
]


def test_text_becomes_what_the_schema_asks_for() -> None:
    with Failures() as failures:
        for kind, text, value in TEXTS:
            with failures.row((kind, text)):
                schema = kind if isinstance(kind, dict) else {"type": kind}
                bound = bind({"p": schema}, {"p": text}, **{"$defs": {"count": {"type": "integer"}}})
                assert (bound.arguments, type(bound.arguments["p"])) == ({"p": value}, type(value))
                assert (len(bound.coercions), bound.problems) == (int(value != text), [])


def test_text_that_does_not_fit_is_not_guessed() -> None:
    with Failures() as failures:
        for kind, text in NOT_GUESSED:
            with failures.row((kind, text[:40])):
                bound = bind({"p": {"type": kind}}, {"p": text})
                [problem] = bound.problems
                assert (bound.arguments, problem.parameter, problem.path) == ({"p": text}, "p", "$.p")
                assert f'is not of type "{kind}"' in problem.message or len(text) > 300


A_B, AB = {"a_b": {"type": "string"}}, {"ab": {"type": "string"}}
KEYS: Any = [
    # the parameters, the arguments, what these become, what is wrong
    *(
        ({"filePath": {}}, {key: "/a"}, {"filePath": "/a"})
        for key in ("filePath", "file_path", "File-Path", "FILE PATH")
    ),
    ({"file_path": {}, "filePath": {}}, {"filePath": "1", "file_path": "2"}, {"filePath": "1", "file_path": "2"}),
    (A_B, {"AB": "x", "a_b": "y"}, {"AB": "x", "a_b": "y"}, "AB: is no parameter of this tool (did you mean a_b?)"),
    (A_B | AB, {"A-B": "x"}, {"A-B": "x"}, '$["A-B"]: is no parameter of this tool (did you mean ab?)'),
]


def test_keys_match_loosely_unless_they_are_exact() -> None:
    with Failures() as failures:
        for properties, arguments, expected, *problems in KEYS:
            with failures.row(arguments):
                bound = bind(properties, arguments)
                assert (bound.arguments, [str(problem) for problem in bound.problems]) == (expected, problems)


def test_structured_arguments_are_taken_as_they_are() -> None:
    arguments = {"n": 1, "o": {"deep": [1]}}
    bound = bind({"n": {"type": "integer"}, "o": {}}, arguments, text=False, required=["n"])
    assert bound.arguments is arguments
    assert (bound.coercions, bound.problems) == ([], [])
    wrong = bind({"count": {"type": "integer"}}, {"count": "3"}, text=False)
    assert (wrong.coercions, [str(p) for p in wrong.problems]) == ([], ['count: "3" is not of type "integer"'])


def test_every_problem_is_listed_with_its_parameter() -> None:
    count = {"type": "integer", "maximum": 5}
    properties = {"url": {"type": "string"}, "count": count, "o": {"type": "object", "required": ["x"]}}
    bound = bind(properties, {"count": "9", "o": "{}", "contents": "?"}, required=["url"])
    assert [(p.parameter, str(p)) for p in bound.problems] == [
        ("contents", "contents: is no parameter of this tool (did you mean count?)"),
        ("count", "count: 9 is greater than the maximum of 5"),
        ("o", "o.x: is required and missing"),
        ("url", "url: is required and missing"),
    ]


def test_defaults_are_filled_in_as_copies() -> None:
    default, arguments = [1], {"a": 1}
    bound = bind({"a": {}, "b": {"type": "array", "default": default}}, arguments)
    assert (arguments, bound.arguments) == ({"a": 1}, {"a": 1, "b": [1]})
    assert bound.arguments["b"] is not default


def test_a_value_nested_without_end_is_a_problem() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    nested = {"type": "array", "items": {"$ref": "#/$defs/list"}}
    bound = bind({"p": {"$ref": "#/$defs/list"}}, {"p": deep}, text=False, **{"$defs": {"list": nested}})
    assert [p.message for p in bound.problems] == ["the value is nested too deeply"]


@given(st.dictionaries(st.text(), st.text()))
def test_binding_text_never_raises_nor_changes_it(arguments: dict[str, str]) -> None:
    before = dict(arguments)
    bind({"n": {"type": "number"}, "o": {"type": ["object", "null"]}, "b": {"type": "boolean"}}, arguments)
    assert arguments == before


EITHER = {"anyOf": [{"type": "string", "minLength": 3}, {"type": "integer", "minimum": 5}]}
WORDS: Any = [
    # the schema of the parameter p, a wrong value, how the problem ends
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 3, 'p: 3 is not of type "string" or "null"'),
    (EITHER, "ab", '"ab" is shorter than 3 characters; "ab" is not of type "integer"'),
    ({"type": "object", "additionalProperties": False}, {"z": 1}, "p.z: is not allowed here"),
    ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"z": 1}, "p.z: is not allowed here"),
    ({"type": "number"}, float("nan"), "p: expected a number that JSON can write, got nan"),
    (False, 1, "p: is not allowed here"),
    ({"type": "array", "items": {"type": "integer"}}, [1, "x"], 'p[1]: "x" is not of type "integer"'),
    ({"type": "string"}, {1: 2}, "the value is no JSON: Dict key must be str or str enum. Got 'int'"),
    ({"type": "integer"}, b"1", "the value is no JSON: Unsupported type: 'bytes'"),
    # a pattern takes linear time whatever the text
    *(({"pattern": pattern}, "a" * 100_000 + "!", "…") for pattern in ("^(a+)+$", "^(a|a)*$", "^(.*,){20}P$")),
]


def test_what_is_wrong_is_said_in_plain_words() -> None:
    with Failures() as failures:
        for schema, value, message in WORDS:
            with failures.row(schema):
                [problem] = bind({"p": schema}, {"p": value}, text=False).problems
                assert str(problem).endswith(message)


_PRIMITIVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    _PRIMITIVES | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
PLAIN = {
    "type": st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"]),
    **{"minimum": st.integers(-3, 3), "maxLength": st.integers(0, 3), "minItems": st.integers(0, 2)},
    **{"uniqueItems": st.booleans(), "required": st.lists(st.sampled_from("abc"), unique=True, max_size=2)},
    "enum": st.lists(VALUES, min_size=1, max_size=2),
}


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=2)
    properties = st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    keys = {"items": inner, "properties": properties, "additionalProperties": inner | st.booleans()}
    return st.fixed_dictionaries({}, optional=keys | {"anyOf": several, "oneOf": several, "not": inner})


@given(st.recursive(st.fixed_dictionaries({}, optional=PLAIN), _nested, max_leaves=5), VALUES)
def test_what_the_reference_validator_allows_is_allowed(schema: dict[str, Any], value: Any) -> None:
    assert schema_problems(schema, ()) == []
    allowed = Draft202012Validator(schema).is_valid(value)
    assert Schema(schema).allows(value) is allowed
    assert (Schema(schema).problems(value) == []) is allowed


DRAFT_7 = "http://json-schema.org/draft-07/schema#"
PAIR = {"items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False}
RULES: Any = [
    # what a schema says of all arguments, right ones, wrong ones, and why these are wrong
    ({"required": ["a"]}, {"a": 1}, {}, "a: is required and missing"),
    ({"additionalProperties": True}, {"z": 1}, None, ""),
    ({"not": {"required": ["a"]}}, {}, {"a": 1}, "is not allowed"),
    ({"dependentRequired": {"a": ["b"]}}, {}, {"a": 1}, "b"),
    ({"maxProperties": 0}, {}, {"a": 1}, "properties"),
    ({"properties": {"a": False}}, {}, {"a": 1}, "a: is not allowed here"),
    ({"properties": {"a": {"oneOf": [{}, {}]}}}, {}, {"a": 1}, "more than one"),
    ({"unevaluatedProperties": False}, {}, {"z": 1}, "z: is not allowed here"),
    # a schema with conditions is not closed
    ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1, "b": 2}, {"a": 1}, "b: is required"),
    ({"if": {"required": ["b"]}, "else": {"required": ["a"]}}, {"a": 1, "z": 2}, {"z": 2}, "a: is required"),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1, "b": 2}, {"a": 1}, "b: is required"),
    ({"propertyNames": {"pattern": "^[ab]$"}}, {"a": 1, "b": 2}, {"z": 1}, "z"),
    ({"minProperties": 2}, {"a": 1, "b": 2}, {"a": 1}, "properties"),
    # and is read by its own draft
    ({"$schema": DRAFT_7, "dependencies": {"a": ["b"]}}, {"a": 1, "b": 2}, {"a": 1}, "b"),
    ({"$schema": DRAFT_7, "properties": {"a": PAIR}}, {"a": ["a", 1]}, {"a": ["a", "b"]}, ""),
    (
        *({"$schema": "https://json-schema.org/draft/2019-09/schema", "properties": {"a": PAIR}}, {"a": ["a", 1]}),
        *({"a": [1, 1]}, ""),
    ),
    (
        {
            "$schema": "http://json-schema.org/draft-04/schema",
            "properties": {"a": {"maximum": 5, "exclusiveMaximum": True}},
        },
        *({"a": 4}, {"a": 5}, ""),
    ),
    ({"properties": {"a": {"prefixItems": [{"type": "string"}], "items": False}}}, {"a": ["a"]}, {"a": ["a", "b"]}, ""),
]


def test_rules_about_all_arguments_hold_and_say_why() -> None:
    with Failures() as failures:
        for schema, right, wrong, reason in RULES:
            with failures.row(schema):
                assert schema_problems(schema, ()) == []
                parameters = Parameters({"type": "object", "properties": {"a": {}}, **schema})
                assert parameters.bind(right).problems == []
                problems = [] if wrong is None else [str(problem) for problem in parameters.bind(wrong).problems]
                assert bool(problems) is (wrong is not None)
                assert not any("what the schema allows" in problem for problem in problems)
                assert any(reason in problem for problem in problems) or wrong is None, problems


def test_schemas_of_unknown_drafts_are_told() -> None:
    old = "http://json-schema.org/draft-03/schema#"
    told = [
        schema_problems({"properties": {"p": PAIR}}, ("parameters",)),
        schema_problems({"$schema": old}, ("parameters",)),
        schema_problems({"properties": {"p": {"$schema": DRAFT_7}}}, ()),
    ]
    [[(first, items)], [(second, draft)], [(third, _)]] = told
    assert first == ("parameters", "properties", "p", "items")
    assert 'a list of them is "prefixItems"' in items
    assert (second, draft.endswith(f'got "{old}"')) == (("parameters", "$schema"), True)
    assert third == ("properties", "p", "$schema")
