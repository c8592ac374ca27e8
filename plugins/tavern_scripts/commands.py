"""The commands `tavern scripts doctor` and `tavern scripts run`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import operator_call
from tavern_host.contracts.commands import CommandOutput
from tavern_host.contracts.documents import read_json, read_model
from tavern_host.contracts.errors import InvalidInput
from tavern_scripts.api.scripts import (
    SCRIPT_EXECUTION,
    BackendReport,
    FileAccess,
    NetworkAccess,
    ScriptEvent,
    ScriptRequest,
    ScriptResult,
    SecurityContext,
)
from tavern_scripts.policy.languages import language_of
from tavern_scripts.policy.script_files import ScriptFolder

_MARKS = {True: "holds", False: "does NOT hold"}


async def doctor(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`scripts doctor`: exit code 1 where no script can be run."""
    reports = await context.services.get(SCRIPT_EXECUTION).backends()
    in_force = [report for report in reports if report.chosen]
    chosen = next((report for report in in_force if not report.languages), None)
    for report in reports:
        yield CommandOutput(kind="message", text=_heading(report))
        if report.checks:
            rows = [[check.name, _MARKS[check.holds], check.observed] for check in report.checks]
            yield CommandOutput(kind="table", columns=["Property", "Proven", "Observed"], rows=rows)
    yield CommandOutput(kind="result", data={"reports": [report.to_json() for report in reports]})
    for report in in_force:
        if report.languages:
            text = f"Scripts in {', '.join(report.languages)} run in the sandbox {report.name}."
            yield CommandOutput(kind="message", text=text)
    if chosen is not None:
        yield CommandOutput(kind="message", text=f"Scripts run in the sandbox {chosen.name}.")
        return
    hints = "\n".join(dict.fromkeys(report.hint for report in reports if report.hint))
    text = "No script is run here, since no sandbox holds." + (f"\n{hints}" if hints else "")
    yield CommandOutput(kind="failure", text=text, exit_code=1)


async def run_script(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`scripts run FILE`: exit code 1 where the script gives no result, 2 for what cannot be asked. With an input or an
    entry point the result is JSON, as a tool's is, else what the script prints."""
    from tavern_scripts.service import Scripts

    path = Path(str(arguments["file"]))
    request = await asyncio.to_thread(_request, path, arguments)
    result: ScriptResult | None = None
    scripts = Scripts(context, folders=[ScriptFolder(path.parent, str(path.parent))])
    shown: set[str] = set()
    try:
        call = operator_call(context.project.id)
        async with aclosing(scripts.stream(request, call=call)) as events:
            async for event in events:
                result = event.result or result
                if event.kind != "result":
                    shown.add(event.text)
                    yield CommandOutput(kind="progress", text=_line(event))
    finally:
        await scripts.close()
    assert result is not None
    for text in _about(result):
        yield CommandOutput(kind="progress", text=text)
    yield CommandOutput(kind="result", data=result.to_json())
    if result.error is None:
        found, is_text = result.output_data, request.protocol == "text"
        text = str(found or "") if is_text else json.dumps(found, ensure_ascii=False, indent=2)
        if text:
            yield CommandOutput(kind="text", text=text)
        return
    details = [line for line in (result.error.details or "").splitlines() if line not in shown]
    text = "\n".join([f"{result.error.type}: {result.error.message}", *details])
    yield CommandOutput(kind="failure", text=text, exit_code=1)


def _request(path: Path, arguments: dict[str, JsonValue]) -> ScriptRequest:
    """Return the request that the arguments describe. Raises `InvalidInput`."""
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}")
    language = arguments.get("language") or language_of(path.name)
    timeout = arguments.get("timeout")
    security = SecurityContext(
        file_access=FileAccess(allow_write=_texts(arguments, "write")),
        network_access=NetworkAccess(allow_hosts=_texts(arguments, "host")),
    )
    fields = {
        "script_path": path.name,
        "language": language,
        "entry_point": arguments.get("entry_point"),
        "protocol": "text" if {arguments.get("entry_point"), arguments.get("json_input")} == {None} else "stdio",
        "input_data": _input(arguments.get("json_input")),
        "timeout_ms": _milliseconds(timeout),
        "files": _texts(arguments, "read"),
        "security_context": security,
    }
    return read_model(ScriptRequest, fields, "no script can be run so")


def _milliseconds(seconds: JsonValue) -> int | None:
    if seconds is None:
        return None
    number = float(str(seconds))
    if not 0.001 <= number < float("inf"):
        raise InvalidInput(f"--timeout must be a number of seconds above 0, found {number:g}")
    return round(number * 1000)


def _input(value: JsonValue) -> JsonValue:
    if value is None:
        return {}
    text = str(value)
    try:
        if text.startswith("@"):
            text = sys.stdin.read() if text == "@-" else Path(text[1:]).read_text("utf-8")
    except OSError as error:
        raise InvalidInput(f"{text[1:]} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{text[1:]} is not UTF-8 text (byte {error.start})") from None
    found: JsonValue = read_json(text, "--json-input")
    return found


def _texts(arguments: dict[str, JsonValue], name: str) -> list[str]:
    values = arguments.get(name)
    return [str(text) for text in values] if isinstance(values, list) else []


def _heading(report: BackendReport) -> str:
    state = "in force" if report.chosen else "usable" if report.usable else "not usable"
    return f"{report.name}: {state}" + (f" ({report.reason})" if report.reason else "")


def _line(event: ScriptEvent) -> str:
    if event.kind == "log":
        return event.text
    share = f"{event.progress:.0%} " if event.progress is not None else ""
    return f"{share}{event.text}".rstrip()


def _about(result: ScriptResult) -> list[str]:
    """Return lines for the author beside the result: its files, what was not granted, and the resources used."""
    lines = [f"file: {file.path} ({file.size:,} bytes)" for file in result.files]
    if result.enforced is not None:
        lines += [f"not granted: {text}" for text in result.enforced.denied]
        lines += [f"weaker sandbox: {text}" for text in result.enforced.weaker]
    usage = result.usage
    if usage is not None:
        parts = [f"{usage.wall_ms:,.0f} ms"]
        parts += [f"{usage.cpu_ms:,.0f} ms computing"] if usage.cpu_ms is not None else []
        parts += [f"{usage.peak_memory / 2**20:,.1f} MB"] if usage.peak_memory is not None else []
        lines.append("used: " + ", ".join(parts))
    return lines
