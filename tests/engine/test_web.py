"""The platform's routes and socket messages, on a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse
from aiohttp.test_utils import TestClient
from engine_bench import Bench, web_client, workflow
from helpers.repetition import Failures

from tavern_host import WORKFLOW_MANAGER
from tavern_host.contracts.executions import RunActions

PROMPT = {
    "nodes": [
        {"id": "a", "fullType": "acme-nodes:Add", "inputs": {"a": 1, "b": 2}},
        {"id": "all", "fullType": "acme-nodes:Collect", "inputConnectionOrders": {"values": ["e2", "e1"]}},
        {"id": "g", "fullType": "acme-nodes:Give", "configValues": {"value": "x"}, "bypassed": False},
    ],
    "edges": [
        {"id": "e1", "sourceNodeId": "a", "sourceHandle": "sum", "targetNodeId": "all", "targetHandle": "values__0"},
        {"id": "e2", "sourceNodeId": "g", "sourceHandle": "value", "targetNodeId": "all", "targetHandle": "values__1"},
    ],
    "outputInterfaceMappings": {"output_0": {"sourceNodeId": "all", "sourceSlotKey": "list"}},
    "clientId": "c1",
    "metadata": {},
}
HANG = {"nodes": [{"id": "n", "fullType": "acme-nodes:Hang"}], "edges": []}

Client = TestClient[Any, Any]


@pytest.fixture
async def client(bench: Bench) -> AsyncIterator[Client]:
    async with web_client(bench.host) as opened:
        yield opened


async def post(client: Client, body: Any) -> str:
    response = await client.post("/api/prompt", json=body)
    assert response.status == 200, await response.text()
    answer: dict[str, str] = await response.json()
    assert list(answer) == ["promptId"]
    return answer["promptId"]


async def get(client: Client, path: str, status: int = 200) -> Any:
    response = await client.get(path)
    assert response.status == status
    return await response.json()


async def test_nodes_are_served_as_the_platform_serves_them(client: Client) -> None:
    nodes = {f"{node['namespace']}:{node['type']}": node for node in await get(client, "/api/nodes")}

    shown = nodes["acme-nodes:Add"]
    assert shown["inputs"]["b"] == {
        "dataFlowType": "INTEGER",
        "displayName": "b",
        "required": False,
        "config": {"default": 1},
    }
    assert (shown["execute"], shown["_executes"]) == ({"__function__": True}, True)
    assert "handler" not in shown


async def test_a_workflow_is_run_as_its_file_has_it(bench: Bench, client: Client) -> None:
    slot = {"key": "sum", "displayName": "sum", "dataFlowType": "INTEGER"}
    document = {
        "id": "made-elsewhere",
        "name": "As a file has it",
        "viewport": {"x": 0, "y": 0, "zoom": 1},
        "nodes": [
            {"id": "a", "type": "acme-nodes:Add", "position": {"x": 1, "y": 2}, "inputValues": {"a": 1, "b": 2}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [{"id": "e", "source": "a", "sourceHandle": "sum", "target": "out", "targetHandle": "sum"}],
        "interfaceOutputs": {"sum": slot},
    }
    for overrides, expected in (({}, 3), ({"a": {"sum": 40}}, 40)):
        run = await bench.engine.wait(await post(client, {**document, "overrides": overrides}))
        assert (run.status, run.outputs) == ("complete", {"sum": expected}), run.error
    await bench.host.services.get(WORKFLOW_MANAGER).save(
        "stored", await bench.host.services.get(WORKFLOW_MANAGER).parse(document), call=bench.host.call()
    )
    run = await bench.engine.wait(await post(client, {"workflowId": "stored"}))
    assert (run.workflow_id, run.outputs) == ("stored", {"sum": 3})
    wrong = await client.post("/api/prompt", json={**document, "edges": [{"source": 1}]})
    assert wrong.status == 400 and "$.edges[0].source" in (await wrong.json())["message"]


async def test_a_prompt_is_run_and_can_be_looked_at(bench: Bench, client: Client) -> None:
    run_id = await post(client, PROMPT)
    await bench.engine.wait(run_id)

    shown = await get(client, f"/api/prompt/{run_id}")

    assert shown["promptId"] == run_id
    assert shown["status"] == "complete"
    assert shown["outputs"] == {"output_0": ["x", 3]}
    assert shown["nodeStatus"]["a"] == {"status": "complete", "output": {"sum": 3}}
    assert "submittedAt" in shown and "errorInfo" not in shown
    assert "there is no run" in (await get(client, "/api/prompt/run_0", status=404))["error"]


async def test_a_prompt_may_name_a_stored_workflow(bench: Bench, client: Client) -> None:
    document = workflow({"in": "core:GroupInput"}, interfaceInputs={"n": {"dataFlowType": "INTEGER"}}, name="Stored")
    await bench.host.services.get(WORKFLOW_MANAGER).save("stored", document)

    run_id = await post(client, {"workflowId": "stored", "inputs": {"n": 5}})
    run = await bench.engine.wait(run_id)

    assert run.nodes["in"].output == {"n": 5}
    shown = await get(client, f"/api/prompt/{run_id}")
    assert (shown["workflowId"], shown["workflowName"]) == ("stored", "Stored")


async def test_a_prompt_has_targets_priority_and_cache(bench: Bench, client: Client) -> None:
    first = await bench.engine.wait(await post(client, PROMPT))
    asked = {"targets": ["a"], "priority": 7, "actions": True, "useCache": False}

    run = await bench.engine.wait(await post(client, {**PROMPT, **asked}))

    assert first.nodes["a"].status == "complete"
    assert (run.targets, run.priority, run.actions) == (["a"], 7, RunActions())
    assert run.nodes["a"].status == "complete" and not run.nodes["a"].cached
    assert run.nodes["all"].status == "skipped"


async def test_nodes_of_a_prompt_keep_all_their_parts(bench: Bench, client: Client) -> None:
    prompt = {
        "nodes": [
            {"id": "z", "fullType": "core:LoopZone", "configValues": {"count": 3}},
            {"id": "b", "fullType": "acme-nodes:Boom", "parentNode": "z", "policy": {"onError": "skip_branch"}},
            {"id": "p", "fullType": "acme-nodes:Pause", "bypassed": True},
        ],
        "edges": [],
    }

    run = await bench.engine.wait(await post(client, prompt))

    assert (run.status, run.nodes["b"].iterations, run.nodes["p"].bypassed) == ("complete", 3, True)


async def test_an_output_fed_by_an_edge_is_mapped_once(bench: Bench, client: Client) -> None:
    out = {"id": "out", "fullType": "core:GroupOutput"}
    edge = {"sourceNodeId": "all", "sourceHandle": "list", "targetNodeId": "out", "targetHandle": "output_0"}
    prompt = {
        **PROMPT,
        "nodes": [*PROMPT["nodes"], out],  # type: ignore[misc]
        "edges": [*PROMPT["edges"], edge],  # type: ignore[misc]
        "interfaceOutputs": {"output_0": {"dataFlowType": "ARRAY"}},
    }

    run = await bench.engine.wait(await post(client, prompt))

    assert run.outputs == {"output_0": ["x", 3]}
    assert list(run.nodes) == ["a", "all", "g", "out"]


BAD: list[tuple[Any, str]] = [
    ({}, "a PROMPT_REQUEST needs `nodes` and `edges`, or the `workflowId` of a stored workflow"),
    ({"nodes": [{"id": "a"}]}, "this is no PROMPT_REQUEST: $.nodes[0].fullType: Field required"),
    ({**PROMPT, "priority": 5000}, "this is no PROMPT_REQUEST: $.priority: Input should be less than or equal to 1000"),
    (
        {**PROMPT, "targets": "all", "useCache": "perhaps"},
        "this is no PROMPT_REQUEST: $.targets: Input should be a valid list; "
        "$.useCache: Input should be a valid boolean, unable to interpret input",
    ),
    (
        {"nodes": [{"id": "a", "fullType": "acme-nodes:Stuborn"}]},
        "the workflow cannot be run: $.nodes[0].type: there is no node type 'acme-nodes:Stuborn' "
        "(did you mean acme-nodes:Stubborn?)",
    ),
]


async def test_a_bad_prompt_is_refused_with_the_reason(client: Client) -> None:
    with Failures() as failures:
        for body, message in BAD:
            with failures.row(message):
                response = await client.post("/api/prompt", json=body)
                assert (response.status, (await response.json())["error"]) == (400, message)


async def test_a_running_prompt_is_listed_and_interrupted(bench: Bench, client: Client) -> None:
    run_id = await post(client, HANG)
    await bench.until("NODE_EXECUTING", nodeId="n")

    listed = await get(client, "/api/executions")
    first = await client.delete(f"/api/interrupt/{run_id}")
    await bench.engine.wait(run_id)
    second = await client.delete(f"/api/interrupt/{run_id}")

    assert [run["promptId"] for run in listed["running"]] == [run_id]
    assert listed["running"][0]["status"] == "running" and listed["pending"] == []
    assert (first.status, (await first.json())["success"]) == (200, True)
    assert (second.status, (await second.json())["success"]) == (404, False)


async def receive(socket: ClientWebSocketResponse, type: str, **payload: Any) -> Any:
    """Return the payload of the next message of a type with these parts."""
    async for message in socket:
        data = message.json()
        if data["type"] == type and payload.items() <= data["payload"].items():
            return data["payload"]
    raise AssertionError(f"the socket was closed before {type} came")


async def test_a_prompt_runs_over_the_socket(client: Client) -> None:
    async with client.ws_connect("/ws") as socket:
        await socket.send_json({"type": "PROMPT_REQUEST", "payload": HANG})
        run_id = (await receive(socket, "PROMPT_ACCEPTED_RESPONSE"))["promptId"]
        await receive(socket, "NODE_EXECUTING", promptId=run_id, nodeId="n")
        await socket.send_json({"type": "INTERRUPT_REQUEST", "payload": {"promptId": run_id}})
        end = await receive(socket, "EXECUTION_STATUS_UPDATE", promptId=run_id, status="interrupted")

    assert end["errorInfo"]["code"] == "interrupted"


async def test_a_bad_message_is_answered_with_an_error(client: Client) -> None:
    async with client.ws_connect("/ws") as socket:
        await socket.send_json({"type": "INTERRUPT_REQUEST", "payload": {}})
        error = await receive(socket, "error")

    assert error["message"] == "an INTERRUPT_REQUEST needs a `promptId`"
