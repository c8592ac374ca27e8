"""The pytest fixture `agent_replay`, for the tests of a project: `pytest_plugins = ["tavern_agents.testing"]`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tavern_agents.api.recordings import AgentRecording, AgentReplay, ReplayOptions
from tavern_agents.commands import read_file
from tavern_agents.replay.commands import told
from tavern_host import AGENT_RUNTIME, Host

Replayed = Callable[..., Awaitable[AgentReplay]]


@pytest.fixture
def agent_replay() -> Replayed:
    """Return an async function that plays the recording in a file with the agents of the project in which it is, and
    fails the test at the first difference. Its keywords are the fields of `ReplayOptions`."""

    async def play(file: Path | str, **options: str) -> AgentReplay:
        recording = await read_file(AgentRecording, file)
        async with Host(project=_project_of(file), create=False) as host:
            played = await host.services.get(AGENT_RUNTIME).replay(recording, ReplayOptions.model_validate(options))
        assert played.difference is None, "\n".join(told(played))
        return played

    return play


def _project_of(file: Path | str) -> Path:
    folders = Path(file).absolute().parents
    return next((folder for folder in folders if (folder / "tavern.yaml").is_file()), folders[0])
