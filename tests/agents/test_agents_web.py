"""The routes of agents, their profiles and conversations, over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures
from helpers.stub_llm import said, written
from helpers.tavern_project import Tavern
from helpers.waiting import until

from tavern_host.testing.http import HttpClient, served
from tests.agents.agent_bench import AgentBench, agent, thinking, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHOUT = ("shout", {"text": "ale"})


def prepare(project: Tavern) -> None:
    """Write an agent that is called as a route is, and a plugin that brings one with a workflow that is in no list."""
    project.write("tools/hush.tool.json", tool("hush", requiresApproval=True))
    project.profile(tool_ids_inventory=["shout", "hush"])
    project.write("agents/schema.json", agent("schema"))
    brought = {**thinking(), "listed": False}
    scout = agent("scout", core_deliberation_workflow_id="thoughts", further=[1])
    files = {"agents/scout.json": json.dumps(scout), "workflows/thoughts.json": json.dumps(brought)}
    folders = {"agents": {"entry": "./agents"}, "workflows": {"entry": "./workflows"}}
    write_plugin(project.root.parent / "plugins" / "brings", files, **folders)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(bench: AgentBench) -> AsyncIterator[HttpClient]:
    """Serve the host."""
    async with served(bench.host) as client:
        yield client


async def asked(site: HttpClient, method: str, path: str, body: Any = None, tag: str = "") -> tuple[int, Any, str]:
    """Return the status, the JSON and the ETag of an answer; a body that is a text is sent as it is."""
    data = body if isinstance(body, str) else json.dumps(body)
    sent = {} if body is None else {"data": data}
    answer = await site.request(method, path, headers={"If-Match": tag} if tag else {}, **sent)
    return answer.status, await answer.json(), answer.headers.get("ETag", "")


async def check(site: HttpClient, rows: list[tuple[str, str, Any, int, str]]) -> None:
    """Send requests: each is refused with a status and an error that has a part."""
    assert rows
    with Failures() as failures:
        for method, path, body, expected, part in rows:
            with failures.row((method, path, body)):
                status, answer, _ = await asked(site, method, path, body)
                assert (status, part in answer["error"]) == (expected, True), answer


async def test_agents_are_listed_and_run(bench: AgentBench, site: HttpClient) -> None:
    status, (own, *others), _ = await asked(site, "GET", "/api/agents")
    assert (status, own["id"], own["name"], own["tools"]) == (200, "keeper", "The keeper", ["shout", "hush"])
    assert [one["id"] for one in others] == ["schema", "creation-assistant", "scout"]
    status, schema, _ = await asked(site, "GET", "/api/agents/schema")
    assert (status, schema["title"]) == (200, "Agent profile")

    model = bench.answers(written("tam", SHOUT), said("Done, Ada."), RuntimeError("no reply fits"), said("Hello."))
    before = [{"role": "user", "content": "I am Ada"}, {"role": "assistant", "content": "Hello, Ada."}]
    body = {"message": "Shout ale.", "history": before, "maxSteps": 3}
    status, reply, _ = await asked(site, "POST", "/api/agents/keeper/run", body)
    assert (status, reply["profileId"], reply["outcome"], reply["text"]) == (200, "keeper", "reply", "Done, Ada.")
    assert (reply["steps"], [result["toolId"] for result in reply["toolResults"]]) == (2, ["shout"])
    assert [m.content for m in model.asked[0].messages[1:4]] == ["I am Ada", "Hello, Ada.", "Shout ale."]
    roles = [message["role"] for message in reply["history"]]
    assert roles == ["user", "assistant", "user", "assistant", "user", "assistant"]
    status, reply, _ = await asked(site, "POST", "/api/agents/keeper/run", {"message": "Hello."})
    assert status == 200
    assert reply["outcome"] == "error"
    assert "no reply fits" in reply["error"]
    assert (await asked(site, "POST", "/api/agents/schema/run", {"message": "Hi."}))[1]["text"] == "Hello."

    run = "/api/agents/keeper/run"
    await check(
        site,
        [
            ("POST", "/api/agents/keper/run", {"message": "Hi."}, 404, "no agent 'keper' (did you mean keeper?)"),
            ("POST", run, "{", 400, "the body is not JSON"),
            (
                "POST",
                run,
                [],
                400,
                "is not {message, images?, conversationId?, history?, maxSteps?}: $: Input should be an object",
            ),
            ("POST", run, {}, 400, "message: Field required"),
            ("POST", run, {"message": "x", "maxSteps": 0}, 400, "maxSteps: Input should be greater than or equal to 1"),
            ("POST", run, {"message": "x", "history": [{"role": "bard", "content": ""}]}, 400, "$.history[0].role:"),
            ("POST", run, {"message": "x", "steps": 1}, 400, "steps: Extra inputs are not permitted"),
        ],
    )


async def test_a_run_is_followed_over_http(bench: AgentBench, site: HttpClient) -> None:
    bench.answers(written("tam", ("hush", {"text": "ale"})), said("I hurry."))
    status, run, _ = await asked(site, "POST", "/api/agents/keeper/runs", {"message": "Hush.", "conversationId": "c1"})
    assert (status, run["status"]) == (202, "running")
    path = f"/api/agent-runs/{run['id']}"

    async def standing(key: str, value: Any = None) -> Any:
        found = (await asked(site, "GET", path))[1]
        return found if (found[key] == value if value else found[key]) else None

    waiting = await until(lambda: standing("approvals"))
    assert waiting["status"] == "waiting"
    assert (await asked(site, "POST", f"{path}/messages", {"message": "Hurry!"}))[0] == 202
    approval = f"/api/approvals/{waiting['approvals'][0]}"
    assert (await asked(site, "POST", approval, {"decision": "approve"}))[0] == 200
    assert (await until(lambda: standing("status", "reply")))["text"] == "I hurry."
    kinds = [step["kind"] for step in (await asked(site, "GET", f"{path}/trace"))[1]]
    assert (kinds[0], kinds[-1]) == ("started", "reply")
    later = (await asked(site, "GET", f"{path}/trace?after={len(kinds) - 1}"))[1]
    assert [step["kind"] for step in later] == ["reply"]
    for query in ("?conversationId=c1", "?profileId=keeper&statuses=reply&limit=1"):
        assert [one["id"] for one in (await asked(site, "GET", f"/api/agent-runs{query}"))[1]] == [run["id"]]
    await check(
        site,
        [
            ("POST", f"{path}/messages", {"message": "Late."}, 409, "has ended"),
            ("POST", f"{path}/pause", {}, 409, "is not at work"),
            ("POST", f"{path}/resume", {}, 409, "has ended with a reply"),
            ("POST", "/api/agent-runs/agent_0/interrupt", {}, 404, "there is no run"),
            ("GET", "/api/agent-runs?limit=0", None, 400, "limit"),
        ],
    )
    assert (await asked(site, "GET", "/api/agents-check"))[:2] == (200, [])


async def test_a_conversation_is_branched_over_http(bench: AgentBench, site: HttpClient) -> None:
    bench.answers(said("Ale."), said("Wine."))

    async def get(path: str) -> Any:
        return (await asked(site, "GET", path))[1]

    async def post(path: str, body: Any = None) -> tuple[int, Any]:
        return (await asked(site, "POST", path, body))[:2]

    name = "a b/ü"
    at = f"/api/histories/{quote(name, safe='')}"
    await post("/api/agents/keeper/run", {"message": "Ale?", "conversationId": name})
    first, reply = await get(f"{at}/messages")
    edit = {"content": "Wine?", "head": reply["id"]}
    status, (edited,) = await post(f"{at}/messages/{first['id']}/edit", edit)
    assert (status, edited["message"]["content"], edited.get("parentId")) == (201, "Wine?", None)
    body = {"message": "", "conversationId": name, "parentId": edited["id"], "head": edited["id"]}
    status, run = await post("/api/agents/keeper/run", body)
    assert (status, run["text"]) == (200, "Wine.")
    head = (await get(at))["branches"][0]["head"]
    other = {"messages": [{"role": "assistant", "content": "Red or white?"}], "head": head}
    assert (await post(f"{at}/messages/{head}/swipe", other))[0] == 201
    texts = [one["message"]["content"] for one in (await get(f"{at}/children?of={edited['id']}"))]
    assert texts == ["Wine.", "Red or white?"]
    assert (await post(f"{at}/branches", {"name": "x/y", "messageId": reply["id"]}))[0] == 201
    assert (await post(f"{at}/branches/x%2Fy/rename", {"name": "side"}))[0] == 200
    assert (await post(f"{at}/active", {"branch": "side"}))[1]["active"] == "side"
    more = {"messages": [{"role": "user", "content": "More?"}], "branch": "side"}
    assert (await post(f"{at}/messages", more))[0] == 201
    last = await get(f"{at}/messages?branch=side&last=2")
    assert [one["message"]["content"] for one in last] == ["Ale.", "More?"]
    assert len(await get(f"{at}/messages?leaf={reply['id']}")) == 2
    tree = await get(f"{at}/tree")
    assert [(node["depth"], node["text"]) for node in tree[3:]] == [(2, "Wine."), (2, "Red or white?"), (3, "More?")]
    memory = "/api/agents/keeper/memory"
    about = {"conversationId": name, "state": {"mood": "dry"}, "goals": [{"id": "rest"}], "note": "Long day."}
    changed = (await post(memory, {**about, "revision": 0}))[1]
    assert (changed["state"], changed["goals"][0]["id"]) == ({"mood": "dry"}, "rest")
    assert (await post(memory, {**about, "revision": 0}))[0] == 409
    where = f"{memory}?conversationId={quote(name, safe='')}"
    assert (await get(where)) == changed
    assert (await get(f"{where}&leaf={reply['id']}"))["state"] == {}
    exported = await get(f"{at}/export")
    assert (await post("/api/histories?id=copy", exported))[1]["active"] == "side"
    assert (await post(f"{at}/fork", {"newId": "fork"}))[1]["messages"] == 3
    assert {one["id"] for one in (await get("/api/histories?limit=9"))} >= {name, "copy", "fork"}
    assert (await asked(site, "DELETE", f"{at}/branches/main"))[0] == 200
    rows: list[tuple[str, str, Any, int, str]] = [
        ("POST", f"{at}/messages/{first['id']}/edit", {"content": "x", "head": reply["id"]}, 409, "load it again"),
        ("POST", f"{at}/messages/{first['id']}/edit", {"content": "x"}, 400, "head: Field required"),
        ("POST", f"{at}/branches", {"name": "side"}, 409, "a branch 'side' already"),
        ("POST", f"{at}/messages", {"messages": []}, 400, "messages"),
        ("POST", "/api/histories", {"id": "x"}, 400, "no exported conversation"),
        ("POST", "/api/histories", exported, 409, "under another id"),
        ("GET", f"{at}/messages?last=x", None, 400, "the query: $.last: "),
        ("GET", f"{at}/messages?branch=sied", None, 404, "it has side"),
        ("GET", "/api/histories/never/tree", None, 404, "no conversation 'never'"),
        ("DELETE", f"{at}/branches/side", None, 409, "activate another"),
    ]
    await check(site, rows)
    assert (await asked(site, "DELETE", at))[1] == {"deleted": True}
    assert (await asked(site, "GET", at))[0] == 404


async def walk(site: HttpClient, path: str, *steps: tuple[str, Any, str, int]) -> None:
    """Send requests to a path, each with a body and an ETag, and compare the statuses."""
    for number, (method, body, tag, expected) in enumerate(steps):
        status, answer, _ = await asked(site, method, path, body, tag)
        assert status == expected, (number, answer)


async def test_a_profile_is_made_read_changed_and_deleted(site: HttpClient) -> None:
    path, guide = "/api/agents/guide", agent("guide", further=[1])
    status, made, tag = await asked(site, "PUT", path, guide)
    assert (status, made) == (201, guide)
    assert await asked(site, "GET", path) == (200, guide, tag)
    assert "guide" in [one["id"] for one in (await asked(site, "GET", "/api/agents"))[1]]
    changed = {**guide, "tool_ids_inventory": ["workflow:think"]}
    await walk(site, path, ("PUT", changed, "", 428), ("PUT", changed, '"other"', 412), ("PUT", changed, tag, 200))
    uses = (await asked(site, "GET", "/api/workflows/think/uses"))[1]
    assert ("agent", "guide") in [(one["kind"], one["id"]) for one in uses]

    file = site.host.project.root / "agents" / "guide.json"
    (moved := file.parent / "deep").mkdir()
    file.rename(moved / "agent_profile.json")
    _, _, tag = await asked(site, "GET", path)
    await walk(site, path, ("PUT", {**guide, "name": "Other"}, tag, 200))
    assert '"Other"' in (moved / "agent_profile.json").read_text() and not file.exists(), "it stays in its file"
    await walk(site, path, ("DELETE", None, "*", 200), ("GET", None, "", 404), ("DELETE", None, "*", 404))

    file.write_text("{")  # one that is broken is mended or deleted
    assert (await asked(site, "GET", path))[0] != 200
    await walk(site, "/api/agents/other", ("PUT", agent("other"), "", 201), ("DELETE", None, "*", 200))
    await walk(site, path, ("PUT", guide, "", 428), ("PUT", guide, "*", 200))
    file.write_text("{")
    await walk(site, path, ("DELETE", None, "*", 200))
    assert not file.exists()


async def test_a_plugin_brings_an_agent(site: HttpClient) -> None:
    assert [one for one in (await asked(site, "GET", "/api/agents-check"))[1] if one["profileId"] == "scout"] == []
    assert "thoughts" not in [one["id"] for one in (await asked(site, "GET", "/api/workflows"))[1]]
    assert (await asked(site, "GET", "/api/workflows/thoughts"))[0] == 200
    assert "workflow:thoughts" not in [one["id"] for one in (await asked(site, "GET", "/api/tools"))[1]]

    path, file = "/api/agents/scout", site.host.project.root / "agents" / "scout.json"
    _, brought, tag = await asked(site, "GET", path)
    own = {**brought, "name": "Ours"}
    await walk(site, path, ("DELETE", None, tag, 409), ("PUT", own, "", 428), ("PUT", own, tag, 200))
    assert json.loads(file.read_text()) == own
    _, ours, tag = await asked(site, "GET", path)
    assert ours == own
    await walk(site, path, ("DELETE", None, tag, 200))
    assert not file.exists()
    assert (await asked(site, "GET", path))[1] == brought


async def test_what_is_no_profile_is_refused(site: HttpClient, tmp_path: Path) -> None:
    path, agents = "/api/agents/x", site.host.project.root / "agents"
    before = sorted(one.name for one in agents.rglob("*"))
    wrong = {"id": "x", "name": "", "limits": {"max_steps": "many"}}
    status, problem, _ = await asked(site, "PUT", path, wrong)
    assert status == 400
    for place in ("$.name", "$.version", "$.core_deliberation_workflow_id", "$.limits.max_steps"):
        assert place in problem["detail"]
    await walk(site, path, ("PUT", agent("y"), "", 400), ("PUT", [1], "", 400))
    for name in ("..", ".hidden", "a%2Fb", "a%5Cb", "%00", "n" * 201, "ü" * 150, "a%3Ab"):
        for id in ("x", name):
            answer = await site.request("PUT", f"/api/agents/{name}", json=agent(id))
            assert answer.status in (400, 404), name
    assert sorted(one.name for one in agents.rglob("*")) == before
    outside = agents.rename(tmp_path / "outside")
    agents.symlink_to(outside)
    await walk(site, "/api/agents/new", ("PUT", agent("new"), "", 409))
    assert not (outside / "new.json").exists()
    agents.unlink()
    outside.rename(agents)
