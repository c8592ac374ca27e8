"""How many files of the project a call, a run and an agent's turn go through, and how often each goes back to one that
it had left. It counts, and measures no time; `-rP` shows the walks."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import pytest_asyncio
from helpers.systems import on_linux
from helpers.tavern_project import Tavern
from helpers.workflow_documents import function

import tavern_host
from tavern_agents.api.agents import AgentRequest
from tavern_host import AGENT_RUNTIME, EXECUTION_ENGINE, Host
from tavern_host.contracts.executions import RunRequest
from tavern_host.testing.http import HttpClient, served

ROOT = Path(tavern_host.__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PRODUCT = tuple(f"{ROOT / part}/" for part in ("tavern_host", "plugins"))
OURS = f"{ROOT / 'tavern_host' / 'testing'}/"
"""The client is no part of a walk."""
MOST = {"tool call": (43, 46), "run": (64, 248), "agent's turn": (141, 1470)}
"""The files and the returns of each walk at most."""
CLOCK = "system:get_current_time"
"""A tool that does next to nothing."""
RUN = function(
    "Two",
    {"up": "core:UpperCase", "low": "core:LowerCase"},
    *("in.text > up.text", "up.text > low.text", "low.text > out.text"),
    takes={"text": "STRING"},
    gives={"text": "STRING"},
)


class Walk:
    """The files in the order in which each was first entered, and how often one was entered that had been left."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.returns = 0
        self._at = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Take note of a call."""
        file = frame.f_code.co_filename
        if event != "call" or file == self._at or not file.startswith(PRODUCT) or file.startswith(OURS):
            return
        self.returns += file in self.files
        self.files[file] = None
        self._at = file

    @property
    def names(self) -> list[str]:
        """The files as the documentation writes them."""
        return [file.removeprefix(f"{ROOT}/").removesuffix(".py") for file in self.files]


def listed(names: Iterable[str]) -> str:
    """Return files by folder, each folder where the first of its files was entered."""
    folders: dict[str, list[str]] = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        folders.setdefault(folder, []).append(file)
    return "".join(f"{folder}: {', '.join(files)}\n" for folder, files in folders.items())


@contextmanager
def walking() -> Iterator[Walk]:
    """Note what the thread of the loop calls within the block."""
    walk, before = Walk(), sys.getprofile()
    sys.setprofile(walk)
    try:
        yield walk
    finally:
        sys.setprofile(before)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    """Serve a project with a workflow of two nodes, a tool that is a node, and an agent that calls it."""
    project = Tavern(tmp_path_factory.mktemp("walks") / "project")
    project.write("workflows/two.json", RUN)
    project.profile(tool_ids_inventory=[CLOCK])
    project.replies(
        ({"last_contains": "T"}, "Done."),
        ({}, "<|[REQUEST_TOOL]|>\ncommand:「始」system:get_current_time「末」\n<|[END_TOOL]|>"),
    )
    async with Host(project.root) as host, served(host) as opened:
        yield opened


async def walks(walk: Callable[[], Awaitable[Any]]) -> list[Walk]:
    """Return several walks, the shortest first, once all that is done once has been done."""
    for _ in range(2):
        await walk()
    found = []
    for _ in range(5):
        with walking() as noted:
            await walk()
        found.append(noted)
    return sorted(found, key=lambda one: (len(one.files), one.returns))


def of_the_page(name: str) -> set[str]:
    """Return the files that the page lists for a walk."""
    block = PAGE.partition(f"<!-- walk: {name} -->\n")[2]
    if not block.startswith("```"):  # a step for each file
        return {file.removesuffix(".py") for file in re.findall(r"^\d+\. `([^`]+)`", block.partition("\n## ")[0], re.M)}
    block = block.removeprefix("```text\n").partition("```")[0]
    parts = (line.partition(": ") for line in block.splitlines())
    return {f"{folder}/{file}" for folder, _, files in parts for file in files.split(", ")}


@on_linux
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", MOST)
async def test_a_walk_is_short(site: HttpClient, name: str) -> None:
    async def tool_call() -> None:
        answer = await site.post("/api/tools/execute", json={"toolId": CLOCK, "arguments": {}})
        assert (await answer.json())["results"][0]["status"] == "done", await answer.text()

    async def run() -> None:
        engine = site.host.services.get(EXECUTION_ENGINE)
        done = await engine.run(RunRequest(workflow_id="two", inputs={"text": "Hello"}, use_cache=False))
        assert done.outputs == {"text": "hello"}

    async def turn() -> None:
        reply = await site.host.services.get(AGENT_RUNTIME).run(AgentRequest(profile_id="keeper", message="Go."))
        assert reply.text == "Done.", reply

    found = await walks({"tool call": tool_call, "run": run, "agent's turn": turn}[name])
    files, returns = MOST[name]
    page = listed(found[0].names)
    print(f"{name}: {len(found[0].files)} files, {found[0].returns} returns\n{page}")
    assert len(found[0].files) <= files
    assert found[0].returns <= returns
    every, some = set(found[0].names), {name for walk in found for name in walk.names}
    assert of_the_page(name) <= some, f"docs/architecture.md is to say:\n{page}"
    assert len(every - of_the_page(name)) <= 2, f"docs/architecture.md is to say:\n{page}"
