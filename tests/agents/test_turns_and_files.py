"""A turn looks at no folder, and each file that is changed by hand counts from the next turn on."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.stub_llm import Model, said, written
from helpers.systems import on_linux
from helpers.tavern_project import Tavern

from tests.agents.agent_bench import AgentBench, agent, thinking, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOKED_AT: list[str] = []


def prepare(project: Tavern) -> None:
    project.write("agents/keeper.json", agent("keeper", "shout"))
    project.write("tools/shout.tool.json", tool("shout", description="Makes it loud."))


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "os.scandir":
        LOOKED_AT.append(str(arguments[0]))


def _told(model: Model) -> str:
    return model.asked[0].messages[0].content


async def test_each_changed_file_counts_at_the_next_turn(bench: AgentBench) -> None:
    files: list[tuple[str, Any, str]] = [
        # a file, what is written into it, what the model is told then
        ("tools/shout.tool.json", tool("shout", description="Whispers."), "Whispers."),
        ("workflows/think.json", thinking("You keep the inn.\n{{{system:available_tools}}}"), "You keep the inn."),
        ("agents/keeper.json", agent("keeper", "workflow:hush"), "Hushes it."),
        ("workflows/hush.json", {**thinking(), "name": "Hush", "description": "Hushes it."}, "Hushes it."),
    ]
    for file, content, told in files:
        path = bench.project.root / file
        before = path.stat() if path.exists() else None
        bench.project.write(file, content)
        if before is not None:  # within a moment, so that its time is the same
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        model = bench.answers(said("Done."))
        assert (await bench.run()).outcome == "reply"
        if path.name != "keeper.json":  # whose tool is there with the next file
            assert told in _told(model)
    (bench.project.root / "agents" / "keeper.json").unlink()
    with pytest.raises(Exception, match="there is no agent 'keeper'"):
        await bench.run()
    prepare(bench.project)


@on_linux
async def test_a_turn_with_a_call_looks_at_no_folder(bench: AgentBench) -> None:
    sys.addaudithook(_look)  # there is no way to take it away
    for _ in range(3):
        bench.answers(written("tam", ("shout", {"text": "ale"})), said("Done."))
        LOOKED_AT.clear()
        reply = await bench.run()
        assert [result.status for result in reply.tool_results] == ["done"]
    assert [path for path in LOOKED_AT if Path(path).is_relative_to(bench.project.root)] == []
