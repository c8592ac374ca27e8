"""A plugin for tests that keeps tasks of one tool, whose arguments say what a call does."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from typing import Any

from tavern_host import PluginContext, hookimpl
from tavern_host.audit.log import PluginAudit
from tavern_host.contracts.calls import CallContext, Principal, system_call
from tavern_host.contracts.errors import InvalidInput
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult, ToolScope
from tavern_tools.tasks.progress import Progress
from tavern_tools.tasks.tasks import Tasks

TASKS: list[Tasks] = []
CONTEXTS: list[PluginContext] = []


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    CONTEXTS.append(context)
    own: Any = context.audit  # records what others do through these tasks, as that of a first-party plugin does
    audit = PluginAudit(own._log, own._in_flight, lambda: True, lambda call, _: call or system_call())
    TASKS.append(Tasks(replace(context, audit=audit), Calls()))
    await TASKS[-1].adopt_tasks()


@hookimpl
async def tavern_shutdown(context: PluginContext) -> None:
    await TASKS[-1].close()


class Calls:
    """Makes the calls of tasks."""

    async def may_decide(self, principal: Principal, tool_id: str, arguments: object = None) -> bool:
        """Users may, and the agent that was given the right."""
        return principal.kind == "user" or principal.id == "judge"

    async def bind(self, tool_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Know the arguments by name."""
        for name in arguments:
            if name not in ("seconds", "log", "gives", "fails", "stubborn", "steps", "apiKey", "size", "name", "until"):
                raise InvalidInput(f"{tool_id} has no parameter {name}")
        return arguments

    async def make_of_task(
        self, request: ToolCallRequest, call: CallContext, scope: ToolScope | None, progress: Progress
    ) -> ToolResult:
        """Do what the arguments say; each beginning and end becomes a line of the file `log`."""
        arguments: dict[str, Any] = dict(request.arguments)
        while "hold" in arguments and not os.path.exists(arguments["hold"]):  # noqa: PTH110
            await asyncio.sleep(0.01)
        await progress.begin()
        note(arguments, "began")
        for step in range(arguments.get("steps", 0)):
            progress.report((step + 1) / arguments["steps"], f"step {step + 1}")
            await asyncio.sleep(0.05)
        if "says" in arguments:
            progress.report(arguments.get("share"), arguments["says"])
        try:
            await asyncio.sleep(arguments.get("seconds", 0))
            while "until" in arguments and not os.path.exists(arguments["until"]):  # noqa: PTH110
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            note(arguments, "was cancelled")
            if not arguments.get("stubborn"):
                raise
            await asyncio.sleep(arguments["stubborn"])
        if arguments.get("fails"):
            raise RuntimeError(arguments["fails"])
        note(arguments, "ended")
        gives = "x" * arguments["size"] if "size" in arguments else arguments.get("gives", "done")
        return ToolResult(tool_id=request.tool_id, status="done", structured=gives)


def note(arguments: dict[str, Any], what: str) -> None:
    """Write a line that survives the end of the process."""
    if "log" in arguments:
        file = os.open(arguments["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(file, (json.dumps([arguments.get("name", ""), what, arguments.get("apiKey")]) + "\n").encode())
        os.close(file)
