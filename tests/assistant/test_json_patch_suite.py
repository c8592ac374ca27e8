"""JSON Patch as RFC 6902 says: its appendix in full, and the public test-suite where it can be had."""

from __future__ import annotations

import json
from typing import Any

from helpers.repetition import Failures

from tavern_assistant.patches.operations import apply_plain, pointer
from tavern_assistant.patches.workflow import apply_to_workflow


def op(name: str, path: str, **more: Any) -> dict[str, Any]:
    return {"op": name, "path": path, **more}


BAR = {"foo": "bar"}
BAZ = {"baz": "qux", "foo": "bar"}
ABC = {"baz": "qux", "foo": ["a", 2, "c"]}
COWS, EATEN = ({"foo": words.split()} for words in ("all grass cows eat", "all cows eat grass"))
WALDO, THUD = (
    {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
    {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
)
SLASHED = {"/": 9, "~1": 10}
APPENDIX: tuple[tuple[str, Any, Any, Any], ...] = (
    # section, document, patch, what comes of it; None where it must fail
    ("A.1", BAR, [op("add", "/baz", value="qux")], BAZ),
    ("A.2", {"foo": ["bar", "baz"]}, [op("add", "/foo/1", value="qux")], {"foo": ["bar", "qux", "baz"]}),
    ("A.3", BAZ, [op("remove", "/baz")], BAR),
    ("A.4", {"foo": ["bar", "qux", "baz"]}, [op("remove", "/foo/1")], {"foo": ["bar", "baz"]}),
    ("A.5", BAZ, [op("replace", "/baz", value="boo")], {"baz": "boo", "foo": "bar"}),
    ("A.6", WALDO, [op("move", "/qux/thud", **{"from": "/foo/waldo"})], THUD),
    ("A.7", COWS, [op("move", "/foo/3", **{"from": "/foo/1"})], EATEN),
    ("A.8", ABC, [op("test", "/baz", value="qux"), op("test", "/foo/1", value=2)], ABC),
    ("A.9", {"baz": "qux"}, [op("test", "/baz", value="bar")], None),
    ("A.10", BAR, [op("add", "/child", value={"grandchild": {}})], {**BAR, "child": {"grandchild": {}}}),
    ("A.11", BAR, [op("add", "/baz", value="qux", xyz=123)], BAZ),
    ("A.12", BAR, [op("add", "/baz/bat", value="qux")], None),
    ("A.14", SLASHED, [op("test", "/~01", value=10)], SLASHED),
    ("A.15", SLASHED, [op("test", "/~01", value="10")], None),
    ("A.16", {"foo": ["bar"]}, [op("add", "/foo/-", value=["abc", "def"])], {"foo": ["bar", ["abc", "def"]]}),
)
"""Of A.13 the patch has two members `op`, which Python's reader of JSON joins: there is no such patch here."""


def _assert_does(document: Any, patch: Any, expected: Any, *, fails: bool) -> None:
    before = json.dumps(document)
    result, problems = apply_plain(document, patch)
    assert json.dumps(document) == before
    assert bool(problems) == fails, problems
    assert json.dumps(result, sort_keys=True) == json.dumps(document if fails else expected, sort_keys=True)
    if not all(isinstance(one, dict) and isinstance(one.get("path"), str) for one in patch):
        return
    below = [
        {**one, **{key: f"/part{one[key]}" for key in ("path", "from") if isinstance(one.get(key), str)}}
        for one in patch
    ]
    whole = apply_to_workflow({"nodes": [], "part": document}, below, {})
    assert bool(whole.problems) == fails, "a part of a workflow is no other than a document"
    if not fails:
        assert json.dumps(whole.document["part"], sort_keys=True) == json.dumps(expected, sort_keys=True)


def test_appendix_of_the_standard() -> None:
    with Failures() as failures:
        for section, document, patch, expected in APPENDIX:
            with failures.row(section):
                _assert_does(document, patch, expected, fails=expected is None)


def test_equality_is_that_of_json() -> None:
    for there, value, is_same in ((True, 1, False), (0, False, False), (1, 1.0, True), ([True], [1], False)):
        _, problems = apply_plain({"a": there}, [{"op": "test", "path": "/a", "value": value}])
        assert (problems == []) == is_same, (there, value)
    assert pointer(("a/b", "~", 0)) == "/a~1b/~0/0"
