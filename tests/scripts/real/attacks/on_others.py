"""What the tests of leftovers run: no attacks on the host, but on what comes after them or beside them."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from types import SimpleNamespace

from tests.scripts.real.attacks.attack import attack, say
from tests.scripts.real.attacks.on_files import write


@attack(alone=True, no_attack=True)
def is_busy(target: SimpleNamespace) -> object:
    for place in (target.output, target.cache, *([] if target.degraded else ["/tmp"])):
        write(f"{place}/result.txt")
    _children = [subprocess.Popen(["sleep", "100"]) for _ in range(2)]
    socket.socketpair()
    return "done"


@attack(alone=True, no_attack=True)
def never_ends(target: SimpleNamespace) -> object:
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            break
    say("it goes on")
    while True:
        time.sleep(0.1)


@attack(alone=True, no_attack=True)
def plants(target: SimpleNamespace) -> object:
    if not target.degraded:
        for place in ("/tmp", "/dev/shm", target.output, target.cache):
            write(f"{place}/planted")
        abstract, _server = socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", 45671))
        abstract.bind("\0planted")
        abstract.listen()
    write(f"{tempfile.gettempdir()}/planted")
    say("planted")
    while True:
        time.sleep(0.1)


@attack(alone=True, no_attack=True)
def looks_around(target: SimpleNamespace) -> object:
    places = ("/tmp", "/dev/shm", target.output, target.cache, tempfile.gettempdir())
    found: list[object] = [place for place in places if os.path.exists(f"{place}/planted")]
    for family, address in ((socket.AF_UNIX, "\0planted"), (socket.AF_INET, ("127.0.0.1", 45671))):
        try:
            socket.socket(family).connect(address)
            found.append(address)
        except OSError:
            pass
    for pid in {*range(2, 50)} - {os.getpid()}:
        try:
            os.kill(pid, 0)
            found.append(pid)
        except OSError:
            pass
    return found
