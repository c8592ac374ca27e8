"""Calls of script tools, through the service that runs scripts in a sandbox."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import PurePosixPath

from pydantic import JsonValue, ValidationError

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext, system_call
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.plugins import PLUGINS
from tavern_host.contracts.settings import SETTINGS
from tavern_host.contracts.tools import ToolDefinition
from tavern_scripts.api.scripts import (
    LANGUAGE_SUFFIXES,
    SCRIPT_EXECUTION,
    RunnableLanguage,
    ScriptErrorType,
    ScriptFile,
    ScriptRequest,
    ScriptResult,
    SecurityContext,
)
from tavern_scripts.api.scripttools import SCRIPT_TOOLS
from tavern_tools.api.toolcalls import ContentPart, ToolErrorType, current_report
from tavern_tools.calls.call import Output
from tavern_tools.catalog.failures import ToolFailure
from tavern_tools.catalog.permissions import service_and_method

_SCRIPT_SERVICES = (SCRIPT_TOOLS.name, SCRIPT_EXECUTION.name)
_LAST_LOGS = 20

_TYPES = {
    ScriptErrorType.TIMEOUT: ToolErrorType.TIMEOUT,
    ScriptErrorType.SCRIPT: ToolErrorType.SCRIPT,
    ScriptErrorType.DEPENDENCY: ToolErrorType.DEPENDENCY,
    ScriptErrorType.SECURITY: ToolErrorType.SECURITY,
    ScriptErrorType.OUTPUT: ToolErrorType.OUTPUT,
    ScriptErrorType.RESOURCE: ToolErrorType.RESOURCE,
    ScriptErrorType.CANCELLED: ToolErrorType.CANCELLED,
}


def script_request(tool: ToolDefinition, arguments: dict[str, JsonValue], code: str | None = None) -> ScriptRequest:
    """Return the script that a tool is; with `code`, that in the place of its file's.

    Raises `ToolFailure` where its definition asks for what cannot be.
    """
    implementation = tool.implementation
    further = implementation.model_extra or {}
    try:
        return ScriptRequest.model_validate(
            {
                "tool_id": tool.id,
                "plugin": tool.plugin,
                "from_project": tool.plugin is None,
                "code": code,
                "script_path": implementation.script_path if code is None else None,
                "command": implementation.command if code is None else None,
                "language": implementation.language or (code and language_of(implementation.script_path)),
                "entry_point": further.get("entryPoint"),
                "protocol": further.get("protocol") or "stdio",
                "tools": [] if tool.plugin else further.get("tools") or [],
                "input_data": arguments,
                "timeout_ms": None if tool.timeout is None else max(1, round(tool.timeout)),
                "security_context": SecurityContext.model_validate(tool.security_context or {}),
            }
        )
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ToolFailure(ToolErrorType.SECURITY, f"{tool.id} is no script that can be run: {wrong}") from None


def language_of(path: str | None) -> RunnableLanguage | None:
    """Return the language that the end of a script's name says, if it says one."""
    return LANGUAGE_SUFFIXES.get(PurePosixPath(path or "").suffix)


async def with_config(
    context: PluginContext, tool: ToolDefinition, request: ScriptRequest, call: CallContext
) -> ScriptRequest:
    """Return the request with the values of the tool's settings (`configSchema`): its own, or those of the other tool
    of its plugin that it names (`settingsOf`)."""
    other = (tool.implementation.model_extra or {}).get("settingsOf")
    if tool.plugin is None or not (other or tool.config_schema):
        return request
    values = await context.services.get(SETTINGS).of_tool(tool.plugin, other or tool.id, call=call)
    named = {value.key.rpartition(".")[2]: value for value in values}
    config = {key: value.value for key, value in named.items()}
    return request.model_copy(update={"config": config, "secrets": [k for k, v in named.items() if v.secret]})


