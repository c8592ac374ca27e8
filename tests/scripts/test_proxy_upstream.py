"""A host that is behind a proxy itself: what scripts reach goes through that one, and to allowed hosts only."""

from __future__ import annotations

from helpers.upstream_proxy import upstream_proxy

from tests.scripts.proxied import proxied, raw_server, telling_server

ALLOWED = ["api.example:80", "api.example:443"]


async def test_a_tunnel_and_a_plain_request_go_through_the_hosts_proxy() -> None:
    async with raw_server(echo=True) as server, upstream_proxy(server.port) as upstream:
        async with proxied(ALLOWED, names={}, upstream=upstream.address.replace("//", "//ann:h%20h@")) as proxy:
            reader, writer = await proxy.open()
            writer.write(b"CONNECT api.example:443 HTTP/1.1\r\nHost: x\r\n\r\nfirst")
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
            assert await reader.readexactly(5) == b"first"
            writer.close()
            connection = await proxy.last()
        assert upstream.asked == ["CONNECT api.example:443"]
        assert "Proxy-Authorization: Basic YW5uOmggaA==" in upstream.heads[0]
        assert (connection.allowed, connection.host, connection.address) == (True, "api.example", "127.0.0.1")
    async with telling_server() as told, upstream_proxy(told.port) as upstream:
        async with proxied(ALLOWED, names={}, upstream=upstream.address) as proxy:
            answer = await proxy.say("GET http://api.example/a HTTP/1.1\r\nHost: api.example\r\n\r\n")
        assert answer.endswith(b"hello from /a") and upstream.asked == ["CONNECT api.example:80"]


async def test_what_is_not_allowed_is_not_asked_of_the_hosts_proxy() -> None:
    async with upstream_proxy(9) as upstream, proxied(ALLOWED, upstream=upstream.address) as proxy:
        answer = await proxy.say("CONNECT other.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 ") and upstream.heads == []
