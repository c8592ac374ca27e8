"""`tavern agent …` and `tavern history …`."""

from __future__ import annotations

from typing import Any

from helpers.command_line import Ran
from helpers.command_line import tavern as tavern_command
from helpers.repetition import Failures
from helpers.tavern_project import Tavern, action

SHOUTED = {"last_contains": "executed successfully"}


def command(project: Tavern, *arguments: str, stdin: str = "") -> Ran:
    return tavern_command("--project", project.root, *arguments, stdin=stdin)


def fail(project: Tavern, group: str, *rows: tuple[tuple[str, ...], int, str]) -> None:
    """Run commands: each ends with an exit code and an error that has a part."""
    with Failures() as failures:
        for arguments, code, part in rows:
            with failures.row(arguments):
                done = command(project, group, *arguments)
                assert (done.code, part in done.err) == (code, True), done


def test_runs_are_shown_listed_traced_and_resumed(tavern: Tavern) -> None:
    tavern.replies((SHOUTED, "They heard."), ({}, f"I shall.\n{action('shout', text='ale')}"))
    done = command(tavern, "agent", "run", "keeper", "--message", "Shout ale.", "--conversation", "c1")
    assert (done.code, done.out) == (0, "They heard.\n")
    *steps, observed, last = done.err.splitlines()
    assert steps == [
        *("[0] started: The keeper begins", "[1] thinking: Step 1: thinking"),
        *("[1] thought: I shall.", "[1] tool_call: Calls shout"),
    ]
    assert observed.startswith("[1] observation: Tool shout executed successfully. Output: ")
    assert last == "[2] thinking: Step 2: thinking"
    (run,) = command(tavern, "agent", "runs", "--json").json()
    assert (run["profileId"], run["conversationId"], run["status"]) == ("keeper", "c1", "reply")
    traced = command(tavern, "agent", "trace", run["id"]).out
    assert "[1] tool_call: Calls shout" in traced
    assert traced.splitlines()[-1].startswith("reply: 2 steps, 1 calls")
    data = command(tavern, "agent", "trace", run["id"], "--json").json()
    assert [step["seq"] for step in data["trace"]] == list(range(1, len(data["trace"]) + 1))


def test_a_run_that_failed_is_resumed(tavern: Tavern) -> None:
    tavern.replies(({"contains": "zebra"}, "x"))
    failed = command(tavern, "agent", "run", "keeper", "--message", "Hello.", "--json").json()
    assert failed["outcome"] == "error"
    tavern.replies(({"last_contains": "Hello."}, "Better now."), ({}, "I hear you, \ufffd\ufffd."))
    resumed = command(tavern, "agent", "resume", failed["agentRunId"])
    assert (resumed.code, resumed.out) == (0, "Better now.\n")
    again = command(tavern, "agent", "resume", failed["agentRunId"])
    assert again.code == 2
    assert "has ended with a reply" in again.err
    heard = command(tavern, "agent", "run", "keeper", stdin="A voice from afar \udcff\udcfe\n")
    assert (heard.code, heard.out) == (0, "I hear you, \ufffd\ufffd.\n")


def test_what_an_agent_cannot_do_is_the_users_mistake(tavern: Tavern) -> None:
    tavern.replies(({}, action("shout", text="a")))
    fail(
        tavern,
        "agent",
        (("run", "keeper", "--message", "Go.", "--max-steps", "2"), 1, "keeper: no final reply within 2 steps"),
        (("run", "keper", "--message", "x"), 2, "there is no agent 'keper' (did you mean keeper?)"),
        (("run", "keeper", "--message", "x", "--max-steps", "0"), 2, "--max-steps: Input should be greater than"),
        (("run", "keeper", "--message", "x", "--conversation", ""), 2, "--conversation: String should have at least 1"),
        (("run", "keeper", "--message", " \n"), 2, "there is no message: give --message TEXT, or text on stdin"),
        (("runs", "--limit", "0"), 2, "Error: --limit: Input should be greater than or equal to 1"),
        (("interrupt", "agent_0"), 2, "there is no run 'agent_0'"),
    )


