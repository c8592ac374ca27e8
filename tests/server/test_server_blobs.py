"""Blobs, the project's files and the audit log over HTTP: taken and sent as streams, in ranges, by pages."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from helpers.repetition import Failures

from tavern_host.testing.http import HttpClient

CONTENT = bytes(range(256)) * 1024 * 3 + b"end"  # several parts of a stream
NAME = hashlib.sha256(CONTENT).hexdigest()


async def parts() -> AsyncIterator[bytes]:
    """Yield the content in parts, so that its length is not known before."""
    for start in range(0, len(CONTENT), 100_000):
        yield CONTENT[start : start + 100_000]


async def test_an_upload_comes_back_in_ranges(site: HttpClient) -> None:
    upload = await site.post("/api/blobs", data=parts(), headers={"Content-Type": "image/png"})
    handle = {"type": "blob", "hash": NAME, "mediaType": "image/png", "length": len(CONTENT)}
    assert (upload.status, await upload.json()) == (201, handle)
    assert (await site.get(upload.headers["Location"].partition(str(site.port))[2])).status == 200

    size = len(CONTENT)
    rows = [
        (None, 200, CONTENT, None),
        ("bytes=10-19", 206, CONTENT[10:20], f"bytes 10-19/{size}"),
        ("bytes=-3", 206, b"end", f"bytes {size - 3}-{size - 1}/{size}"),
        (f"bytes={size - 1}-", 206, b"d", f"bytes {size - 1}-{size - 1}/{size}"),
        (f"bytes={size}-", 416, None, f"bytes */{size}"),
    ]
    with Failures() as failures:
        for wanted, status, body, place in rows:
            with failures.row(wanted):
                answer = await site.get(f"/api/blobs/{NAME}", headers={"Range": wanted})
                assert (answer.status, answer.headers.get("Content-Range")) == (status, place)
                assert body is None or (await answer.read(), answer.headers["Content-Type"]) == (body, "image/png")
        with failures.row("HEAD"):
            answer = await site.request("HEAD", f"/api/blobs/{NAME}")
            assert (answer.status, answer.headers["Content-Length"]) == (200, str(size))


async def test_a_download_runs_nothing_on_this_origin(site: HttpClient) -> None:
    page = b"<script>document.title = 'mine'</script>"
    name = (await (await site.post("/api/blobs", data=page, headers={"Content-Type": "text/html"})).json())["hash"]
    with Failures() as failures:
        for query, shown in (("", False), ("?mediaType=image/svg%2Bxml", False), ("?mediaType=image/png", True)):
            with failures.row(query):
                answer = await site.get(f"/api/blobs/{name}{query}")
                assert answer.status == 200
                assert answer.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert (answer.headers.get("Content-Disposition") == "attachment") is not shown


async def test_what_is_no_blob_is_not_sent(site: HttpClient, tmp_path: Path) -> None:
    folder = site.host.project.private / "blobs"
    blob = await site.host.blobs.put(b"moved outside", "text/plain")
    file = folder / blob.hash[:2] / blob.hash
    (tmp_path / "outside").write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(tmp_path / "outside")
    rows = [
        ("/api/blobs/" + "0" * 64, {}, 404),
        ("/api/blobs/..%2f..%2ftavern.yaml", {}, 404),
        ("/api/blobs/%F0%9F%98%80", {}, 404),
        (f"/api/blobs/{blob.hash}", {}, 404),  # nothing of a project leads out of it
        (f"/api/blobs/{blob.hash}", {"Authorization": None}, 401),
        (f"/api/blobs/{blob.hash}?mediaType=a%0d%0ab:c", {}, 400),
    ]
    with Failures() as failures:
        for path, headers, status in rows:
            with failures.row(path):
                assert (await site.get(path, headers=headers)).status == status
        with failures.row("media type"):
            answer = await site.post("/api/blobs", data=b"x", headers={"Content-Type": "nothing"})
            assert (answer.status, (await answer.json())["error"]) == (
                400,
                "'nothing' is no media type, such as image/png",
            )


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


async def test_the_audit_log_over_http(site: HttpClient) -> None:
    for tool in ("absent", "gone"):
        await site.post("/api/tools/execute", json={"toolId": tool, "arguments": {}})
    rows: list[tuple[str, Any]] = [
        ("?action=tool.denied", [("tool.denied", "absent"), ("tool.denied", "gone")]),
        ("?action=tool.*&limit=1", [("tool.denied", "gone")]),
        ("?subject=abs*", [("tool.denied", "absent")]),
        ("?actor=user:absent", []),
        ("?plugin=tavern-tools&subject=gone", [("tool.denied", "gone")]),
    ]
    with Failures() as failures:
        for query, expected in rows:
            with failures.row(query):
                found = await (await site.get(f"/api/audit{query}")).json()
                assert [(entry["action"], entry["subject"]) for entry in found] == expected
        for query in ("?limit=0", "?limit=1001", "?actors=x", "?since=noon"):
            with failures.row(query):
                assert (await site.get(f"/api/audit{query}")).status == 400
    (entry,) = await (await site.get("/api/audit?limit=1&subject=gone")).json()
    assert entry["actor"] == "user:operator"


async def test_the_audit_log_is_paged_and_cut_by_time(site: HttpClient) -> None:
    async def asked(**query: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await (await site.get("/api/audit", params=query)).json()
        return found

    for number in range(1100):
        site.host.audit.record("acme.paged", actor="user:operator", subject=f"t{number}")
    newest = await asked(limit=3, action="acme.paged")
    assert [one["subject"] for one in newest] == ["t1097", "t1098", "t1099"]
    older = await asked(limit=2, action="acme.paged", before=newest[0]["seq"])
    assert [one["subject"] for one in older] == ["t1095", "t1096"]
    (first,) = await asked(subject="t0")  # further back than one page
    assert [one["subject"] for one in await asked(subject="t*", until=first["time"], limit=1)] == ["t0"]
    assert await asked(subject="t*", since="2999-01-01") == []
    assert len(await asked(subject="t*", since=first["time"], limit=1000)) == 1000
