"""The tools `FileOperator.*`: what they read, write, list, delete and edit in the project's files folder."""

from __future__ import annotations

import asyncio
import shutil
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from helpers.repetition import Failures, repetitions

from tavern_host import Host
from tavern_host.contracts.projectfiles import PROJECT_FILES, ProjectFiles
from tavern_host.contracts.toolcalls import ToolCallRequest
from tavern_host.contracts.tools import TOOL_MANAGER
from tavern_host.projects import Folders
from tavern_nodes.files import append_inside
from tavern_tools.builtin.project_folder import change, write

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Files:
    """The files folder of a running host's project, and the tools for it."""

    def __init__(self, host: Host) -> None:
        self.root = host.project.folder("files")
        self.service: ProjectFiles = host.services.get(PROJECT_FILES)
        self._tools = host.services.get(TOOL_MANAGER)

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Return what a tool gave."""
        result = await self._tools.call(ToolCallRequest(tool_id=f"FileOperator.{tool}", arguments=arguments))
        assert result.error is None, result.error
        return result.structured

    async def refusal(self, tool: str, **arguments: Any) -> str:
        """Return why a tool failed."""
        result = await self._tools.call(ToolCallRequest(tool_id=f"FileOperator.{tool}", arguments=arguments))
        assert result.error is not None, result.structured
        message: str = result.error.message
        return message

    def put(self, path: str, content: str | bytes) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def get(self, path: str) -> bytes:
        return (self.root / path).read_bytes()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    """Return one host for all tests here."""
    place = tmp_path_factory.mktemp("files")
    (place / "project").mkdir()
    folders = Folders(place / "config", place / "state", place / "data")
    async with Host(place / "project", folders=folders) as opened:
        yield opened


@pytest.fixture
def files(host: Host) -> Iterator[Files]:
    """Return the files folder, which is absent when a test begins."""
    made = Files(host)
    yield made
    shutil.rmtree(made.root, ignore_errors=True)


# --- writing and appending ------------------------------------------------------------------------


async def test_a_file_is_written_with_its_folders_and_read_again(files: Files) -> None:
    written = await files.call("WriteFile", filePath="/日志/today.log", content="任务开始…\n")
    assert written == {"path": "日志/today.log", "size": 16, "created": True}
    assert files.get("日志/today.log").decode() == "任务开始…\n"
    read = await files.call("ReadFile", filePath="日志/today.log")
    assert (read["content"], read["totalLines"], read["nextOffset"]) == ("任务开始…\n", 1, None)


async def test_what_is_there_is_replaced_unless_it_must_not_be(files: Files) -> None:
    files.put("a.txt", "old")
    message = await files.refusal("WriteFile", filePath="a.txt", content="new", overwrite=False)
    assert message == '"a.txt" is there already and is not to be overwritten'
    assert files.get("a.txt") == b"old"
    written = await files.call("WriteFile", filePath="a.txt", content="new")
    assert written == {"path": "a.txt", "size": 3, "created": False}
    assert files.get("a.txt") == b"new"


async def test_of_many_who_make_a_file_exactly_one_succeeds(files: Files) -> None:
    makes = [files.service.write_file("one.txt", str(n), overwrite=False) for n in range(20)]
    results = await asyncio.gather(*makes, return_exceptions=True)
    (winner,) = [n for n, result in enumerate(results) if not isinstance(result, BaseException)]
    assert files.get("one.txt") == str(winner).encode()


async def test_a_file_keeps_its_permissions_when_it_is_replaced_or_edited(files: Files) -> None:
    file = files.put("run.sh", "echo 1\n")
    file.chmod(0o750)
    await files.call("WriteFile", filePath="run.sh", content="echo 2\n")
    await files.call("ApplyEdit", filePath="run.sh", search_string="2", replace_string="3")
    assert file.stat().st_mode & 0o777 == 0o750
    assert file.read_text() == "echo 3\n"


async def test_edits_appends_and_writes_at_once_lose_nothing(files: Files) -> None:
    files.put("list", "".join(f"<{n}>\n" for n in range(30)))
    edits = [files.service.apply_edit("list", f"<{n}>", f"[{n}]") for n in range(30)]
    appends = [files.service.append_file("list", f"+{n}\n") for n in range(30)]
    await asyncio.gather(*(job for pair in zip(edits, appends, strict=True) for job in pair))
    lines = files.get("list").decode().splitlines()
    assert lines[:30] == [f"[{n}]" for n in range(30)]
    assert sorted(lines[30:]) == sorted(f"+{n}" for n in range(30))


async def test_no_unfinished_file_is_left_or_listed(files: Files) -> None:
    await files.call("WriteFile", filePath="a.txt", content="1")
    await files.refusal("WriteFile", filePath="a.txt", content="1", overwrite=False)
    files.put(".tavern-writing-0123456789abcdef", "left by a crash")
    listed = await files.call("ListFiles")
    assert [entry["path"] for entry in listed["entries"]] == ["a.txt"]
    assert len(list(files.root.iterdir())) == 2


async def test_half_a_character_is_written_as_its_replacement(files: Files) -> None:
    await files.call("WriteFile", filePath="a.txt", content="a\ud800b")
    assert (files.root / "a.txt").read_text(encoding="utf-8") == "a\ufffdb"


# --- reading --------------------------------------------------------------------------------------


async def test_lines_are_read_from_where_one_wants(files: Files) -> None:
    files.put("a.txt", "1\r\n2\n3\f\r\n4")
    read = await files.call("ReadFile", filePath="a.txt", offset=2, limit=2)
    assert read == {
        **{"path": "a.txt", "content": "2\n3\f\r\n", "offset": 2, "lines": 2},
        **{"totalLines": 4, "nextOffset": 4, "isCut": False, "size": 10},
    }
    rest = await files.call("ReadFile", filePath="a.txt", offset=4)
    assert (rest["content"], rest["nextOffset"]) == ("4", None)
    assert await files.refusal("ReadFile", filePath="a.txt", offset=5) == '"a.txt" has 4 lines, so there is no line 5'


async def test_a_long_file_is_read_in_parts_that_make_up_the_whole(files: Files) -> None:
    text = "".join(f"{n} {'x' * (n % 700)}\n" for n in range(5_000))
    files.put("long.txt", text)
    parts, offset = [], 1
    while offset is not None:
        read = await files.call("ReadFile", filePath="long.txt", offset=offset)
        assert len(read["content"]) <= 200_000
        parts.append(read["content"])
        offset = read["nextOffset"]
    assert "".join(parts) == text
    assert len(parts) > 5


async def test_a_line_that_is_too_long_is_cut_which_is_said(files: Files) -> None:
    files.put("min.json", "[]\n" + "x" * 300_000 + "\nend")
    first = await files.call("ReadFile", filePath="min.json")
    assert (first["content"], first["nextOffset"], first["isCut"]) == ("[]\n", 2, False)
    long = await files.call("ReadFile", filePath="min.json", offset=2)
    assert (long["content"], long["nextOffset"], long["isCut"]) == ("x" * 200_000, 3, True)


async def test_each_line_is_found_by_its_number(files: Files) -> None:
    rows: Any = ["", "a", "\n", "a\n", "\n\na", "一\n二\r\n\n三", "a\n" * 40_000, "a" * 70_000 + "\nb\n"]
    with Failures() as failures:
        for text in rows:
            with failures.row(text):
                files.put("a.txt", text)
                lines = text.splitlines(keepends=True)
                for number in {1, 2, 3, len(lines) // 2, len(lines) - 1, len(lines)} & set(range(1, len(lines) + 1)):
                    read = await files.call("ReadFile", filePath="a.txt", offset=number, limit=1)
                    assert (read["content"], read["totalLines"]) == (lines[number - 1], len(lines))


async def test_lines_are_counted_alike_by_readings_and_edits(files: Files) -> None:
    files.put("a.txt", "one\ftwo\x85three\u2028four\rfive\nsix\nseven")
    assert (await files.call("ReadFile", filePath="a.txt", offset=3))["content"] == "seven"
    edited = await files.call("ApplyEdit", filePath="a.txt", search_string="seven", replace_string="7")
    assert edited["firstLine"] == 3
    message = await files.refusal("ApplyEdit", filePath="a.txt", search_string="SIX", replace_string="6")
    assert "line 2 differs from it only in upper and lower case" in message
    assert "line 2 differs from it only in white space" in await files.refusal(
        "ApplyEdit", filePath="a.txt", search_string="s ix", replace_string="6"
    )


async def test_an_empty_file_has_no_lines(files: Files) -> None:
    files.put("empty", "")
    read = await files.call("ReadFile", filePath="empty")
    assert (read["content"], read["lines"], read["totalLines"], read["nextOffset"]) == ("", 0, 0, None)


async def test_what_is_no_text_is_called_so(files: Files) -> None:
    rows: Any = [
        ("a.png", b"\x89PNG\0\0", "but binary data (image/png, 6 bytes)"),
        ("latin.txt", "café".encode("latin-1"), "but no UTF-8 (byte 3) (text/plain, 4 bytes)"),
        ("wide.txt", "hello".encode("utf-16"), "but UTF-16 (text/plain, 12 bytes)"),
    ]
    with Failures() as failures:
        for name, content, words in rows:
            with failures.row(name):
                files.put(name, content)
                expected = f'"{name}" is not a text file in UTF-8 {words}'
                assert await files.refusal("ReadFile", filePath=name) == expected
                assert (
                    await files.refusal("ApplyEdit", filePath=name, search_string="h", replace_string="j") == expected
                )
                assert files.get(name) == content


async def test_a_missing_file_is_told_with_near_names(files: Files) -> None:
    files.put("notes/Today.md", "x")
    message = '"notes/today.mdx" is not in the project\'s files folder (did you mean Today.md?)'
    assert await files.refusal("ReadFile", filePath="notes/today.mdx") == message
    for tool in ("DeleteFile", "ApplyEdit"):
        more = {"search_string": "a", "replace_string": "b"} if tool == "ApplyEdit" else {}
        assert await files.refusal(tool, filePath="notes/today.mdx", **more) == message


# --- listing --------------------------------------------------------------------------------------


async def test_a_folder_is_listed_and_what_is_within_it_on_request(files: Files) -> None:
    for path in ("b.md", "a/x.md", "a/y.txt", "a/deep/z.md"):
        files.put(path, "12")
    listed = await files.call("ListFiles")
    first = [(e["path"], e["kind"], e["size"]) for e in listed["entries"]]
    assert first == [("a", "folder", None), ("b.md", "file", 2)]
    everything = await files.call("ListFiles", recursive=True)
    assert [e["path"] for e in everything["entries"]] == ["a", "a/deep", "a/deep/z.md", "a/x.md", "a/y.txt", "b.md"]
    inner = await files.call("ListFiles", filePath="/a/", pattern="*.md", recursive=True)
    assert [e["path"] for e in inner["entries"]] == ["a/deep/z.md", "a/x.md"]
    deeper = await files.call("ListFiles", pattern="a/*/z.*", recursive=True)
    assert [e["path"] for e in deeper["entries"]] == ["a/deep/z.md"]
    assert everything["entries"][2]["modified"].startswith("20")


async def test_a_project_without_files_lists_none_and_a_missing_folder_is_an_error(files: Files) -> None:
    listed = await files.call("ListFiles", recursive=True)
    assert (listed["entries"], listed["total"], listed["isComplete"]) == ([], 0, True)
    assert "is not in the project's files folder" in await files.refusal("ListFiles", filePath="nowhere")


async def test_many_files_are_listed_in_part_with_their_number(files: Files) -> None:
    count = repetitions(2_000, 100_000)
    folder = files.root / "many"
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number:06}").touch()
    listed = await files.call("ListFiles", filePath="many", limit=3)
    assert [e["path"] for e in listed["entries"]] == ["many/000000", "many/000001", "many/000002"]
    assert (listed["total"], listed["isComplete"]) == (count, True)


# --- deleting -------------------------------------------------------------------------------------


async def test_a_file_and_then_its_empty_folder_are_deleted_but_never_the_root(files: Files) -> None:
    files.put("a/x.md", "1")
    assert (await files.refusal("DeleteFile", filePath="a")).startswith('"a" is a folder that is not empty')
    assert await files.call("DeleteFile", filePath="a/x.md") == {"path": "a/x.md", "kind": "file"}
    assert await files.call("DeleteFile", filePath="a") == {"path": "a", "kind": "folder"}
    for root in ("/", ".", "./", " ", "//./"):
        assert "the files folder itself" in await files.refusal("DeleteFile", filePath=root)
    assert files.root.is_dir()


# --- editing --------------------------------------------------------------------------------------


async def test_a_text_is_replaced_where_it_stands(files: Files) -> None:
    files.put("main.js", 'a();\nconsole.log("old");\nb();')
    edit = {"search_string": 'console.log("old");', "replace_string": 'console.log("new");'}
    edited = await files.call("ApplyEdit", filePath="/main.js", **edit)
    assert edited == {"path": "main.js", "replaced": 1, "firstLine": 2, "size": 29}
    assert files.get("main.js") == b'a();\nconsole.log("new");\nb();'


async def test_a_text_that_is_there_several_times_needs_to_be_expected(files: Files) -> None:
    file = files.put("a.txt", "x = 1\ny\nx = 1\n")
    edit = {"filePath": "a.txt", "search_string": "x = 1", "replace_string": "x = 2"}
    assert await files.refusal("ApplyEdit", **edit) == (
        'search_string is in "a.txt" 2 times, not once: at lines 1, 3; '
        "give more of the text around it, set expected_count, or set all to true"
    )
    assert "2 times, not 3 times" in await files.refusal("ApplyEdit", **edit, expected_count=3)
    assert file.read_text() == "x = 1\ny\nx = 1\n"
    assert (await files.call("ApplyEdit", **edit, expected_count=2))["replaced"] == 2
    edit = {"filePath": "a.txt", "search_string": "x = 2", "replace_string": ""}
    assert (await files.call("ApplyEdit", **edit, all=True))["replaced"] == 2
    assert file.read_text() == "\ny\n\n"


async def test_occurrences_that_overlap_are_not_one(files: Files) -> None:
    files.put("a.txt", "aaa")
    edit = {"filePath": "a.txt", "search_string": "aa", "replace_string": "b"}
    assert "2 times, not once" in await files.refusal("ApplyEdit", **edit)
    assert "overlap" in await files.refusal("ApplyEdit", **edit, expected_count=2)
    assert files.get("a.txt") == b"aaa"


async def test_a_text_that_is_not_there_is_told_with_what_is_nearest(files: Files) -> None:
    rows: Any = [
        ("    return x +  1", 'line 2 differs from it only in white space: "\\treturn x + 1"'),
        ("def f(x):\n    return x + 1\n", 'line 1 differs from it only in white space: "def f(x):"'),
        ("RETURN X", "line 2 differs from it only in upper and lower case"),
        ("f(x):\\n\treturn", "it is there with real line breaks where search_string has \\n"),
        ("def f(x):\n    return 2", 'its line "def f(x):" is there, at 1, and what is around it differs'),
        ("return y + 1", 'nearest to it is line 2: "return x + 1"'),
        ("nothing like that", "nor is anything like it; read the file and take the text from there"),
    ]
    with Failures() as failures:
        for search, hint in rows:
            with failures.row(search):
                files.put("f.py", "def f(x):\n\treturn x + 1\n")
                message = await files.refusal("ApplyEdit", filePath="f.py", search_string=search, replace_string="")
                assert message.startswith('search_string is not in "f.py"')
                assert message.endswith(hint)
                assert files.get("f.py") == b"def f(x):\n\treturn x + 1\n"


async def test_an_edit_keeps_line_ends_byte_order_mark_and_a_missing_last_line_break(files: Files) -> None:
    files.put("dos.txt", b"\xef\xbb\xbfone\r\ntwo\r\nthree")
    await files.call("ApplyEdit", filePath="dos.txt", search_string="one\ntwo", replace_string="1\n2\n2.5")
    await files.call("ApplyEdit", filePath="dos.txt", search_string="three", replace_string="3\n4")
    assert files.get("dos.txt") == b"\xef\xbb\xbf1\r\n2\r\n2.5\r\n3\r\n4"


async def test_in_a_file_of_mixed_line_ends_line_breaks_are_what_they_are(files: Files) -> None:
    files.put("mixed.txt", b"one\r\ntwo\nthree\n")
    assert "only in white space" in await files.refusal(
        "ApplyEdit", filePath="mixed.txt", search_string="one\ntwo", replace_string="x"
    )
    await files.call("ApplyEdit", filePath="mixed.txt", search_string="one\r\ntwo\nthree", replace_string="1\n2")
    assert files.get("mixed.txt") == b"1\n2\n"


async def test_an_edit_that_cannot_mean_anything_is_refused(files: Files) -> None:
    files.put("a.txt", "a")
    same = await files.refusal("ApplyEdit", filePath="a.txt", search_string="a", replace_string="a")
    assert same == "replace_string is the same as search_string, so nothing would change"
    assert "search_string" in await files.refusal("ApplyEdit", filePath="a.txt", search_string="", replace_string="a")


async def test_no_content_makes_an_edit_hang(files: Files) -> None:
    rows: Any = [
        ("a" * 2_000_000, "a" * 500_000),
        ("a\n" * 500_000, "a\n" * 150 + "b"),
        ("ab" * 500_000 + "\n", "ba" * 200_000 + "c"),
        ("".join(f"line {n} of the same text\n" for n in range(60_000)), "line n of the same test"),
    ]
    with Failures() as failures:
        for content, search in rows:
            with failures.row(content):
                files.put("big.txt", content)
                message = await files.refusal("ApplyEdit", filePath="big.txt", search_string=search, replace_string="")
                assert message.startswith("search_string is ")


# --- sizes ----------------------------------------------------------------------------------------


async def test_files_larger_than_the_setting_are_neither_read_nor_made(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    async with Host(tmp_path / "project", settings={"extensions.tavern-tools.fileMegabytes": 1}) as host:
        files = Files(host)
        files.put("edge", "x" * 2**20)
        limit = '"edge" is or would be larger than 1,048,576 bytes, which is the most for tools'
        assert (await files.call("ReadFile", filePath="edge"))["size"] == 2**20
        assert await files.refusal("AppendFile", filePath="edge", content="y") == limit
        edit = {"search_string": "x" * 2**20, "replace_string": "x" * 2**20 + "y"}
        assert "at most 1,048,576 are possible" in await files.refusal("ApplyEdit", filePath="edge", **edit)
        assert "at most 1,048,576" in await files.refusal("WriteFile", filePath="new", content="z" * (2**20 + 1))
        assert files.get("edge") == b"x" * 2**20
        assert not (files.root / "new").exists()


async def test_a_project_may_lower_the_size_of_files_but_not_raise_it(tmp_path: Path) -> None:
    for size, lines in ((1, 1), (1000, 16)):
        project = tmp_path / f"project{size}"
        project.mkdir()
        (project / "tavern.yaml").write_text(f"settings: {{extensions.tavern-tools.fileMegabytes: {size}}}\n")
        async with Host(project) as host:
            files = Files(host)
            files.put("large", b"x")
            with (files.root / "large").open("r+b") as file:
                file.truncate(2**30)
            assert f"larger than {lines * 2**20:,} bytes" in await files.refusal("ReadFile", filePath="large")
            assert (await files.call("ListFiles"))["entries"][0]["size"] == 2**30


# --- several processes ----------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from tavern_tools.builtin.edits import Edit, apply
from tavern_tools.builtin.project_folder import append, change, write

root, own = Path(sys.argv[1]), sys.argv[2]
for n in range(40):
    append(root, ("list",), f"{own}-{n}\\n".encode(), most=10**6)
    edit = Edit(f"<{own}{n}>", f"[{own}{n}]")
    change(root, ("list",), lambda data: apply(data.decode(), edit, "it").text.encode(), most=10**6)
    write(root, ("other",), own.encode() * 100_000, overwrite=True)
"""


