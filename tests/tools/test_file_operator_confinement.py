"""Whatever path a tool is given, and whatever lies in the files folder, nothing outside of it is read or changed."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from context_keeper import NAME, context_of, write_keeper
from helpers.repetition import IN_ONE_TEST, Failures, repetitions
from hypothesis import given, settings
from hypothesis import strategies as st

from tavern_host import Host
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound, PermissionDenied, TavernError
from tavern_host.contracts.projectfiles import PROJECT_FILES, ProjectFiles
from tavern_tools.catalog.project_paths import read_path

SECRET = "the secret"
Operation = Callable[[ProjectFiles, str], Awaitable[object]]

OPERATIONS: dict[str, Operation] = {
    "read": lambda files, path: files.read_file(path),
    "write": lambda files, path: files.write_file(path, "x"),
    "create": lambda files, path: files.write_file(path, "x", overwrite=False),
    "append": lambda files, path: files.append_file(path, "x"),
    "edit": lambda files, path: files.apply_edit(path, "e", "x", all=True),
    "delete": lambda files, path: files.delete_file(path),
    "list": lambda files, path: files.list_files(path, recursive=True),
}


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    """Return a host beside whose files folder lies what nobody may reach from it."""
    project = tmp_path / "project"
    (project / "outside").mkdir(parents=True)
    (project / "secret.txt").write_text(SECRET)
    (project / "outside" / "secret.txt").write_text(SECRET)
    (project / "files").mkdir()
    async with Host(project) as opened:
        yield opened
    assert (project / "secret.txt").read_text() == SECRET
    assert {path.name: path.read_text() for path in (project / "outside").iterdir()} == {"secret.txt": SECRET}


@pytest.fixture
def files(host: Host) -> ProjectFiles:
    return host.services.get(PROJECT_FILES)


async def refused(files: ProjectFiles, *paths: str) -> None:
    """Check that nothing can be done with these paths."""
    with Failures() as failures:
        for path, (name, operation) in itertools.product(paths, OPERATIONS.items()):
            with failures.row(f"{name} {path}"), pytest.raises((InvalidInput, NotFound)):
                await operation(files, path)


async def test_a_path_that_could_deceive_is_refused(host: Host, files: ProjectFiles) -> None:
    rows: Any = [
        *("../secret.txt", "a/../../secret.txt", "/../secret.txt", "..", "a/..", " ../secret.txt"),
        *("~", "~/secret.txt", "C:/secret.txt", "C:\\secret.txt", "..\\secret.txt", "\\\\server\\share", "a\\b"),
        *("file:///etc/passwd", "fam://project/secret.txt", "http://host/x", "․․/secret.txt", "．．/secret.txt"),
        *("a\0b", "a\nb", "a\x1bb", "a\x7fb", "a\u202eb", "a\u2028b", "\ud800", "a /b", "a/ b", ".tavern-writing-1"),
        *("x" * 256, "文" * 100, "x/" * 40 + "x", "x" * 100_000, "/" * 5_000 + "x"),
    ]
    with Failures() as failures:
        for path, (name, operation) in itertools.product(rows, OPERATIONS.items()):
            with failures.row(f"{name} {path}"):
                with pytest.raises(InvalidInput):
                    await operation(files, path)
                assert list(host.project.folder("files").iterdir()) == []


@pytest.mark.parametrize("path", ["%2e%2e/secret.txt", "..%2fsecret.txt", "...", "..secret", "~secret", "/etc/passwd"])
async def test_a_path_that_only_looks_so_is_one_in_the_folder(host: Host, files: ProjectFiles, path: str) -> None:
    with pytest.raises(NotFound):
        await files.read_file(path)
    await files.write_file(path, "mine")
    assert (host.project.folder("files") / path.lstrip("/")).read_text() == "mine"


async def test_names_differ_by_case_and_may_be_in_any_script(host: Host, files: ProjectFiles) -> None:
    names = ["A.txt", "a.txt", "日记 5.md", "e\u0301.txt", "\u00e9.txt", "👩‍👩‍👧.txt", "a'b", "$HOME", "*", "-rf"]
    for name in names:
        await files.write_file(name, name)
    assert [(await files.read_file(name)).content for name in names] == names
    assert sorted(path.name for path in host.project.folder("files").iterdir()) == sorted(names)


async def test_a_link_is_not_followed_wherever_it_is(host: Host, files: ProjectFiles) -> None:
    root = host.project.folder("files")
    (root / "link.txt").symlink_to("../secret.txt")
    (root / "folder").symlink_to(host.project.root / "outside")
    (root / "inner").mkdir()
    (root / "inner" / "folder").symlink_to("../../outside")
    (root / "dangling").symlink_to("../new.txt")
    (root / "self").symlink_to("self")
    (root / "real.txt").write_text("e")
    (root / "near").symlink_to("real.txt")
    links = ("link.txt", "folder/secret.txt", "inner/folder/secret.txt", "dangling", "folder", "self", "near")
    await refused(files, *links)
    assert not (host.project.root / "new.txt").exists()
    assert (root / "real.txt").read_text() == "e"


async def test_links_are_not_listed(host: Host, files: ProjectFiles) -> None:
    (host.project.folder("files") / "out").symlink_to(host.project.root)
    (host.project.folder("files") / "secret").symlink_to("../secret.txt")
    (host.project.folder("files") / "real").mkdir()
    assert [entry.path for entry in (await files.list_files(recursive=True)).entries] == ["real"]


async def test_a_link_in_the_place_of_the_folder_is_not_followed(host: Host, files: ProjectFiles) -> None:
    host.project.folder("files").rmdir()
    host.project.folder("files").symlink_to("outside")
    await refused(files, "secret.txt")


async def test_folders_that_turn_into_links_meanwhile_never_lead_out(host: Host, files: ProjectFiles) -> None:
    root, outside = host.project.folder("files"), host.project.root / "outside"
    (root / "real").mkdir()
    (root / "real" / "secret.txt").write_text("mine")
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
    seen: set[str] = set()
    done = 0
    try:
        for _ in range(repetitions(150, 400)):
            for attempt in (
                lambda: files.read_file("real/secret.txt"),
                lambda: files.write_file("real/new.txt", "x"),
                lambda: files.append_file("real/file.txt", "x"),
                lambda: files.apply_edit("real/file.txt", "e", "x", all=True),
                lambda: files.delete_file("real/file.txt"),
                lambda: files.list_files("real", recursive=True),
            ):
                with suppress(InvalidInput, NotFound, Conflict):
                    result = await attempt()
                    done += 1
                    seen.add(getattr(result, "content", "mine"))
    finally:
        stop.set()
        thread.join()
    assert seen == {"mine"}
    assert done > 0


async def test_only_regular_files_are_used_and_nothing_waits_for_them(
    host: Host, files: ProjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(host.project.folder("files") / "pipe")
    monkeypatch.chdir(host.project.folder("files"))  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        await refused(files, "pipe", "socket", "pipe/x")
    assert sorted(path.name for path in host.project.folder("files").iterdir()) == ["pipe", "socket"]


async def test_a_folder_is_not_taken_for_a_file(host: Host, files: ProjectFiles) -> None:
    rows: Any = [name for name in OPERATIONS if name not in ("delete", "list")]
    with Failures() as failures:
        for operation in rows:
            with failures.row(operation):
                (host.project.folder("files") / "folder").mkdir(exist_ok=True)
                with pytest.raises(InvalidInput, match=r"folder, not a file|is not a file"):
                    await OPERATIONS[operation](files, "folder")


async def test_a_plugin_needs_a_grant_to_read_and_another_to_write(tmp_path: Path) -> None:
    (tmp_path / "project" / "files").mkdir(parents=True)
    (tmp_path / "project" / "files" / "a.txt").write_text("a")
    plugin = write_keeper(tmp_path, permissions={"services": {"use": ["projectFiles:read"]}})
    async with Host(tmp_path / "project", plugins=[plugin], trust=[NAME]) as host:
        files = context_of(host).services.get(PROJECT_FILES)
        assert (await files.read_file("a.txt")).content == "a"
        with pytest.raises(PermissionDenied, match="projectFiles:write"):
            await files.write_file("a.txt", "b")


@settings(max_examples=300, deadline=None, suppress_health_check=IN_ONE_TEST)
@given(st.text(st.sampled_from("./\\~% \0\n:．․ab") | st.characters(), max_size=40))
def test_no_text_is_read_as_a_path_that_leads_out(path: str) -> None:
    try:
        steps = read_path(path)
    except TavernError:
        return
    assert not {"", ".", ".."} & set(steps)
    assert not any("/" in step or "\0" in step for step in steps)
    assert read_path("/".join(steps)) == steps