async def run_script(
    context: PluginContext,
    tool: ToolDefinition,
    code: str | None,
    arguments: dict[str, JsonValue],
    call: CallContext,
) -> Output:
    """Return the output of a script tool, run from its file or from `code`, and report its progress. Raises
    `ToolFailure`."""
    report = current_report()
    service = context.services.get(SCRIPT_EXECUTION)
    request = await with_config(context, tool, script_request(tool, arguments, code), call)
    result: ScriptResult | None = None
    async with aclosing(service.stream(request, call=call)) as events:  # type: ignore[type-var]
        async for event in events:
            if event.kind == "progress":
                if report is not None:
                    report(event.progress, event.text or None)
            elif event.result is not None:
                result = event.result
    if result is None:
        raise ToolFailure(ToolErrorType.EXECUTION, f"{tool.id} ended without a result")
    output = _output_data(result)
    return Output(output, _parts(output, result.files) if result.files else ())


def output_of_script(tool: ToolDefinition, value: dict[str, JsonValue]) -> Output:
    """Return the value of a service's method, or the output of the script that it ran, as the tool's output. Raises
    `ToolFailure` for a script that failed.

    Of what the services that run scripts give, a model reads what the script gave, and the files that it left. The
    rest of it is the output only where the tool's schema declares it.
    """
    service, _ = service_and_method(tool.implementation)
    if service not in _SCRIPT_SERVICES:
        return Output(value)
    result = ScriptResult.model_validate(value)
    output = _output_data(result)
    declared = (tool.output or {}).get("properties")
    whole = value if isinstance(declared, dict) and "success" in declared else output
    return Output(whole, _parts(output, result.files))


def _output_data(result: ScriptResult) -> JsonValue:
    """Return the output of a script. Raises `ToolFailure` if it failed."""
    if result.success:
        return result.output_data
    error = result.error
    if error is None:
        raise ToolFailure(ToolErrorType.SCRIPT, "the script failed", logs=result.logs[-_LAST_LOGS:])
    details = {"details": error.details} if error.details else {}
    raise ToolFailure(_TYPES[error.type], error.message, **details, logs=result.logs[-_LAST_LOGS:])


def _parts(output: JsonValue, files: list[ScriptFile]) -> tuple[ContentPart, ...]:
    """Return the parts of a result: what the script gave, and each file that it left, images among them."""
    text = isinstance(output, str)
    first = ContentPart(type="text", text=str(output)) if text else ContentPart(type="data", data=output)
    return (first, *map(_file_part, files))


def _file_part(file: ScriptFile) -> ContentPart:
    is_image = (file.mime_type or "").startswith("image/")
    name = file.path.rpartition("/")[2]
    return ContentPart(
        type="image" if is_image else "file", uri=file.path, name=name, mime_type=file.mime_type, size=file.size
    )


async def without_script(context: PluginContext, tool: ToolDefinition, owner: str | None) -> str | None:
    """Return why the script of a tool cannot be run, or None; `owner` is the folder of the plugin that has the tool."""
    plugins = await context.services.get(PLUGINS).assets("plugin")
    plugin = next((asset.plugin for asset in plugins if asset.path == owner), None)
    if owner is not None and plugin is None:
        return None  # nothing is known of a plugin that is not loaded
    try:
        request = script_request(tool.model_copy(update={"plugin": plugin}), {})
        await context.services.get(SCRIPT_EXECUTION).review(request)
    except (ToolFailure, TavernError) as error:
        return error.message
    return None


async def granted_to_script(context: PluginContext, tool: ToolDefinition) -> list[str]:
    """Return in lines what a script tool would get of what it asks for, and what it would not."""
    if not context.services.has(SCRIPT_EXECUTION):
        return []
    try:
        request = await with_config(context, tool, script_request(tool, {}), system_call(context.project.id))
        enforced = await context.services.get(SCRIPT_EXECUTION).review(request)
    except ToolFailure as failure:
        return [f"Cannot be run: {failure.message}"]
    except TavernError as error:
        return [f"Cannot be run: {error.message}"]
    grants = enforced.grants
    parts = (("reads", grants.read), ("writes", grants.write), ("reaches", grants.hosts))
    said = "; ".join(f"{verb} {', '.join(what)}" for verb, what in parts if what) or "reaches nothing"
    lines = [f"In the sandbox {enforced.backend} it {said}"]
    return [*lines, f"Asks for more than it gets: {'; '.join(enforced.denied)}"] if enforced.denied else lines
