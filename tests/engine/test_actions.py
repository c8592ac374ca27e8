"""Buttons of nodes, by the service, over HTTP and over the socket."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse
from engine_bench import Bench, OpenHost, workflow
from helpers.repetition import Failures

from tavern_host.contracts.errors import DeadlineExceeded, NotFound, PluginFailure
from tavern_host.testing.http import HttpClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_buttons"]
DICE = "acme-buttons:Dice"


async def click(socket: ClientWebSocketResponse, **payload: Any) -> tuple[str, Any]:
    """Press a button and return the type and payload of what the sender is told."""
    await socket.send_json({"type": "button_click", "payload": payload})
    async for message in socket:
        data = message.json()
        if data["type"] in ("NODE_ACTION_RESULT", "error"):
            return data["type"], data["payload"]
    raise AssertionError("the socket was closed before an answer came")


async def test_a_button_takes_values_and_gives_new_ones(shared: Bench) -> None:
    changed = await shared.nodes.act(DICE, "roll", inputs={"more": [1]}, config={"step": 2})
    assert changed == {"value": 3, "seen": {"inputs": {"value": 1, "more": [1]}, "plugin": "acme-buttons"}}
    with pytest.raises(NotFound, match=r"there is no node type 'acme-buttons:Dise' \(did you mean"):
        await shared.nodes.act("acme-buttons:Dise", "roll", inputs={}, config={})


async def test_a_failing_button_is_its_plugins_failure(shared: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(PluginFailure) as failed:
        await shared.nodes.act(DICE, "fail", inputs={}, config={})
    message = "action 'fail' of acme-buttons:Dice failed: ValueError: the dice fell off the table"
    assert failed.value.info.plugin == "acme-buttons"
    assert message in failed.value.message
    assert message in caplog.text and "Traceback" in caplog.text


@pytest.mark.asyncio(loop_scope="function")
async def test_an_unloaded_plugin_does_not_wait_for_buttons(open_host: OpenHost) -> None:
    async with open_host("acme_buttons") as bench:
        pressed = asyncio.create_task(bench.nodes.act(DICE, "wait", inputs={}, config={}))
        await bench.until("ACME_WAITS")
        await bench.host.disable("acme-buttons")
        with pytest.raises(DeadlineExceeded, match="acme-buttons was unloaded before the action 'wait'"):
            await pressed


async def test_what_a_click_does_not_say_is_as_it_is_stored(shared: Bench, site: HttpClient) -> None:
    node = {"type": DICE, "inputValues": {"value": 100}, "configValues": {"step": 20}}
    await shared.workflows.save("w", workflow({"d": node}))
    typed = {"nodeType": DICE}
    clicks: list[tuple[dict[str, Any], int]] = [
        *(({"workflowId": "w"}, 120), ({"workflowId": "w", **typed}, 120)),
        *(({"workflowId": "w", "inputs": {"value": 1}}, 21), ({"workflowId": "w", "nodeId": "not stored", **typed}, 6)),
        *(({"workflowId": "not stored", **typed}, 6), ({**typed, "inputs": {"value": 10}, "config": {"step": 1}}, 11)),
    ]
    async with await site.socket() as socket:
        for payload, value in clicks:
            kind, answer = await click(socket, **{"nodeId": "d", "buttonName": "roll", **payload})
            assert (kind, answer["inputValues"]["value"]) == ("NODE_ACTION_RESULT", value)
    seen = {"inputs": {"value": 10}, "plugin": "acme-buttons"}
    assert answer == {"nodeId": "d", "buttonName": "roll", "inputValues": {"value": 11, "seen": seen}}


ROLL = {"nodeId": "d", "buttonName": "roll"}
BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "this is no button_click: $.nodeId: Field required; $.buttonName: Field required"),
    (
        {**ROLL, "nodeType": DICE, "inputs": [1]},
        "this is no button_click: $.inputs: Input should be a valid dictionary",
    ),
    (ROLL, "a button_click needs a `nodeType`, or the `workflowId` of a stored workflow"),
    ({**ROLL, "nodeId": "e", "workflowId": "w"}, "the workflow 'w' has no node 'e'"),
    ({**ROLL, "buttonName": "rol", "workflowId": "w"}, "node Dice has no action 'rol' (did you mean roll?)"),
]


async def test_a_bad_click_is_answered_with_an_error(shared: Bench, site: HttpClient) -> None:
    await shared.workflows.save("w", workflow({"d": DICE}))
    async with await site.socket() as socket:
        with Failures() as failures:
            for payload, message in BAD:
                with failures.row(message):
                    kind, answer = await click(socket, **payload)
                    assert (kind, answer["message"]) == ("error", message)


async def test_a_button_is_pressed_over_http(site: HttpClient) -> None:
    for button, options, status, expected in [
        ("roll", {"json": {"inputs": {"value": 4}}}, 200, 9),
        ("roll", {}, 200, 6),
        ("rol", {}, 404, "node Dice has no action 'rol' (did you mean roll?)"),
        ("roll", {"json": {"inputs": "x"}}, 400, "the body: $.inputs: Input should be a valid dictionary"),
    ]:
        answer = await site.post(f"/api/nodes/{DICE}/actions/{button}", **options)
        found = await answer.json()
        assert (answer.status, found["inputValues"]["value"] if status == 200 else found["error"]) == (status, expected)
