"""Reading agent profiles: every problem told, none hiding another."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from helpers.repetition import Failures
from helpers.tavern_project import Tavern, action

from tavern_agents.profile_checks import profile_schema
from tavern_agents.profiles import read_profiles
from tavern_host import AGENT_RUNTIME, Host
from tavern_host.contracts.agents import AgentRequest
from tavern_host.contracts.errors import Misconfigured, NotFound, TavernError
from tavern_host.contracts.events import Event
from tavern_host.contracts.tools import TOOL_MANAGER

PROFILE = {
    "id": "elara",
    "name": "Elara",
    "version": "1.0.0",
    "schema_version": "1.0",
    "core_deliberation_workflow_id": "workflows/think.json",
}
TEXT = json.dumps(PROFILE, indent=1)


def put(project: Path, file: str, content: Any) -> None:
    path = project / "agents" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def test_profiles_are_found_in_files_and_in_folders(tmp_path: Path) -> None:
    put(tmp_path, "b.json", {**PROFILE, "id": "bruno"})
    put(tmp_path, "a/agent_profile.json", {**PROFILE, "tool_ids_inventory": ["FileOperator.WriteFile"]})
    put(tmp_path, "a/notes.json", {"not": "a profile"})
    profiles = read_profiles(tmp_path)
    assert list(profiles.by_id) == ["bruno", "elara"]
    assert profiles.problems == []
    assert profiles.get("elara").tool_ids_inventory == ["FileOperator.WriteFile"]


def test_keys_that_we_do_not_know_are_kept(tmp_path: Path) -> None:
    put(tmp_path, "a.json", {**PROFILE, "knowledge_base_references": [{"source_id": "kb"}]})
    profile = read_profiles(tmp_path).get("elara")
    assert profile.model_dump(exclude_unset=True) == {**PROFILE, "knowledge_base_references": [{"source_id": "kb"}]}


def test_a_project_without_agents_has_none(tmp_path: Path) -> None:
    assert read_profiles(tmp_path).by_id == {}


ID = "must have 1 to 200 characters, no blanks, and none of / @ * ?"
ROWS: list[tuple[str | bytes, str]] = [
    ('{"id": "b",\n "name": }', ":2: is not JSON: Expecting value (column 10)"),
    ("[]", ": must hold a JSON object, not an array"),
    ("", ":1: is not JSON: Expecting value (column 1)"),
    (b"\xff\xfe{}", ": is not UTF-8 text (byte 0)"),
    (b'{"id": "\xe9"}', ": is not UTF-8 text (byte 8)"),
    ('{"id": "b", "x": ' + "[" * 5000 + "]" * 5000 + "}", "nested more than 100 levels deep"),
    ('{\n"x": ' + "[" * 105 + "]" * 105 + "}", ":2: $.x[0]"),
    ('{"x": "' + "a" * (1 << 20) + '"}', ": is larger than 1024 KiB"),
    (TEXT.replace('"1.0",', '"1.0",,'), ":5: is not JSON: "),
    (TEXT.replace("\n}", ",\n}"), "is not JSON: "),
    (TEXT.replace('"1.0",', '"1.0",\n "id": "other",'), ":6: $.id: stands here twice: keep one of them"),
    (TEXT.replace('"Elara"', "NaN"), ":3: $.name: a number must be finite, this one is nan"),
    (TEXT.replace("\n}", ',\n "limits": {"steps": true}}'), ":7: $.limits.steps: input should be a valid integer"),
    (TEXT.replace("\n}", ',\n "limits": {"step": 1}}'), ":7: $.limits.step: extra inputs are not permitted"),
    (
        TEXT.replace("\n}", f',\n "limits": {{"steps": 1{"0" * 5000}}}}}'),
        ":7: is not JSON: an int must have at most 64 bits",
    ),
]
SAME = {
    "bom": b"\xef\xbb\xbf" + TEXT.encode(),
    "crlf": TEXT.replace("\n", "\r\n").encode(),
    "comments": ("// who she is\n" + TEXT.replace("\n}", '\n/* a\n* b */ } // end: "}')).encode(),
    "half a character": TEXT.replace("Elara", "\\ud83d").encode(),
    "half a character in UTF-8": TEXT.replace("Elara", "\ud83d").encode("utf-8", "surrogatepass"),
}


def test_each_mistake_is_told_with_line_and_path(tmp_path: Path) -> None:
    with Failures() as failures:
        for content, told in ROWS:
            with failures.row(told):
                (tmp_path / "agents").mkdir(exist_ok=True)
                data = content if isinstance(content, bytes) else content.encode()
                (tmp_path / "agents" / "a.json").write_bytes(data)
                (problem,) = read_profiles(tmp_path).problems
                assert problem.startswith("agents/a.json:")
                assert told in problem, problem[:300]


def test_a_profile_is_read_however_it_is_written(tmp_path: Path) -> None:
    with Failures() as failures:
        for name, data in SAME.items():
            with failures.row(name):
                put(tmp_path, "a.json", "")
                (tmp_path / "agents" / "a.json").write_bytes(data)
                profiles = read_profiles(tmp_path)
                assert profiles.problems == []
                assert profiles.get("elara").name in ("Elara", "\ufffd")


def test_a_name_that_is_no_text_is_told(tmp_path: Path) -> None:
    put(tmp_path, "a.json", "[]")
    (tmp_path / "agents" / "a.json").rename(tmp_path / "agents" / os.fsdecode(b"\xff.json"))
    assert read_profiles(tmp_path).problems == ["agents/\ufffd.json: must hold a JSON object, not an array"]


def test_every_problem_of_every_file_is_told_with_its_path(tmp_path: Path) -> None:
    put(
        tmp_path,
        "a.json",
        '{"id": "", "name": 5,\n"version": "1", "schema_version": "1",\n"tool_ids_inventory": ["x",\n7]}',
    )
    put(tmp_path, "b.json", '{"id": "b",\n "name": }')
    put(tmp_path, "d.json", {**PROFILE, "id": " ", "name": ""})
    put(tmp_path, "e.json", PROFILE)
    profiles = read_profiles(tmp_path)
    assert list(profiles.by_id) == ["elara"]
    assert profiles.problems == [
        f"agents/a.json:1: $.id: {ID}",
        "agents/a.json:1: $.name: input should be a valid string, found an integer",
        "agents/a.json:1: $.core_deliberation_workflow_id: is missing",
        "agents/a.json:4: $.tool_ids_inventory[1]: input should be a valid string, found an integer",
        "agents/b.json:2: is not JSON: Expecting value (column 10)",
        f"agents/d.json:1: $.id: {ID}",
        "agents/d.json:1: $.name: must not be empty",
    ]


def test_of_two_profiles_with_one_id_the_second_is_told(tmp_path: Path) -> None:
    put(tmp_path, "a.json", PROFILE)
    put(tmp_path, "b.json", {**PROFILE, "name": "Impostor"})
    profiles = read_profiles(tmp_path)
    assert profiles.get("elara").name == "Elara"
    assert profiles.problems == ["agents/b.json:1: $.id: 'elara' is the id of agents/a.json already; give it another"]


def test_a_broken_profile_that_is_asked_for_says_why(tmp_path: Path) -> None:
    put(tmp_path, "smith.json", {**PROFILE, "id": "the-smith", "version": None})
    for name in ("the-smith", "smith"):
        with pytest.raises(Misconfigured) as caught:
            read_profiles(tmp_path).get(name)
        assert caught.value.message == (
            f"the agent '{name}' cannot be used: agents/smith.json:1: "
            "$.version: input should be a valid string, found null"
        )


def test_an_unknown_agent_is_told_with_near_names(tmp_path: Path) -> None:
    put(tmp_path, "a.json", PROFILE)
    with pytest.raises(NotFound, match=r"there is no agent 'elra' \(did you mean elara\?\)"):
        read_profiles(tmp_path).get("elra")
    with pytest.raises(NotFound, match=r"there is no agent 'zzz' \(there is elara\)"):
        read_profiles(tmp_path).get("zzz")


def test_a_link_out_of_the_project_and_a_link_to_nowhere_are_problems(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (tmp_path / "outside.json").write_text(json.dumps(PROFILE), encoding="utf-8")
    put(project, "c.json", {**PROFILE, "id": "c"})
    (project / "agents" / "a.json").symlink_to(tmp_path / "outside.json")
    (project / "agents" / "b.json").symlink_to(tmp_path / "nowhere.json")
    profiles = read_profiles(project)
    assert list(profiles.by_id) == ["c"]
    assert profiles.problems[0] == "agents/a.json: leads out of the project; only files of the project are read"
    assert profiles.problems[1].startswith("agents/b.json: cannot be read: FileNotFoundError")


# --- the schema -----------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]


def test_the_published_schema_is_that_of_the_code() -> None:
    """After a change: `tavern agent schema > docs/agent_profile.schema.json`."""
    published = json.loads((ROOT / "docs" / "agent_profile.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(published)
    assert published == profile_schema()


def test_schema_and_reader_agree(tmp_path: Path) -> None:
    samples = [json.loads(file.read_text()) for file in (ROOT / "plugins/tavern_demo/sample/agents").glob("*.json")]
    assert samples
    changes: list[dict[str, Any]] = [
        {"$schema": "../agent.schema.json", "further": 1},
        {"limits": {"steps": 3, "seconds": 1, "tokens": None}},
        {"limits": {"steps": 0}},
        {"limits": {"steps": "3"}},
        {"limits": {"further": 3}},
        {"limits": None},
        *({"id": wrong} for wrong in ("", "a b", "a/b", "a@b", "*", "a\nb", "x" * 201)),
        {"id": "workflow:é-1.2"},
        {"name": " \t"},
        {"version": 1},
        {"description": None},
        {"tool_ids_inventory": ["a", 1]},
        {"tool_ids_inventory": "a"},
        {"custom_metadata": []},
        {"initial_private_state_values": {"mood": {"deep": [None]}}},
        {"subscribed_event_types": [{"type": "x"}]},
    ]
    lacking = [{key: value for key, value in PROFILE.items() if key != missing} for missing in PROFILE]
    validator = jsonschema.Draft202012Validator(profile_schema())
    with Failures() as failures:
        for document in [*samples, PROFILE, *lacking, *({**PROFILE, **change} for change in changes)]:
            with failures.row(str(document)[-60:]):
                put(tmp_path, "a.json", document)
                assert validator.is_valid(document) is (read_profiles(tmp_path).problems == [])
    assert all(validator.is_valid(document) for document in samples)


# --- changes while a host is at work --------------------------------------------------------------


async def test_a_changed_profile_counts_at_the_next_message(tavern: Tavern) -> None:
    tavern.replies(({"last_contains": "again", "contains": "HUSH"}, action("hush", text="X")), ({}, "Hello."))
    async with Host(project=tavern.root) as host:
        runtime, changes = host.services.get(AGENT_RUNTIME), host.events.subscribe("AGENTS_CHANGED")

        async def say(message: str) -> list[str]:
            asked = AgentRequest(profile_id="keeper", message=message, conversation_id="c")
            run = await runtime.start(asked)
            await runtime.wait(run.id)
            return [step.text for step in await runtime.trace(run.id) if step.kind in ("started", "warning")]

        assert await say("HUSH") == ["The keeper begins"]
        tavern.profile(name="The new keeper", tool_ids_inventory=["hush"])
        assert await say("say it") == ["The new keeper begins"]
        tavern.write("agents/keeper.json", "{")
        with pytest.raises(Misconfigured, match=r"agents/keeper.json:1: is not JSON"):
            await say("and now")
        tavern.profile()
        assert await say("better") == ["The keeper begins"]
        assert await say("the same") == ["The keeper begins"]
        await changes.close()
        told = [event.payload async for event in changes if isinstance(event, Event)]
    assert [(event["success"], event["count"], event["changed"]) for event in told] == [
        (True, 2, ["keeper"]),  # the assistant is the other one
        (False, 1, ["keeper"]),
        (True, 2, ["keeper"]),
    ]
    assert told[1]["problems"][0].startswith("agents/keeper.json:1: is not JSON")


async def test_an_agent_that_is_added_becomes_a_tool(tavern: Tavern) -> None:
    async with Host(project=tavern.root, serving=True) as host:
        tools, changes = host.services.get(TOOL_MANAGER), host.events.subscribe("AGENTS_CHANGED")
        assert (await tools.get("agent:keeper")).display_name == "The keeper"
        tavern.write("agents/cook/agent_profile.json", {**PROFILE, "id": "cook", "name": "Cook"})
        (tavern.root / "agents" / "keeper.json").unlink()
        async with asyncio.timeout(60):
            event = await anext(aiter(changes))
            assert isinstance(event, Event)
            assert event.payload["changed"] == ["cook", "keeper"]
            while (await tools.describe(["agent:cook"])).endswith("no tool has this id"):
                await asyncio.sleep(0.01)
        with pytest.raises(TavernError):
            await tools.get("agent:keeper")
