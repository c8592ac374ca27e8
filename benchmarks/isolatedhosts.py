"""How long a host with many plugins takes until it is ready: where they are in its process, and each in its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import Result, Timed, compare_once

PLUGINS = 20

_READY = """
from tavern_host.cli.garbage import put_off
put_off()
import os
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # both as `tavern` does

import asyncio, sys
from pathlib import Path
from tavern_host import Folders, Host

async def main():
    root, placement, *names = Path(sys.argv[1]), *sys.argv[2:]
    folders = Folders(root / "config", root / "state", root / "data")
    async with Host(root / "project", folders=folders, trust=names) as host:
        found = {(one.state, one.placement) for one in host.plugins() if not one.first_party}
        assert found == {("started", placement)}, found
        print("ready", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""
_CODE = """
from tavern_host import *

@hookimpl
async def tavern_before_execute(request, call, context):
    return None
"""
_NODES = """
from tavern_host import *

@node()
async def same(text: str) -> str:
    return text
"""


def hosts() -> list[Result]:
    """Measure hosts that know their plugins already, from the start of their process until they are ready."""
    with tempfile.TemporaryDirectory() as place:
        apart, within = _host(Path(place, "apart"), "process"), _host(Path(place, "within"), "in-process")
        name = f"a host with {PLUGINS} plugins in processes of their own, until it is ready"
        return [compare_once(name, apart, within, floor_name="with the same in its process", limit=1.1)]


def _host(root: Path, placement: str) -> Timed:
    names = [f"acme-{number}" for number in range(PLUGINS)]
    for name in names:
        plugin = root / "project" / "plugins" / name
        plugin.mkdir(parents=True)
        asked = {"hooks": ["hook:server:workflow:before-execute"]}
        manifest = {"name": name, "displayName": name, "version": "1.0.0", "permissions": asked}
        (plugin / "plugin.yaml").write_text(json.dumps({**manifest, "nodes": {"entry": "nodes.py"}}))
        (plugin / "__init__.py").write_text(_CODE)
        (plugin / "nodes.py").write_text(_NODES)
    (root / "config").mkdir()
    (root / "config" / "host.yaml").write_text(json.dumps({"placement": {"thirdParty": placement}}))

    def ready(times: int) -> float:
        spent = 0.0
        for _ in range(times):
            began = time.perf_counter()
            command = [sys.executable, "-c", _READY, str(root), placement, *names]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                if process.stdout.readline() != b"ready\n":
                    raise RuntimeError("the host did not start")
                spent += time.perf_counter() - began
                process.communicate()
        return spent

    return ready
