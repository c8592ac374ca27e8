"""What the proxy refuses, cuts short and records: other hosts, addresses behind names, tricks with requests, floods."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Any

import h11
import pytest
from helpers.repetition import Failures
from helpers.waiting import let_pass, until, until_idle
from hypothesis import given
from hypothesis import strategies as st

from tavern_host.contracts.errors import InvalidInput
from tavern_scripts.api.allowlist import Address, Target
from tavern_scripts.network.http1 import client_side, read_request, server_side
from tavern_scripts.network.proxy import Proxy
from tavern_scripts.network.proxy_limits import Connection, ConnectionBudget, ProxyLimits
from tests.scripts.proxied import Proxied, proxied, raw_server, telling_server

NOT_LISTED = [
    "CONNECT other.example.com:443",
    "CONNECT api.example.com:22",
    "CONNECT api.example.com:80",
    "CONNECT 93.184.216.34:443",
    "CONNECT 127.0.0.1:443",
    "CONNECT [::1]:443",
    "CONNECT [::ffff:127.0.0.1]:443",
    "CONNECT api.example.com.evil.org:443",
    "GET http://169.254.169.254/latest/meta-data/",
    "GET http://api.example.com:443/",
    "GET http://localhost/",
]


async def test_unlisted_hosts_are_refused_and_recorded() -> None:
    with Failures() as failures:
        async with proxied(["api.example.com"], names={"api.example.com": ["127.0.0.1"]}) as proxy:
            for request_line in NOT_LISTED:
                with failures.row(request_line):
                    proxy.connections.clear()
                    answer = await proxy.say(f"{request_line} HTTP/1.1\r\nHost: h\r\n\r\n")
                    connection = await proxy.last()
                    assert answer.startswith(b"HTTP/1.1 403 Forbidden") and b"is not among the hosts" in answer
                    assert not connection.allowed and connection.host and connection.address == ""
                    assert "is not among the hosts that this script may reach" in connection.reason


async def test_a_listed_name_that_leads_to_a_special_address_is_refused() -> None:
    addresses = ("127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fe80::1")
    names = {f"{number}.example.com": [address] for number, address in enumerate(addresses)}
    async with proxied(["*.example.com"], names=names) as proxy:
        answers = [await proxy.say(f"CONNECT {name}:443 HTTP/1.1\r\nHost: h\r\n\r\n") for name in names]

    assert [answer[:22] for answer in answers] == [b"HTTP/1.1 403 Forbidden"] * 6
    assert [entry.allowed for entry in proxy.connections] == [False] * 6
    assert all("leads to an address that is not of the public" in entry.reason for entry in proxy.connections)

    async def both(host: str, port: int) -> list[Address]:
        return [ip_address("10.0.0.1"), ip_address("93.184.216.34")]

    mixed = Proxy(["example.com"], ProxyLimits(), [].append, resolve=both)
    assert await mixed.addresses(Target("example.com", 443), "connect") == [ip_address("93.184.216.34")]


async def test_localhost_is_refused_unless_its_address_is_listed() -> None:
    async with telling_server() as server:
        answers = []
        for listed in ([], [f"127.0.0.1:{server.port}"]):
            async with proxied([f"localhost:{server.port}", *listed]) as proxy:
                answers.append(await proxy.say(f"GET http://localhost:{server.port}/ HTTP/1.1\r\nHost: h\r\n\r\n"))

    assert [answer[:12] for answer in answers] == [b"HTTP/1.1 403", b"HTTP/1.1 200"]
    assert len(server.requests) == 1


async def test_a_name_is_looked_up_once_for_each_connection_and_never_again() -> None:
    asked: list[str] = []

    async def changing(host: str, port: int) -> list[Address]:
        asked.append(host)
        return [ip_address("127.0.0.1" if len(asked) == 1 else "127.0.0.2")]

    async with telling_server() as server:
        log: list[Connection] = []
        allowed = [f"a.example.com:{server.port}", f"127.0.0.1:{server.port}"]
        async with Proxy(allowed, ProxyLimits(), log.append, resolve=changing) as path:
            for _ in range(2):
                await Proxied(path).say(f"GET http://a.example.com:{server.port}/ HTTP/1.1\r\nHost: h\r\n\r\n")

    assert asked == ["a.example.com"] * 2
    assert [(entry.allowed, entry.address) for entry in log] == [(True, "127.0.0.1"), (False, "")]


async def test_a_redirect_is_the_clients_to_follow_and_checked_anew() -> None:
    async with telling_server() as server, telling_server() as hidden, proxied([f"127.0.0.1:{server.port}"]) as proxy:
        place = f"http://127.0.0.1:{hidden.port}/secret"
        first = await proxy.say(f"GET http://127.0.0.1:{server.port}/to?place={place} HTTP/1.1\r\nHost: h\r\n\r\n")
        second = await proxy.say(f"GET {place} HTTP/1.1\r\nHost: h\r\n\r\n")

    assert first.startswith(b"HTTP/1.1 302") and second.startswith(b"HTTP/1.1 403")
    assert hidden.requests == []


POST = "POST http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: h\r\n"
GET = POST.replace("POST", "GET")
LINES = [
    "GET /x HTTP/1.1",
    "GET https://127.0.0.1:PORT/ HTTP/1.1",
    "GET http://user@127.0.0.1:PORT/ HTTP/1.1",
    "GET http://127.0.0.1:PORT/ HTTP/1.0",
    "GET http://127.0.0.1:PORT/ HTTP/2.0",
    "GET http://127.0.0.1:PORT/a b HTTP/1.1",
    "GET http://127.0.0.1:PORT/#x HTTP/1.1",
    "GET  http://127.0.0.1:PORT/ HTTP/1.1",
    "GET http://127.0.0.1:PORT/ HTTP/1.1\nHost: x\n\n",
    "GET http://127.0.0.1:PORT\\@evil/ HTTP/1.1",
    "GET http:///x HTTP/1.1",
    "GET http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: a",
    "CONNECT http://127.0.0.1:PORT/ HTTP/1.1",
    "CONNECT 127.0.0.1 HTTP/1.1",
    "PRI * HTTP/2.0",
]
FIELDS = ["X: a\r\n folded", "X : a", "X: a\rY: b", "X: a\nY: b", "X: a\0", "no colon", "X: a\x07"]
BODIES = [
    "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "Content-Length: +3\r\n\r\nabc",
    "Content-Length: 3, 3\r\n\r\nabc",
    "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "Content-Length: " + "1" * 5000 + "\r\n\r\nabc",
]
AMBIGUOUS = [
    *(f"{line}\r\nHost: h\r\n\r\n" for line in LINES),
    *(f"{GET}{line}\r\n\r\n" for line in FIELDS),
    *(POST + body for body in BODIES),
    "CONNECT 127.0.0.1:PORT HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    "\x16\x03\x01\x02\x00\x01\r\n\r\n",
    "\r\n\r\n",
    "GET http://127.0.0.1:PORT/ HTTP/1.1\r\n\r\n",
    "GET http://127.0.0.1:PORT/ HTTP/1.1\r\n\tHost: h\r\n\r\n",
]


async def test_ambiguous_requests_reach_no_server() -> None:
    with Failures() as failures:
        async with telling_server() as server, proxied([f"127.0.0.1:{server.port}"]) as proxy:
            for text in AMBIGUOUS:
                with failures.row(text[:100]):
                    proxy.connections.clear()
                    answer = await proxy.say(text.replace("PORT", str(server.port)))
                    connection = await proxy.last()
                    assert answer.startswith(b"HTTP/1.1 400 Bad Request") and b"tavern: " in answer
                    assert server.requests == []
                    assert not connection.allowed and connection.reason


BROKEN_BODIES = [
    "5\r\nab\r\n0\r\n\r\n",
    "zz\r\nab\r\n0\r\n\r\n",
    "2\nab\r\n0\r\n\r\n",
    "2\r\nabc\r\n0\r\n\r\n",
    "-1\r\n\r\n",
    "0x2\r\nab\r\n0\r\n\r\n",
    "2\r\nab\r\n",
    "1" * 20 + "\r\n",
    "2;" + "x" * 70000 + "\r\nab\r\n0\r\n\r\n",
    "2\r\nabxx0\r\n\r\n",
    "0\r\nX: " + "x" * 70000 + "\r\n\r\n",
]


async def test_broken_bodies_are_not_passed_on_whole() -> None:
    with Failures() as failures:
        async with raw_server() as server, proxied([f"127.0.0.1:{server.port}"]) as proxy:
            head = f"POST http://127.0.0.1:{server.port}/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
            for body in BROKEN_BODIES:
                with failures.row(body[:30]):
                    proxy.connections.clear()
                    server.requests.clear()
                    await proxy.say(head, more=body, end=True)
                    connection = await proxy.last()
                    assert not b"".join(request[3] for request in server.requests).endswith(b"0\r\n\r\n")
                    assert connection.reason


async def test_a_second_request_on_the_connection_never_reaches_the_server() -> None:
    async with raw_server() as server, proxied([f"127.0.0.1:{server.port}"]) as proxy:
        _reader, writer = await proxy.open()
        request = f"GET http://127.0.0.1:{server.port}/one HTTP/1.1\r\nHost: h\r\n\r\n"
        writer.write((request + request.replace("one", "two") + "GET /three HTTP/1.1\r\nHost: other\r\n\r\n").encode())
        await writer.drain()
        await until(lambda: server.requests, "the server was asked")
        await until_idle()
        writer.close()

    received = b"".join(request[3] for request in server.requests)
    assert b"/one" in received and b"two" not in received and b"three" not in received


async def test_a_server_that_speaks_something_else_is_not_passed_on() -> None:
    rows: list[Any] = [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/0.9 hi\r\n\r\n",
    ]
    with Failures() as failures:
        for answer in rows:
            with failures.row(answer):
                async with raw_server(answer) as server, proxied([f"127.0.0.1:{server.port}"]) as proxy:
                    said = await proxy.say(f"GET http://127.0.0.1:{server.port}/ HTTP/1.1\r\nHost: h\r\n\r\n")

                assert said.startswith(b"HTTP/1.1 502 Bad Gateway")


async def test_who_sends_a_request_too_slowly_or_too_long_is_cut_off() -> None:
    async with proxied(["example.com"], ProxyLimits(head_seconds=0.2)) as proxy:
        reader, writer = await proxy.open()
        for _ in range(10):
            writer.write(b"G")
            await let_pass(0.04)
        answer = await reader.read()
        writer.close()
        slow = await proxy.last()
    async with proxied(["example.com"]) as proxy:
        long = await proxy.say("GET http://example.com/ HTTP/1.1\r\nHost: h\r\nX: " + "a" * 100_000)

    assert answer.startswith(b"HTTP/1.1 408") and slow.reason == "the request did not come in time"
    assert long.startswith(b"HTTP/1.1 431")


async def test_what_a_connection_and_a_run_may_carry_is_limited() -> None:
    async with telling_server() as server:
        port = server.port
        get = f"GET http://127.0.0.1:{port}/large?size=400000 HTTP/1.1\r\nHost: h\r\n\r\n"
        async with proxied([f"127.0.0.1:{port}"], ProxyLimits(connection_bytes=100_000)) as proxy:
            one = await proxy.say(get)
            reason = (await proxy.last()).reason
        async with proxied([f"127.0.0.1:{port}"], ProxyLimits(run_bytes=1_000_000)) as proxy:
            sizes = [len(await proxy.say(get)) for _ in range(4)]

    assert len(one) < 200_000 and reason == "the connection carried more than it may"
    assert sizes[0] > 400_000 and sizes[1] > 400_000 and sizes[3] < 200_000


async def test_time_is_limited_for_a_connection_and_for_silence() -> None:
    async with raw_server(echo=True) as server:
        connect = f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\nHost: h\r\n\r\n"
        async with proxied([f"127.0.0.1:{server.port}"], ProxyLimits(idle_seconds=4)) as proxy:
            reader, writer = await proxy.open()
            writer.write(connect.encode())
            for _ in range(8):  # as long as something goes through, it is not silent
                writer.write(b"x")
                await let_pass(0.6)
            assert not proxy.connections
            await reader.read()
            silent = await proxy.last()
            writer.close()
        async with proxied([f"127.0.0.1:{server.port}"], ProxyLimits(connection_seconds=1)) as proxy:
            await proxy.say(connect)
            long = await proxy.last()

    assert silent.reason == "nothing was sent or received for too long" and silent.sent == 8
    assert long.reason == "it took too long" and long.allowed


async def test_connections_are_counted_at_once_and_in_all_and_over_all_runs() -> None:
    async with proxied(["example.com"], ProxyLimits(at_once=3)) as proxy:
        held = [await proxy.open() for _ in range(6)]  # three of them wait for their turn
        assert (await proxy.say("GET http://no.org/ HTTP/1.1\r\nHost: h\r\n\r\n")).startswith(b"HTTP/1.1 503")
        assert (await proxy.last()).reason == "too many connections"
        for _, writer in held:
            writer.close()
        while not (answer := await proxy.say("GET http://no.org/ HTTP/1.1\r\nHost: h\r\n\r\n")).startswith(
            b"HTTP/1.1 403"
        ):
            assert answer.startswith(b"HTTP/1.1 503")

    async with proxied(["example.com"], ProxyLimits(in_all=5)) as proxy:
        answers = [await proxy.say("GET http://no.org/ HTTP/1.1\r\nHost: h\r\n\r\n") for _ in range(50)]
    assert [answer[9:12] for answer in answers] == [b"403"] * 5 + [b"503"] * 45
    assert len(proxy.connections) == 6

    budget, log = ConnectionBudget(1), list[Connection]()
    async with (
        Proxy([], ProxyLimits(), log.append, budget=budget) as one,
        Proxy([], ProxyLimits(), log.append, budget=budget) as two,
    ):
        _, writer = await asyncio.open_unix_connection(one)
        while budget.take():
            budget.give()
            await asyncio.sleep(0)
        reader, other = await asyncio.open_unix_connection(two)
        assert (await reader.read()).startswith(b"HTTP/1.1 503")
        other.close()
        writer.close()
    assert budget.take()


async def test_a_name_that_cannot_be_looked_up_and_a_port_where_nobody_is_are_told_apart() -> None:
    async with proxied(["gone.example.com", "127.0.0.1:1"], names={}) as proxy:
        gone = await proxy.say("CONNECT gone.example.com:443 HTTP/1.1\r\nHost: h\r\n\r\n")
        closed = await proxy.say("CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: h\r\n\r\n")

    assert b"gone.example.com cannot be looked up" in gone and b"127.0.0.1:1 cannot be reached" in closed
    assert [entry.allowed for entry in proxy.connections] == [True, True]


async def test_ending_the_proxy_ends_what_is_under_way_and_records_it() -> None:
    async with raw_server(echo=True) as server:
        async with proxied([f"127.0.0.1:{server.port}"]) as proxy:
            reader, writer = await proxy.open()
            writer.write(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\nHost: h\r\n\r\nabc".encode())
            await reader.readuntil(b"abc")
        assert [(entry.reason, entry.allowed) for entry in proxy.connections] == [("the host ended it", True)]
        assert await reader.read() == b""
        writer.close()


async def test_bad_records_and_patterns_let_nothing_pass(caplog: pytest.LogCaptureFixture) -> None:
    def fail(connection: Connection) -> None:
        raise RuntimeError("the log is full")

    async with Proxy(["example.com"], ProxyLimits(), fail) as path:
        assert (await Proxied(path).say("CONNECT no.org:443 HTTP/1.1\r\nHost: h\r\n\r\n")).startswith(b"HTTP/1.1 403")

    assert "could not be recorded" in caplog.text
    with pytest.raises(InvalidInput, match="'http://example.com' is no host that can be allowed"):
        Proxy(["http://example.com"], ProxyLimits(), fail)


LINES_OF_HEADS = [b"Host: a", b"Content-Length: 3", b"Transfer-Encoding: chunked", b"Connection: x, y", b"X: \xff"]
FIRST_LINES = [b"GET http://a.example/ HTTP/1.1", b"CONNECT a.example:443 HTTP/1.1", b"PUT http://[::1]:8/?a HTTP/1.1"]
LINE = st.sampled_from(LINES_OF_HEADS) | st.binary(max_size=30)
FIRST = st.sampled_from(FIRST_LINES) | st.binary(max_size=40)


@given(first=FIRST, lines=st.lists(LINE, max_size=5))
def test_any_head_is_refused_or_passed_on_as_exactly_one_request(first: bytes, lines: list[bytes]) -> None:
    try:
        request = read_request(client_side(), b"\r\n".join([first, *lines, b"", b""]))
    except h11.RemoteProtocolError:
        return
    if request.message is None:
        return
    head = server_side().send(request.message)
    fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    assert head.endswith(b"\r\n\r\n") and not any(b"\r" in field or b"\n" in field for field in fields)
    names = [field.partition(b":")[0].lower() for field in fields[1:]]
    assert names.count(b"host") == 1 and names.count(b"connection") == 1
    assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
    assert len(fields[0].split(b" ")) == 3 and fields[0].endswith(b" HTTP/1.1")
