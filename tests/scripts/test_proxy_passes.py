"""What the proxy lets through: tunnels and plain HTTP to the hosts that are allowed, and what it says of them."""

from __future__ import annotations

import asyncio
import stat

from tests.scripts.proxied import proxied, raw_server, telling_server


async def test_a_plain_request_reaches_the_server_without_what_is_between_client_and_proxy() -> None:
    async with telling_server() as server, proxied([f"127.0.0.1:{server.port}"]) as proxy:
        answer = await proxy.say(
            f"POST http://127.0.0.1:{server.port}/a/b?c=d HTTP/1.1\r\nHost: elsewhere\r\nContent-Length: 3\r\n"
            "Proxy-Authorization: secret\r\nProxy-Connection: keep-alive\r\nConnection: x-mine, keep-alive\r\n"
            "X-Mine: 1\r\nX-Yours: 2\r\nUpgrade: websocket\r\nTE: trailers\r\n\r\nabc"
        )
        connection = await proxy.last()

    method, path, headers, body = server.requests[0]
    assert (method, path, body) == ("POST", "/a/b?c=d", b"abc")
    assert headers["Host"] == f"127.0.0.1:{server.port}"
    assert headers["X-Yours"] == "2" and headers["Connection"] == "close"
    assert not {"Proxy-Authorization", "Proxy-Connection", "X-Mine", "Upgrade", "TE"} & set(headers)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"\r\n\r\nhello from /a/b")
    assert b"Connection: close" in answer
    assert (connection.host, connection.port, connection.scheme) == ("127.0.0.1", server.port, "http")
    assert connection.allowed and not connection.reason
    assert connection.sent == 3 and connection.received == 15 and connection.address == "127.0.0.1"


async def test_a_tunnel_carries_bytes_both_ways() -> None:
    async with raw_server(echo=True) as server, proxied([f"127.0.0.1:{server.port}"]) as proxy:
        reader, writer = await proxy.open()
        writer.write(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\nHost: x\r\n\r\nfirst".encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        assert await reader.readexactly(5) == b"first"
        large = bytes(range(256)) * 8192
        writer.write(large)
        assert await reader.readexactly(len(large)) == large
        writer.write_eof()
        assert await reader.read() == b""
        connection = await proxy.last()

    assert connection.allowed and connection.scheme == "connect"
    assert connection.sent == connection.received == len(large) + 5


async def test_bodies_arrive_whole() -> None:
    async with telling_server() as server, proxied([f"127.0.0.1:{server.port}"]) as proxy:
        base = f"http://127.0.0.1:{server.port}"
        for size in (0, 1, 300_000):
            answer = await proxy.say(f"GET {base}/large?size={size} HTTP/1.1\r\nHost: h\r\n\r\n")
            assert answer.partition(b"\r\n\r\n")[2] == b"x" * size
        await proxy.say(
            f"PUT {base}/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
            "4;name=value\r\nabcd\r\n3\r\nefg\r\n0\r\nTrailer: x\r\n\r\n"
        )

    assert server.requests[-1][3] == b"abcdefg"


async def test_who_waits_to_be_told_to_go_on_is_told() -> None:
    async with telling_server() as server, proxied([f"127.0.0.1:{server.port}"]) as proxy:
        reader, writer = await proxy.open()
        writer.write(f"POST http://127.0.0.1:{server.port}/x HTTP/1.1\r\nHost: h\r\n".encode())
        writer.write(b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ab")
        answer = await reader.read()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 200") and server.requests[0][3] == b"ab"
    assert "Expect" not in server.requests[0][2]


async def test_answers_without_a_body_and_of_unknown_length_end_where_they_end() -> None:
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\nKeep-Alive: 9\r\n\r\n"
    async with raw_server(head) as server, proxied([f"127.0.0.1:{server.port}"]) as proxy:
        answer = await proxy.say(f"HEAD http://127.0.0.1:{server.port}/ HTTP/1.1\r\nHost: h\r\n\r\n")
    assert answer == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"

    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"
    async with raw_server(chunked) as server, proxied([f"127.0.0.1:{server.port}"]) as proxy:
        answer = await proxy.say(f"GET http://127.0.0.1:{server.port}/ HTTP/1.1\r\nHost: h\r\n\r\n")
    assert answer.endswith(b"\r\n\r\n2\r\nab\r\n0\r\n\r\n")

    too_large = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"
    async with raw_server(too_large) as server, proxied([f"127.0.0.1:{server.port}"]) as proxy:
        post = f"POST http://127.0.0.1:{server.port}/ HTTP/1.1\r\nHost: h\r\nContent-Length: 999999\r\n\r\n"
        answer = await proxy.say(post)
    assert answer.startswith(b"HTTP/1.1 413")  # it answers before it has read all


async def test_many_connections_at_once_do_not_mix() -> None:
    async with telling_server() as server, proxied([f"127.0.0.1:{server.port}"]) as proxy:
        answers = await asyncio.gather(
            *(proxy.say(f"GET http://127.0.0.1:{server.port}/{n} HTTP/1.1\r\nHost: h\r\n\r\n") for n in range(40))
        )

    assert [answer.rpartition(b"/")[2] for answer in answers] == [str(n).encode() for n in range(40)]
    assert len(proxy.connections) == 40


async def test_only_its_owner_gets_at_the_socket_and_nothing_is_left_of_it() -> None:
    before = asyncio.all_tasks()
    async with proxied(["example.com"]) as proxy:
        folder = proxy.socket.parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_ISSOCK(proxy.socket.stat().st_mode)
        _, writer = await proxy.open()
        while not asyncio.all_tasks() > before:
            await asyncio.sleep(0)

    assert not folder.exists()
    while asyncio.all_tasks() != before:  # one may have been accepted at the moment of the end
        await asyncio.sleep(0)
    writer.close()
