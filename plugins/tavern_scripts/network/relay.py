"""Runs inside of a sandbox that has a network: programs speak TCP to it on 127.0.0.1, it passes all on to the proxy's
Unix socket. It decides nothing, and imports nothing but the standard library, so that this one file runs anywhere."""

from __future__ import annotations

import os
import select
import socket
import sys
import time

PORT = 3128
"""Where it listens by default."""

_PIECE = 64 << 10
_MOST = 32
"""How many connections are passed on at once; others wait."""


def environment(port: int = PORT) -> dict[str, str]:
    """Return the variables by which programs find the relay: curl, pip, uv, npm, bun and Python's urllib read the
    first ones, Node.js from 22.21 and 24.5 on with the last one. Nothing is reached without it, so no host is left
    out."""
    address = f"http://127.0.0.1:{port}"
    names = ("http_proxy", "https_proxy", "all_proxy")
    result = {name: address for lower in names for name in (lower, lower.upper())}
    return {**result, "no_proxy": "", "NO_PROXY": "", "NODE_USE_ENV_PROXY": "1"}


def start(path: str, port: int = PORT) -> None:
    """Listen on 127.0.0.1:`port` when this returns, and pass on to the socket `path` from a process of its own, which
    is no child of this one and keeps none of its descriptors. Raises `OSError`."""
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    child = os.fork()
    if child:
        listener.close()
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if not os.fork():
            _detach(listener)
            serve(listener, path)
    finally:
        os._exit(0)


def serve(listener: socket.socket, path: str) -> None:
    """Pass connections on for ever."""
    poll = select.epoll()
    listener.setblocking(False)
    poll.register(listener, select.EPOLLIN)
    ends: dict[int, _End] = {}
    listening = True
    while True:
        for number, events in poll.poll():
            if number == listener.fileno():
                _accept(listener, path, poll, ends)
                continue
            end = ends.get(number)
            if end is None:
                continue
            end.proceed(events)
            for one in (end, end.other):
                if end.over:
                    del ends[one.socket.fileno()]
                    one.socket.close()
                else:
                    one.watch(poll)
        if listening != (len(ends) < 2 * _MOST):
            listening = not listening
            poll.modify(listener, select.EPOLLIN if listening else 0)


class _End:
    """One end of a connection: what waits to be sent there, and whether all was read that comes from there."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.other = self
        self.waiting = bytearray()
        self.read_all = False
        self.sent_all = False
        self.broken = False
        self._watched = 0

    @property
    def over(self) -> bool:
        """Whether nothing more can come of this connection."""
        return self.broken or self.other.broken or (self.sent_all and self.other.sent_all)

    def proceed(self, events: int) -> None:
        """Do what can be done without waiting."""
        if events & ~select.EPOLLOUT and not self.read_all and len(self.other.waiting) < _PIECE:
            self._read()
        self._send()
        self.other._send()

    def watch(self, poll: select.epoll) -> None:
        """Wait for what this end can continue with."""
        reading = not self.read_all and len(self.other.waiting) < _PIECE
        wanted = (select.EPOLLIN if reading else 0) | (select.EPOLLOUT if self.waiting else 0)
        if wanted == self._watched:
            return
        if not wanted:  # else the end of it would be told again and again
            poll.unregister(self.socket)
        elif self._watched:
            poll.modify(self.socket, wanted)
        else:
            poll.register(self.socket, wanted)
        self._watched = wanted

    def _read(self) -> None:
        try:
            piece = self.socket.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        self.read_all = not piece
        self.other.waiting += piece

    def _send(self) -> None:
        try:
            while self.waiting:
                del self.waiting[: self.socket.send(self.waiting)]
            if self.other.read_all and not self.sent_all:
                self.sent_all = True
                self.socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError:
            self.waiting.clear()
            self.sent_all = self.broken = True


def _accept(listener: socket.socket, path: str, poll: select.epoll, ends: dict[int, _End]) -> None:
    try:
        connection, _ = listener.accept()
    except BlockingIOError:
        return
    except OSError:
        time.sleep(0.05)  # no descriptors are left: the clients keep waiting
        return
    try:
        onward = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        onward.connect(path)
    except OSError:  # the proxy is gone
        connection.close()
        return
    first, second = _End(connection), _End(onward)
    first.other, second.other = second, first
    for end in (first, second):
        ends[end.socket.fileno()] = end
        end.watch(poll)


def _detach(listener: socket.socket) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.closerange(3, listener.fileno())
    os.closerange(listener.fileno() + 1, 1 << 16)
    os.chdir("/")


if __name__ == "__main__":  # relay.py SOCKET PORT PROGRAM ARGUMENT…
    start(sys.argv[1], int(sys.argv[2]))
    os.execvp(sys.argv[3], sys.argv[3:])
