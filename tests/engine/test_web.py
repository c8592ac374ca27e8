"""The platform's routes and socket messages, on a server."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse
from engine_bench import Bench
from helpers.repetition import Failures

from tavern_host.contracts.executions import Run, RunActions
from tavern_host.testing.http import HttpClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
NODES = [
    {"id": "a", "fullType": "acme-nodes:Add", "inputs": {"a": 1, "b": 2}},
    {"id": "all", "fullType": "acme-nodes:Collect", "inputConnectionOrders": {"values": ["e2", "e1"]}},
    {"id": "g", "fullType": "acme-nodes:Give", "configValues": {"value": "x"}, "bypassed": False},
]
EDGES = [
    {"id": "e1", "sourceNodeId": "a", "sourceHandle": "sum", "targetNodeId": "all", "targetHandle": "values__0"},
    {"id": "e2", "sourceNodeId": "g", "sourceHandle": "value", "targetNodeId": "all", "targetHandle": "values__1"},
]
OUTPUTS = {"output_0": {"sourceNodeId": "all", "sourceSlotKey": "list"}}
PROMPT = {"nodes": NODES, "edges": EDGES, "outputInterfaceMappings": OUTPUTS, "clientId": "c1", "metadata": {}}
HANG = {"nodes": [{"id": "n", "fullType": "acme-nodes:Hang"}], "edges": []}


async def post(site: HttpClient, body: Any) -> str:
    response = await site.post("/api/prompt", json=body)
    assert response.status == 200, await response.text()
    ((key, run_id),) = (await response.json()).items()
    assert key == "promptId"
    return str(run_id)


async def ran(bench: Bench, site: HttpClient, body: Any) -> Run:
    return await bench.engine.wait(await post(site, body))


async def get(site: HttpClient, path: str, status: int = 200) -> Any:
    response = await site.get(path)
    assert response.status == status
    return await response.json()


async def test_nodes_are_served_as_the_platform_serves_them(site: HttpClient) -> None:
    nodes = {f"{node['namespace']}:{node['type']}": node for node in await get(site, "/api/nodes")}

    shown = nodes["acme-nodes:Add"]
    about = {"dataFlowType": "INTEGER", "displayName": "b", "required": False, "config": {"default": 1}}
    assert shown["inputs"]["b"] == about
    assert (shown["execute"], shown["_executes"], "handler" in shown) == ({"__function__": True}, True, False)


async def test_a_workflow_is_run_as_its_file_has_it(shared: Bench, site: HttpClient) -> None:
    slots = {"sum": {"key": "sum", "displayName": "sum", "dataFlowType": "INTEGER"}}
    document = {
        "id": "made-elsewhere",
        "name": "As a file has it",
        "viewport": {"x": 0, "y": 0, "zoom": 1},
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            {"id": "a", "type": "acme-nodes:Add", "position": {"x": 1, "y": 2}, "inputValues": {"b": 2}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            {"id": "e", "source": "in", "sourceHandle": "n", "target": "a", "targetHandle": "a"},
            {"id": "f", "source": "a", "sourceHandle": "sum", "target": "out", "targetHandle": "sum"},
        ],
        "interfaceInputs": {"n": {"dataFlowType": "INTEGER"}},
        "interfaceOutputs": slots,
    }
    for overrides, expected in (({}, 3), ({"a": {"sum": 40}}, 40)):
        run = await ran(shared, site, {**document, "inputs": {"n": 1}, "overrides": overrides})
        assert (run.status, run.outputs) == ("complete", {"sum": expected}), run.error
    await shared.workflows.save("stored", await shared.workflows.parse(document), call=shared.host.call())
    run = await ran(shared, site, {"workflowId": "stored", "inputs": {"n": 5}})
    assert (run.workflow_id, run.outputs, run.nodes["in"].output) == ("stored", {"sum": 7}, {"n": 5})
    shown = await get(site, f"/api/prompt/{run.id}")
    assert (shown["workflowId"], shown["workflowName"]) == ("stored", "As a file has it")
    wrong = await site.post("/api/prompt", json={**document, "edges": [{"source": 1}]})
    assert wrong.status == 400 and "$.edges[0].source" in (await wrong.json())["message"]


async def test_a_prompt_is_run_and_can_be_looked_at(shared: Bench, site: HttpClient) -> None:
    run = await ran(shared, site, PROMPT)

    shown = await get(site, f"/api/prompt/{run.id}")

    assert (shown["promptId"], shown["status"], shown["outputs"]) == (run.id, "complete", {"output_0": ["x", 3]})
    assert shown["nodeStatus"]["a"] == {"status": "complete", "output": {"sum": 3}}
    assert "submittedAt" in shown and "errorInfo" not in shown
    assert "there is no run" in (await get(site, "/api/prompt/run_0", status=404))["error"]


async def test_a_prompt_keeps_all_its_parts(shared: Bench, site: HttpClient) -> None:
    await ran(shared, site, PROMPT)
    part = await ran(shared, site, {**PROMPT, "targets": ["a"], "priority": 7, "actions": True, "useCache": False})
    assert (part.targets, part.priority, part.actions) == (["a"], 7, RunActions())
    assert part.nodes["a"].status == "complete" and not part.nodes["a"].cached
    assert part.nodes["all"].status == "skipped"

    nodes = [
        {"id": "z", "fullType": "core:LoopZone", "configValues": {"count": 3}},
        {"id": "b", "fullType": "acme-nodes:Boom", "parentNode": "z", "policy": {"onError": "skip_branch"}},
        {"id": "p", "fullType": "acme-nodes:Pause", "bypassed": True},
    ]
    loop = await ran(shared, site, {"nodes": nodes, "edges": []})
    assert (loop.status, loop.nodes["b"].iterations, loop.nodes["p"].bypassed) == ("complete", 3, True)

    out = {"id": "out", "fullType": "core:GroupOutput"}
    edge = {"sourceNodeId": "all", "sourceHandle": "list", "targetNodeId": "out", "targetHandle": "output_0"}
    slots = {"interfaceOutputs": {"output_0": {"dataFlowType": "ARRAY"}}}
    mapped_twice = await ran(shared, site, {**PROMPT, "nodes": [*NODES, out], "edges": [*EDGES, edge], **slots})
    assert (mapped_twice.outputs, [*mapped_twice.nodes]) == ({"output_0": ["x", 3]}, ["a", "all", "g", "out"])


NO_PROMPT = "this is no PROMPT_REQUEST: "
BAD: list[tuple[Any, str]] = [
    ({}, "a PROMPT_REQUEST needs `nodes` and `edges`, or the `workflowId` of a stored workflow"),
    ({"nodes": [{"id": "a"}]}, f"{NO_PROMPT}$.nodes[0].fullType: Field required"),
    ({**PROMPT, "priority": 5000}, f"{NO_PROMPT}$.priority: Input should be less than or equal to 1000"),
    ({**PROMPT, "targets": "all", "useCache": "perhaps"}, f"{NO_PROMPT}$.targets: Input should be a valid list; "
        "$.useCache: Input should be a valid boolean, unable to interpret input"),
    ({"nodes": [{"id": "a", "fullType": "acme-nodes:Paus"}]}, "the workflow cannot be run: $.nodes[0].type: there "
        "is no node type 'acme-nodes:Paus' (did you mean acme-nodes:Pause?)"),
]  # fmt: skip


async def test_a_bad_prompt_is_refused_with_the_reason(site: HttpClient) -> None:
    with Failures() as failures:
        for body, message in BAD:
            with failures.row(message):
                response = await site.post("/api/prompt", json=body)
                assert (response.status, (await response.json())["error"]) == (400, message)


async def test_a_running_prompt_is_listed_and_interrupted(shared: Bench, site: HttpClient) -> None:
    run_id = await post(site, HANG)
    await shared.until("NODE_EXECUTING", nodeId="n")

    listed = await get(site, "/api/executions")
    answers = []
    for _ in range(2):
        answer = await site.request("DELETE", f"/api/interrupt/{run_id}")
        answers.append((answer.status, (await answer.json())["success"]))
        await shared.engine.wait(run_id)

    assert [(run["promptId"], run["status"]) for run in listed["running"]] == [(run_id, "running")]
    assert (listed["pending"], answers) == ([], [(200, True), (404, False)])


async def receive(socket: ClientWebSocketResponse, type: str, **payload: Any) -> Any:
    """Return the payload of the next message of a type with these parts."""
    async for message in socket:
        data = message.json()
        if data["type"] == type and payload.items() <= data["payload"].items():
            return data["payload"]
    raise AssertionError(f"the socket was closed before {type} came")


async def test_a_prompt_runs_over_the_socket(site: HttpClient) -> None:
    async with await site.socket() as socket:
        await socket.send_json({"type": "INTERRUPT_REQUEST", "payload": {}})
        error = await receive(socket, "error")
        await socket.send_json({"type": "PROMPT_REQUEST", "payload": HANG})
        run_id = (await receive(socket, "PROMPT_ACCEPTED_RESPONSE"))["promptId"]
        await receive(socket, "NODE_EXECUTING", promptId=run_id, nodeId="n")
        await socket.send_json({"type": "INTERRUPT_REQUEST", "payload": {"promptId": run_id}})
        end = await receive(socket, "EXECUTION_STATUS_UPDATE", promptId=run_id, status="interrupted")

    assert error["message"] == "an INTERRUPT_REQUEST needs a `promptId`"
    assert end["errorInfo"]["code"] == "interrupted"
