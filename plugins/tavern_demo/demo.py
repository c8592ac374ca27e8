"""`tavern demo`: the whole line of the host in a throw-away project, reported step by step."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tavern_agents.api.agents import AgentRequest
from tavern_host import AGENT_RUNTIME, EXECUTION_ENGINE, TOOL_MANAGER, CommandOutput, Folders, Host, PluginContext
from tavern_host.contracts.events import Event
from tavern_host.contracts.executions import Run, RunRequest

GUEST = Path(__file__).parent / "guest"
ACTION = """Let me greet somebody.

<|[REQUEST_TOOL]|>
command:「始」workflow:greeting「末」
name:「始」Grace「末」
<|[END_TOOL]|>"""


async def demo(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show plugins, a workflow, a tool call from text, an agent, and a plugin that is refused, then granted."""
    began = time.perf_counter()
    data: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="tavern-demo-") as folder:
        root = Path(folder)
        folders = Folders(config=root / "config", state=root / "state", data=root / "data")
        async with Host(root / "project", plugins=[GUEST], sample=True, folders=folders) as host:
            for part in (_show_plugins, _run_workflow, _call_tool, _run_agent, _review_guest):
                async for output in part(host, data):
                    yield output
    seconds = time.perf_counter() - began
    yield _text(f"\nThat was all, in {seconds:.1f} s; the project is gone again. Continue with `tavern serve`.")
    yield CommandOutput(kind="result", data={**data, "seconds": round(seconds, 2)})


async def _show_plugins(host: Host, data: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    yield _title("1. Everything is a plugin, first-party or not")
    plugins = host.plugins()
    rows = [
        [p.name, p.state.value, "yes" if p.first_party else "no", f"{p.timings.get('load', 0):.0f} ms"] for p in plugins
    ]
    yield CommandOutput(kind="table", columns=["plugin", "state", "first-party", "loaded in"], rows=rows)
    data["plugins"] = {p.name: p.state.value for p in plugins}


async def _run_workflow(host: Host, data: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    yield _title("2. A workflow runs, node by node")
    async for output in _greet(host, data, "workflow"):
        yield output


async def _call_tool(host: Host, data: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    yield _title("3. The same workflow is a tool, and text can call it")
    yield _text(_indented(ACTION))
    result = await host.services.get(TOOL_MANAGER).call_text(ACTION, call=host.call())
    for step in result.results:
        yield _text(f"  → {step.status}: {step.structured if step.error is None else step.error.message}")
    data["tool"] = [step.structured for step in result.results]


async def _run_agent(host: Host, data: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    yield _title("4. An agent (its model is a script) uses that tool in two steps")
    runtime = host.services.get(AGENT_RUNTIME)
    subscription = host.events.subscribe("AGENT_TRACE")
    request = AgentRequest(profile_id="assistant", message="Please greet Ada.")
    running = asyncio.create_task(runtime.run(request, call=host.call()))
    running.add_done_callback(lambda _: asyncio.ensure_future(subscription.close()))
    async for event in subscription:
        if isinstance(event, Event):
            step, kind, text = (event.payload[key] for key in ("step", "kind", "text"))
            yield _text(f"  [{step}] {kind}: {_indented(str(text), 6).strip()}")
    reply = await running
    data["agent"] = {"outcome": reply.outcome, "steps": reply.steps, "text": reply.text}


async def _review_guest(host: Host, data: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    yield _title("5. A third-party plugin wants to change every run; nothing happens until it is granted")
    before = host.plugin("cheerful-guest")
    yield _text(f"  {before.name} is {before.state.value}: {before.problems[0].message}")
    granted = await host.grant("cheerful-guest")
    yield _text(f"  granted; {granted.name} is {granted.state.value}")
    async for output in _greet(host, data, "granted"):
        yield output
    revoked = await host.revoke("cheerful-guest")
    yield _text(f"  taken back; {revoked.name} is {revoked.state.value}")
    async for output in _greet(host, data, "revoked"):
        yield output
    data["guest"] = [before.state.value, granted.state.value, revoked.state.value]


async def _greet(host: Host, data: dict[str, Any], key: str) -> AsyncIterator[CommandOutput]:
    """Run the sample workflow and show each node as it finishes."""
    engine = host.services.get(EXECUTION_ENGINE)
    subscription = host.events.subscribe("NODE_COMPLETE", "NODE_ERROR")
    request = RunRequest(workflow_id="greeting", inputs={"name": " Ada ", "greeting": "Hello"})
    running: asyncio.Task[Run] = asyncio.create_task(engine.run(request, call=host.call()))
    running.add_done_callback(lambda _: asyncio.ensure_future(subscription.close()))
    async for event in subscription:
        if isinstance(event, Event) and not str(event.payload["nodeId"]).startswith("__"):
            yield _text(f"  ✓ {event.payload['nodeId']:8} {event.payload.get('output', '')}")
    run = await running
    yield _text(f"  → {run.outputs.get('text')}")
    data[key] = run.outputs


def _title(text: str) -> CommandOutput:
    return _text(f"\n{text}")


def _text(text: str) -> CommandOutput:
    return CommandOutput(kind="text", text=text)


def _indented(text: str, by: int = 4) -> str:
    return "\n".join(" " * by + line for line in text.splitlines())
