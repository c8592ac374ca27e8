"""What others ask another Python process by: the same call through a proxy of multiprocessing, by RPyC and by Pyro5.

Each is used as its documentation shows, over a local socket, and on a thread, as an asyncio program has to: all of them
wait for the answer. None has a sandbox, permissions, limits or streams that wait for their reader. Those that are not
installed (`pip install -e '.[bench]'`) are left out, and named.
"""

from __future__ import annotations

import asyncio
import importlib.util
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.managers import BaseManager
from pathlib import Path

from benchmarks.harness import Result, awaited, compare_awaited
from benchmarks.isolation import Acme, _acme

Call = Callable[[], object]
TEXT = "word " * 20

_RPYC = """
import rpyc, sys
from rpyc.utils.server import ThreadedServer
class Same(rpyc.Service):
    def exposed_same(self, text):
        return text
ThreadedServer(Same, socket_path=sys.argv[1]).start()
"""
_PYRO = """
import Pyro5.api, sys
@Pyro5.api.expose
class Same:
    def same(self, text):
        return text
daemon = Pyro5.api.Daemon(unixsocket=sys.argv[1])
print(daemon.register(Same(), "same"), flush=True)
daemon.requestLoop()
"""


class Same:
    """What the proxy of multiprocessing is of."""

    def same(self, text: str) -> str:
        """Return a text."""
        return text


class _Manager(BaseManager):
    pass


_Manager.register("Same", Same)


@contextmanager
def _multiprocessing(place: Path) -> Iterator[Call]:
    with _Manager(ctx=multiprocessing.get_context("spawn")) as manager:
        proxy = manager.Same()  # type: ignore[attr-defined]
        yield lambda: proxy.same(TEXT)


@contextmanager
def _server(code: str, path: Path) -> Iterator[str]:
    """Run a server on a socket; yield the line that it says, or what is there when its socket is."""
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip() if code is _PYRO else _there(path)
        finally:
            process.kill()


def _there(path: Path) -> str:
    while not path.exists():
        time.sleep(0.01)
    return str(path)


@contextmanager
def _rpyc(place: Path) -> Iterator[Call]:
    import rpyc

    with _server(_RPYC, place / "rpyc") as path, rpyc.utils.factory.unix_connect(path) as connection:
        yield lambda: connection.root.same(TEXT)


@contextmanager
def _pyro(place: Path) -> Iterator[Call]:
    import Pyro5.api

    with _server(_PYRO, place / "pyro") as uri, Pyro5.api.Proxy(uri) as proxy:

        def call() -> object:
            proxy._pyroClaimOwnership()  # it is called on another thread each time
            return proxy.same(TEXT)

        yield call
        proxy._pyroClaimOwnership()


PEERS = {"multiprocessing": _multiprocessing, "rpyc": _rpyc, "Pyro5": _pyro}


async def _calls() -> list[Result]:
    results = []
    with tempfile.TemporaryDirectory() as place:
        async with _acme(Path(place), "process") as acme:
            await awaited(acme.node, 3_000)  # what a host does once after its start is over by then
            for name, peer in PEERS.items():
                if importlib.util.find_spec(name) is None:
                    print(f"{name} is not installed", file=sys.stderr)
                    continue
                with peer(Path(place)) as call:
                    results.append(await _compared(acme, name, call))
    return results


async def _compared(acme: Acme, name: str, call: Call) -> Result:
    assert call() == TEXT
    peer = partial(asyncio.to_thread, call)
    return await compare_awaited("a node run in its process", acme.node, peer, floor_name=f"a call by {name}")


FIGURES = {"peers": lambda: asyncio.run(_calls())}
