"""Buttons of nodes, by the service, over HTTP and over the socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse
from aiohttp.test_utils import TestClient
from engine_bench import Bench, OpenHost, web_client, workflow

from tavern_host import WORKFLOW_MANAGER
from tavern_host.contracts.errors import DeadlineExceeded, NotFound, PluginFailure
from tavern_host.plugins import lifecycle

DICE = "acme-buttons:Dice"

Client = TestClient[Any, Any]


@pytest.fixture
async def bench(open_host: OpenHost) -> AsyncIterator[Bench]:
    async with open_host("acme_buttons") as opened:
        yield opened


@pytest.fixture
async def client(bench: Bench) -> AsyncIterator[Client]:
    async with web_client(bench.host) as opened:
        yield opened


async def click(socket: ClientWebSocketResponse, **payload: Any) -> tuple[str, Any]:
    """Press a button and return the type and payload of what the sender is told."""
    await socket.send_json({"type": "button_click", "payload": payload})
    async for message in socket:
        data = message.json()
        if data["type"] in ("NODE_ACTION_RESULT", "error"):
            return data["type"], data["payload"]
    raise AssertionError("the socket was closed before an answer came")


async def store(bench: Bench, **node: Any) -> None:
    """Store a workflow `w` with one node `d`."""
    await bench.host.services.get(WORKFLOW_MANAGER).save("w", workflow({"d": {"type": DICE, **node}}))


async def test_a_button_takes_values_and_gives_new_ones(bench: Bench) -> None:
    changed = await bench.nodes.act(DICE, "roll", inputs={"more": [1]}, config={"step": 2})
    assert changed == {"value": 3, "seen": {"inputs": {"value": 1, "more": [1]}, "plugin": "acme-buttons"}}


async def test_an_unknown_type_or_button_is_told_with_near_names(bench: Bench) -> None:
    with pytest.raises(NotFound, match=r"there is no node type 'acme-buttons:Dise' \(did you mean"):
        await bench.nodes.act("acme-buttons:Dise", "roll", inputs={}, config={})
    with pytest.raises(NotFound, match=r"node Dice has no action 'rol' \(did you mean roll\?\)"):
        await bench.nodes.act(DICE, "rol", inputs={}, config={})


async def test_a_failing_button_is_its_plugins_failure(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(PluginFailure) as failed:
        await bench.nodes.act(DICE, "fail", inputs={}, config={})
    message = "action 'fail' of acme-buttons:Dice failed: ValueError: the dice fell off the table"
    assert (failed.value.info.plugin, message in failed.value.message) == ("acme-buttons", True)
    assert message in caplog.text and "Traceback" in caplog.text


async def test_an_unloaded_plugin_does_not_wait_for_buttons(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "DRAIN_DEADLINE", 0.05)
    pressed = asyncio.create_task(bench.nodes.act(DICE, "wait", inputs={}, config={}))
    await bench.until("ACME_WAITS")
    await bench.host.disable("acme-buttons")
    with pytest.raises(DeadlineExceeded, match="acme-buttons was unloaded before the action 'wait'"):
        await pressed


async def test_a_click_on_the_page_is_answered_to_its_sender(client: Client) -> None:
    async with client.ws_connect("/ws") as socket:
        answer = await click(
            socket,
            nodeId="n1",
            buttonName="roll",
            nodeType=DICE,
            nodeDisplayName="Dice",
            inputs={"value": 10},
            config={"step": 1},
        )
    assert answer == (
        "NODE_ACTION_RESULT",
        {
            "nodeId": "n1",
            "buttonName": "roll",
            "inputValues": {"value": 11, "seen": {"inputs": {"value": 10}, "plugin": "acme-buttons"}},
        },
    )


async def test_what_a_click_does_not_say_is_as_it_is_stored(bench: Bench, client: Client) -> None:
    await store(bench, inputValues={"value": 100}, configValues={"step": 20})
    async with client.ws_connect("/ws") as socket:
        _, stored = await click(socket, nodeId="d", buttonName="roll", workflowId="w")
        _, typed = await click(socket, nodeId="d", buttonName="roll", workflowId="w", nodeType=DICE)
        _, partly = await click(socket, nodeId="d", buttonName="roll", workflowId="w", inputs={"value": 1})
        _, new = await click(socket, nodeId="not stored", buttonName="roll", workflowId="w", nodeType=DICE)
        _, unsaved = await click(socket, nodeId="d", buttonName="roll", workflowId="not stored", nodeType=DICE)
    values = [answer["inputValues"]["value"] for answer in (stored, typed, partly, new, unsaved)]
    assert values == [120, 120, 21, 6, 6]


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "this is no button_click: $.nodeId: Field required; $.buttonName: Field required"),
    (
        {"nodeId": "d", "buttonName": "roll", "nodeType": DICE, "inputs": [1]},
        "this is no button_click: $.inputs: Input should be a valid dictionary",
    ),
    (
        {"nodeId": "d", "buttonName": "roll"},
        "a button_click needs a `nodeType`, or the `workflowId` of a stored workflow",
    ),
    ({"nodeId": "e", "buttonName": "roll", "workflowId": "w"}, "the workflow 'w' has no node 'e'"),
    ({"nodeId": "d", "buttonName": "rol", "workflowId": "w"}, "node Dice has no action 'rol' (did you mean roll?)"),
]


async def test_a_bad_click_is_answered_with_an_error(bench: Bench, client: Client) -> None:
    await store(bench)
    async with client.ws_connect("/ws") as socket:
        for payload, message in BAD:
            kind, answer = await click(socket, **payload)
            assert (kind, answer["message"]) == ("error", message)


async def test_a_button_is_pressed_over_http(client: Client) -> None:
    path = f"/api/nodes/{DICE}/actions"
    async with client.post(f"{path}/roll", json={"inputs": {"value": 4}}) as pressed:
        assert (pressed.status, (await pressed.json())["inputValues"]["value"]) == (200, 9)
    async with client.post(f"{path}/roll") as without_body:
        assert (await without_body.json())["inputValues"]["value"] == 6
    async with client.post(f"{path}/rol") as unknown:
        assert unknown.status == 404
    async with client.post(f"{path}/roll", json={"inputs": "x"}) as wrong:
        assert (wrong.status, (await wrong.json())["error"]) == (
            400,
            "the body: $.inputs: Input should be a valid dictionary",
        )
