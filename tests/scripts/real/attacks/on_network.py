"""Attacks on the network and the sockets of the host, by a script that was given no network."""

from __future__ import annotations

import fcntl
import socket
import struct
from types import SimpleNamespace
from typing import Any

from tests.scripts.real.attacks.attack import attack

NOWHERE = (
    "ECONNREFUSED",
    "ENETUNREACH",
    "EHOSTUNREACH",
    "EADDRNOTAVAIL",
    "ENETDOWN",
    "EACCES",
    "EPERM",
    "EAFNOSUPPORT",
)
ELSEWHERE = [("192.0.2.1", 80), ("169.254.169.254", 80), ("8.8.8.8", 53), ("10.0.0.1", 22), ("172.17.0.1", 22)]


def said_by(family: int, address: Any) -> str:
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(10)
        connection.connect(address)
        return connection.recv(100).decode()


@attack(*NOWHERE)
def connects_to_a_server_on_the_hosts_own_loop(target: SimpleNamespace) -> object:
    return said_by(socket.AF_INET, ("127.0.0.1", target.tcp))


@attack(*NOWHERE)
def connects_to_a_server_by_the_hosts_address(target: SimpleNamespace) -> object:
    return said_by(socket.AF_INET, (target.host_address, target.tcp))


@attack(*NOWHERE, may_lack="AttributeError")
def connects_by_ipv6(target: SimpleNamespace) -> object:
    return said_by(socket.AF_INET6, ("::1", target.tcp6))


@attack(*NOWHERE, extra={"elsewhere": ELSEWHERE}, control={"elsewhere": []})
def connects_to_the_world_and_the_services_of_clouds(target: SimpleNamespace) -> object:
    problems = []
    for address in target.elsewhere or [("127.0.0.1", target.tcp)]:
        try:
            with socket.create_connection(address, timeout=2) as connection:
                return connection.getpeername()
        except OSError as problem:
            problems.append(problem)
    raise problems[0]


@attack(*NOWHERE)
def sends_datagrams(target: SimpleNamespace) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(10)
        sender.connect(("127.0.0.1", target.udp))
        sender.send(b"x")
        return sender.recv(100).decode()


@attack(*NOWHERE, extra={"everybody": "255.255.255.255"}, control={"everybody": "127.0.0.1"})
def sends_datagrams_to_everybody(target: SimpleNamespace) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        return sender.sendto(b"x", (target.everybody, 9))


@attack("ENOENT", "EACCES", "EAFNOSUPPORT")
def connects_to_a_unix_socket_of_the_host(target: SimpleNamespace) -> object:
    return said_by(socket.AF_UNIX, target.unix)


@attack("ECONNREFUSED", "EPERM", "EAFNOSUPPORT")
def connects_to_an_abstract_unix_socket_of_the_host(target: SimpleNamespace) -> object:
    return said_by(socket.AF_UNIX, target.abstract)


@attack("ENOENT", "EACCES", "EAFNOSUPPORT")
def sends_a_datagram_to_a_unix_socket_of_the_host(target: SimpleNamespace) -> object:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return pair[0].sendto(b"x", target.datagrams)


@attack("EAFNOSUPPORT", "EPERM", "not supported", "not permitted", namespaced=True)
def opens_raw_sockets_and_taps_the_wire(target: SimpleNamespace) -> object:
    problems = []
    for family, kind, protocol in ((2, 3, 1), (2, 3, 255), (10, 3, 58), (17, 3, 0x300), (17, 2, 0x300)):
        try:
            socket.socket(family, kind, protocol).close()
            return "opened"
        except OSError as problem:
            problems.append(problem)
    raise problems[-1]


@attack(
    *("nothing", "EPERM", "EACCES", "EAFNOSUPPORT", "ERR_SYSTEM_ERROR", "ENODEV"),
    extra={"known": "lo"},
    control={"known": ""},
)
def lists_the_networks_of_the_host(target: SimpleNamespace) -> object:
    return [name for _, name in socket.if_nameindex() if name != target.known]


@attack("nothing")
def opens_sockets_of_every_odd_family(target: SimpleNamespace) -> object:
    found = []
    for family, kind in ((family, kind) for family in range(64) for kind in (1, 2, 3, 5)):
        for make in (socket.socket, socket.socketpair):
            try:
                make(family, kind)
                found.append((family, kind))
            except (OSError, ValueError):
                pass
    return [each for each in found if each[0] not in (1, 2, 10)]


@attack("EADDRNOTAVAIL", "EAFNOSUPPORT", may_lack="only its own loop")
def listens_where_the_host_could_be_reached_from_outside(target: SimpleNamespace) -> object:
    if target.host_address.startswith("127."):
        raise RuntimeError("this machine has only its own loop")
    with socket.socket() as server:
        server.bind((target.host_address, 0))
        return "listens"


@attack("EPERM", "EAFNOSUPPORT", namespaced=True)
def configures_the_network_that_it_has(target: SimpleNamespace) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        fcntl.ioctl(sender, 0x8914, struct.pack("16sh", b"lo", 0x49))
    return "configured"