async def test_what_nodes_add_to_a_file_while_tools_edit_it_is_not_lost(tmp_path: Path) -> None:
    root = tmp_path / "files"
    write(root, ("list",), b"".join(b"<%d>\n" % n for n in range(60)), overwrite=True)

    def edit() -> None:
        for n in range(60):
            change(root, ("list",), lambda data, n=n: data.replace(b"<%d>" % n, b"[%d]" % n), most=10**6)

    with ThreadPoolExecutor(1) as pool:
        editing = pool.submit(edit)
        added = 0
        while not editing.done() or not added:
            added += 1
            append_inside(root, "list", b"%d\n" % added)
        editing.result()

    expected = [f"[{n}]" for n in range(60)] + [f"{n}" for n in range(1, added + 1)]
    assert (root / "list").read_text().splitlines() == expected


async def test_a_process_that_is_killed_while_it_writes_leaves_the_old_content_or_the_new(tmp_path: Path) -> None:
    root = tmp_path / "files"
    root.mkdir()
    (root / "other").write_bytes(b"a" * 100_000)
    (root / "list").write_text("".join(f"<a{n}>\n" for n in range(40)))
    for delay in range(repetitions(3, 10)):
        writer = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, str(root), "a", stderr=DEVNULL)
        before = (root / "other").stat().st_ino
        while (root / "other").stat().st_ino == before and writer.returncode is None:
            await asyncio.sleep(0.001)
        await asyncio.sleep(delay / 1000)
        with suppress(ProcessLookupError):
            writer.kill()
        await writer.wait()
        assert (root / "other").read_bytes() == b"a" * 100_000
        assert write(root, ("other",), b"a" * 100_000, overwrite=True) is False  # no lock is left
        lines = "".join(f"<a{n}>\n" for n in range(40))
        write(root, ("list",), lines.encode(), overwrite=True)
