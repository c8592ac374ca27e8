"""The relay inside of a sandbox: programs reach the proxy's Unix socket through it as if it were a proxy on TCP."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from helpers.ports import free_port

from tavern_scripts.network import relay
from tests.scripts.proxied import Proxied, proxied, raw_server, secure_server, telling_server

RELAY = Path(relay.__file__)


async def run(
    proxy: Proxied, *argv: str, port: int | None = None, variables: Mapping[str, str] | None = None
) -> tuple[int | None, str, str]:
    """Run a program behind the relay, as a sandbox does, and end the relay afterwards."""
    port = port or free_port()
    command = [sys.executable, "-I", "-S", str(RELAY), str(proxy.socket), str(port), *argv]
    environment = {"PATH": os.environ["PATH"], **relay.environment(port), **(variables or {})}
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(60):
            out, errors = await process.communicate()
    finally:
        for one in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if f"{RELAY}\0{proxy.socket}\0".encode() in one.read_bytes():
                    os.kill(int(one.parent.name), 9)
            except (OSError, ValueError):
                pass
    return process.returncode, out.decode(), errors.decode()


GET = "import sys, urllib.request as u; print(len(u.urlopen(sys.argv[1]).read()))"
ALONE = """
import os
try:
    os.wait()
except ChildProcessError:
    print("no child", os.listdir("/proc/self/fd"))
"""
TUNNEL = """
import os, socket, sys, threading
relay = os.environ["HTTPS_PROXY"].rpartition(":")[2]
s = socket.create_connection(("127.0.0.1", int(relay)))
s.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n".encode())
head = b""
while not head.endswith(b"\\r\\n\\r\\n"):
    head += s.recv(1)
