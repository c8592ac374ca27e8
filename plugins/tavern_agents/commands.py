"""The commands `tavern agent list | check | runs | show | trace | interrupt`; talking to an agent is in `chat.py`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tavern_agents import State
from tavern_agents.api.agents import AgentRunFilter, AgentTrace
from tavern_agents.api.memory import MemoryChange
from tavern_agents.profile_checks import profile_schema
from tavern_agents.profiles import said
from tavern_host import AGENT_RUNTIME, CommandOutput, PluginContext
from tavern_host.contracts.documents import ModelT, read_json, read_model
from tavern_host.contracts.errors import InvalidInput, describe


async def list_agents(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show the agents as a table, and what is wrong with files that hold none."""
    agents = await context.services.get(AGENT_RUNTIME).list_agents()
    problems = (await context.own(State).profiles.now()).problems
    rows = [[a.id, a.name, ", ".join(a.tools), a.description] for a in agents]
    yield CommandOutput(kind="table", columns=["id", "name", "tools", "description"], rows=rows)
    for problem in problems:
        yield CommandOutput(kind="progress", text=problem)
    data: dict[str, Any] = {"agents": [agent.to_json() for agent in agents], "problems": problems}
    yield CommandOutput(kind="result", data=data)


async def check_agents(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show what is wrong with the profiles; exit code 1 for an error."""
    found = await context.services.get(AGENT_RUNTIME).check(arguments["profile"])
    for problem in found:
        yield CommandOutput(kind="message", text=f"{problem.level}: {said(problem)}")
    if not found:
        yield CommandOutput(kind="message", text="All agents are right.")
    yield CommandOutput(kind="result", data=[problem.to_json() for problem in found])
    errors = sum(problem.level == "error" for problem in found)
    if errors:
        yield CommandOutput(kind="failure", text=f"{errors} error{'s' * (errors > 1)} in profiles")


async def show_schema(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Print the JSON Schema of profiles."""
    schema = profile_schema()
    yield CommandOutput(kind="text", text=json.dumps(schema, indent=2))
    yield CommandOutput(kind="result", data=schema)


async def show_memory(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show what an agent remembers, after a change if one is given."""
    runtime, profile, history = context.services.get(AGENT_RUNTIME), arguments["profile"], arguments["conversation"]
    branch, leaf = arguments["branch"], arguments["leaf"]
    change = {key: read_json(text, f"--{key}") for key in ("state", "goals") if (text := arguments[key]) is not None}
    change |= {"note": arguments["note"]} if arguments["note"] is not None else {}
    if change:
        if leaf is not None:
            raise InvalidInput("what an agent remembered at a message cannot be changed; leave --leaf out")
        await runtime.change_memory(profile, history, read_flags(MemoryChange, change), branch=branch)
    memory = await runtime.memory(profile, history, branch=branch, leaf=leaf)
    yield CommandOutput(kind="text", text=json.dumps(memory.state, ensure_ascii=False, indent=2))
    rows = [[goal.id, goal.status, f"{goal.priority:g}", goal.description or goal.base or ""] for goal in memory.goals]
    yield CommandOutput(kind="table", columns=["goal", "status", "priority", "description"], rows=rows)
    for note in memory.notes:
        yield CommandOutput(kind="text", text=f"{note.at:%Y-%m-%d %H:%M:%S} {note.by}: {note.text}")
    yield CommandOutput(kind="result", data=memory.to_json())


async def list_runs(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show runs, newest first."""
    asked = read_flags(AgentRunFilter, {"profile_id": arguments["profile"], "limit": arguments["limit"]})
    runs = await context.services.get(AGENT_RUNTIME).runs(asked)
    rows = [
        [run.id, run.profile_id, run.status.value, f"{run.started_at:%Y-%m-%d %H:%M:%S}", str(run.usage.steps)]
        for run in runs
    ]
    yield CommandOutput(kind="table", columns=["run", "agent", "status", "began (UTC)", "steps"], rows=rows)
    yield CommandOutput(kind="result", data=[run.to_json() for run in runs])


async def show_trace(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show what a run did, step by step."""
    runtime, run_id = context.services.get(AGENT_RUNTIME), arguments["run"]
    run, steps = await runtime.get_run(run_id), await runtime.trace(run_id)
    for step in steps:
        yield CommandOutput(kind="text", text=f"{step.at:9.3f} s  {trace_line(step)}")
    usage = run.usage
    tokens = f"{usage.prompt_tokens} + {usage.completion_tokens} tokens"
    cost = f", costs {usage.cost:.4f}" if usage.cost else ""
    yield CommandOutput(
        kind="message", text=f"{run.status.value}: {usage.steps} steps, {usage.calls} calls, {tokens}{cost}"
    )
    yield CommandOutput(kind="result", data={"run": run.to_json(), "trace": [step.to_json() for step in steps]})


async def interrupt_run(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Stop a run."""
    run = await context.services.get(AGENT_RUNTIME).interrupt(arguments["run"])
    yield CommandOutput(kind="message", text=f"{run.id}: {run.status.value}")
    yield CommandOutput(kind="result", data=run.to_json())


def read_flags(model: type[ModelT], arguments: dict[str, Any]) -> ModelT:
    """Return the arguments of a command as a model. Raises `InvalidInput` that names the flags."""
    try:
        return read_model(model, arguments, "")
    except InvalidInput as error:
        flags = {"$.limits.steps": "--max-steps", "$.conversation_id": "--conversation", "$.": "--"}
        text = error.message.removeprefix(": ")
        for path, flag in flags.items():
            text = text.replace(path, flag)
        raise InvalidInput(text) from None


async def read_file(model: type[ModelT], file: str | Path) -> ModelT:
    """Return the content of a JSON file as a model. Raises `InvalidInput`."""
    try:
        content = await asyncio.to_thread(Path(file).read_bytes)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {describe(error)}") from None
    return read_model(model, read_json(content, str(file)), str(file))


def trace_line(step: AgentTrace) -> str:
    """Return a step as one line."""
    return f"[{step.step}] {step.kind}: {step.text}"
