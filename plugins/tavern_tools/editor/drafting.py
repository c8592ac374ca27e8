"""Drafts of tools, by the language of their script. Python is read by a process of its own, for a text may be such that
its parser takes seconds or all memory."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tavern_host.contracts.errors import InvalidInput, ServiceUnavailable
from tavern_scripts.api.scripts import ScriptLanguage
from tavern_tools.api.toolfiles import ToolDraft
from tavern_tools.editor.jsdoc import draft_javascript

MAX_CODE = 1 << 18
"""How many bytes of code a draft is made of."""

_PROGRAM = Path(__file__).with_name("python_signature.py")
_SECONDS = 10.0


async def draft(code: str, language: ScriptLanguage, entry_point: str | None) -> ToolDraft:
    """Return the draft of a tool from its code. Raises `InvalidInput` for code that cannot be read, with its place."""
    if len(code.encode(errors="replace")) > MAX_CODE:
        raise InvalidInput(f"the code is larger than {MAX_CODE >> 10} KiB, which is too much to be looked at")
    if language != "python":
        return draft_javascript(code, entry_point)
    found = await read_python(code, entry_point)
    if "error" in found:
        where = f"line {found['line']}: " if found["line"] else ""
        place = {"line": found["line"], "column": found["column"]}
        raise InvalidInput(f"the code is no Python: {where}{found['error']}", **place)
    return ToolDraft.model_validate(found)


async def read_python(code: str, entry_point: str | None = None) -> dict[str, Any]:
    """Return the result of `python_signature.py` on code: a draft, or an `error` with `line` and `column`."""
    arguments = [] if entry_point is None else [entry_point]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(_PROGRAM), *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        async with asyncio.timeout(_SECONDS):
            output, _ = await process.communicate(code.encode(errors="replace"))
    except TimeoutError:
        raise ServiceUnavailable("the code was not read in time; try again") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        return {"error": "it is too large or nested too deeply to be read", "line": None, "column": None}
    found: dict[str, Any] = json.loads(output)
    return found