def test_agents_are_listed_and_checked(tavern: Tavern) -> None:
    assert command(tavern, "agent", "check").out == "All agents are right.\n"
    tavern.write("agents/broken.json", {"id": "broken"})
    listed = command(tavern, "agent", "list")
    assert listed.code == 0
    assert "keeper" in listed.out
    assert "agents/broken.json:1: $.name: is missing" in listed.err
    data: Any = command(tavern, "agent", "list", "--json").json()
    assert [agent["id"] for agent in data["agents"]] == ["keeper", "creation-assistant"]
    assert len(data["problems"]) == 4

    (tavern.root / "agents" / "broken.json").unlink()
    tavern.profile(
        tool_ids_inventory=["shuot", "hu*"],
        core_deliberation_workflow_id="thunk",
        discription="Nobody reads it.",
        skill_workflow_ids_inventory=["workflows/think.json"],
        observation_workflow_id="workflows/thonk.json",
        knowledge_base_references=[{"source_id": "host:tools"}, {"source_id": "lore"}],
    )
    checked = command(tavern, "agent", "check")
    file = "agents/keeper.json:1"
    assert checked.out.splitlines() == [
        f"error: {file}: $.core_deliberation_workflow_id: there is no workflow 'thunk' (did you mean think?)",
        f"warning: {file}: $.observation_workflow_id: there is no workflow 'thonk' (did you mean think?)",
        f"warning: {file}: $.knowledge_base_references[1].source_id: there is no knowledge base 'lore'",
        f"warning: {file}: $.tool_ids_inventory[0]: there is no tool 'shuot' (did you mean shout?)",
        f"warning: {file}: $.discription: is not a field of a profile and is left unread (did you mean description?)",
    ]
    assert checked.code == 1
    assert command(tavern, "agent", "schema").json()["title"] == "Agent profile"
    (problem, *_) = command(tavern, "agent", "check", "--profile", "keeper", "--json").json()
    assert (problem["level"], problem["path"]) == ("error", "$.core_deliberation_workflow_id")
    fail(tavern, "agent", (("check", "--profile", "keper"), 2, "did you mean keeper?"))


def test_a_conversation_is_branched_by_commands(tavern: Tavern) -> None:
    def history(*arguments: str) -> Ran:
        return command(tavern, "history", *arguments)

    tavern.replies((SHOUTED, "Shouted."), ({"last_contains": "Wine?"}, "Wine."), ({}, action("shout", text="ale")))
    command(tavern, "agent", "run", "keeper", "--message", "Ale?", "--conversation", "c1")
    first, *_, reply = history("show", "c1", "--json").json()
    assert history("show", "c1", "--last", "1").out == f"{reply['id']} assistant: Shouted.\n"
    edited = history("edit", "c1", first["id"], "--text", "Wine?")
    assert (edited.code, edited.out.split(" ", 1)[1]) == (0, "user: Wine?\n")
    assert "say by --profile" in history("swipe", "c1").error
    assert history("swipe", "c1", "--profile", "keeper").out == "Wine.\n"
    tavern.replies(({}, "Red wine."))
    assert history("swipe", "c1").out == "Red wine.\n"
    history("branch", "c1", "old", "--message", reply["id"])
    lines = history("tree", "c1").out.splitlines()
    assert [line.split(maxsplit=2 if line.startswith("*") else 1)[-1] for line in lines] == [
        "user: Ale?",
        "assistant: <|[REQUEST_TOOL]|> command:「始」shout「末」 text:「始」ale「末」 <|[EN…",
        "user: <OBSERVATION> <tool_id>shout</tool_id> Tool shout executed …",
        *("assistant: Shouted.  <- old", "user: Wine?", "assistant: Wine.", "assistant: Red wine.  <- main"),
    ]
    assert "".join(line[0] for line in lines) == "    * *"
    assert [len(line) - len(line[1:].lstrip()) for line in lines] == [2, 2, 2, 2, 2, 4, 4]
    assert history("switch", "c1", "old", "--json").json()["active"] == "old"
    assert history("switch", "c1", "--message", first["id"], "--exactly").code == 0
    assert "Ale?" in history("show", "c1", "--last", "1").out
    command(tavern, "agent", "run", "keeper", "--message", "Again?", "--conversation", "c1", "--branch", "main")
    assert "Again?" in history("show", "c1", "--branch", "main").out


