"""Who gets in: the Host and Origin headers, and the token in its three places."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import WSServerHandshakeError
from helpers.repetition import Failures

from tavern_host.testing.http import TOKEN, HttpClient

HTML = {"Accept": "text/html,application/xhtml+xml"}
NOBODY = {"Authorization": None}


async def test_the_token_opens_in_three_places(site: HttpClient) -> None:
    assert (await site.get("/api/plugins")).status == 200
    by_script = await site.get(f"/api/plugins?token={TOKEN}", headers={**NOBODY, "Accept": "*/*"})
    assert by_script.status == 200
    assert "Set-Cookie" not in by_script.headers
    cookie = {"Cookie": f"tavern_{site.port}={TOKEN}"}
    assert (await site.get("/api/plugins", headers={**NOBODY, **cookie})).status == 200
    by_browser = await site.get(f"/?a=1&token={TOKEN}&b=2", headers={**NOBODY, **HTML})
    assert (by_browser.status, by_browser.headers["Location"]) == (302, "/?a=1&b=2")
    kept = by_browser.cookies[f"tavern_{site.port}"]
    assert (kept.value, kept["httponly"], kept["samesite"]) == (TOKEN, True, "Strict")
    answer = await site.get(f"/api/x/acme-web/echo/a?token={TOKEN}&b=1", headers=cookie)
    seen = await answer.json()
    assert seen["query"] == {"b": "1"}
    assert TOKEN not in str(seen), "plugins see neither the token nor cookies"


async def test_without_the_right_token_nothing_is_shown(site: HttpClient) -> None:
    wrong = [
        None,
        "Bearer",
        "Bearer ",
        "Bearer let-me",
        f"Bearer {TOKEN}x",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer \udcff\udcfe",
    ]
    told = "you are signed out: send 'Authorization: Bearer TOKEN'; `tavern token` shows the token"
    cookies = [{"Cookie": f"tavern_{site.port}=wrong"}, {"Cookie": f"tavern_1={TOKEN}"}]
    with Failures() as failures:
        for path in ("/", "/api/plugins", "/api/nowhere", "/plugins/acme-web/index.js", "/ws"):
            for authorization in wrong:
                with failures.row((path, authorization)):
                    answer = await site.get(path, headers={"Authorization": authorization})
                    body = await answer.json()
                    assert (answer.status, body["code"], body["success"]) == (401, "unauthorized", False)
                    assert body["error"] == told
        for path, more in (("/?token=wrong", {}), ("/?token=%ff", {}), *(("/", cookie) for cookie in cookies)):
            with failures.row((path, more)):
                assert (await site.get(path, headers={**NOBODY, **HTML, **more})).status == 401


async def test_the_way_on_never_leads_to_another_server(site: HttpClient) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    request = f"GET //evil.example/?token={TOKEN} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nAccept: text/html\r\n"
    writer.write(f"{request}Connection: close\r\n\r\n".encode())
    head = (await reader.read()).decode()
    writer.close()
    assert "\r\nLocation: /evil.example/\r\n" in head


async def test_hosts_and_origins_are_this_server_alone(site: HttpClient) -> None:
    here = f"127.0.0.1:{site.port}"
    with Failures() as failures:
        for host in (
            *(
                "evil.example",
                f"evil.example:{site.port}",
                "",
                ":",
                "localhost.evil.example",
                "localhost:80:80",
                "[::1",
            ),
            *(
                f"127.0.0.1.evil.example:{site.port}",
                "evil.localhost",
                "127.0.0.2",
                "0.0.0.0",
                "localhost.",
                "localhost@x",
            ),
        ):
            with failures.row(host):
                answer = await site.get("/api/plugins", headers={"Host": host})
                assert (answer.status, (await answer.json())["code"]) == (421, "forbidden")
        for host in (here, f"localhost:{site.port}", "127.0.0.1", "127.0.0.1:9000", "localhost:9000", "[::1]:9000"):
            for more in ({}, {"Origin": f"http://{host}"}):
                with failures.row((host, more)):
                    assert (await site.get("/api/plugins", headers={"Host": host, **more})).status == 200
        for origin in ("null", "", "http://evil.example", f"https://{here}", "http://127.0.0.1", f"http://{here}0"):
            with failures.row(origin):
                answer = await site.post("/api/tools/execute", headers={"Origin": origin}, data="{}")
                assert answer.status == 403
                assert "are not accepted" in (await answer.json())["error"]
        for headers, status in (
            ({}, 401),
            ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}, 403),
        ):
            with failures.row(("a socket", status)), pytest.raises(WSServerHandshakeError, match=str(status)):
                await site.client.ws_connect("/ws", headers=headers)


async def test_every_answer_carries_the_headers_that_keep_pages_in(site: HttpClient) -> None:
    for path in ("/", "/api/projects", "/nowhere", "/plugins/acme-web/index.js", "/?token=wrong"):
        headers = (await site.get(path, headers=NOBODY if "wrong" in path else {})).headers
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer"), path
        policy = headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert headers["Cache-Control"] == "no-store"
