"""`tavern plugins trace` beside a real server: what a plugin does is on the terminal as it happens."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from helpers.command_line import minds_ctrl_c, tavern
from helpers.folder_plugins import write_plugin
from helpers.serve_process import serving

CODE = """
from tavern_host import hookimpl


@hookimpl
def tavern_before_execute(request, context):
    context.events.publish("acme.seen", {})
    raise ValueError("the key is sk-secret-of-acme-0123456789")
"""
PERMISSIONS = {"hooks": ["hook:server:workflow:before-execute"], "events": {"publish": ["acme.*"]}}
SECRET = {"key": "extensions.acme.apiKey", "type": "password", "label": "Key"}


async def _follows(project: Path, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tavern_host.cli", "--project", str(project), "plugins", "trace", "acme", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=minds_ctrl_c,
    )


async def _line(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    async with asyncio.timeout(60):
        return (await stream.readline()).decode()


async def test_a_terminal_follows_a_plugin_of_the_server(tmp_path: Path) -> None:
    project = tmp_path / "inn"

    async def told(*words: str) -> Any:
        return await asyncio.to_thread(tavern, "--project", project, *words)

    assert (await asyncio.to_thread(tavern, "init", project)).code == 0
    folder = write_plugin(
        project / "plugins" / "acme", {"__init__.py": CODE}, permissions=PERMISSIONS, configOptions=[SECRET]
    )
    assert (await told("plugins", "grant", "acme")).code == 0
    alone = await told("plugins", "trace", "acme")
    assert (alone.code, alone.error) == (
        1,
        "Error: no server runs for this project, so there is nothing to follow; `tavern serve` starts one",
    )
    settings = {"TAVERN_SETTINGS": json.dumps({SECRET["key"]: "sk-secret-of-acme-0123456789"})}
    async with serving(project, environment=settings) as server:
        missed = await told("plugins", "trace", "acm")
        assert (missed.code, missed.error) == (2, "Error: there is no plugin 'acm'; did you mean acme?")
        reader, timed = await _follows(project, "--json"), await _follows(project, "--for", "600")
        while "Following acme" not in await _line(timed.stderr):
            pass
        async with asyncio.timeout(60):
            while sum(e["action"] == "plugin.traced" for e in await server.get("/api/audit")) < 2:
                await asyncio.sleep(0.05)
        assert (await told("workflow", "run", "greeting", "--input", "name=Ada")).code != 0
        event, hook = json.loads(await _line(reader.stdout)), json.loads(await _line(reader.stdout))
        assert (event["kind"], event["name"]) == ("event", "acme.seen")
        assert (hook["kind"], hook["name"]) == ("hook", "tavern_before_execute")
        assert hook["caller"] == "executionEngine for user:operator"
        assert (hook["file"], hook["line"]) == (str(folder / "__init__.py"), 8)
        await _line(timed.stdout)
        assert "FAILED: ValueError" in (line := await _line(timed.stdout))
        assert f"({folder / '__init__.py'}:8)" in line
        for process in (reader, timed):
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(60):
                out, err = await process.communicate()
            assert process.returncode == 130, err
            assert b"sk-secret" not in out + json.dumps(hook).encode() + line.encode()
        entries = await server.get("/api/audit")
        assert {e["actor"] for e in entries if e["action"] == "plugin.traced"} == {"user:operator"}
