"""File nodes: reading, writing and listing what is in the project's `files/` folder."""

from __future__ import annotations

import os
from typing import Any

import pytest
from helpers.repetition import Failures
from node_bench import HostedNodes, Row, check_refusals

from tavern_host import InvalidInput


async def test_text_is_written_and_read(hosted: Any) -> None:
    written = await hosted.run("WriteFile", {"path": "notes/日记.md", "content": "héllo"})
    assert written == {"path": "notes/日记.md", "size": 6}
    assert await hosted.run("ReadFile", {"path": "notes/日记.md"}) == {"content": "héllo", "size": 6, "found": True}


async def test_what_is_no_text_is_written_as_json(hosted: Any) -> None:
    rows: list[Any] = [
        ("text", b"text"),
        (b"\x00\xff", b"\x00\xff"),
        ({"a": [1, "ü"]}, '{\n  "a": [\n    1,\n    "ü"\n  ]\n}'.encode()),
        (12, b"12"),
        (None, b"null"),
    ]
    with Failures() as failures:
        for content, stored in rows:
            with failures.row((content, stored)):
                await hosted.run("WriteFile", {"path": "x", "content": content})
                assert (hosted.files / "x").read_bytes() == stored


async def test_a_file_is_read_as_its_format_says(hosted: Any) -> None:
    rows: list[Any] = [("text", '{"a": 1}'), ("JSON", {"a": 1}), ("binary", b'\xef\xbb\xbf{"a": 1}')]
    with Failures() as failures:
        for format, content in rows:
            with failures.row((format, content)):
                hosted.write("x.json", b'\xef\xbb\xbf{"a": 1}')
                outputs = await hosted.run("ReadFile", {"path": "x.json"}, {"format": format})
                assert outputs == {"content": content, "size": 11, "found": True}


async def test_a_log_grows_line_by_line(hosted: Any) -> None:
    node = hosted.open("WriteFile", {"mode": "append", "new_line": True})
    sizes = [(await hosted.step(node, {"path": "log", "content": text}))["size"] for text in ("a", "b\n", "c")]
    assert sizes == [2, 4, 6]
    assert (hosted.files / "log").read_text() == "a\nb\nc\n"


async def test_a_file_that_is_there_is_not_created_again(hosted: Any) -> None:
    node = hosted.open("WriteFile", {"mode": "create"})
    await hosted.step(node, {"path": "x", "content": "1"})
    with pytest.raises(InvalidInput, match=r"^WriteFile: 'x' is there already$"):
        await hosted.step(node, {"path": "x", "content": "2"})
    assert (hosted.files / "x").read_text() == "1"


async def test_refusals_of_file_nodes_say_why(hosted: HostedNodes) -> None:
    hosted.write("latin", b"\xe9")
    hosted.write("bad.json", "{")
    rows: list[Row] = [
        ("ReadFile", {"path": "no.txt"}, {}, "'no.txt' is not in the project's files/ folder"),
        ("ReadFile", {"path": " "}, {}, "the path must not be empty"),
        (
            "ReadFile",
            {"path": "../tavern.yaml"},
            {"missing": "default"},
            "'../tavern.yaml' leads out of the project's files/ folder; name a file by its path in there",
        ),
        ("ReadFile", {"path": "latin"}, {}, "'latin' is not UTF-8 text (byte 0)"),
        (
            "ReadFile",
            {"path": "bad.json"},
            {"format": "JSON"},
            "'bad.json' is not JSON: Expecting property name enclosed in double quotes at line 1, column 2",
        ),
        (
            "ReadFile",
            {"path": "x"},
            {"format": "yaml"},
            "format must be one of text, JSON, binary, not 'yaml'",
        ),
        (
            "WriteFile",
            {"path": "/etc/x", "content": ""},
            {},
            "'/etc/x' leads out of the project's files/ folder; name a file by its path in there",
        ),
        (
            "WriteFile",
            {"path": "x", "content": "\ud800"},
            {},
            "the content cannot be written as UTF-8: surrogates not allowed",
        ),
        ("ListFiles", {"folder": "no"}, {}, "'no' is not in the project's files/ folder"),
        (
            "ListFiles",
            {"pattern": "*" * 300},
            {},
            "the pattern has 300 characters; at most 200 are possible",
        ),
        *((type, {"path": path, "content": ""}, {}, "the path must be text…")
            for type in ("ReadFile", "WriteFile") for path in (1, None, ["x"])),
    ]  # fmt: skip
    await check_refusals(hosted, rows)


async def test_a_file_that_is_missing_may_have_a_default(hosted: Any) -> None:
    outputs = await hosted.run("ReadFile", {"path": "no", "default": [1]}, {"missing": "default"})
    assert outputs == {"content": [1], "size": 0, "found": False}


async def test_files_are_listed_by_name(hosted: Any) -> None:
    for name in ("b.txt", "a/c.txt", "a/d.json"):
        hosted.write(name, "12")
    os.utime(hosted.files / "b.txt", (0, 0))
    outputs = await hosted.run("ListFiles", {"pattern": "*.txt", "recursive": True})
    assert (outputs["files"], outputs["count"]) == (["a/c.txt", "b.txt"], 2)
    assert outputs["details"][1] == {"path": "b.txt", "name": "b.txt", "size": 2, "modified": "1970-01-01T00:00:00Z"}


async def test_a_change_of_files_is_noticed_and_nothing_else(hosted: Any) -> None:
    rows: list[Any] = [("ReadFile", {"path": "x"}), ("ListFiles", {"folder": "", "recursive": False})]
    with Failures() as failures:
        for type, inputs in rows:
            with failures.row((type, inputs)):
                runner = hosted.runner(type)
                stamps = [await runner.change(inputs, {})]
                hosted.write("x", "1")
                stamps += [await runner.change(inputs, {}), await runner.change(inputs, {})]
                hosted.write("x", "22")
                stamps.append(await runner.change(inputs, {}))
                assert stamps[1] == stamps[2]
                assert len({str(stamp) for stamp in stamps}) == 3


async def test_nothing_is_used_again_where_the_path_comes_in_the_run(hosted: Any) -> None:
    rows: list[Any] = ["ReadFile", "ListFiles"]
    with Failures() as failures:
        for type in rows:
            with failures.row(type):
                runner = hosted.runner(type)
                assert await runner.change({}, {}) != await runner.change({}, {})


async def test_writing_is_done_again_in_each_run() -> None:
    from node_bench import DEFINITIONS

    assert not DEFINITIONS["WriteFile"].traits.cached
    assert {DEFINITIONS[type].traits.placement for type in ("ReadFile", "WriteFile", "ListFiles")} == {"thread"}
