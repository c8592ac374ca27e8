"""The node `HttpRequest`: what it sends and gives, where it may not go, and what it shows to whom."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from helpers.repetition import refused
from node_bench import HostedNodes

from tavern_host import Blob, Host, InvalidInput
from tavern_host.common.redaction import redacted
from tavern_host.contracts.errors import Misconfigured, PermissionDenied, ServiceUnavailable, TavernError
from tavern_nodes.nodes.web import MAX_ANSWER

PNG = b"\x89PNG\r\n\x1a\n"


class Site:
    """A server that says what it was asked, or answers as the path says."""

    def __init__(self) -> None:
        self.place = ""
        self.asked: list[tuple[str, str, Mapping[str, str], bytes]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, str(request.rel_url), dict(request.headers), await request.read()))
        match request.path.strip("/").split("/", 1):
            case ["to", address]:
                return web.Response(status=int(request.query.get("status", 302)), headers={"Location": address})
            case ["picture"]:
                return web.Response(body=PNG, content_type="image/png")
            case ["much"]:
                return web.Response(body=b"a" * (MAX_ANSWER + 1), content_type="text/plain")
            case ["late"]:
                return web.Response(status=503, text="Not now.", headers={"Retry-After": "7"})
            case ["missing"]:
                return web.Response(status=404, text="No such item.")
            case ["charset", name]:
                kind = {"Content-Type": f"text/plain; charset={name}"}
                return web.Response(body=b"caf\\xe9", headers=kind)
            case ["kind"]:
                return web.Response(body=PNG, headers={"Content-Type": "nonsense"})
            case ["echo"]:
                return web.Response(status=400, text=f"no {request.headers['Authorization']}")
            case ["torn"]:
                return web.Response(body=b"{", content_type="application/json")
            case ["latin"]:
                return web.Response(body="café".encode("latin-1"), content_type="text/plain", charset="latin-1")
            case _:
                return web.json_response({"path": str(request.rel_url)})


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    made, app = Site(), web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.place = f"127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


@asynccontextmanager
async def asking(folder: Path, hosts: list[str], **settings: Any) -> AsyncIterator[HostedNodes]:
    """Give the nodes of a host whose operator has listed these hosts."""
    given = {f"extensions.tavern-nodes.{key}": one for key, one in {"allowedHosts": hosts, **settings}.items()}
    async with Host(folder / "p", settings=given) as host:
        yield HostedNodes(host, host.project.folder("files"))


async def test_requests_are_sent_as_they_are_described(tmp_path: Path) -> None:
    async with site() as server, asking(tmp_path, [server.place]) as nodes:
        url = f"http://{server.place}"
        given = await nodes.run("HttpRequest", {"url": f"{url}/a?x=1#part", "query": {"q": "é b", "n": 2}}, {})
        assert given["body"] == {"path": "/a?x=1&q=%C3%A9+b&n=2"} and given["status"] == 200
        assert given["headers"]["content-type"] == "application/json; charset=utf-8"
        blob = await nodes.host.blobs.put(PNG, "image/png")
        for body in ({"a": [1]}, "text", b"\x00", blob):
            await nodes.run("HttpRequest", {"url": url, "body": body, "headers": {"X-Of": "n"}}, {"method": "POST"})
        await nodes.run("HttpRequest", {"url": url, "body": "<a/>", "headers": {"content-type": "text/xml"}}, {})
        picture = (await nodes.run("HttpRequest", {"url": f"{url}/picture"}, {}))["body"]
        assert (await nodes.host.blobs.read(Blob.model_validate(picture)), picture.media_type) == (PNG, "image/png")
        assert (await nodes.run("HttpRequest", {"url": f"{url}/latin"}, {}))["body"] == "café"
        for charset in ("idna", "punycode", "undefined", "unicode_escape", "none-such"):
            answer = await nodes.run("HttpRequest", {"url": f"{url}/charset/{charset}"}, {})
            assert answer["body"] == "caf\\xe9"
        unknown = (await nodes.run("HttpRequest", {"url": f"{url}/kind"}, {}))["body"]
        assert Blob.model_validate(unknown).media_type == "application/octet-stream"
        assert (await nodes.run("HttpRequest", {"url": url}, {"method": "HEAD"}))["body"] is None
    sent = [(headers.get("Content-Type"), body) for _, _, headers, body in server.asked[1:6]]
    assert sent == [
        ("application/json", json.dumps({"a": [1]}).encode()),
        ("text/plain; charset=utf-8", b"text"),
        ("application/octet-stream", b"\x00"),
        ("image/png", PNG),
        ("text/xml", b"<a/>"),
    ]
    assert server.asked[1][0] == "POST" and server.asked[1][2]["X-Of"] == "n"


async def test_only_hosts_that_the_operator_listed_are_reached(tmp_path: Path) -> None:
    async with site() as server, site() as other, asking(tmp_path, ["*", server.place]) as nodes:

        def ask(url: str, **more: Any) -> Any:
            return nodes.run("HttpRequest", {"url": url, **more}, {})

        port = other.place.partition(":")[2]
        await refused(
            [
                (ask(f"http://{other.place}/"), PermissionDenied, "tavern-nodes.allowedHosts does not list it"),
                (ask(f"http://localhost:{port}/"), PermissionDenied, "requests to localhost"),
                (ask("http://localhost/"), PermissionDenied, "leads to the private address"),
                (
                    ask(f"http://{server.place}/to/http://{other.place}/"),
                    PermissionDenied,
                    f"requests to {other.place}",
                ),
                (ask(f"http://{server.place}/to/http://localhost/"), PermissionDenied, "the private address"),
                (ask(f"http://{server.place}/to/file:///etc/passwd"), InvalidInput, "http://… or https://…"),
                (ask(f"http://{server.place}/to//to//to//to//to//to//to//to/"), TavernError, "answered 302"),
                (ask("http://2130706433/"), InvalidInput, "no address"),
                (ask("http://0x7f.1/"), InvalidInput, "no address"),
                (ask("http://[::ffff:127.0.0.1]/"), PermissionDenied, "requests to"),
                (ask(f"http://me:key@{server.place}/"), InvalidInput, "no name or password"),
                (ask("ftp://example.com/"), InvalidInput, "http://… or https://…"),
                (ask("example.com"), InvalidInput, "http://… or https://…"),
                (ask(f"http://{server.place}/a b"), InvalidInput, "%20"),
                (ask(f"http://{server.place}/", headers={"X": "a\r\nY: b"}), InvalidInput, "line breaks"),
                (ask(f"http://{server.place}/", headers={"X Y": "a"}), InvalidInput, "no header"),
                (ask(f"http://{server.place}/", headers={"hOST": "inner"}), InvalidInput, "set by the host"),
                (ask(f"http://{server.place}/", headers={"Content-Length": "1"}), InvalidInput, "set by the host"),
                (ask(f"http://{server.place}/", headers={"Transfer-Encoding": "chunked"}), InvalidInput, "set by"),
                (ask(f"http://{server.place}/to/http://[b"), InvalidInput, "which is no address"),
                (ask(f"http://{server.place}/to/http://b:99999/"), InvalidInput, "which is no address"),
            ]
        )
        assert other.asked == []
    async with site() as server, asking(tmp_path, []) as nodes:
        await refused(
            [(nodes.run("HttpRequest", {"url": f"http://{server.place}/"}, {}), PermissionDenied, "not list")]
        )


async def test_answers_that_cannot_be_used_fail_the_node(tmp_path: Path) -> None:
    async with site() as server, asking(tmp_path, [server.place, "127.0.0.1:1"]) as nodes:

        def ask(path: str, **config: Any) -> Any:
            return nodes.run("HttpRequest", {"url": f"http://{server.place}/{path}"}, config)

        await refused(
            [
                (ask("missing"), TavernError, f"{server.place} answered 404: No such item."),
                (ask("late"), ServiceUnavailable, "answered 503: Not now."),
                (ask("much"), InvalidInput, "more than 16 MiB"),
                (ask("torn"), InvalidInput, "the answer is not JSON"),
                (nodes.run("HttpRequest", {"url": "http://127.0.0.1:1/"}, {}), ServiceUnavailable, "cannot be reached"),
            ]
        )
        with pytest.raises(ServiceUnavailable) as caught:
            await ask("late")
        assert caught.value.info.details == {"status": 503, "retry_after": 7.0}
        assert (await ask("missing", failure="output"))["status"] == 404
        for address in ("http://me:geheim@[/", "http://me:geheim@x y/", "http://me:geheim@a..b/"):
            with pytest.raises(InvalidInput) as wrong:
                await nodes.run("HttpRequest", {"url": address}, {})
            assert "geheim" not in wrong.value.message


async def test_a_credential_is_shown_to_its_hosts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_SITE", "k-1")
    monkeypatch.setenv("TORN", "k-1\n")
    async with site() as server, site() as other:
        known = {
            "site": {"hosts": [server.place], "key_env": "OF_THE_SITE"},
            "plain": {"hosts": ["127.0.0.1:*"], "key_env": "OF_THE_SITE"},
            "torn": {"hosts": [server.place], "key_env": "TORN"},
            "sealed": {"hosts": ["inn.example"], "key_env": "OF_THE_SITE"},
            "unset": {"hosts": [server.place], "key_env": "NOT_SET_HERE", "header": "X-Key", "prefix": ""},
        }
        async with asking(tmp_path, [server.place, other.place, "*", "*:443"], credentials=known) as nodes:

            def ask(place: str, name: str, path: str = "") -> Any:
                inputs = {"url": f"http://{place}/{path}", "headers": {"authorization": "mine"}}
                return nodes.run("HttpRequest", inputs, {"credential": name})

            await ask(server.place, "site", f"to/http://{server.place}/own")
            await ask(server.place, "site", f"to/http://{other.place}/others")
            await refused(
                [
                    (ask(other.place, "site"), PermissionDenied, "credentials, for 'site', does not list it"),
                    (ask(server.place, "sight"), InvalidInput, "did you mean site"),
                    (ask(server.place, "plain"), Misconfigured, "cannot be used"),
                    (ask(server.place, "unset"), Misconfigured, "NOT_SET_HERE"),
                    (ask("inn.example", "sealed"), PermissionDenied, "does not list it with its port"),
                    (ask("inn.example:443", "sealed"), PermissionDenied, "as plain http needs"),
                    (ask(server.place, "torn"), Misconfigured, "TORN of the credential 'torn' has line breaks"),
                ]
            )
    shown = [(path, headers.get("Authorization")) for _, path, headers, _ in server.asked]
    assert [key for path, key in shown] == ["Bearer k-1"] * 3 and shown[1][0] == "/own"
    assert not any("authorization" in headers for _, _, headers, _ in (*server.asked, *other.asked))
    assert [headers.get("Authorization") for _, _, headers, _ in other.asked] == [None]


async def test_a_credential_is_a_secret_wherever_an_answer_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_SITE", "k-1234567890")
    async with site() as server:
        known = {"site": {"hosts": [server.place], "key_env": "OF_THE_SITE"}}
        async with asking(tmp_path, [server.place], credentials=known) as nodes:
            with pytest.raises(TavernError) as caught:
                await nodes.run("HttpRequest", {"url": f"http://{server.place}/echo"}, {"credential": "site"})
            hidden = nodes.host.settings.secrets()
            assert "k-1234567890" in caught.value.message
            assert "k-1234567890" not in redacted(caught.value.message, hidden)


async def test_halves_of_characters_are_sent_as_replaced(tmp_path: Path) -> None:
    async with site() as server, asking(tmp_path, [server.place]) as nodes:
        for body in ("\ud800", {"a": "\ud800"}):
            await nodes.run("HttpRequest", {"url": f"http://{server.place}/", "body": body}, {"method": "POST"})
    assert [body.decode() for *_, body in server.asked] == ["\ufffd", '{"a": "\ufffd"}']


async def test_a_redirect_changes_the_method_as_http_says(tmp_path: Path) -> None:
    async with site() as server, asking(tmp_path, [server.place]) as nodes:
        for status in (301, 302, 303, 307):
            inputs = {"url": f"http://{server.place}/to//next?status={status}", "body": {"a": 1}}
            await nodes.run("HttpRequest", inputs, {"method": "POST"})
    assert [(method, bool(body)) for method, path, _, body in server.asked if path == "/next"] == [
        *[("GET", False)] * 3,
        ("POST", True),
    ]
