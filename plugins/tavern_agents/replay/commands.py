"""The commands `tavern agent replay` and `tavern agent test`, and how a difference is shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from tavern_agents.api.recordings import AgentRecording, AgentReplay, ReplayOptions
from tavern_agents.commands import read_file
from tavern_host import AGENT_RUNTIME, CommandOutput, PluginContext
from tavern_host.contracts.documents import read_model
from tavern_host.contracts.errors import InvalidInput, describe

FOLDER = "recordings"


async def replay(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Play a run again, or a file, and show the first difference; with `--export` write it to a file."""
    runtime, run, file = context.services.get(AGENT_RUNTIME), arguments["run"], arguments["export"]
    recording = await read_file(AgentRecording, run) if run.endswith(".json") else await runtime.recording(run)
    if file is not None:
        path = Path(file)
        try:
            await asyncio.to_thread(_write, path, recording)
        except OSError as error:
            raise InvalidInput(f"{path} cannot be written: {describe(error)}") from None
        yield CommandOutput(kind="message", text=f"Wrote the recording to {path}")
        yield CommandOutput(kind="result", data={"file": str(path), "deliberations": len(recording.deliberations)})
        return
    played = await runtime.replay(recording, _options(arguments))
    for line in told(played):
        yield CommandOutput(kind="text", text=line)
    yield CommandOutput(kind="result", data=played.to_json())
    if played.difference is not None:
        yield CommandOutput(kind="failure", text="the replay differs from the recording")


async def test(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Play recordings as tests: a line for each, and what differs."""
    root = context.project.root / FOLDER
    files = [Path(file) for file in arguments["files"]] or sorted(root.glob("*.json"))
    if not files:
        raise InvalidInput(f"there are no recordings in {root}; `tavern agent replay RUN --export FILE` writes one")
    results, failed = list[JsonValue](), 0
    for file in files:
        recording = await read_file(AgentRecording, file)
        played = await context.services.get(AGENT_RUNTIME).replay(recording, _options(arguments))
        failed += played.difference is not None
        results.append({"file": str(file), **played.to_json()})
        yield CommandOutput(kind="message", text=f"{'FAILED' if played.difference else 'passed'}  {file.name}")
        for line in told(played) if played.difference else ():
            yield CommandOutput(kind="text", text=f"  {line}")
    yield CommandOutput(kind="message", text=f"{len(files) - failed} passed, {failed} failed")
    yield CommandOutput(kind="result", data=results)
    if failed:
        yield CommandOutput(kind="failure", text=f"{failed} of {len(files)} recordings differ")


def told(played: AgentReplay) -> list[str]:
    """Return the outcome of a replay as lines of text."""
    if played.difference is None:
        return [f"The same (deliberations: {played.deliberations}, calls: {played.calls}, ended: {played.status})."]
    one = played.difference
    return [
        f"Deliberation {one.deliberation} differs ({one.kind}) at {one.path}:",
        f"  recorded: {_shown(one.expected)}",
        f"  now:      {_shown(one.found)}",
    ]


def _shown(value: JsonValue) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def _options(arguments: dict[str, Any]) -> ReplayOptions:
    names = {"model": "model", "profile": "profile_id", "tools": "tools"}
    options = {key: arguments[name] for name, key in names.items() if arguments[name] is not None}
    return read_model(ReplayOptions, options, "the options")


def _write(path: Path, recording: AgentRecording) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(recording.to_json(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
