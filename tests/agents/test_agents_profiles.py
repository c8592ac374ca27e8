"""Reading agent profiles: every problem told, none hiding another."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from helpers.repetition import Failures
from helpers.tavern_project import Tavern
from helpers.waiting import until

from tavern_agents.api.agents import AgentRequest
from tavern_agents.profile_checks import profile_schema
from tavern_agents.profiles import read_profiles
from tavern_host import AGENT_RUNTIME, Host
from tavern_host.contracts.errors import Misconfigured, NotFound, TavernError
from tavern_host.contracts.events import Event
from tavern_tools.api.tools import TOOL_MANAGER

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
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def test_profiles_are_found_in_files_and_in_folders(tmp_path: Path) -> None:
    assert read_profiles(tmp_path).by_id == {}, "a project without agents has none"
    put(tmp_path, "b.json", {**PROFILE, "id": "bruno"})
    elara = {**PROFILE, "tool_ids_inventory": ["FileOperator.WriteFile"], "initial_goals_reference": [{"caiu_id": "a"}]}
    put(tmp_path, "a/agent_profile.json", {**elara, "mood": "odd"})
    put(tmp_path, "a/notes.json", {"not": "a profile"})
    profiles = read_profiles(tmp_path)
    assert (list(profiles.by_id), profiles.problems) == (["bruno", "elara"], [])
    assert profiles.get("elara").model_dump(exclude_unset=True) == {**elara, "mood": "odd"}, "unknown keys are kept"


ID = "must have 1 to 200 characters, no blanks, and none of / @ * ?"


def with_limits(limits: str) -> str:
    return TEXT.replace("\n}", f',\n "limits": {limits}}}')


ROWS: list[tuple[str | bytes, str]] = [
    ('{"id": "b",\n "name": }', ":2: is not JSON: Expecting value (column 10)"),
    ("[]", ": must hold a JSON object, not an array"),
    ("", ":1: is not JSON: Expecting value (column 1)"),
    (b"\xff\xfe{}", ": is not UTF-8 text (byte 0)"),
    ('{"id": "b", "x": ' + "[" * 5000 + "]" * 5000 + "}", "nested more than 100 levels deep"),
    ('{\n"x": ' + "[" * 105 + "]" * 105 + "}", ":2: $.x[0]"),
    ('{"x": "' + "a" * (1 << 20) + '"}', ": is larger than 1024 KiB"),
    (TEXT.replace("\n}", ",\n}"), "is not JSON: "),
    (TEXT.replace('"1.0",', '"1.0",\n "id": "other",'), ":6: $.id: stands here twice: keep one of them"),
    (TEXT.replace('"Elara"', "NaN"), ":3: $.name: a number must be finite, this one is nan"),
    (with_limits('{"steps": true}'), ":7: $.limits.steps: input should be a valid integer"),
    (with_limits('{"step": 1}'), ":7: $.limits.step: extra inputs are not permitted"),
    (with_limits(f'{{"steps": 1{"0" * 5000}}}'), ":7: is not JSON: an int must have at most 64 bits"),
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
                put(tmp_path, "a.json", content)
                (problem,) = read_profiles(tmp_path).problems
                assert problem.startswith("agents/a.json:") and told in problem, problem[:300]
        for name, data in SAME.items():
            with failures.row(name):
                put(tmp_path, "a.json", data)
                profiles = read_profiles(tmp_path)
                assert profiles.problems == []
                assert profiles.get("elara").name in ("Elara", "\ufffd")


def test_every_problem_of_every_file_is_told(tmp_path: Path) -> None:
    broken = '{"id": "", "name": 5,\n"version": "1", "schema_version": "1",\n"tool_ids_inventory": ["x",\n7]}'
    put(tmp_path, "a.json", broken)
    put(tmp_path, "b.json", '{"id": "b",\n "name": }')
    put(tmp_path, "d.json", {**PROFILE, "id": " ", "name": ""})
    put(tmp_path, "e.json", PROFILE)
    put(tmp_path, "f.json", {**PROFILE, "name": "Impostor"})
    put(tmp_path, "g.json", {**PROFILE, "id": "the-smith", "version": None})
    put(tmp_path, "h.json", "[]")
    agents = tmp_path / "agents"
    (agents / "h.json").rename(agents / os.fsdecode(b"\xff.json"))
    (tmp_path.parent / "outside.json").write_text(TEXT, encoding="utf-8")
    (agents / "i.json").symlink_to(tmp_path.parent / "outside.json")
    (agents / "j.json").symlink_to(tmp_path / "nowhere.json")
    profiles = read_profiles(tmp_path)
    smith = "agents/g.json:1: $.version: input should be a valid string, found null"
    assert list(profiles.by_id) == ["elara"]
    assert [problem.split(" [Errno")[0] for problem in profiles.problems] == [
        f"agents/a.json:1: $.id: {ID}",
        "agents/a.json:1: $.name: input should be a valid string, found an integer",
        "agents/a.json:1: $.core_deliberation_workflow_id: is missing",
        "agents/a.json:4: $.tool_ids_inventory[1]: input should be a valid string, found an integer",
        "agents/b.json:2: is not JSON: Expecting value (column 10)",
        f"agents/d.json:1: $.id: {ID}",
        "agents/d.json:1: $.name: must not be empty",
        "agents/f.json:1: $.id: 'elara' is the id of agents/e.json already; give it another",
        smith,
        "agents/i.json: leads out of the project; only files of the project are read",
        "agents/j.json: cannot be read: FileNotFoundError:",
        "agents/\ufffd.json: must hold a JSON object, not an array",
    ]
    assert profiles.get("elara").name == "Elara", "of two with one id the first"
    wrong: list[tuple[str, type[TavernError], str]] = [
        ("the-smith", Misconfigured, f"the agent 'the-smith' cannot be used: {smith}"),
        ("g", Misconfigured, f"the agent 'g' cannot be used: {smith}"),
        ("elra", NotFound, "there is no agent 'elra' (did you mean elara?)"),
        ("zzz", NotFound, "there is no agent 'zzz' (there is elara)"),
    ]
    for name, kind, told in wrong:
        with pytest.raises(kind) as caught:
            profiles.get(name)
        assert told in caught.value.message


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
    limits: list[Any] = [{"steps": 3, "seconds": 1, "tokens": None}, {"steps": 0}, {"steps": "3"}, {"further": 3}, None]
    ids = ("", "a b", "a/b", "a@b", "*", "a\nb", "x" * 201, "workflow:é-1.2")
    changes: list[dict[str, Any]] = [
        {"$schema": "../agent.schema.json", "further": 1},
        *({"limits": one} for one in limits),
        *({"id": one} for one in ids),
        *({"name": " \t"}, {"version": 1}, {"description": None}),
        *({"tool_ids_inventory": ["a", 1]}, {"tool_ids_inventory": "a"}, {"custom_metadata": []}),
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
    tavern.replies(({}, "Hello."))
    async with Host(project=tavern.root) as host:
        runtime, changes = host.services.get(AGENT_RUNTIME), host.events.subscribe("AGENTS_CHANGED")

        async def say(message: str) -> list[str]:
            run = await runtime.start(AgentRequest(profile_id="keeper", message=message, conversation_id="c"))
            await runtime.wait(run.id)
            return [step.text for step in await runtime.trace(run.id) if step.kind in ("started", "warning")]

        assert await say("Hush.") == ["The keeper begins"]
        tavern.profile(name="The new keeper", tool_ids_inventory=["hush"])
        assert await say("say it") == ["The new keeper begins"]
        tavern.write("agents/keeper.json", "{")
        with pytest.raises(Misconfigured, match=r"agents/keeper.json:1: is not JSON"):
            await say("and now")
        tavern.profile()
        assert await say("better") == await say("the same") == ["The keeper begins"]
        await changes.close()
        told = [event.payload async for event in changes if isinstance(event, Event)]
    found = [(event["success"], event["count"], event["changed"]) for event in told]
    assert found == [(True, 2, ["keeper"]), (False, 1, ["keeper"]), (True, 2, ["keeper"])]  # with the assistant
    assert told[1]["problems"][0].startswith("agents/keeper.json:1: is not JSON")


async def test_an_agent_that_is_added_becomes_a_tool(tavern: Tavern) -> None:
    async with Host(project=tavern.root, serving=True) as host:
        tools, changes = host.services.get(TOOL_MANAGER), host.events.subscribe("AGENTS_CHANGED")
        assert (await tools.get("agent:keeper")).display_name == "The keeper"
        tavern.write("agents/cook/agent_profile.json", {**PROFILE, "id": "cook", "name": "Cook"})
        (tavern.root / "agents" / "keeper.json").unlink()
        changed = set[str]()
        while changed != {"cook", "keeper"}:  # together, or each by itself
            event = await anext(aiter(changes))
            assert isinstance(event, Event)
            changed |= {*event.payload["changed"]}

        async def is_told() -> bool:
            return not (await tools.describe(["agent:cook"])).endswith("no tool has this id")

        await until(is_told, "the new agent is a tool")
        with pytest.raises(TavernError):
            await tools.get("agent:keeper")
