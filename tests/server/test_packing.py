"""Lists that stay the same for a while are sent as gzip to who takes that."""

from __future__ import annotations

import gzip

import pytest
from helpers.repetition import Failures

from tavern_host.testing.http import HttpClient

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_list_is_packed_for_who_takes_it(site: HttpClient) -> None:
    with Failures() as failures:
        for path, taken, is_packed in (
            ("/api/nodes", "gzip, deflate, br", True),
            ("/api/plugins", "gzip", True),
            ("/api/nodes", "identity", False),
            ("/api/nodes", "br", False),
            ("/api/nodes", "gzip;q=0, br", False),
            ("/api/nodes", "GZIP; q=0.5", True),
            ("/api/openapi.json", "gzip", False),  # without an ETag, as what is made for one request
        ):
            with failures.row((path, taken)):
                answer = await site.get(path, headers={"Accept-Encoding": taken}, auto_decompress=False)
                plain = await site.get(path, headers={"Accept-Encoding": "identity"})
                body = await answer.read()
                assert (answer.status, answer.headers.get("Content-Encoding")) == (200, "gzip" if is_packed else None)
                assert (gzip.decompress(body) if is_packed else body) == await plain.read()
                assert ("Accept-Encoding" in plain.headers.get("Vary", "")) is (path in ("/api/nodes", "/api/plugins"))
        with failures.row("known"):
            tag = answer.headers.get("ETag") or (await site.get("/api/nodes")).headers["ETag"]
            known = await site.get("/api/nodes", headers={"Accept-Encoding": "gzip", "If-None-Match": tag})
            assert (known.status, await known.read()) == (304, b"")