def test_a_picture_is_given_with_a_message(tavern: Tavern) -> None:
    (tavern.root / "cat.png").write_bytes(b"a picture")
    (tavern.root / "cat.txt").write_text("words")
    run = ("agent", "run", "keeper", "--message", "What is this?", "--conversation", "c1", "--image")
    tavern.replies(({}, "A cat."))
    assert command(tavern, *run, str(tavern.root / "cat.png")).out == "A cat.\n"
    said, _ = command(tavern, "history", "show", "c1", "--json").json()
    assert said["message"]["images"][0]["blob"]["mediaType"] == "image/png"
    assert "image/png" in command(tavern, *run, str(tavern.root / "cat.txt")).error
    assert "cannot be read" in command(tavern, *run, str(tavern.root / "dog.png")).error


def test_what_an_agent_remembers_is_changed_by_a_command(tavern: Tavern) -> None:
    tavern.replies(({}, "Ale."))
    command(tavern, "agent", "run", "keeper", "--message", "Ale?", "--conversation", "c1")
    first, _ = command(tavern, "history", "show", "c1", "--json").json()
    memory = ("agent", "memory", "keeper", "c1")
    changes = ("--state", '{"mood": "dry"}', "--goals", '[{"id": "rest", "priority": 0.9}]', "--note", "Long day.")
    remembered = command(tavern, *memory, *changes).out
    assert [part for part in ('"mood": "dry"', "rest", "0.9", "Long day.") if part not in remembered] == []
    for at, kept in ((("--branch", "main"), {"mood": "dry"}), (("--leaf", first["id"]), {})):
        assert command(tavern, *memory, *at, "--json").json()["state"] == kept
    assert "--state" in command(tavern, *memory, "--state", "{").error


def test_a_conversation_is_carried_to_another(tavern: Tavern) -> None:
    def history(*arguments: str) -> Ran:
        return command(tavern, "history", *arguments)

    tavern.replies(({}, "Ale."))
    command(tavern, "agent", "run", "keeper", "--message", "Ale?", "--conversation", "c1")
    assert history("branch", "c1", "old").code == history("switch", "c1", "old").code == 0
    file = str(tavern.root / "c1.json")
    assert history("export", "c1", "--output", file).code == 0
    assert history("import", file, "--id", "c2").code == 0
    assert history("branch", "c2", "main", "--copy", "c3", "--json").json()["messages"] == 2
    assert history("branch", "c2", "main", "--rename", "wine").code == 0
    assert [b["name"] for b in history("branch", "c2", "--json").json()["branches"]] == ["wine", "old"]
    assert history("branch", "c2", "wine", "--delete").code == 0
    assert history("delete", "c1").out == "Deleted the conversation c1\n"
    assert {one["id"] for one in history("list", "--json").json()} == {"c2", "c3"}
    fail(
        tavern,
        "history",
        (("show", "c1"), 2, "there is no conversation 'c1'; `tavern history list` lists them"),
        (("switch", "c2"), 2, "give a branch, or --message"),
        (("branch", "c2", "old", "--delete"), 2, "activate another"),
        (("branch", "c2", "--delete"), 2, "the name of the branch is missing"),
        (("branch", "c2", "old", "--delete", "--rename", "x"), 2, "give one of"),
        (("import", str(tavern.root / "tavern.yaml")), 2, "`tavern import tavern.yaml` takes it"),
    )
