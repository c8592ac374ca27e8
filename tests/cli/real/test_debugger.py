"""`tavern --debug` waits for a debugger, which then stops where it was told to (Debug Adapter Protocol)."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import COMMAND, tavern
from helpers.folder_plugins import write_plugin
from helpers.ports import free_port

pytest.importorskip("debugpy")
CODE = """
from tavern_host import CommandInfo, CommandOutput, hookimpl

@hookimpl
def tavern_register_commands():
    return [CommandInfo(name="acme", help="Says it.", handler="tavern_plugins.acme:say")]

async def say(arguments, context):
    text = "as it was"
    yield CommandOutput(kind="text", text=text)  # here
"""


class Debugger:
    """The editor's side of the protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._sent = reader, writer, 0

    async def send(self, command: str, **arguments: Any) -> None:
        self._sent += 1
        data = json.dumps({"seq": self._sent, "type": "request", "command": command, "arguments": arguments}).encode()
        self._writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        await self._writer.drain()

    async def until(self, name: str) -> dict[str, Any]:
        """Return the first event or answer of a name."""
        while True:
            head = await self._reader.readuntil(b"\r\n\r\n")
            size = int(head.partition(b"Content-Length:")[2].split()[0])
            message: dict[str, Any] = json.loads(await self._reader.readexactly(size))
            assert message.get("success", True), message
            if name in (message.get("event"), message.get("command")):
                return message

    async def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        await self.send(command, **arguments)
        return await self.until(command)


async def test_a_breakpoint_in_a_plugin_stops_its_command(tmp_path: Path) -> None:
    assert (await asyncio.to_thread(tavern, "init", "--empty", tmp_path / "inn")).code == 0
    acme = write_plugin(
        tmp_path / "acme", {"__init__.py": CODE}, permissions={"hooks": ["hook:server:commands:register"]}
    )
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(*COMMAND, "--debug", "--project", str(tmp_path / "inn"), "--dev", str(acme), "acme"),
        env={**os.environ, "TAVERN_DEBUG_PORT": str(port)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while b"A debugger can attach" not in (line := await process.stderr.readline()):
            assert line, "it ended"
        debugger = Debugger(*await asyncio.open_connection("127.0.0.1", port))
        await debugger.ask("initialize", adapterID="test")
        await debugger.send("attach", justMyCode=False)
        await debugger.until("initialized")
        file = str(acme / "__init__.py")
        line = next(number for number, text in enumerate(CODE.splitlines(), 1) if "# here" in text)
        await debugger.ask("setBreakpoints", source={"path": file}, breakpoints=[{"line": line}])
        await debugger.ask("configurationDone")
        thread = (await debugger.until("stopped"))["body"]["threadId"]
        frame = (await debugger.ask("stackTrace", threadId=thread))["body"]["stackFrames"][0]
        assert (frame["name"], frame["line"]) == ("say", line)
        await debugger.ask("evaluate", expression="text = 'changed'", frameId=frame["id"], context="repl")
        await debugger.send("continue", threadId=thread)
        await debugger.until("terminated")
        await debugger.ask("disconnect")
        out, _ = await process.communicate()
    assert (process.returncode, out.decode().strip()) == (0, "changed")
