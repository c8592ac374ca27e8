"""`/api/files`: the project's files over HTTP."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures

from tavern_host.testing.http import HttpClient


async def _ask(site: HttpClient, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    answer = await site.request(method, f"/api/files{path}", json=body)
    return answer.status, await answer.json()


async def test_files_are_written_listed_streamed_and_deleted(site: HttpClient) -> None:
    assert await _ask(site, "PUT", "/notes%2Fa.txt", {"content": "ale"}) == (
        200,
        {"path": "notes/a.txt", "size": 3, "created": True},
    )
    blob = await (await site.post("/api/blobs", data=bytes(range(256)), headers={"Content-Type": "image/png"})).json()
    status, written = await _ask(site, "PUT", "/notes%2Fb.png", {"blob": blob})
    assert (status, written["size"]) == (200, 256)
    listed = (await _ask(site, "GET", "?path=notes"))[1]
    assert [(entry["path"], entry["size"]) for entry in listed["entries"]] == [("notes/a.txt", 3), ("notes/b.png", 256)]
    shown = await site.get("/api/files/notes%2Fb.png", headers={"Range": "bytes=1-3"})
    assert (shown.status, await shown.read(), shown.headers["Content-Type"]) == (206, b"\x01\x02\x03", "image/png")
    assert (await (await site.get("/api/files/notes%2Fa.txt")).read()) == b"ale"
    assert await _ask(site, "DELETE", "/notes%2Fa.txt") == (200, {"path": "notes/a.txt", "kind": "file"})
    assert (await _ask(site, "GET", "/notes%2Fa.txt"))[0] == 404


async def test_what_is_no_file_of_the_project_is_refused(site: HttpClient) -> None:
    (site.host.project.folder("files") / "out").symlink_to("/etc")
    await _ask(site, "PUT", "/kept.txt", {"content": "ale"})
    gone = {"hash": "0" * 64, "mediaType": "text/plain", "length": 3}
    rows: list[tuple[str, str, Any, int]] = [
        ("GET", "/absent.txt", None, 404),
        ("GET", "/..%2Ftavern.yaml", None, 400),
        ("GET", "/%2E%2E%2Ftavern.yaml", None, 400),
        ("GET", "/notes%2F..%2F..%2Ftavern.yaml", None, 400),
        ("GET", "/out%2Fpasswd", None, 400),
        ("PUT", "/out%2Fx", {"content": "x"}, 400),
        ("PUT", "/a%00b", {"content": "x"}, 400),
        ("PUT", "/kept.txt", {"content": "x", "overwrite": False}, 409),
        ("PUT", "/kept.txt", {}, 400),
        ("PUT", "/kept.txt", {"content": "x", "blob": gone}, 400),
        ("PUT", "/kept.txt", {"blob": gone}, 404),
        ("PUT", "/kept.txt", {"blob": {**gone, "length": 1 << 40}}, 400),
        ("GET", "?path=..", None, 400),
        ("GET", "?limit=0", None, 400),
    ]
    with Failures() as failures:
        for method, path, body, status in rows:
            with failures.row(f"{method} {path} {body}"):
                assert (await _ask(site, method, path, body))[0] == status
    assert (site.host.project.folder("files") / "kept.txt").read_text() == "ale"
