"""Recordings in the terminal, over HTTP, in other projects' tests, and after a host that ended in the middle."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from helpers.command_line import FEW_PLUGINS, Ran
from helpers.command_line import tavern as tavern_command
from helpers.stub_llm import said
from helpers.tavern_project import Tavern, action, deliberation
from helpers.waiting import until

from tavern_agents.api.recordings import ReplayOptions
from tests.agents.agent_bench import agent_bench

pytest_plugins = ["pytester"]


def command(project: Tavern, *arguments: str | Path) -> Ran:
    return tavern_command("--project", project.root, *arguments)


def as_tests(file: Path, tavern: Tavern, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests of a project replay a recording, and once more with another model."""
    tavern.replies(({}, "They did not."))
    pytester.makeconftest('pytest_plugins = ["tavern_agents.testing"]')
    pytester.makepyfile(
        test_keeper=f"""
        import pytest

        pytestmark = pytest.mark.asyncio

        async def test_keeper(agent_replay):
            assert (await agent_replay({str(file)!r})).text == "They heard."

        async def test_other(agent_replay):
            await agent_replay({str(file)!r}, model="m")
        """
    )
    for variable, value in FEW_PLUGINS.items():
        monkeypatch.setenv(variable, value)
    ran = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(["*Deliberation 1 differs (call) at calls*"])


def test_runs_are_replayed_exported_and_tested(
    tavern: Tavern, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    tavern.replies(
        ({"last_contains": "executed successfully"}, "They heard."), ({}, f"I shall.\n{action('shout', text='ale')}")
    )
    assert command(tavern, "agent", "run", "keeper", "--message", "Shout ale.").code == 0
    [run] = command(tavern, "agent", "runs", "--json").json()

    same = command(tavern, "agent", "replay", run["id"])
    assert (same.code, same.out) == (0, "The same (deliberations: 2, calls: 1, ended: reply).\n")
    file = tavern.root / "recordings" / "ale.json"
    assert command(tavern, "agent", "test").code == 2
    assert command(tavern, "agent", "replay", run["id"], "--export", file).out == f"Wrote the recording to {file}\n"
    assert command(tavern, "agent", "test").out == "passed  ale.json\n1 passed, 0 failed\n"
    assert command(tavern, "agent", "replay", file, "--json").json().get("difference") is None
    as_tests(file, tavern, pytester, monkeypatch)

    tavern.write("workflows/think.json", deliberation("You keep the door."))
    for words in (("replay", run["id"]), ("replay", file), ("test", file)):
        differs = command(tavern, "agent", *words)
        assert differs.code == 1
        assert "Deliberation 1 differs (prompt) at prompts[1][0].system_prompt:" in differs.out
        assert 'now:      "You keep the door."' in differs.out
    found = command(tavern, "agent", "test", "--json")
    assert (found.code, found.json()[0]["difference"]["kind"]) == (1, "prompt")

    tavern.replies(({}, "They heard."))
    other = command(tavern, "agent", "replay", run["id"], "--model", "m")
    assert "differs (call) at calls[0]" in other.out
    assert "now:      nothing" in other.out
    file.write_text("{}")
    for words, why in (
        (("replay", "agent_none"), "there is no run 'agent_none'"),
        (("replay", run["id"], "--model", "none"), "there is no language model 'none'"),
        (("replay", run["id"], "--tools", "some"), "tools"),
        (("test", file), "$.runId"),
        (("replay", tavern.root / "no.json"), "cannot be read"),
    ):
        refused = command(tavern, "agent", *words)
        assert refused.code != 0, words
        assert why in refused.out + refused.error, words


async def test_what_a_stopped_host_replayed_is_forgotten(tmp_path: Path) -> None:
    async with agent_bench(tmp_path) as bench:
        bench.answers(said("Good day."))
        reply = await bench.run("Hello.", conversation_id="kept")
        recording = await bench.runtime.recording(reply.agent_run_id)
        model = bench.answers(said("Late."))
        model.gate = asyncio.Event()
        playing = asyncio.create_task(bench.runtime.replay(recording, ReplayOptions(model="m")))
        await until(lambda: model.asked)
    await asyncio.wait([playing])
    assert playing.exception() is not None or playing.cancelled()
    async with agent_bench(tmp_path, serving=True) as bench:

        async def is_alone() -> bool:
            return [run.id for run in await bench.runtime.runs()] == [reply.agent_run_id]

        await until(is_alone)
        assert [one.id for one in await bench.histories.list_histories()] == ["kept"]
