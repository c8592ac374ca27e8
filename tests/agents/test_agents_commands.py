"""`tavern agent list` and `tavern agent run`."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.command_line import Ran
from helpers.command_line import tavern as tavern_command
from helpers.tavern_project import Tavern, action


def command(project: Tavern, *arguments: str) -> Ran:
    return tavern_command("--project", project.root, *arguments)


def test_agents_are_listed_and_broken_profiles_told(tavern: Tavern) -> None:
    tavern.write("agents/broken.json", {"id": "broken"})
    listed = command(tavern, "agent", "list")
    assert listed.code == 0
    assert "keeper" in listed.out
    assert "agents/broken.json: $.name: is missing" in listed.err
    data: Any = command(tavern, "agent", "list", "--json").json()
    assert [agent["id"] for agent in data["agents"]] == ["keeper"]
    assert len(data["problems"]) == 4


def test_the_work_is_shown_on_stderr_and_the_reply_on_stdout(tavern: Tavern) -> None:
    tavern.replies(
        ({"last_contains": "executed successfully"}, "They heard."), ({}, f"I shall.\n{action('shout', text='ale')}")
    )
    done = command(tavern, "agent", "run", "keeper", "--message", "Shout ale.")
    assert (done.code, done.out) == (0, "They heard.\n")
    lines = done.err.splitlines()
    assert lines[:4] == [
        "[0] started: The keeper begins",
        "[1] thinking: Step 1: thinking",
        "[1] thought: I shall.",
        "[1] tool_call: Calls shout",
    ]
    assert lines[4].startswith("[1] observation: Tool shout executed successfully. Output: ")
    assert lines[5:] == ["[2] thinking: Step 2: thinking"]


def test_without_a_final_reply_the_command_fails(tavern: Tavern) -> None:
    tavern.replies(({}, action("shout", text="a")))
    done = command(tavern, "agent", "run", "keeper", "--message", "Go.", "--max-steps", "2")
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[-1] == "Error: agent keeper: no final reply within 2 steps"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("keper", "--message", "x"), "there is no agent 'keper' (did you mean keeper?)"),
        (("keeper", "--message", "x", "--max-steps", "0"), "limits.steps: Input should be greater than or equal to 1"),
        (("keeper",), "--message"),
    ],
)
def test_the_users_mistakes_end_with_exit_code_2(tavern: Tavern, arguments: tuple[str, ...], part: str) -> None:
    done = command(tavern, "agent", "run", *arguments)
    assert done.code == 2
    assert part in done.err
