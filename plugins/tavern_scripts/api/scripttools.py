"""The service behind the tools `CodeInterpreter:execute`, `core:execute-python-script` and
`core:execute-nodejs-script`: scripts for agents, told in few words."""

from __future__ import annotations

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts
from tavern_host.contracts.wire import Model
from tavern_scripts.api.scripts import NamedLanguage, ScriptError, ScriptFile

_EXECUTE = "Run scripts in the sandbox."


class ScriptOutcome(Model):
    """What came of a script: its result, or why there is none; the log, and the files that it left, by their paths in
    the project's files folder."""

    success: bool
    output_data: JsonValue = None
    error: ScriptError | None = None
    logs: list[str] = Field(default_factory=list)
    files: list[ScriptFile] = Field(default_factory=list)


class ScriptTools(ServiceInterface, name="scriptTools"):
    """Runs scripts for agents. A script that fails is an outcome here, and a failed call of the tool that ran it."""

    @acts("scriptTools:execute", _EXECUTE)
    async def execute_python_script(
        self,
        script_path: str,
        *,
        input_data: dict[str, JsonValue] | None = None,
        timeout_ms: int | None = None,
        call: CallContext | None = None,
    ) -> ScriptOutcome:
        """Run a Python file of the operator's folders for scripts."""

    @acts("scriptTools:execute", _EXECUTE)
    async def execute_nodejs_script(
        self,
        script_path: str,
        *,
        input_data: dict[str, JsonValue] | None = None,
        timeout_ms: int | None = None,
        call: CallContext | None = None,
    ) -> ScriptOutcome:
        """Run a JavaScript file of the operator's folders for scripts with Node.js."""

    @acts("scriptTools:execute", _EXECUTE)
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
        """Run code. `files` are paths in the project's files folder that it may read; with a `session`, variables live
        on between calls."""


SCRIPT_TOOLS = ServiceKey(ScriptTools)
