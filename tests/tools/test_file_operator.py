"""The tools `FileOperator.*`: what they do in the project's files folder, and that nothing outside of it is reached."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from context_keeper import NAME, context_of, write_keeper
from helpers.repetition import Failures, repetitions
from helpers.systems import on_linux

from tavern_host import Host
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound, PermissionDenied
from tavern_host.projects import Folders
from tavern_nodes.files import append_inside
from tavern_tools.api.projectfiles import PROJECT_FILES, ProjectFiles
from tavern_tools.api.toolcalls import ToolCallRequest
from tavern_tools.api.tools import TOOL_MANAGER
from tavern_tools.builtin.project_folder import change, write

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "the secret"
OPERATIONS: dict[str, Callable[[ProjectFiles, str], Awaitable[object]]] = {
    "read": lambda files, path: files.read_file(path),
    "write": lambda files, path: files.write_file(path, "x"),
    "create": lambda files, path: files.write_file(path, "x", overwrite=False),
    "append": lambda files, path: files.append_file(path, "x"),
    "edit": lambda files, path: files.apply_edit(path, "e", "x", all=True),
    "delete": lambda files, path: files.delete_file(path),
    "list": lambda files, path: files.list_files(path, recursive=True),
}


class Files:
    """The files folder of a running host's project, and the tools for it."""

    def __init__(self, host: Host) -> None:
        self.project = host.project.root
        self.root = host.project.folder("files")
        self.service: ProjectFiles = host.services.get(PROJECT_FILES)
        self._tools = host.services.get(TOOL_MANAGER)

    async def call(self, tool: str, path: str = "", **arguments: Any) -> Any:
        """Return the output of a tool, or the message of its error."""
        sent = {**({"filePath": path} if path else {}), **arguments}
        result = await self._tools.call(ToolCallRequest(tool_id=f"FileOperator.{tool}", arguments=sent))
        return result.structured if result.error is None else result.error.message

    async def edit(self, path: str, search: str, replace: str, **more: Any) -> Any:
        return await self.call("ApplyEdit", path, search_string=search, replace_string=replace, **more)

    async def refused(self, *paths: str) -> None:
        """Check that nothing can be done with these paths."""
        with Failures() as failures:
            for path, (name, operation) in itertools.product(paths, OPERATIONS.items()):
                with failures.row(f"{name} {path[:80]}"), pytest.raises((InvalidInput, NotFound)):
                    await operation(self.service, path)

    def put(self, path: str, content: str | bytes) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def get(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def names(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    """Return one host for all tests here; beside its files folder lies what nobody may reach from it."""
    place = tmp_path_factory.mktemp("files")
    (place / "project" / "outside").mkdir(parents=True)
    for path in ("secret.txt", "outside/secret.txt"):
        (place / "project" / path).write_text(SECRET)
    async with Host(place / "project", folders=Folders(place / "c", place / "s", place / "d")) as opened:
        yield opened


@pytest.fixture
def files(host: Host) -> Iterator[Files]:
    """Return the files folder, which is absent when a test begins; afterwards the secrets must be as they were."""
    made = Files(host)
    yield made
    made.root.unlink() if made.root.is_symlink() else shutil.rmtree(made.root, ignore_errors=True)
    assert (made.project / "secret.txt").read_text() == SECRET
    outside = made.project / "outside"
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret.txt": SECRET}


# --- writing and appending ------------------------------------------------------------------------


@on_linux
async def test_files_are_written_with_their_folders(files: Files) -> None:
    written = await files.call("WriteFile", "/日志/today.log", content="任务开始…\n")
    assert written == {"path": "日志/today.log", "size": 16, "created": True}
    read = await files.call("ReadFile", "日志/today.log")
    assert (read["content"], read["totalLines"], read["nextOffset"]) == ("任务开始…\n", 1, None)
    again = await files.call("WriteFile", "日志/today.log", content="new", overwrite=False)
    assert again == '"日志/today.log" is there already and is not to be overwritten'
    assert files.get("日志/today.log").decode() == "任务开始…\n"
    assert await files.call("WriteFile", "日志/today.log", content="a\ud800b") == written | {
        "size": 5,
        "created": False,
    }
    assert files.get("日志/today.log").decode() == "a\ufffdb"  # half a character becomes its replacement

    file = files.put("run.sh", "echo 1\n")
    file.chmod(0o750)
    await files.call("WriteFile", "run.sh", content="echo 2\n")
    await files.edit("run.sh", "2", "3")
    assert (file.stat().st_mode & 0o777, file.read_text()) == (0o750, "echo 3\n")

    files.put(".tavern-writing-0123456789abcdef", "left by a crash")
    assert [entry["path"] for entry in (await files.call("ListFiles"))["entries"]] == ["run.sh", "日志"]
    assert len(files.names()) == 3


async def test_writers_at_once_lose_nothing(files: Files) -> None:
    makes = [files.service.write_file("one.txt", str(n), overwrite=False) for n in range(20)]
    results = await asyncio.gather(*makes, return_exceptions=True)
    (winner,) = [n for n, result in enumerate(results) if not isinstance(result, BaseException)]
    assert files.get("one.txt") == str(winner).encode()

    files.put("list", "".join(f"<{n}>\n" for n in range(30)))
    edits = [files.service.apply_edit("list", f"<{n}>", f"[{n}]") for n in range(30)]
    appends = [files.service.append_file("list", f"+{n}\n") for n in range(30)]
    await asyncio.gather(*(job for pair in zip(edits, appends, strict=True) for job in pair))
    lines = files.get("list").decode().splitlines()
    assert lines[:30] == [f"[{n}]" for n in range(30)]
    assert sorted(lines[30:]) == sorted(f"+{n}" for n in range(30))


# --- reading --------------------------------------------------------------------------------------


async def test_each_line_is_found_by_its_number(files: Files) -> None:
    rows: Any = ["", "a", "\n", "a\n", "\n\na", "一\n二\r\n\n三", "a\n" * 40_000, "a" * 70_000 + "\nb\n"]
    with Failures() as failures:
        for text in rows:
            with failures.row(text[:40]):
                files.put("a.txt", text)
                lines = text.splitlines(keepends=True)
                for number in {1, 2, 3, len(lines) // 2, len(lines) - 1, len(lines)} & set(range(1, len(lines) + 1)):
                    read = await files.call("ReadFile", "a.txt", offset=number, limit=1)
                    assert (read["content"], read["totalLines"]) == (lines[number - 1], len(lines))
    files.put("a.txt", "1\r\n2\n3\f\r\n4")
    assert await files.call("ReadFile", "a.txt", offset=2, limit=2) == {
        **{"path": "a.txt", "content": "2\n3\f\r\n", "offset": 2, "lines": 2},
        **{"totalLines": 4, "nextOffset": 4, "isCut": False, "size": 10},
    }
    assert await files.call("ReadFile", "a.txt", offset=5) == '"a.txt" has 4 lines, so there is no line 5'
    files.put("a.txt", "")
    empty = await files.call("ReadFile", "a.txt")
    assert [empty[key] for key in ("content", "lines", "totalLines", "nextOffset")] == ["", 0, 0, None]


async def test_long_files_are_read_in_parts(files: Files) -> None:
    text = "".join(f"{n} {'x' * (n % 700)}\n" for n in range(2_500))
    files.put("long.txt", text)
    parts, offset = [], 1
    while offset is not None:
        read = await files.call("ReadFile", "long.txt", offset=offset)
        parts.append(read["content"])
        offset = read["nextOffset"]
    assert "".join(parts) == text
    assert len(parts) > 3
    assert max(map(len, parts)) <= 200_000
    files.put("min.json", "[]\n" + "x" * 300_000 + "\nend")  # a line that is too long is cut, which is said
    for offset, expected in ((1, ("[]\n", 2, False)), (2, ("x" * 200_000, 3, True))):
        read = await files.call("ReadFile", "min.json", offset=offset)
        assert (read["content"], read["nextOffset"], read["isCut"]) == expected


async def test_what_is_no_text_or_absent_is_told(files: Files) -> None:
    rows: Any = [
        ("a.png", b"\x89PNG\0\0", "but binary data (image/png, 6 bytes)"),
        ("latin.txt", "café".encode("latin-1"), "but no UTF-8 (byte 3) (text/plain, 4 bytes)"),
        ("wide.txt", "hello".encode("utf-16"), "but UTF-16 (text/plain, 12 bytes)"),
    ]
    with Failures() as failures:
        for name, content, words in rows:
            with failures.row(name):
                files.put(name, content)
                told = [await files.call("ReadFile", name), await files.edit(name, "h", "j")]
                assert told == [f'"{name}" is not a text file in UTF-8 {words}'] * 2
                assert files.get(name) == content
    files.put("notes/Today.md", "x")
    missing = "notes/today.mdx"
    told = [
        await files.call("ReadFile", missing),
        await files.call("DeleteFile", missing),
        await files.edit(missing, "a", "b"),
    ]
    assert told == ['"notes/today.mdx" is not in the project\'s files folder (did you mean Today.md?)'] * 3


# --- listing and deleting -------------------------------------------------------------------------


async def test_folders_are_listed_as_deep_as_asked(files: Files) -> None:
    none = await files.call("ListFiles", recursive=True)
    assert (none["entries"], none["total"], none["isComplete"]) == ([], 0, True)
    assert "is not in the project's files folder" in await files.call("ListFiles", "nowhere")
    for path in ("b.md", "a/x.md", "a/y.txt", "a/deep/z.md"):
        files.put(path, "12")
    listed = (await files.call("ListFiles"))["entries"]
    assert [(e["path"], e["kind"], e["size"]) for e in listed] == [("a", "folder", None), ("b.md", "file", 2)]
    assert listed[1]["modified"].startswith("20")
    rows: Any = [
        ({}, ["a", "a/deep", "a/deep/z.md", "a/x.md", "a/y.txt", "b.md"]),
        ({"path": "/a/", "pattern": "*.md"}, ["a/deep/z.md", "a/x.md"]),
        ({"pattern": "a/*/z.*"}, ["a/deep/z.md"]),
    ]
    for asked, paths in rows:
        assert [e["path"] for e in (await files.call("ListFiles", recursive=True, **asked))["entries"]] == paths
    count = repetitions(1_000, 100_000)
    for number in range(count):
        files.put(f"many/{number:06}", "")
    many = await files.call("ListFiles", "many", limit=3)
    assert [e["path"] for e in many["entries"]] == ["many/000000", "many/000001", "many/000002"]
    assert (many["total"], many["isComplete"]) == (count, True)


async def test_files_and_empty_folders_are_deleted(files: Files) -> None:
    files.put("a/x.md", "1")
    assert (await files.call("DeleteFile", "a")).startswith('"a" is a folder that is not empty')
    assert await files.call("DeleteFile", "a/x.md") == {"path": "a/x.md", "kind": "file"}
    assert await files.call("DeleteFile", "a") == {"path": "a", "kind": "folder"}
    for root in ("/", ".", "./", " ", "//./"):
        assert "the files folder itself" in await files.call("DeleteFile", root)
    assert files.root.is_dir()


# --- editing --------------------------------------------------------------------------------------

LINES = "one\ftwo\x85three\u2028four\rfive\nsix\n"
CODE = "def f(x):\n\treturn x + 1\n"
EDITS: Any = [
    # the content, what is searched for, what it becomes, further arguments, the content then, how often and where first
    ('a();\nlog("old");\nb();', 'log("old");', 'log("new");', {}, 'a();\nlog("new");\nb();', 1, 2),
    ("x = 1\ny\nx = 1\n", "x = 1", "x = 2", {"expected_count": 2}, "x = 2\ny\nx = 2\n", 2, 1),
    ("x = 2\ny\nx = 2\n", "x = 2", "", {"all": True}, "\ny\n\n", 2, 1),
    # line ends, a byte order mark and a missing last line break stay
    (b"\xef\xbb\xbfone\r\ntwo\r\nthree", "one\ntwo", "1\n2\n2.5", {}, b"\xef\xbb\xbf1\r\n2\r\n2.5\r\nthree", 1, 1),
    (b"\xef\xbb\xbf1\r\nthree", "three", "3\n4", {}, b"\xef\xbb\xbf1\r\n3\r\n4", 1, 2),
    # where they are mixed they are what they are
    (b"one\r\ntwo\nthree\n", "one\r\ntwo\nthree", "1\n2", {}, b"1\n2\n", 1, 1),
    # lines are counted as readings count them
    (f"{LINES}seven", "seven", "7", {}, f"{LINES}7", 1, 3),
]
NO_EDITS: Any = [
    # the content, what is searched for, further arguments, what the message says at its end
    (
        *("x = 1\ny\nx = 1\n", "x = 1", {}),
        'search_string is in "f.py" 2 times, not once: at lines 1, 3; '
        "give more of the text around it, set expected_count, or set all to true",
    ),
    ("x\nx\n", "x", {"expected_count": 3}, "; give more of the text around it, set expected_count, or set all to true"),
    ("aaa", "aa", {}, "set all to true"),
    ("aaa", "aa", {"expected_count": 2}, "overlap; give a longer text for each of them"),
    ("a", "a", {"replace_string": "a"}, "replace_string is the same as search_string, so nothing would change"),
    # what is not there is told with what is nearest
    (CODE, "    return x +  1", {}, 'line 2 differs from it only in white space: "\\treturn x + 1"'),
    (CODE, "def f(x):\n    return x + 1\n", {}, 'line 1 differs from it only in white space: "def f(x):"'),
    (CODE, "RETURN X", {}, "line 2 differs from it only in upper and lower case"),
    (CODE, "f(x):\\n\treturn", {}, "it is there with real line breaks where search_string has \\n"),
    (CODE, "def f(x):\n    return 2", {}, 'its line "def f(x):" is there, at 1, and what is around it differs'),
    (CODE, "return y + 1", {}, 'nearest to it is line 2: "return x + 1"'),
    (CODE, "nothing like that", {}, "nor is anything like it; read the file and take the text from there"),
    (b"one\r\ntwo\nthree\n", "one\ntwo", {}, 'line 1 differs from it only in white space: "one"'),
    (LINES, "s ix", {}, 'line 2 differs from it only in white space: "six"'),
    (LINES, "SIX", {}, "line 2 differs from it only in upper and lower case"),
    # and no content makes an edit hang
    ("a" * 500_000, "a" * 125_000, {}, ""),
    ("a\n" * 125_000, "a\n" * 150 + "b", {}, ""),
    ("ab" * 125_000 + "\n", "ba" * 50_000 + "c", {}, ""),
    ("".join(f"line {n} of the same text\n" for n in range(15_000)), "line n of the same test", {}, ""),
]


async def test_a_text_is_replaced_where_it_stands(files: Files) -> None:
    with Failures() as failures:
        for content, search, replace, more, after, count, line in EDITS:
            with failures.row(content):
                file = files.put("f.py", content)
                edited = await files.edit("/f.py", search, replace, **more)
                expected = after if isinstance(after, bytes) else after.encode()
                assert file.read_bytes() == expected
                assert edited == {"path": "f.py", "replaced": count, "firstLine": line, "size": len(expected)}
    assert (await files.call("ReadFile", "f.py", offset=3))["content"] == "7"


async def test_an_edit_that_is_not_certain_changes_nothing(files: Files) -> None:
    with Failures() as failures:
        for content, search, more, ending in NO_EDITS:
            with failures.row((content[:20], search[:40], more)):
                file = files.put("f.py", content)
                message = await files.call(
                    "ApplyEdit", "f.py", **{"search_string": search, "replace_string": "", **more}
                )
                assert message.endswith(ending)
                assert "search_string" in message and len(message) < 1000
                assert file.read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert "search_string" in await files.edit("f.py", "", "a")


# --- sizes ----------------------------------------------------------------------------------------


async def test_files_larger_than_the_setting_are_not_used(tmp_path: Path) -> None:
    key = "extensions.tavern-tools.fileMegabytes"
    for name, operator, project, most in (("own", {key: 1}, 1000, 1), ("lowered", {}, 1, 1), ("raised", {}, 1000, 16)):
        root, size = tmp_path / name, most * 2**20
        root.mkdir()
        (root / "tavern.yaml").write_text(f"settings: {{{key}: {project}}}\n")
        async with Host(root, settings=operator) as host:
            files = Files(host)
            with files.put("edge", b"x").open("r+b") as file:
                file.truncate(size + 1)
            told = await files.call("ReadFile", "edge")
            assert told == f'"edge" is or would be larger than {size:,} bytes, which is the most for tools'
            assert (await files.call("ListFiles"))["entries"][0]["size"] == size + 1
            if name == "own":
                files.put("edge", "x" * size)
                assert (await files.call("ReadFile", "edge"))["size"] == size
                assert await files.call("AppendFile", "edge", content="y") == told
                for refusal in (
                    await files.edit("edge", "x" * size, "x" * size + "y"),
                    await files.call("WriteFile", "new", content="z" * (size + 1)),
                ):
                    assert f"at most {size:,} are possible" in refusal
                assert (files.get("edge"), files.names()) == (b"x" * size, ["edge"])


async def test_nodes_and_tools_share_a_file(tmp_path: Path) -> None:
    write(tmp_path, ("list",), b"".join(b"<%d>\n" % n for n in range(60)), overwrite=True)

    def edit() -> None:
        for n in range(60):
            change(tmp_path, ("list",), lambda data, n=n: data.replace(b"<%d>" % n, b"[%d]" % n), most=10**6)

    with ThreadPoolExecutor(1) as pool:
        editing = pool.submit(edit)
        added = 0
        while not editing.done() or not added:
            added += 1
            append_inside(tmp_path, "list", b"%d\n" % added)
        editing.result()

    expected = [f"[{n}]" for n in range(60)] + [f"{n}" for n in range(1, added + 1)]
    assert (tmp_path / "list").read_text().splitlines() == expected


# --- nothing outside is reached -------------------------------------------------------------------

DECEIVING = [
    *("../secret.txt", "a/../../secret.txt", "/../secret.txt", "..", "a/..", " ../secret.txt", "~", "~/secret.txt"),
    *("C:/secret.txt", "C:\\secret.txt", "..\\secret.txt", "\\\\server\\share", "a\\b", "file:///etc/passwd"),
    *("fam://project/secret.txt", "http://host/x", "․․/secret.txt", "．．/secret.txt", "a\0b", "a\nb", "a\x1bb"),
    *("a\x7fb", "a\u202eb", "a\u2028b", "\ud800", "a /b", "a/ b", ".tavern-writing-1", "x" * 256, "文" * 100),
    *("x/" * 40 + "x", "x" * 100_000, "/" * 5_000 + "x"),
]
HARMLESS = [
    *("%2e%2e/secret.txt", "..%2fsecret.txt", "...", "..secret", "~secret", "/etc/passwd", "A.txt", "a.txt"),
    *("日记 5.md", "e\u0301.txt", "\u00e9.txt", "👩‍👩‍👧.txt", "a'b", "$HOME", "*", "-rf"),
]


@on_linux  # elsewhere names end with no dot, and do not differ by case
async def test_only_paths_in_the_folder_are_used(files: Files) -> None:
    files.root.mkdir(exist_ok=True)
    with Failures() as failures:
        for path, (name, operation) in itertools.product(DECEIVING, OPERATIONS.items()):
            with failures.row(f"{name} {path[:80]}"):
                with pytest.raises(InvalidInput):
                    await operation(files.service, path)
                assert files.names() == []
    for path in HARMLESS:  # nothing in a path is decoded, and names differ by case and by their characters
        with pytest.raises(NotFound):
            await files.service.read_file(path)
        await files.service.write_file(path, path)
    assert [(await files.service.read_file(path)).content for path in HARMLESS] == HARMLESS
    assert [files.get(path.lstrip("/")).decode() for path in HARMLESS] == HARMLESS
    with Failures() as failures:
        files.put("folder/x", "")
        for name in OPERATIONS:
            if name not in ("delete", "list"):
                with failures.row(name), pytest.raises(InvalidInput, match=r"folder, not a file|is not a file"):
                    await OPERATIONS[name](files.service, "folder")


@on_linux
async def test_links_pipes_and_sockets_are_not_used(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    root = files.root
    (root / "inner").mkdir(parents=True)
    links = {"link.txt": "../secret.txt", "folder": files.project / "outside", "inner/folder": "../../outside"}
    for name, target in {**links, "dangling": "../new.txt", "self": "self", "near": "real.txt"}.items():
        (root / name).symlink_to(target)
    files.put("real.txt", "e")
    os.mkfifo(root / "pipe")
    monkeypatch.chdir(root)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        paths = ("link.txt", "folder/secret.txt", "inner/folder/secret.txt", "dangling", "folder", "self", "near")
        await files.refused(*paths, "pipe", "socket", "pipe/x")
    listed = [entry.path for entry in (await files.service.list_files(recursive=True)).entries]
    assert (listed, files.get("real.txt")) == (["inner", "real.txt"], b"e")
    assert not (files.project / "new.txt").exists()
    shutil.rmtree(root)
    root.symlink_to("outside")
    await files.refused("secret.txt")


async def test_folders_that_become_links_never_lead_out(files: Files) -> None:
    root, outside = files.root, files.project / "outside"
    files.put("real/secret.txt", "mine")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            with suppress(OSError):
                (root / "real").rename(root / "kept")
                (root / "real").symlink_to(outside)
            with suppress(OSError):
                (root / "real").unlink()
            with suppress(OSError):
                (root / "kept").rename(root / "real")
            with suppress(OSError):  # a file that turns into a link, too
                (root / "real" / "link").symlink_to("../../secret.txt")
                (root / "real" / "link").replace(root / "real" / "file.txt")

    thread = threading.Thread(target=swap)
    thread.start()
    seen: list[str] = []
    paths = {
        "read": "secret.txt",
        "write": "new.txt",
        "append": "file.txt",
        "edit": "file.txt",
        "delete": "file.txt",
        "list": "",
    }
    try:
        for _ in range(repetitions(30, 400)):
            for name, path in paths.items():
                with suppress(InvalidInput, NotFound, Conflict):
                    result = await OPERATIONS[name](files.service, f"real/{path}")
                    seen.append(getattr(result, "content", "mine"))
    finally:
        stop.set()
        thread.join()
    assert set(seen) == {"mine"}


async def test_plugins_need_grants_to_read_and_write(tmp_path: Path) -> None:
    (tmp_path / "project" / "files").mkdir(parents=True, exist_ok=True)
    (tmp_path / "project" / "files" / "a.txt").write_text("a")
    plugin = write_keeper(tmp_path, permissions={"services": {"use": ["projectFiles:read"]}})
    async with Host(tmp_path / "project", plugins=[plugin], trust=[NAME]) as host:
        files = context_of(host).services.get(PROJECT_FILES)
        assert (await files.read_file("a.txt")).content == "a"
        with pytest.raises(PermissionDenied, match="projectFiles:write"):
            await files.write_file("a.txt", "b")
