"""Who gets in: the Host and Origin headers, and the token in its three places."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import WSServerHandshakeError

from tavern_host.testing.http import TOKEN, HttpClient

HTML = {"Accept": "text/html,application/xhtml+xml"}
NOBODY = {"Authorization": None}


async def test_the_token_opens_as_a_header_in_the_address_and_as_a_cookie(site: HttpClient) -> None:
    assert (await site.get("/api/plugins")).status == 200
    assert (await site.get(f"/api/plugins?token={TOKEN}", headers=NOBODY)).status == 200
    cookie = {"Cookie": f"tavern_{site.port}={TOKEN}"}
    assert (await site.get("/api/plugins", headers={**NOBODY, **cookie})).status == 200


@pytest.mark.parametrize(
    "authorization",
    [None, "Bearer", "Bearer ", "Bearer let-me", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer \udcff\udcfe"],
)
@pytest.mark.parametrize("path", ["/", "/api/plugins", "/api/nowhere", "/plugins/acme-web/index.js", "/ws"])
async def test_without_the_right_token_nothing_is_shown(site: HttpClient, path: str, authorization: str | None) -> None:
    answer = await site.get(path, headers={"Authorization": authorization})

    assert answer.status == 401
    body = await answer.json()
    assert (body["code"], body["success"]) == ("unauthorized", False)
    assert body["error"] == "open the address that `tavern serve` printed, or send 'Authorization: Bearer TOKEN'"


async def test_a_wrong_token_in_the_address_or_the_cookie_does_not_open(site: HttpClient) -> None:
    assert (await site.get("/?token=wrong", headers={**NOBODY, **HTML})).status == 401
    assert (await site.get("/?token=%ff", headers={**NOBODY, **HTML})).status == 401
    assert (await site.get("/", headers={**NOBODY, "Cookie": f"tavern_{site.port}=wrong"})).status == 401
    assert (await site.get("/", headers={**NOBODY, "Cookie": f"tavern_1={TOKEN}"})).status == 401


async def test_a_browser_that_brings_the_token_gets_a_cookie_and_an_address_without_it(site: HttpClient) -> None:
    answer = await site.get(f"/?a=1&token={TOKEN}&b=2", headers={**NOBODY, **HTML})

    assert (answer.status, answer.headers["Location"]) == (302, "/?a=1&b=2")
    cookie = answer.cookies[f"tavern_{site.port}"]
    assert (cookie.value, cookie["httponly"], cookie["samesite"]) == (TOKEN, True, "Strict")


async def test_the_way_on_never_leads_to_another_server(site: HttpClient) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    request = f"GET //evil.example/?token={TOKEN} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nAccept: text/html\r\n"
    writer.write(f"{request}Connection: close\r\n\r\n".encode())
    head = (await reader.read()).decode()
    writer.close()

    assert "\r\nLocation: /evil.example/\r\n" in head


async def test_a_script_that_brings_the_token_in_the_address_is_answered_at_once(site: HttpClient) -> None:
    answer = await site.get(f"/api/plugins?token={TOKEN}", headers={**NOBODY, "Accept": "*/*"})

    assert answer.status == 200
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}"])
async def test_a_host_header_that_names_another_server_is_refused(site: HttpClient, host: str) -> None:
    answer = await site.get("/api/plugins", headers={"Host": host.format(port=site.port)})

    assert answer.status == 421
    assert (await answer.json())["code"] == "forbidden"


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}"])
async def test_both_names_of_this_server_are_taken(site: HttpClient, host: str) -> None:
    named = host.format(port=site.port)

    assert (await site.get("/api/plugins", headers={"Host": named})).status == 200
    assert (await site.get("/api/plugins", headers={"Host": named, "Origin": f"http://{named}"})).status == 200


@pytest.mark.parametrize(
    "origin",
    ["null", "", "http://evil.example", "https://127.0.0.1:{port}", "http://127.0.0.1", "http://127.0.0.1:{port}0"],
)
async def test_a_page_of_another_origin_is_refused_even_with_the_token(site: HttpClient, origin: str) -> None:
    answer = await site.post("/api/tools/execute", headers={"Origin": origin.format(port=site.port)}, data="{}")

    assert answer.status == 403
    assert "are not accepted" in (await answer.json())["error"]


async def test_a_socket_needs_the_token_and_the_right_origin_too(site: HttpClient) -> None:
    for headers in ({}, {"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}):
        with pytest.raises(WSServerHandshakeError) as refused:
            await site.client.ws_connect("/ws", headers=headers)
        assert refused.value.status == (403 if headers else 401)


@pytest.mark.parametrize("path", ["/", "/api/projects", "/nowhere", "/plugins/acme-web/index.js", "/?token=wrong"])
async def test_every_answer_carries_the_headers_that_keep_pages_in(site: HttpClient, path: str) -> None:
    answer = await site.get(path, headers={"Authorization": None} if "wrong" in path else {})

    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cache-Control"] == "no-store"
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


async def test_plugins_see_neither_the_token_nor_cookies(site: HttpClient) -> None:
    cookie = {"Cookie": f"tavern_{site.port}={TOKEN}"}
    answer = await site.get(f"/api/x/acme-web/echo/a?token={TOKEN}&b=1", headers=cookie)

    seen = await answer.json()
    assert seen["query"] == {"b": "1"}
    assert TOKEN not in str(seen)
