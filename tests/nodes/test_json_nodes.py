"""JSON nodes: reading, writing, taking parts; bad text is told with line and column."""

from __future__ import annotations

from typing import Any

import pytest

from tavern_host import InvalidInput
from tavern_nodes.values import MAX_NESTING, MAX_TEXT

DATA = {"users": [{"name": "Ann"}, {"name": "Bo"}], "": 1, "empty": {}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2.5, true, null, "ü"]}', {"a": [1, 2.5, True, None, "ü"]}),
        (" 5 ", 5),
        ("9223372036854775807", 2**63 - 1),
        ("null", None),
    ],
)
async def test_parse_json(nodes: Any, text: str, value: Any) -> None:
    assert await nodes.run("ParseJson", {"text": text}) == {"value": value}


async def test_json_of_the_deepest_nesting_is_read_and_written(nodes: Any) -> None:
    text = "[" * MAX_NESTING + "]" * MAX_NESTING
    value = (await nodes.run("ParseJson", {"text": text}))["value"]
    assert await nodes.run("ToJson", {"value": value}) == {"text": text}


def doubled(times: int, value: Any = None) -> Any:
    """Return a list that is small in memory and has 2 ** times values when it is written."""
    for _ in range(times):
        value = [value, value]
    return value


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("type", "inputs"),
    [
        ("ToJson", {"value": doubled(60)}),
        ("ToJson", {"value": ["x" * 100_000] * 100}),
        ("ToJson", {"value": doubled(17), "indent": 8}),
        ("CreateList", {"items": [doubled(60)]}),
        ("ConcatenateLists", {"lists": [doubled(60), []]}),
        ("JsonSet", {"key": "k", "value": doubled(60)}),
        ("JoinText", {"parts": [doubled(60)]}),
        ("TextMerge", {"text_inputs": [doubled(60)]}),
        ("FormatText", {"template": "{a}", "values": {"a": doubled(60)}}),
        ("Compare", {"a": doubled(60), "b": doubled(60)}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_is_small_but_endless_when_written_is_refused(nodes: Any, type: str, inputs: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"is too large: as JSON it has more than 4,000,000 characters$"):
        await nodes.run(type, inputs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "ParseJson: Expecting value at line 1, column 1: the text ends"),
        ('{"a": 1,\n b}', "ParseJson: Expecting property name enclosed in double quotes at line 2, column 2: 'b}'"),
        ("NaN", "ParseJson: NaN is not JSON"),
        ("[1e999]", "ParseJson: 1e999 is too large for a number"),
        ("9223372036854775808", "ParseJson: 9223372036854775808 does not fit into 64 bits"),
        (
            "9" * 5000,
            f"ParseJson: {'9' * 59}… does not fit into 64 bits; put it in quotes",
        ),
        ("[" * 101 + "]" * 101, "ParseJson: the text is nested more than 100 deep"),
        ("[" * 200_000, "ParseJson: the text is nested more than 100 deep"),
        (
            " " * (MAX_TEXT + 1),
            "ParseJson: the text has 4,000,001 characters; at most 4,000,000 are read",
        ),
    ],
    ids=["empty", "line", "nan", "huge float", "huge integer", "long integer", "deep", "very deep", "long"],
)
async def test_parse_json_says_what_is_wrong(nodes: Any, text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await nodes.run("ParseJson", {"text": text})
    assert refused.value.message == message


async def test_to_json_writes_in_one_line_or_indented(nodes: Any) -> None:
    value = {"a": ["ü"]}
    assert await nodes.run("ToJson", {"value": value}) == {"text": '{"a": ["ü"]}'}
    assert await nodes.run("ToJson", {"value": value, "indent": 2}) == {"text": '{\n  "a": [\n    "ü"\n  ]\n}'}


async def test_to_json_refuses_what_is_not_json(nodes: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^ToJson: the value cannot be written as JSON: .*bytes"):
        await nodes.run("ToJson", {"value": b"x"})
    with pytest.raises(InvalidInput, match=r"^ToJson: the value cannot be written as JSON: Out of range float values"):
        await nodes.run("ToJson", {"value": float("nan")})
    with pytest.raises(InvalidInput, match=r"^ToJson: indent must be from 0 to 8, not 99$"):
        await nodes.run("ToJson", {"value": 1, "indent": 99})
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidInput, match=r"^ToJson: the value is nested more than 100 deep$"):
        await nodes.run("ToJson", {"value": endless})


@pytest.mark.parametrize(
    ("path", "value"),
    [("users.0.name", "Ann"), ("users.-1.name", "Bo"), ("", DATA), ("empty", {}), ("users.1", {"name": "Bo"})],
)
async def test_json_get_follows_the_path(nodes: Any, path: str, value: Any) -> None:
    assert await nodes.run("JsonGet", {"data": DATA, "path": path}) == {"value": value, "found": True}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("users.0.age", "JsonGet: path 'users.0.age': users.0 has no 'age'; it has 'name'"),
        ("nobody", "JsonGet: path 'nobody': the data has no 'nobody'; it has 'users', '', 'empty'"),
        ("empty.a", "JsonGet: path 'empty.a': empty has no 'a'; it has nothing"),
        ("users.2", "JsonGet: path 'users.2': users has 2 items, so there is no item 2"),
        ("users.first", "JsonGet: path 'users.first': users is a list, so a number must follow, not 'first'"),
        ("users.0.name.x", "JsonGet: path 'users.0.name.x': users.0.name is text, which has no parts"),
    ],
)
async def test_json_get_says_how_far_the_path_leads(nodes: Any, path: str, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await nodes.run("JsonGet", {"data": DATA, "path": path})
    assert refused.value.message == message


async def test_json_get_gives_the_default_where_that_is_asked(nodes: Any) -> None:
    result = await nodes.run("JsonGet", {"data": DATA, "path": "x", "default": 7}, {"missing": "default"})
    assert result == {"value": 7, "found": False}


async def test_json_set_makes_a_new_object(nodes: Any) -> None:
    before = {"a": 1}
    assert await nodes.run("JsonSet", {"object": before, "key": "b", "value": 2}) == {"object": {"a": 1, "b": 2}}
    assert before == {"a": 1}
    assert await nodes.run("JsonSet", {"key": "b", "value": 2}) == {"object": {"b": 2}}
