"""File nodes: reading, writing and listing what is in the project's `files/` folder."""

from __future__ import annotations

import os
from typing import Any

import pytest
from helpers.repetition import Failures
from node_bench import DEFINITIONS, HostedNodes, Row, check_outputs, check_refusals

from tavern_host import InvalidInput

pytestmark = pytest.mark.asyncio(loop_scope="module")


WRITTEN: list[tuple[Any, bytes]] = [
    *(("text", b"text"), (b"\x00\xff", b"\x00\xff"), (12, b"12"), (None, b"null")),
    ({"a": [1, "ü"]}, '{\n  "a": [\n    1,\n    "ü"\n  ]\n}'.encode()),
]
READ: list[tuple[str, Any]] = [("text", '{"a": 1}'), ("JSON", {"a": 1}), ("binary", b'\xef\xbb\xbf{"a": 1}')]


async def test_files_are_written_and_read_by_their_format(hosted: HostedNodes) -> None:
    path = "notes/日记.md"
    rows: list[Row] = [
        ("WriteFile", {"path": path, "content": "héllo"}, {}, {"path": path, "size": 6}),
        ("ReadFile", {"path": path}, {}, {"content": "héllo", "size": 6, "found": True}),
        ("ReadFile", {"path": "no", "default": 1}, {"missing": "default"}, {"content": 1, "size": 0, "found": False}),
        *(("ReadFile", {"path": "x.json"}, {"format": format}, {"content": content, "size": 11, "found": True})
            for format, content in READ),
    ]  # fmt: skip
    hosted.write("x.json", b'\xef\xbb\xbf{"a": 1}')
    await check_outputs(hosted, rows)
    with Failures() as failures:
        for content, stored in WRITTEN:
            with failures.row(content):
                await hosted.run("WriteFile", {"path": "x", "content": content})
                assert (hosted.files / "x").read_bytes() == stored


async def test_a_blob_is_written_as_its_bytes(hosted: HostedNodes) -> None:
    blob = await hosted.host.blobs.put(b"\x00\xff", "image/png")
    assert (await hosted.run("WriteFile", {"path": "x", "content": blob}))["size"] == 2
    assert (hosted.files / "x").read_bytes() == b"\x00\xff"


async def test_a_log_grows_line_by_line(hosted: HostedNodes) -> None:
    node = hosted.open("WriteFile", {"mode": "append", "new_line": True})
    sizes = [(await hosted.step(node, {"path": "log", "content": text}))["size"] for text in ("a", "b\n", "c")]
    assert sizes == [2, 4, 6]
    assert (hosted.files / "log").read_text() == "a\nb\nc\n"


async def test_a_file_that_is_there_is_not_created_again(hosted: HostedNodes) -> None:
    node = hosted.open("WriteFile", {"mode": "create"})
    await hosted.step(node, {"path": "x", "content": "1"})
    with pytest.raises(InvalidInput, match=r"^WriteFile: 'x' is there already$"):
        await hosted.step(node, {"path": "x", "content": "2"})
    assert (hosted.files / "x").read_text() == "1"


async def test_refusals_of_file_nodes_say_why(hosted: HostedNodes) -> None:
    hosted.write("latin", b"\xe9")
    hosted.write("bad.json", "{")
    out = "leads out of the project's files/ folder; name a file by its path in there"
    rows: list[Row] = [
        ("ReadFile", {"path": "no.txt"}, {}, "'no.txt' is not in the project's files/ folder"),
        ("ReadFile", {"path": " "}, {}, "the path must not be empty"),
        ("ReadFile", {"path": "../tavern.yaml"}, {"missing": "default"}, f"'../tavern.yaml' {out}"),
        ("ReadFile", {"path": "latin"}, {}, "'latin' is not UTF-8 text (byte 0)"),
        ("ReadFile", {"path": "bad.json"}, {"format": "JSON"},
            "'bad.json' is not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        ("ReadFile", {"path": "x"}, {"format": "yaml"}, "format must be one of text, JSON, binary, not 'yaml'"),
        ("WriteFile", {"path": "/etc/x", "content": ""}, {}, f"'/etc/x' {out}"),
        ("WriteFile", {"path": "x", "content": "\ud800"}, {},
            "the content cannot be written as UTF-8: surrogates not allowed"),
        ("ListFiles", {"folder": "no"}, {}, "'no' is not in the project's files/ folder"),
        ("ListFiles", {"pattern": "*" * 300}, {}, "the pattern has 300 characters; at most 200 are possible"),
        *((type, {"path": path, "content": ""}, {}, "the path must be text…")
            for type in ("ReadFile", "WriteFile") for path in (1, None, ["x"])),
    ]  # fmt: skip
    await check_refusals(hosted, rows)


async def test_files_are_listed_by_name(hosted: HostedNodes) -> None:
    for name in ("b.txt", "a/c.txt", "a/d.json"):
        hosted.write(name, "12")
    os.utime(hosted.files / "b.txt", (0, 0))
    outputs = await hosted.run("ListFiles", {"pattern": "*.txt", "recursive": True})
    assert (outputs["files"], outputs["count"]) == (["a/c.txt", "b.txt"], 2)
    assert outputs["details"][1] == {"path": "b.txt", "name": "b.txt", "size": 2, "modified": "1970-01-01T00:00:00Z"}


async def test_a_change_of_files_is_noticed_and_nothing_else(hosted: HostedNodes) -> None:
    for type, inputs in (("ReadFile", {"path": "x"}), ("ListFiles", {"folder": "", "recursive": False})):
        (hosted.files / "x").unlink(missing_ok=True)
        runner = hosted.runner(type)
        stamps = [await runner.change(inputs, {})]
        hosted.write("x", "1")
        stamps += [await runner.change(inputs, {}), await runner.change(inputs, {})]
        hosted.write("x", "22")
        stamps.append(await runner.change(inputs, {}))
        assert stamps[1] == stamps[2]
        assert len({str(stamp) for stamp in stamps}) == 3
        assert await runner.change({}, {}) != await runner.change({}, {})  # the path comes in the run


async def test_writing_is_done_again_in_each_run() -> None:
    assert not DEFINITIONS["WriteFile"].traits.cached
    assert {DEFINITIONS[type].traits.placement for type in ("ReadFile", "ListFiles")} == {"thread"}
