"""Blobs over HTTP: taken and sent as streams, in ranges, to those who have the token."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

from helpers.repetition import Failures

from tavern_host.testing.http import HttpClient

CONTENT = bytes(range(256)) * 4096 * 3 + b"end"  # 3 MiB and a little
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
