"""A host with scripts, for the tests of the service: what is run in it really runs in a sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tavern_host import Host
from tavern_host.projects import Folders, make_project
from tavern_scripts.api.scripts import SCRIPT_EXECUTION, ScriptErrorType, ScriptRequest, ScriptResult

_holding: list[bool] = []
"""Whether a sandbox holds on this machine, once it is known."""

PREFIX = "extensions.tavern-scripts."


class Scripts:
    """A running host's scripts."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.service = host.services.get(SCRIPT_EXECUTION)

    def put(self, path: str, text: str, *, folder: str = "scripts") -> Path:
        """Write a file of the project, by default into its folder for scripts."""
        file = self.host.project.root / folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    async def run(self, **request: Any) -> ScriptResult:
        """Return the result of a script."""
        return await self.service.run(ScriptRequest.model_validate(request))

    async def python(self, code: str, **request: Any) -> ScriptResult:
        """Return the result of Python code."""
        return await self.run(code=code, language="python", **request)

    async def output(self, **request: Any) -> Any:
        """Return the output of a script that must succeed."""
        result = await self.run(**request)
        assert result.error is None, result.error
        return result.output_data

    async def error(self, type: ScriptErrorType, **request: Any) -> str:
        """Return why a script gave nothing."""
        result = await self.run(**request)
        assert result.error is not None, result.output_data
        assert result.error.type is type, result.error
        return result.error.message


@asynccontextmanager
async def scripts_of(
    tmp_path: Path, trust: Sequence[str] = (), folders_of: Folders | None = None, **settings: Any
) -> AsyncIterator[Scripts]:
    """Give the scripts of a host whose operator has these settings of `tavern-scripts`, and these folders."""
    root = tmp_path / "project"
    if not root.exists():
        make_project(root)
    named = {f"{PREFIX}{key}": value for key, value in settings.items()}
    async with Host(root, trust=trust, settings=named, folders=folders_of) as host:
        scripts = Scripts(host)
        if not _holding:
            _holding.append(any(report.chosen and not report.languages for report in await scripts.service.backends()))
        if not _holding[0]:
            pytest.skip("no sandbox holds on this machine: see `tavern scripts doctor`")
        yield scripts
