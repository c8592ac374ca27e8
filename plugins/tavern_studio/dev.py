"""Development servers for front ends that are being written: Vite's, from what the plugin has installed.

One is started when the page is first asked for in a run with `--dev`, and ends with the host, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from pathlib import Path

from tavern_host import PLUGINS, PluginContext
from tavern_studio import State

_SERVER = Path(__file__).parent / "vite_server.mjs"
_SECONDS = 30.0


async def addresses(context: PluginContext, base: str, vue: str) -> dict[str, str]:
    """Return the address of the source of each front end that a development server serves, by plugin.

    `base` is how the browser calls this server, `vue` where it has the page's Vue.
    """
    found = {}
    for plugin in await context.services.get(PLUGINS).list_plugins():
        front = plugin.frontend
        if not plugin.source.startswith("dev:") or front is None or front.dev_entry is None or front.mode != "page":
            continue
        key, servers = f"vite {plugin.name} {base}", context.own(State).servers
        if key not in servers:
            entry = Path(plugin.source.removeprefix("dev:"), front.dev_entry)
            servers[key] = ready = asyncio.get_running_loop().create_future()
            context.tasks.spawn(_run(context, key, ready, [plugin.name, str(entry), vue, base]), name=key)
        if address := await asyncio.shield(servers[key]):
            found[plugin.name] = address
    return found


async def _run(context: PluginContext, key: str, ready: asyncio.Future[str], about: list[str]) -> None:
    """Run the server of one plugin until it ends or the task is cancelled; `ready` gets its address, or nothing."""
    process = None
    try:
        address, problem = "", "there is no node in PATH"
        if (node := shutil.which("node")) is not None:
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(node, str(_SERVER), *about, stdin=pipe, stdout=pipe)
            address, problem = await _said(process)
        if problem:
            context.log.warning("%s is served as it was built: %s", about[0], problem)
        ready.set_result(address)
        if process is not None and address:
            await process.wait()
            context.own(State).servers.pop(key, None)  # the next page starts another one
    finally:
        if not ready.done():
            ready.set_result("")
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _said(process: asyncio.subprocess.Process) -> tuple[str, str]:
    """Return the address that a server gives, or why there is none."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_SECONDS):
            said = json.loads(await process.stdout.readline())
        return said.get("address", ""), said.get("problem", "")
    except (TimeoutError, ValueError):
        return "", f"its development server did not start within {_SECONDS:g} s"
