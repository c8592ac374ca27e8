"""How clients reach a server through proxies, under a name of their own and below a base path."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path

import pytest
from aiohttp import ClientSession, DummyCookieJar, web
from aiohttp.test_utils import make_mocked_request
from helpers.certificates import write_certificate
from helpers.repetition import Failures

from tavern_host import Folders, Host
from tavern_host.contracts.errors import InvalidInput
from tavern_host.server import connections
from tavern_host.server.app import make_app
from tavern_host.server.reach import Reach, reach
from tavern_host.testing.http import TOKEN, served

HTML = {"Accept": "text/html", "Host": "inn.example"}
OPEN = {"Authorization": f"Bearer {TOKEN}", "Host": "inn.example"}
PROXY = (ip_network("127.0.0.1/32"), ip_network("10.0.0.0/8"))


@pytest.fixture
async def proxied(tmp_path: Path) -> AsyncIterator[tuple[ClientSession, str]]:
    """Serve `inn.example/tavern` behind proxies of this machine and of 10.0.0.0/8; give a client and the address."""
    listener = connections.listening_socket(0)
    port = listener.getsockname()[1]
    how = Reach(port, names=("inn.example",), base_path="/tavern", proxies=PROXY)
    async with Host(tmp_path / "inn", third_party=False) as host:
        app = make_app(host, token=TOKEN, port=port, reach=how)
        async with connections.listening(app, listener, how), ClientSession(cookie_jar=DummyCookieJar()) as session:
            yield session, f"http://127.0.0.1:{port}"


async def test_a_proxy_may_keep_or_take_away_the_base_path(proxied: tuple[ClientSession, str]) -> None:
    session, url = proxied
    with Failures() as failures:
        for path, status in (
            ("/tavern/api/plugins", 200),
            ("/api/plugins", 200),
            ("/tavern", 200),
            ("/tavern?x=1", 200),
            ("/tavern/tavern/api/plugins", 404),
            ("/taverns/api/plugins", 404),
        ):
            with failures.row(path):
                async with session.get(url + path, headers=OPEN) as answer:
                    assert answer.status == status
                    page = await answer.text()
                    assert path[:7] != "/tavern" or status != 200 or "/api" in path or 'src="/tavern/projects/' in page


async def test_pages_and_cookies_stay_below_the_base_path(proxied: tuple[ClientSession, str]) -> None:
    session, url = proxied
    for scheme, secure in (("https", True), ("http", False)):
        headers = {**HTML, "X-Forwarded-Proto": scheme}
        async with session.get(f"{url}/tavern/?token={TOKEN}", headers=headers, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (302, "/tavern/")
            (cookie,) = answer.cookies.values()
            assert (cookie["path"], bool(cookie["secure"]), cookie["httponly"]) == ("/tavern", secure, True)
    async with session.get(url, headers=HTML) as answer:
        assert 'href="/tavern/login"' in await answer.text()
    async with session.get(f"{url}/login", headers=HTML) as answer:
        assert 'action="/tavern/api/login"' in await answer.text()


async def test_the_description_names_the_server_as_its_reader_does(proxied: tuple[ClientSession, str]) -> None:
    session, url = proxied
    for headers, server in (
        ({"X-Forwarded-Proto": "https"}, "https://inn.example/tavern"),
        ({"Host": "localhost:9000"}, "http://localhost:9000/tavern"),
    ):
        async with session.get(f"{url}/api/openapi.json", headers={**OPEN, **headers}) as answer:
            described = await answer.json()
        assert described["servers"] == [{"url": server}]
        assert described["openapi"] == "3.1.0"


async def test_origins_and_hosts_are_those_of_clients(proxied: tuple[ClientSession, str]) -> None:
    session, url = proxied
    own = url.removeprefix("http://")
    with Failures() as failures:
        for status, headers in (
            (200, {}),
            (200, {"Host": own}),
            (200, {"Host": "inn.example:9000"}),
            (200, {"Host": "Inn.Example"}),
            (421, {"Host": "evil.example"}),
            (421, {"Host": "inn.example.evil.example"}),
            (421, {"Host": "evil.example", "X-Forwarded-Host": "inn.example"}),
            (200, {"Origin": "https://inn.example", "X-Forwarded-Proto": "https"}),
            (403, {"Origin": "https://inn.example"}),
            (403, {"Origin": "http://inn.example", "X-Forwarded-Proto": "https"}),
            (403, {"Origin": "https://evil.example", "X-Forwarded-Proto": "https"}),
            (403, {"Origin": "null", "X-Forwarded-Proto": "https"}),
        ):
            with failures.row(str(headers)):
                async with session.get(f"{url}/api/plugins", headers={**OPEN, **headers}) as answer:
                    assert answer.status == status


async def test_proxies_say_who_the_client_is() -> None:
    found: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        found.extend(Reach(1, proxies=trusted).client(request) for trusted in (PROXY, ()))
        return web.Response()

    app = web.Application()
    app.router.add_get("/", answer)
    listener = connections.listening_socket(0)
    async with connections.listening(app, listener), ClientSession() as session:
        for forwarded, client in (
            ([], "127.0.0.1"),
            (["203.0.113.7"], "203.0.113.7"),
            (["198.51.100.1, 203.0.113.7"], "203.0.113.7"),  # the first is what the client says of itself
            (["198.51.100.1", "203.0.113.7, 10.1.2.3"], "203.0.113.7"),
            (["10.1.2.3"], "10.1.2.3"),
            (["what is this"], "what is this"),
        ):
            headers = [("X-Forwarded-For", one) for one in forwarded]
            async with session.get(f"http://127.0.0.1:{listener.getsockname()[1]}/", headers=headers):
                pass
            assert found[-2:] == [client, "127.0.0.1"], forwarded


def test_without_tls_only_proxies_and_this_machine_are_answered() -> None:
    request = make_mocked_request("GET", "/")
    for address, answered in (
        ("0.0.0.0", ["127.0.0.1", "10.1.2.3"]),
        ("127.0.0.1", ["127.0.0.1", "10.1.2.3", "192.0.2.1"]),
    ):
        how = Reach(1, address=address, names=("inn.example",), proxies=PROXY)
        remotes = ["127.0.0.1", "10.1.2.3", "192.0.2.1"]
        assert [one for one in remotes if how.admits(request.clone(remote=one))] == answered


def test_mistakes_in_options_are_said_by_option(tmp_path: Path) -> None:
    file = tmp_path / "c.pem"
    file.write_text("no certificate")
    rows = [
        ({"address": "0.0.0.0"}, "--address 0.0.0.0: the token could be read on its way; give --tls-cert"),
        ({"address": "inn"}, "--address inn: "),
        ({"names": ["Inn.example"]}, "--name Inn.example: "),
        ({"names": ["inn.example:0"]}, "--name inn.example:0: "),
        ({"names": ["https://inn.example"]}, "--name https://inn.example: "),
        ({"base_path": "tavern"}, "--base-path tavern: "),
        ({"base_path": "/tavern/"}, "--base-path /tavern/: "),
        ({"base_path": "/a\r\nb"}, "--base-path "),
        ({"proxies": ["10.0.0.1/8"]}, "--trusted-proxy 10.0.0.1/8: 10.0.0.1/8 has host bits set"),
        ({"certificate": str(file)}, "--tls-cert and --tls-key are given together"),
        ({"certificate": str(file), "key": str(file)}, f"--tls-cert {file}, --tls-key {file}: "),
        ({"certificate": str(tmp_path / "k.pem"), "key": str(file)}, f"{tmp_path}/k.pem cannot be read: No such file"),
    ]
    with Failures() as failures:
        for options, message in rows:
            with failures.row(str(options)), pytest.raises(InvalidInput) as caught:
                reach(8188, **options)
            assert caught.value.message.startswith(message)
    assert reach(1, address="0.0.0.0", proxies=["10.0.0.0/8"], names=["inn.example"]).url == "https://inn.example"


def test_a_forwarded_port_is_known_and_another_name_is_not() -> None:
    how = reach(8188, names=["inn.example", "barn.example:9000"], proxies=["127.0.0.1"])
    rows = {  # each as it is asked for directly, by a trusted proxy, and as the origin of a page
        "localhost:9000": (True, True, False),
        "localhost:8188": (True, True, True),
        "inn.example": (True, True, True),
        "inn.example:8188": (True, True, True),
        "inn.example:8443": (False, True, False),
        "barn.example:9000": (True, True, True),
        "barn.example": (False, False, False),
        "barn.example:8188": (False, False, False),
        "192.0.2.1:8188": (False, False, False),
    }
    with Failures() as failures:
        for host, expected in rows.items():
            with failures.row(host):
                assert (how.knows(host), how.knows(host, by_proxy=True), how.is_exactly(host)) == expected


@asynccontextmanager
async def forwarding(port: int, certificate: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Forward connections from a port of this machine to another, as `ssh -L` does; with a certificate as a proxy."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, back), copy(there, writer))

    async with await asyncio.start_server(forward, "127.0.0.1", 0, ssl=certificate) as server:
        yield server.sockets[0].getsockname()[1]


async def test_a_forwarded_port_and_a_proxy_lead_in(proxied: tuple[ClientSession, str], tmp_path: Path) -> None:
    """By the names that their clients use, whose pages may then send requests."""
    session, url = proxied
    port, certificate = int(url.rpartition(":")[2]), write_certificate(tmp_path)
    secure = {"X-Forwarded-Proto": "https"}
    async with forwarding(port) as plain, forwarding(port, certificate) as tls:
        with Failures() as failures:
            for there, host, more, origin, status in (
                (f"http://127.0.0.1:{plain}", f"localhost:{plain}", {}, f"http://localhost:{plain}", 200),
                (f"http://127.0.0.1:{plain}", f"localhost:{plain}", {}, "http://localhost:3000", 403),
                (f"http://127.0.0.1:{plain}", f"evil.example:{plain}", {}, f"http://evil.example:{plain}", 421),
                (f"https://127.0.0.1:{tls}", "inn.example:8443", secure, "https://inn.example:8443", 200),
                (f"https://127.0.0.1:{tls}", "inn.example:8443", secure, "https://inn.example:9999", 403),
                (f"https://127.0.0.1:{tls}", "evil.example:8443", secure, "https://evil.example:8443", 421),
            ):
                with failures.row((host, origin)):
                    headers = {**OPEN, "Host": host, "Origin": origin, **more}
                    where = f"{there}/tavern/api/plugins"
                    async with session.get(where, headers=headers, ssl=False) as answer:
                        assert answer.status == status


async def test_pages_of_listed_origins_read_answers_and_bring_a_token(tmp_path: Path) -> None:
    """What the operator lists is let in as anybody is: with a token, never by a cookie that the browser has."""
    folders = Folders(tmp_path / "config", tmp_path / "state", tmp_path / "data")
    folders.config.mkdir()
    (folders.config / "host.yaml").write_text("origins: ['https://app.example']\n")
    async with Host(tmp_path / "inn", third_party=False, folders=folders) as host, served(host) as site:
        cookie = {"Authorization": None, "Cookie": f"tavern_{site.port}={TOKEN}"}
        asked = {"Authorization": None, "Access-Control-Request-Method": "PUT"}
        with Failures() as failures:
            for name, method, origin, headers, status, shared in (
                ("with a token", "GET", "https://app.example", {}, 200, "https://app.example"),
                ("a failure", "GET", "https://app.example", {"Authorization": None}, 401, "https://app.example"),
                ("with the cookie", "POST", "https://app.example", cookie, 401, "https://app.example"),
                ("asked before", "OPTIONS", "https://app.example", asked, 204, "https://app.example"),
                ("another", "GET", "https://evil.example", {}, 403, None),
                ("another asked before", "OPTIONS", "https://evil.example", asked, 403, None),
                ("another port", "GET", "https://app.example:444", {}, 403, None),
                ("without TLS", "GET", "http://app.example", {}, 403, None),
                ("its own", "GET", f"http://127.0.0.1:{site.port}", cookie, 200, None),
            ):
                with failures.row(name):
                    answer = await site.request(method, "/api/plugins", headers={"Origin": origin, **headers})
                    found = answer.headers.get("Access-Control-Allow-Origin")
                    assert (answer.status, found) == (status, shared)
                    assert "Origin" in answer.headers["Vary"]
                    assert "Access-Control-Allow-Credentials" not in answer.headers
