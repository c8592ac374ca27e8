"""The Agent2Agent protocol: agents for other agents, with the host's rights, limits and errors, in both versions."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from helpers.stub_llm import said
from helpers.waiting import until

from tavern_agents.api.agents import AgentRequest, AgentRunFilter
from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.projects import Folders
from tavern_host.testing.http import HttpClient, served
from tavern_llm.api.llm import LlmRequest
from tests.a2a.conftest import ASK, SETTINGS, events, prepare
from tests.agents.agent_bench import AgentBench, agent_bench

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEEPER = "/a2a/keeper"
CARD = ".well-known/agent-card.json"


def message(text: str = "Hello?", *more: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}, *more], **fields}


def old(text: str = "Hello?", **fields: Any) -> dict[str, Any]:
    parts = [{"kind": "text", "text": text}]
    return {"kind": "message", "messageId": "m1", "role": "user", "parts": parts, **fields}


async def call(web: HttpClient, method: str, params: Any, path: str = KEEPER, **headers: str) -> dict[str, Any]:
    asked = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    answer = await web.post(path, json=asked, headers=headers)
    assert (answer.status, answer.content_type) == (200, "application/json"), await answer.text()
    body: dict[str, Any] = await answer.json()
    assert (body["jsonrpc"], body["id"]) == ("2.0", 7)
    return body


async def send(web: HttpClient, said: dict[str, Any], **configuration: Any) -> dict[str, Any]:
    body = await call(web, "SendMessage", {"message": said, "configuration": configuration})
    task: dict[str, Any] = body["result"]["task"]
    return task


def heard_in(request: LlmRequest) -> list[str]:
    return [one.content for one in request.messages if one.role != "system"]


async def streamed(web: HttpClient, method: str, params: Any) -> list[Any]:
    asked = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    answer = await web.post(KEEPER, json=asked)
    assert answer.content_type == "text/event-stream", await answer.text()
    return [one.get("result", one) for one in events(await answer.text())]


# --- cards ----------------------------------------------------------------------------------------


async def test_only_agents_that_are_offered_have_cards(bench: AgentBench, web: HttpClient) -> None:
    listed = await (await web.get("/a2a")).json()
    assert [one["name"] for one in listed] == ["Curious", "Keeper", "Wirtin_Ü"]
    found = await (await web.get(f"{KEEPER}/{CARD}")).json()
    assert found == listed[1]
    project = bench.host._manager.active["tavern-a2a"].context.project.id
    url = f"http://127.0.0.1:{web.port}/projects/{project}/a2a/keeper"
    assert [one["url"] for one in found["supportedInterfaces"]] == [url, url] == [found["url"], url]
    assert [one["protocolVersion"] for one in found["supportedInterfaces"]] == ["1.0", "0.3"]
    assert (found["description"], found["skills"][0]["id"]) == ("Keeps the bar.", "keeper")
    assert (await web.get(listed[2]["url"].partition(str(web.port))[2] + f"/{CARD}")).status == 200
    for name in ("hidden", "ghost", "nobody"):
        asked = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message()}}
        for answer in (await web.get(f"/a2a/{name}/{CARD}"), await web.post(f"/a2a/{name}", json=asked)):
            words = f"no agent '{name}' is offered; GET /a2a lists those that are"
            assert (answer.status, (await answer.json())["detail"]) == (404, words)
    assert (await web.get(f"/{CARD}")).status == 404  # which of the two?


async def test_the_only_agent_is_found_at_the_known_place(tmp_path: Path) -> None:
    one = SETTINGS | {"extensions.tavern-mcp.offer": ["agent:keeper"]}
    folders = Folders(tmp_path / "config", tmp_path / "state", tmp_path / "data")
    async with agent_bench(tmp_path, prepare, settings=one, folders=folders) as bench, served(bench.host) as web:
        assert (await (await web.get(f"/{CARD}")).json())["name"] == "Keeper"


# --- messages -------------------------------------------------------------------------------------


async def test_a_message_is_a_task_and_a_context_a_conversation(bench: AgentBench, web: HttpClient) -> None:
    model = bench.model(lambda request: said(f"{len(heard_in(request))} heard."))
    task = await send(web, message())
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [part["text"] for part in task["artifacts"][0]["parts"]] == ["1 heard."]
    assert [(one["role"], one["parts"][0]["text"]) for one in task["history"]] == [
        ("ROLE_USER", "Hello?"),
        ("ROLE_AGENT", "1 heard."),
    ]
    run = await bench.runtime.get_run(task["id"])
    assert (run.conversation_id, run.text) == (task["contextId"], "1 heard.")
    again = await send(web, message("And now?", contextId=task["contextId"]), historyLength=1)
    assert (again["contextId"], again["artifacts"][0]["parts"]) == (task["contextId"], [{"text": "3 heard."}])
    assert [one["role"] for one in again["history"]] == ["ROLE_AGENT"]
    assert heard_in(model.asked[-1]) == ["Hello?", "1 heard.", "And now?"]
    kept = (await call(web, "GetTask", {"id": task["id"]}))["result"]
    assert kept == task


async def test_texts_json_and_pictures_are_parts(bench: AgentBench, web: HttpClient) -> None:
    model = bench.model(lambda request: said("A dot."))
    pixel = base64.b64encode(b"\x89PNG\r\n").decode()
    parts = (
        {"data": {"at": [1, "ü"]}},
        {"raw": pixel, "mediaType": "image/png"},
        {"url": "https://x.example/y.png", "mediaType": "image/png"},
    )
    await send(web, message("What is this?", *parts))
    heard = model.asked[0].messages[-1]
    assert heard.content == 'What is this?\n\n{"at": [1, "ü"]}'
    assert [image.url or (image.blob and image.blob.media_type) for image in heard.images] == [
        "https://x.example/y.png",
        "image/png",
    ]
    file = {"kind": "file", "file": {"bytes": pixel, "mimeType": "image/png"}}
    said_so = old("And this?")
    said_so["parts"] += [file, {"kind": "data", "data": {"b": 2}}]
    assert (await call(web, "message/send", {"message": said_so}))["result"]["status"]["state"] == "completed"
    heard = model.asked[1].messages[-1]
    assert (heard.content, len(heard.images)) == ('And this?\n\n{"b": 2}', 1)


async def test_a_stream_has_the_task_its_pieces_and_how_it_ended(bench: AgentBench, web: HttpClient) -> None:
    bench.answers(said("Let me shout. ", ("shout", {"text": "hey"})), said("It said HEY.")).pieces = 9
    sent = await streamed(web, "SendStreamingMessage", {"message": message("Shout.")})
    assert (list(sent[0]), list(sent[-1])) == (["task"], ["statusUpdate"])
    assert sent[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    pieces = [one["artifactUpdate"] for one in sent if "artifactUpdate" in one]
    assert (pieces[0]["append"], pieces[1]["append"]) == (False, True)
    assert (pieces[-1]["append"], pieces[-1]["lastChunk"]) == (False, True)  # what it said on the way is not the reply
    assert pieces[-1]["artifact"]["parts"] == [{"text": "It said HEY."}]
    assert " ".join("".join(one["artifact"]["parts"][0]["text"] for one in pieces[:-1]).split()) == (
        "Let me shout. It said HEY."
    )
    bench.model(lambda request: said("One two three.")).pieces = 4
    sent = await streamed(web, "message/stream", {"message": old()})
    assert [one["kind"] for one in sent] == ["task", *["artifact-update"] * (len(sent) - 2), "status-update"]
    assert (sent[-1]["final"], sent[-1]["status"]["state"]) == (True, "completed")
    assert "".join(one["artifact"]["parts"][0]["text"] for one in sent[1:-1]) == "One two three."
    assert {one["contextId"] for one in sent} == {sent[0]["contextId"]}


async def test_a_task_runs_without_its_client_and_is_cancelled_by_it(bench: AgentBench, web: HttpClient) -> None:
    model = bench.model(lambda request: said("Too late."))
    model.gate = asyncio.Event()
    task = await send(web, message(), returnImmediately=True)
    assert task["status"]["state"] == "TASK_STATE_WORKING"
    await until(lambda: model.asked)
    following = asyncio.create_task(streamed(web, "SubscribeToTask", {"id": task["id"]}))
    more = {"message": message("And?", taskId=task["id"]), "configuration": {"returnImmediately": True}}
    assert (await call(web, "SendMessage", more))["result"]["task"]["id"] == task["id"]
    stopped = (await call(web, "tasks/cancel", {"id": task["id"]}))["result"]
    assert (stopped["kind"], stopped["status"]["state"]) == ("task", "canceled")
    sent = await following
    assert sent[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
    rows = {
        "CancelTask": ({"id": task["id"]}, -32002),
        "SubscribeToTask": ({"id": task["id"]}, -32004),
        "SendMessage": ({"message": message("More.", taskId=task["id"])}, -32004),
    }
    for method, (params, code) in rows.items():
        assert (await call(web, method, params))["error"]["code"] == code, method


async def test_what_an_agent_asks_is_answered_by_a_message(bench: AgentBench, web: HttpClient) -> None:
    curious = "/a2a/curious"
    choice = {"question": "Which drink?", "choices": ["tea", "ale"]}
    bench.answers(
        *(said("", (ASK, choice)), said("Tea it is.")),
        *(said("", (ASK, {"question": "What name?"})), said("Hello, Ada.")),
    )
    asking = {"message": message("I am thirsty.")}
    task = (await call(web, "SendMessage", asking, curious))["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    words, form = task["status"]["message"]["parts"]
    assert (words, form["data"]["enum"]) == ({"text": "Which drink?"}, ["tea", "ale"])
    assert (await call(web, "GetTask", {"id": task["id"]}, curious))["result"]["status"] == task["status"]
    wrong = {"message": message("wine", taskId=task["id"])}
    assert (await call(web, "SendMessage", wrong, curious))["error"]["code"] == -32602
    right = {"message": message("1", taskId=task["id"])}
    done = (await call(web, "SendMessage", right, curious))["result"]["task"]
    assert (done["id"], done["status"]["state"]) == (task["id"], "TASK_STATE_COMPLETED")
    assert done["artifacts"][0]["parts"] == [{"text": "Tea it is."}]

    async def stream(params: Any, method: str = "message/stream") -> list[Any]:
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return [one["result"] for one in events(await (await web.post(curious, json=asked)).text())]

    sent = await stream({"message": old("Who am I?")})
    assert (sent[-1]["kind"], sent[-1]["status"]["state"]) == ("status-update", "input-required")
    assert sent[-1]["final"] is True
    assert [part["kind"] for part in sent[-1]["status"]["message"]["parts"]] == ["text", "data"]
    run = sent[-1]["taskId"]
    [again] = await stream({"id": run}, "tasks/resubscribe")
    assert (again["kind"], again["status"]["state"]) == ("task", "input-required")
    sent = await stream({"message": old("Ada", taskId=run)})
    assert (sent[-1]["status"]["state"], sent[-1]["final"]) == ("completed", True)
    assert (await bench.runtime.get_run(run)).text == "Hello, Ada."


async def test_a_client_that_goes_away_leaves_its_task_running(bench: AgentBench, web: HttpClient) -> None:
    model = bench.model(lambda request: said("Still here."))
    model.gate = asyncio.Event()
    asked = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message()}}
    client = asyncio.create_task(web.post(KEEPER, json=asked))
    await until(lambda: model.asked)
    client.cancel()
    task = (await bench.runtime.runs(AgentRunFilter(limit=1)))[0].id
    model.gate.set()
    assert (await bench.runtime.wait(task)).text == "Still here."
    assert (await call(web, "GetTask", {"id": task}))["result"]["artifacts"][0]["parts"] == [{"text": "Still here."}]


# --- rights, failures -----------------------------------------------------------------------------


async def test_what_an_agent_fails_with_is_its_tasks_status(bench: AgentBench, web: HttpClient) -> None:
    from tavern_host.contracts.errors import PluginFailure

    bench.model(lambda request: PluginFailure("no model today"))
    task = await send(web, message())
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert "no model today" in task["status"]["message"]["parts"][0]["text"]
    sent = await streamed(web, "SendStreamingMessage", {"message": message()})
    assert sent[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_FAILED"


async def test_every_mistake_has_the_protocols_code(bench: AgentBench, web: HttpClient) -> None:
    bench.model(lambda request: said("Hi."))
    hidden = (await bench.runtime.start(AgentRequest(profile_id="hidden", message="Hello?"))).id
    pdf = {"raw": "AAAA", "mediaType": "application/pdf"}
    pixel = {"raw": "?", "mediaType": "image/png"}
    dot = {"raw": "iVBORw0KGgo=", "mediaType": "image/png"}
    file = {"url": "file:///etc/passwd", "mediaType": "image/png"}
    push = {"taskPushNotificationConfig": {"url": "http://127.0.0.1:9/"}}
    rows: list[tuple[str, Any, int, str]] = [
        ("SendMessage", {}, -32602, "INVALID_PARAMS"),
        ("SendMessage", {"message": message() | {"role": "ROLE_AGENT"}}, -32602, "INVALID_PARAMS"),
        ("SendMessage", {"message": message(" ")}, -32602, "INVALID_PARAMS"),
        ("SendMessage", {"message": message("x", pixel)}, -32602, "INVALID_PARAMS"),
        ("SendMessage", {"message": message("x", file)}, -32602, "INVALID_PARAMS"),
        ("SendMessage", {"message": message("x", *[dot] * 17)}, -32602, "INVALID_PARAMS"),
        ("SendMessage", {"message": message(contextId=hidden)}, -32602, "INVALID_PARAMS"),
        ("SendMessage", {"message": message("x", pdf)}, -32005, "CONTENT_TYPE_NOT_SUPPORTED"),
        *(
            (method, {"message": message(), "configuration": one}, code, reason)
            for method in ("SendMessage", "SendStreamingMessage")
            for one, code, reason in (
                ({"acceptedOutputModes": ["audio/wav"]}, -32005, "CONTENT_TYPE_NOT_SUPPORTED"),
                (push, -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
            )
        ),
        ("SendMessage", {"message": message(taskId="nothing")}, -32001, "TASK_NOT_FOUND"),
        ("GetTask", {"id": hidden}, -32001, "TASK_NOT_FOUND"),
        ("CancelTask", {"id": hidden}, -32001, "TASK_NOT_FOUND"),
        ("tasks/resubscribe", {"id": hidden}, -32001, "TASK_NOT_FOUND"),
        ("GetTask", {}, -32602, "INVALID_PARAMS"),
        ("CreateTaskPushNotificationConfig", {}, -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ("tasks/pushNotificationConfig/set", {}, -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ("GetExtendedAgentCard", {}, -32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
        ("message/sent", {}, -32601, "METHOD_NOT_FOUND"),
    ]
    with Failures() as failures:
        for method, params, code, reason in rows:
            with failures.row((method, code)):
                error = (await call(web, method, params))["error"]
                assert (error["code"], error["data"][0]["reason"]) == (code, reason), error
        with failures.row("version"):
            error = (await call(web, "SendMessage", {"message": message()}, **{"A2A-Version": "2.0"}))["error"]
            assert error["code"] == -32009
        for body, code in (("{", -32700), ("[]", -32600), ('{"jsonrpc": "1.0", "method": "GetTask"}', -32600)):
            with failures.row(body):
                answer = await (await web.post(KEEPER, data=body)).json()
                assert (answer["error"]["code"], answer["id"]) == (code, None)


async def test_users_have_their_rights(bench: AgentBench, web: HttpClient) -> None:
    bench.model(lambda request: said("Hi."))
    accounts = bench.host.services.get(ACCOUNTS)
    asked = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message()}}
    for name, role, status in (("ada", "client", 200), ("rob", "reader", 403)):
        await accounts.add_user(name, "good evening", role=role)
        token = (await accounts.make_token(name, "test")).token
        headers = {"Authorization": f"Bearer {token}"}
        assert (await web.post(KEEPER, json=asked, headers=headers)).status == status
        assert (await web.get("/a2a", headers=headers)).status == 200
        assert (await web.get("/api/agents", headers=headers)).status == 403
    assert (await web.get(f"{KEEPER}/{CARD}", headers={"Authorization": "Bearer nobody"})).status == 401
