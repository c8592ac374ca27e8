"""Writes a plugin that runs scripts, so that the platform's script tools can be carried out."""

from __future__ import annotations

from pathlib import Path

from helpers.folder_plugins import write_plugin

CODE = '''
import asyncio
import json
import sys
from pathlib import Path

from tavern_host import hookimpl
from tavern_scripts.api.scripts import (
    SCRIPT_EXECUTION, ScriptError, ScriptErrorType, ScriptEvent, ScriptExecution, ScriptRequest, ScriptResult
)
from tavern_host.contracts.services import service_info

SCRIPTS = Path(__file__).with_name("scripts")


@hookimpl
def tavern_register_services():
    return [service_info(SCRIPT_EXECUTION, Scripts)]


class Scripts(ScriptExecution):
    """Runs Python scripts of its own folder, without a sandbox: JSON in, JSON out."""

    async def execute(self, *, tool_id=None, script_path=None, code=None, language=None, input_data=None,
                      timeout_ms=None, files=None, session=None, call=None):
        return await self._run(script_path, input_data, timeout_ms)

    async def run(self, request, *, call=None):
        path = request.script_path or request.command.partition(" ")[2]
        return await self._run(path, request.input_data, request.timeout_ms)

    async def stream(self, request, *, call=None):
        yield ScriptEvent(kind="result", result=await self.run(request))

    async def install(self, wanted, *, call=None):
        raise NotImplementedError

    async def converse(self, request, stdin, *, call=None):
        raise NotImplementedError
        yield

    async def review(self, request):
        raise NotImplementedError

    async def denied(self, asked, *, config=None):
        return []

    async def backends(self):
        return []

    async def _run(self, path, data, timeout_ms):
        script = await asyncio.create_subprocess_exec(
            sys.executable, str(SCRIPTS / path), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout((timeout_ms or 60_000) / 1000):
                out, err = await script.communicate(json.dumps(data).encode())
        except TimeoutError:
            script.kill()
            await script.wait()
            error = ScriptError(type=ScriptErrorType.TIMEOUT, message="Script execution timed out.")
            return ScriptResult(success=False, error=error)
        if script.returncode:
            *_, last = err.decode().splitlines()
            error = ScriptError(type=ScriptErrorType.SCRIPT, message=last, details=err.decode())
            return ScriptResult(success=False, error=error)
        return ScriptResult(success=True, output_data=json.loads(out))
'''


def write_script_plugin(folder: Path, **scripts: str) -> Path:
    """Write the plugin, with scripts by their paths without `.py` (`__` is `/`)."""
    files = {f"scripts/{name.replace('__', '/')}.py": text for name, text in scripts.items()}
    permissions = {"hooks": ["hook:server:services:register"]}
    return write_plugin(folder / "acme_scripts", {"__init__.py": CODE, **files}, permissions=permissions)
