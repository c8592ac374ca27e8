"""`tavern serve` with a certificate, under systemd."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from pathlib import Path

from cryptography import x509
from helpers.certificates import write_certificate
from helpers.command_line import tavern
from helpers.serve_process import serving


async def serial_of(port: int) -> int:
    """Return the serial number of the certificate that a port shows."""
    text = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port), timeout=30)
    return x509.load_pem_x509_certificate(text.encode()).serial_number


async def test_a_server_with_a_certificate_under_systemd(tmp_path: Path) -> None:
    project = tmp_path / "inn"
    assert (await asyncio.to_thread(tavern, "init", "--empty", project)).code == 0
    write_certificate(tmp_path, 1)
    options = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "100000"}
        async with serving(project, environment, [*options, "--base-path", "/tavern"]) as server, asyncio.timeout(60):
            said: list[bytes] = []

            async def said_to_systemd() -> None:
                said.append(await asyncio.get_running_loop().sock_recv(systemd, 100))

            while b"READY=1" not in said or said.count(b"WATCHDOG=1") < 3:
                await said_to_systemd()
            await asyncio.sleep(1)  # nobody reads, and the server answers all the same
            known = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
            address, port = server.base, int(server.base.rpartition(":")[2].partition("/")[0])
            assert address == f"https://127.0.0.1:{port}/tavern"
            headers = {"Accept": "text/html", "Authorization": ""}
            async with server.session.get(server.url, headers=headers, ssl=known, allow_redirects=False) as answer:
                (cookie,) = answer.cookies.values()
                assert (answer.headers["Location"], cookie["path"], cookie["secure"]) == ("/tavern/", "/tavern", True)
            async with server.session.ws_connect(f"{address}/ws", ssl=known) as listening:
                await listening.send_json({"type": "SUBSCRIBE"})
                assert (await listening.receive_json(timeout=60))["type"] == "SUBSCRIBED"
            ran = await asyncio.to_thread(tavern, "--project", project, "runs", "retry", "absent")
            assert (ran.code, f"Run by the server at https://127.0.0.1:{port} " in ran.err) == (2, True)

            assert await serial_of(port) == 1
            (tmp_path / "key.pem").write_text("nothing")
            server.process.send_signal(signal.SIGHUP)  # it stays in use
            assert await serial_of(port) == 1
            write_certificate(tmp_path, 2)
            server.process.send_signal(signal.SIGHUP)
            while await serial_of(port) != 2:
                await asyncio.sleep(0.02)
            stopping = asyncio.create_task(server.stop())
            while b"STOPPING=1" not in said:
                await said_to_systemd()
            assert (await stopping)[0] == 0
