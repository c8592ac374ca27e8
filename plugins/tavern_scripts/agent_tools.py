"""The provider of `scriptTools`: asks `scriptExecution` for agents, and returns what they can use."""

from __future__ import annotations

import re

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput
from tavern_scripts.api.scripts import SCRIPT_EXECUTION, NamedLanguage, ScriptLanguage, ScriptRequest, ScriptResult
from tavern_scripts.api.scripttools import ScriptOutcome, ScriptTools

_TOOLS = re.compile(r"\btools\b")
"""Matches in code that may call tools. Other code gets none, since preparing them takes time."""

SHORTEST_MS = 100
"""The shortest time limit that can be asked for, in milliseconds."""


class AgentTools(ScriptTools):
    """The script tools of one host."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context

    async def execute_python_script(
        self,
        script_path: str,
        *,
        input_data: dict[str, JsonValue] | None = None,
        timeout_ms: int | None = None,
        call: CallContext | None = None,
    ) -> ScriptOutcome:
        """Run a Python file; see the interface."""
        return await self._file("core:execute-python-script", "python", script_path, input_data, timeout_ms, call)

    async def execute_nodejs_script(
        self,
        script_path: str,
        *,
        input_data: dict[str, JsonValue] | None = None,
        timeout_ms: int | None = None,
        call: CallContext | None = None,
    ) -> ScriptOutcome:
        """Run a JavaScript file; see the interface."""
        return await self._file("core:execute-nodejs-script", "nodejs", script_path, input_data, timeout_ms, call)

    async def execute_code(
        self,
        language: NamedLanguage,
        code: str,
        *,
        input_data: JsonValue = None,
        files: list[str] | None = None,
        session: str | None = None,
        timeout_ms: int | None = None,
        call: CallContext | None = None,
    ) -> ScriptOutcome:
        """Run code; see the interface."""
        return await self._run(
            ScriptRequest(
                tool_id="CodeInterpreter:execute",
                code=code,
                language=language,
                input_data=input_data,
                files=files or [],
                session=session,
                tools=["*"] if session is None and _TOOLS.search(code) else [],
                timeout_ms=_time(timeout_ms),
            ),
            call,
        )

    async def _file(
        self,
        tool_id: str,
        language: ScriptLanguage,
        path: str,
        input_data: dict[str, JsonValue] | None,
        timeout_ms: int | None,
        call: CallContext | None,
    ) -> ScriptOutcome:
        request = ScriptRequest(
            tool_id=tool_id,
            script_path=path,
            language=language,
            input_data=input_data or {},
            timeout_ms=_time(timeout_ms),
        )
        return await self._run(request, call)

    async def _run(self, request: ScriptRequest, call: CallContext | None) -> ScriptOutcome:
        return outcome_of(await self._context.services.get(SCRIPT_EXECUTION).run(request, call=call))


def outcome_of(result: ScriptResult) -> ScriptOutcome:
    """Return the parts of a result that an agent receives."""
    return ScriptOutcome(
        success=result.success,
        output_data=result.output_data,
        error=result.error,
        logs=result.logs,
        files=result.files,
    )


def _time(timeout_ms: int | None) -> int | None:
    if timeout_ms is not None and timeout_ms < SHORTEST_MS:
        raise InvalidInput(f"timeoutMs must be at least {SHORTEST_MS}, it is {timeout_ms}")
    return timeout_ms
