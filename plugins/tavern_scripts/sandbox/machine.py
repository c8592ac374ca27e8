"""The sandbox of this machine for other first-party plugins; see `api.sandbox`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from weakref import WeakKeyDictionary

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import system_call
from tavern_host.contracts.errors import ServiceUnavailable
from tavern_scripts.api.sandbox import MachineSandbox
from tavern_scripts.api.scripts import SandboxLaunch
from tavern_scripts.environments.in_sandbox import record_connection
from tavern_scripts.network.proxy import Proxy
from tavern_scripts.network.proxy_access import proxy_access
from tavern_scripts.network.proxy_limits import LASTING, Connection
from tavern_scripts.sandbox.choose import choose, host_candidates, refusal
from tavern_scripts.sandbox.watch import memory_in_use, tree

_proven: list[MachineSandbox] = []
_proving: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def proven() -> MachineSandbox:
    """Return the sandbox in which all holds that was tried out, once in this process. Raises `ServiceUnavailable`."""
    async with _proving.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        if not _proven:
            log = logging.getLogger("tavern.sandbox")
            chosen, reports = await choose(host_candidates(allow_degraded=False, allow_unsandboxed=False, log=log))
            if chosen is None:
                raise ServiceUnavailable(refusal(reports))
            _proven[:] = [MachineSandbox(chosen.name, chosen.backend)]
    return _proven[0]


@contextlib.asynccontextmanager
async def reaching(launch: SandboxLaunch, hosts: Sequence[str], context: PluginContext) -> AsyncIterator[SandboxLaunch]:
    """Yield a launch that reaches hosts; see `api.sandbox.reaching`."""
    if not hosts:
        yield launch
        return

    def record(connection: Connection) -> None:
        record_connection(context, connection, context.plugin, system_call(context.project.id))

    async with Proxy(hosts, LASTING, record, upstream=context.http.proxy) as path:
        way = proxy_access(path, launch.argv[0])
        update = {
            "argv": [*way.prefix, *launch.argv],
            "environment": {**launch.environment, **way.environment},
            "mounts": [*launch.mounts, *way.mounts],
            "proxy": way.proxy,
        }
        yield launch.model_copy(update=update)


def memory_of(pid: int) -> int:
    """Return the bytes of memory that a process and all that come from it use. Blocking."""
    return memory_in_use(tree(pid))