data = os.urandom(5_000_000)
def send():
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
back = b"".join(iter(lambda: s.recv(65536), b""))
print(back == data)
"""


async def test_a_program_reaches_what_is_allowed_and_nothing_else() -> None:
    async with telling_server() as server, proxied([f"127.0.0.1:{server.port}"]) as proxy:
        url = f"http://127.0.0.1:{server.port}/large?size=2000000"
        allowed = await run(proxy, sys.executable, "-c", GET, url)
        # 3 is the listing itself; the output ends although the relay is still there
        alone = await run(proxy, sys.executable, "-c", ALONE)
        refused = await run(proxy, sys.executable, "-c", GET, "http://no.example.org/")

    assert allowed == (0, "2000000\n", "")
    assert alone == (0, "no child ['0', '1', '2', '3']\n", "")
    assert refused[0] == 1 and "403" in refused[2]


async def test_a_tunnel_carries_much_both_ways_at_once_and_ends_where_one_side_ends() -> None:
    async with raw_server(echo=True) as server, proxied([f"127.0.0.1:{server.port}"]) as proxy:
        assert await run(proxy, sys.executable, "-c", TUNNEL, f"127.0.0.1:{server.port}") == (0, "True\n", "")
        entry = await proxy.last()
    assert entry.sent == entry.received == 5_000_000 and not entry.reason


async def test_more_connections_than_it_passes_on_at_once_all_get_their_turn() -> None:
    code = (
        "import concurrent.futures, sys, urllib.request as u\n"
        "get = lambda n: u.urlopen(f'{sys.argv[1]}{n}').read().decode().rpartition('/')[2] == str(n)\n"
        "with concurrent.futures.ThreadPoolExecutor(40) as pool:\n"
        "    print(sum(pool.map(get, range(120))))\n"
    )
    async with telling_server() as server, proxied([f"127.0.0.1:{server.port}"]) as proxy:
        assert await run(proxy, sys.executable, "-c", code, f"http://127.0.0.1:{server.port}/") == (0, "120\n", "")


async def test_without_a_port_or_a_proxy_nothing_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with proxied([]) as proxy:
            status, out, errors = await run(proxy, sys.executable, "-c", "print(1)", port=taken.getsockname()[1])
    assert status == 1 and out == "" and "Address already in use" in errors
    gone = await run(Proxied(proxy.socket), sys.executable, "-c", GET, "http://no.example.org/")
    assert gone[:2] == (1, "") and "403" not in gone[2]


async def test_idle_connections_cost_no_time() -> None:
    code = (
        "import os, socket, time, pathlib\n"
        "port = int(os.environ['HTTP_PROXY'].rpartition(':')[2])\n"
        "open_ones = [socket.create_connection(('127.0.0.1', port)) for _ in range(20)]\n"
        "[s.sendall(b'GET') for s in open_ones]\n"
        "half = [s.shutdown(socket.SHUT_WR) for s in open_ones[:5]]\n"
        "time.sleep(1)\n"
        "for stat in pathlib.Path('/proc').glob('[0-9]*/stat'):\n"
        "    try:\n"
        "        line = stat.with_name('cmdline').read_bytes().split(b'\\0')\n"
        f"        if {str(RELAY)!r}.encode() in line and str(port).encode() in line:\n"
        "            print(sum(map(int, stat.read_text().rpartition(')')[2].split()[11:13])))\n"
        "    except OSError:\n"
        "        pass\n"
    )
    async with proxied([]) as proxy:
        status, out, errors = await run(proxy, sys.executable, "-c", code)
    assert status == 0, errors
    assert out.split() and all(int(ticks) < 30 for ticks in out.split())  # of 100 a second


NODE = """
const http = require('http'), https = require('https');
const get = (of, url) => new Promise((done) => {
  of.get(url, (answer) => { let text = ''; answer.on('data', (d) => text += d); answer.on('end', () => done(text)); })
    .on('error', (error) => done('error ' + error.message));
});
const fetched = (url, options) => fetch(url, options).then((r) => r.text(), (error) => 'error ' + error.cause?.message);
(async () => {
  const [plain, secure, refused] = process.argv.slice(1);
  console.log(JSON.stringify([
    await get(http, plain + '/a?b'), await fetched(plain + '/c?d'),
    await fetched(plain + '/e', {method: 'POST', body: 'text'}),
    await get(https, secure + '/f'), await fetched(secure + '/g'),
    (await fetched(refused)).slice(0, 5), (await get(https, refused)).slice(0, 5),
  ]));
})();
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js: apt install nodejs")
async def test_node_reaches_plain_and_secure_servers_by_http_and_fetch(tmp_path: Path) -> None:
    preload = f"--require={RELAY.with_name('nodeproxy.cjs')}"
    async with telling_server() as plain, secure_server(tmp_path) as secure, AsyncExitStack() as stack:
        places = [f"127.0.0.1:{plain.port}", f"127.0.0.1:{secure.port}"]
        proxy = await stack.enter_async_context(proxied(places))
        addresses = (f"http://{places[0]}", f"https://{places[1]}", "https://no.example.org/")
        variables = {"NODE_OPTIONS": preload, "NODE_EXTRA_CA_CERTS": str(tmp_path / "cert.pem")}
        status, out, errors = await run(proxy, "node", "-e", NODE, *addresses, variables=variables)

    assert status == 0, errors
    hello = [f"hello from /{letter}" for letter in "acefg"]
    assert json.loads(out) == [*hello, "error", "error"]
    assert [request[3] for request in plain.requests] == [b"", b"", b"text"]
    assert {entry.host for entry in proxy.connections if not entry.allowed} == {"no.example.org"}
    assert {entry.scheme for entry in proxy.connections if entry.port == secure.port} == {"connect"}


def test_the_environment_leaves_out_no_host() -> None:
    environment = relay.environment(4000)

    assert environment["HTTPS_PROXY"] == environment["https_proxy"] == "http://127.0.0.1:4000"
    assert environment["ALL_PROXY"] == environment["http_proxy"] == "http://127.0.0.1:4000"
    assert environment["NO_PROXY"] == environment["no_proxy"] == ""
    assert environment["NODE_USE_ENV_PROXY"] == "1"
