"""`tavern agent list` and `tavern agent run`."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.command_line import Ran
from helpers.command_line import tavern as tavern_command
from helpers.repetition import Failures
from helpers.screen import on_screen
from helpers.tavern_project import Tavern, action


def command(project: Tavern, *arguments: str) -> Ran:
    return tavern_command("--project", project.root, *arguments)


def test_agents_are_listed_and_broken_profiles_told(tavern: Tavern) -> None:
    tavern.write("agents/broken.json", {"id": "broken"})
    listed = command(tavern, "agent", "list")
    assert listed.code == 0
    assert "keeper" in listed.out
    assert "agents/broken.json:1: $.name: is missing" in listed.err
    data: Any = command(tavern, "agent", "list", "--json").json()
    assert [agent["id"] for agent in data["agents"]] == ["keeper", "creation-assistant"]
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
        (
            ("keeper", "--message", "x", "--max-steps", "0"),
            "Error: --max-steps: Input should be greater than or equal to 1",
        ),
        (("keeper", "--message", "x", "--conversation", ""), "Error: --conversation: String should have at least 1"),
        (("keeper", "--message", " \n"), "Error: there is no message: give --message TEXT, or text on stdin"),
        (("keeper",), "--message"),
    ],
)
def test_the_users_mistakes_end_with_exit_code_2(tavern: Tavern, arguments: tuple[str, ...], part: str) -> None:
    done = command(tavern, "agent", "run", *arguments)
    assert done.code == 2
    assert part in done.err


def test_a_message_may_come_from_stdin(tavern: Tavern) -> None:
    tavern.replies(({"last_contains": "from afar"}, "I hear you."))
    done = tavern_command("--project", tavern.root, "agent", "run", "keeper", stdin="A voice from afar.\n")
    assert (done.code, done.out) == (0, "I hear you.\n")
    tavern.replies(({"last_contains": "far \ufffd\ufffd"}, "I hear noise."))
    done = tavern_command("--project", tavern.root, "agent", "run", "keeper", stdin="Thus far \udcff\udcfe\n")
    assert (done.code, done.out) == (0, "I hear noise.\n")


def test_runs_are_listed_traced_and_resumed(tavern: Tavern) -> None:
    tavern.replies(({"last_contains": "executed successfully"}, "They heard."), ({}, action("shout", text="ale")))
    command(tavern, "agent", "run", "keeper", "--message", "Shout ale.", "--conversation", "c1")
    (run,) = command(tavern, "agent", "runs", "--json").json()
    assert (run["profileId"], run["conversationId"], run["status"]) == ("keeper", "c1", "reply")
    traced = command(tavern, "agent", "trace", run["id"])
    assert "[1] tool_call: Calls shout" in traced.out
    assert traced.out.splitlines()[-1].startswith("reply: 2 steps, 1 calls")
    data = command(tavern, "agent", "trace", run["id"], "--json").json()
    assert [step["seq"] for step in data["trace"]] == list(range(1, len(data["trace"]) + 1))
    listed = command(tavern, "agent", "runs", "--limit", "0")
    assert (listed.code, listed.error) == (2, "Error: --limit: Input should be greater than or equal to 1")
    assert "has ended with a reply" in command(tavern, "agent", "resume", run["id"]).error
    assert "there is no run 'agent_0'" in command(tavern, "agent", "interrupt", "agent_0").error

    tavern.replies(({}, "Better now."))
    tavern.write("replies.json", [{"when": {"contains": "zebra"}, "reply": "x"}])
    failed = command(tavern, "agent", "run", "keeper", "--message", "Hello.", "--json").json()
    assert failed["outcome"] == "error"
    tavern.replies(({}, "Better now."))
    resumed = command(tavern, "agent", "resume", failed["agentRunId"])
    assert (resumed.code, resumed.out) == (0, "Better now.\n")


def test_agents_are_checked(tavern: Tavern) -> None:
    assert command(tavern, "agent", "check").out == "All agents are right.\n"
    tavern.profile(
        tool_ids_inventory=["shuot", "hu*"],
        core_deliberation_workflow_id="thunk",
        discription="Nobody reads it.",
        skill_workflow_ids_inventory=["workflows/think.json"],
        observation_workflow_id="workflows/thonk.json",
        knowledge_base_references=[{"source_id": "host:tools"}, {"source_id": "lore"}],
    )
    checked = command(tavern, "agent", "check")
    assert checked.code == 1
    file = "agents/keeper.json:1"
    assert checked.out.splitlines() == [
        f"error: {file}: $.core_deliberation_workflow_id: there is no workflow 'thunk' (did you mean think?)",
        f"warning: {file}: $.observation_workflow_id: there is no workflow 'thonk' (did you mean think?)",
        f"warning: {file}: $.knowledge_base_references[1].source_id: there is no knowledge base 'lore'",
        f"warning: {file}: $.tool_ids_inventory[0]: there is no tool 'shuot' (did you mean shout?)",
        f"warning: {file}: $.discription: is not a field of a profile and is left unread (did you mean description?)",
    ]
    assert command(tavern, "agent", "schema").json() == command(tavern, "agent", "schema", "--json").json()
    (problem, *_) = command(tavern, "agent", "check", "--profile", "keeper", "--json").json()
    assert (problem["level"], problem["path"]) == ("error", "$.core_deliberation_workflow_id")
    assert "did you mean keeper?" in command(tavern, "agent", "check", "--profile", "keper").error


def test_a_person_talks_to_an_agent_and_approves(tavern: Tavern) -> None:
    mark = {"type": "node", "nodeType": "core:UpperCase"}
    tavern.write("tools/shout.tool.json", {"id": "shout", "implementation": mark, "requiresApproval": True})
    tavern.replies(
        ({"last_contains": "ApprovalRefused"}, "Then not."),
        ({"last_contains": "WINE"}, "Wine it is."),
        ({"last_contains": "please"}, action("shout", text="ale")),
        ({"contains": "please"}, "We talked before."),
    )
    typed = 'Shout please\nn\nOnce more, please\ne\n{"text": "wine"}\nBye\n\n'
    code, screen, _ = on_screen("--project", tavern.root, "agent", "run", "keeper", typed=typed, columns=200)
    assert code == 0, screen.text
    for part in (
        'keeper wants to call shout {"text": "ale"}',
        "Then not.",
        "Wine it is.",
        "We talked before.",
        "To continue this conversation: tavern agent run keeper --conversation agent_",
    ):
        assert part in screen.text, screen.text


def test_a_conversation_is_branched_by_commands(tavern: Tavern) -> None:
    tavern.replies(
        ({"last_contains": "executed successfully"}, "Shouted."),
        ({"last_contains": "Wine?"}, "Wine."),
        ({}, action("shout", text="ale")),
    )
    command(tavern, "agent", "run", "keeper", "--message", "Ale?", "--conversation", "c1")
    first, *_, reply = command(tavern, "history", "show", "c1", "--json").json()
    assert command(tavern, "history", "show", "c1", "--last", "1").out == f"{reply['id']} assistant: Shouted.\n"
    edited = command(tavern, "history", "edit", "c1", first["id"], "--text", "Wine?")
    assert (edited.code, edited.out.split(" ", 1)[1]) == (0, "user: Wine?\n")
    assert "say by --profile" in command(tavern, "history", "swipe", "c1").error
    assert command(tavern, "history", "swipe", "c1", "--profile", "keeper").out == "Wine.\n"
    tavern.replies(({}, "Red wine."))
    assert command(tavern, "history", "swipe", "c1").out == "Red wine.\n"
    command(tavern, "history", "branch", "c1", "old", "--message", reply["id"])
    lines = command(tavern, "history", "tree", "c1").out.splitlines()
    assert [line.split(maxsplit=2 if line.startswith("*") else 1)[-1] for line in lines] == [
        "user: Ale?",
        "assistant: <|[REQUEST_TOOL]|> command:「始」shout「末」 text:「始」ale「末」 <|[EN…",
        "user: <OBSERVATION> <tool_id>shout</tool_id> Tool shout executed …",
        "assistant: Shouted.  <- old",
        "user: Wine?",
        "assistant: Wine.",
        "assistant: Red wine.  <- main",
    ]
    assert [line[0] for line in lines] == [" ", " ", " ", " ", "*", " ", "*"]
    assert [len(line) - len(line[1:].lstrip()) for line in lines] == [2, 2, 2, 2, 2, 4, 4]
    switched = command(tavern, "history", "switch", "c1", "old", "--json").json()
    assert switched["active"] == "old"
    assert command(tavern, "history", "show", "c1", "--last", "1").out.endswith("Shouted.\n")
    assert command(tavern, "history", "switch", "c1", "--message", first["id"], "--exactly").code == 0
    assert "Ale?" in command(tavern, "history", "show", "c1", "--last", "1").out
    command(tavern, "agent", "run", "keeper", "--message", "Again?", "--conversation", "c1", "--branch", "main")
    assert "Again?" in command(tavern, "history", "show", "c1", "--branch", "main").out
    given = ("--state", '{"mood": "dry"}', "--goals", '[{"id": "rest", "priority": 0.9}]', "--note", "Long day.")
    remembered = command(tavern, "agent", "memory", "keeper", "c1", *given)
    for part in ('"mood": "dry"', "rest", "0.9", "Long day."):
        assert part in remembered.out
    assert command(tavern, "agent", "memory", "keeper", "c1", "--json").json()["state"] == {"mood": "dry"}
    for at, kept in ((("--branch", "main"), {}), (("--leaf", first["id"]), {"mood": "dry"})):
        assert command(tavern, "agent", "memory", "keeper", "c1", *at, "--json").json()["state"] == kept
    assert "--state" in command(tavern, "agent", "memory", "keeper", "c1", "--state", "{").error
    file = tavern.root / "c1.json"
    assert command(tavern, "history", "export", "c1", "--output", str(file)).code == 0
    assert command(tavern, "history", "import", str(file), "--id", "c2").code == 0
    assert command(tavern, "history", "branch", "c2", "main", "--copy", "c3", "--json").json()["messages"] == 4
    assert command(tavern, "history", "branch", "c2", "main", "--rename", "wine").code == 0
    assert [b["name"] for b in command(tavern, "history", "branch", "c2", "--json").json()["branches"]] == [
        "wine",
        "old",
    ]
    assert command(tavern, "history", "branch", "c2", "wine", "--delete").code == 0
    assert command(tavern, "history", "delete", "c1").out == "Deleted the conversation c1\n"
    assert {one["id"] for one in command(tavern, "history", "list", "--json").json()} == {"c2", "c3"}
    rows = [
        (("show", "c1"), "there is no conversation 'c1'; `tavern history list` lists them"),
        (("switch", "c2"), "give a branch, or --message"),
        (("branch", "c2", "old", "--delete"), "activate another"),
        (("branch", "c2", "--delete"), "the name of the branch is missing"),
        (("branch", "c2", "old", "--delete", "--rename", "x"), "give one of"),
        (("import", str(file), "--id", "c3"), "import it under another id"),
        (("import", str(tavern.root / "tavern.yaml")), "$.branches: Field required"),
        (("edit", "c2", "msg_0", "--text", "x"), "has no message 'msg_0'"),
    ]
    with Failures() as failures:
        for arguments, part in rows:
            with failures.row(arguments):
                done = command(tavern, "history", *arguments)
                assert (done.code != 0, part in done.error) == (True, True), done
