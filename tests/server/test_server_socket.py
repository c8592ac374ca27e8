"""`/ws`: messages in, events out, what was missed, and clients that misbehave."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType
from helpers.repetition import Failures
from helpers.waiting import let_pass, until, until_idle

from tavern_host.events.bus import KEPT, EventBus
from tavern_host.server import websocket
from tavern_host.server.subscriptions import joined
from tavern_host.testing.http import TOKEN, HttpClient


async def heard(socket: ClientWebSocketResponse, *, until: str | int | None = None) -> list[dict[str, Any]]:
    """Return messages up to the first of a type, or as many as asked for."""
    messages: list[dict[str, Any]] = []
    while True:
        messages.append(await socket.receive_json(timeout=60))
        if messages[-1]["type"] == until or len(messages) == until:
            return messages


def numbers(messages: list[dict[str, Any]]) -> list[int]:
    return [message["payload"]["number"] for message in messages if message["type"] == "ACME_EVENT"]


async def publish(site: HttpClient, count: int) -> None:
    """Publish numbered events from within the host."""
    for number in range(count):
        site.host.events.publish("ACME_EVENT", {"number": number})


async def opened_raw(site: HttpClient) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a socket that is not read of unless the test does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port, limit=1024)
    key = base64.b64encode(b"0123456789abcdef").decode()
    upgrade = f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
    head = f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nAuthorization: Bearer {TOKEN}\r\n{upgrade}\r\n"
    writer.write(head.encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 101")
    while (await reader.readline()).strip():
        pass
    return reader, writer


async def test_a_message_is_answered_to_its_sender_alone(site: HttpClient) -> None:
    first, second = await site.socket(), await site.socket()
    for fields, payload in (({"payload": {"a": [1, "ä"]}}, {"a": [1, "ä"]}), ({}, {}), ({"payload": None}, {})):
        await first.send_json({"type": "ACME_ECHO", **fields})
        echoed = [{"type": "ACME_FIRST", "payload": payload}, {"type": "ACME_SECOND", "payload": {}}]
        assert await heard(first, until=2) == echoed
    await publish(site, 1)
    assert [message["type"] for message in await heard(second, until=1)] == ["ACME_EVENT"]


SHAPE = 'a message is {"type": "…", "payload": {…}}'
WRONG_MESSAGES = [
    *((text, "the message is not JSON: ") for text in ("", "{", "[" * 100_000)),
    *((text, SHAPE) for text in ("null", "[]", '{"payload": {}}', '{"type": 7}')),
    ('{"type": "ACME_ECHO", "payload": []}', "the payload of a message is an object"),
    ('{"type": "ACME_ECHO", "payload": 0}', "the payload of a message is an object"),
    ('{"type": "NOPE"}', "unknown message type 'NOPE'; known are ACME_ECHO, "),
    ('{"type": "\\ud800"}', "the message: $.type: the text holds half of a surrogate pair"),
    ('{"type": "ACME_FAIL", "payload": {"how": "foreign"}}', "acme-web failed in the message ACME_FAIL; the log says"),
    ('{"type": "PROMPT_REQUEST"}', ""),
    ('{"type": "PROMPT_REQUEST", "payload": {"nodes": 1, "edges": 2}}', ""),
    ('{"type": "INTERRUPT_REQUEST"}', "an INTERRUPT_REQUEST needs a `promptId`"),
    ('{"type": "INTERRUPT_REQUEST", "payload": {"promptId": "nowhere"}}', "there is no run 'nowhere'"),
]


async def test_a_wrong_message_is_told_and_the_socket_stays(site: HttpClient) -> None:
    socket = await site.socket()
    with Failures() as failures:
        for text, message in WRONG_MESSAGES:
            await socket.send_str(text)
            with failures.row(text[:50]):
                answer = await socket.receive_json(timeout=60)
                assert answer["type"] == "error"
                assert "swordfish" not in str(answer)
                assert answer["payload"]["message"].startswith(message)
    await socket.send_json({"type": "ACME_FAIL", "payload": {"how": "input"}})
    details = {"code": "invalid_input", "field": "name"}
    told = {"type": "error", "payload": {"message": "not like that", "details": details}}
    assert await socket.receive_json(timeout=60) == told
    await socket.send_bytes(b'{"type": "ACME_ECHO"}')
    told = {"type": "error", "payload": {"message": "messages are JSON text, not binary", "details": None}}
    assert await socket.receive_json(timeout=60) == told
    await socket.send_json({"type": "ACME_ECHO"})
    assert (await socket.receive_json(timeout=60))["type"] == "ACME_FIRST"


async def test_a_message_too_large_closes_that_socket_alone(site: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MAX_MESSAGE", 1000)
    other, socket = await site.socket(), await site.socket()
    await socket.send_json({"type": "ACME_ECHO", "payload": {"text": "x" * 2000}})

    closed = await socket.receive(timeout=60)
    assert (closed.type, socket.close_code) == (WSMsgType.CLOSE, 1009)
    await publish(site, 1)
    assert numbers(await heard(other, until=1)) == [0]


# --- events ---------------------------------------------------------------------------------------


async def test_a_burst_comes_in_order_and_delays_nobody(own_site: HttpClient) -> None:
    sockets = [await own_site.socket() for _ in range(2)]
    before = own_site.host.events.last_seq
    own_site.host.events.publish_all([("ACME_EVENT", {"number": number}) for number in range(10_000)])
    reading = [asyncio.create_task(heard(socket, until=10_000)) for socket in sockets]
    assert (await own_site.get("/api/plugins")).status == 200
    assert not any(task.done() for task in reading)

    for messages in await asyncio.gather(*reading):
        assert numbers(messages) == list(range(10_000))
        assert [message["seq"] for message in messages] == list(range(before + 1, before + 10_001))


async def test_a_client_that_comes_back_gets_what_it_missed(own_site: HttpClient) -> None:
    site, events = own_site, own_site.host.events
    socket = await site.socket()
    await publish(site, 10)
    last = (await heard(socket, until=4))[-1]["seq"]
    await socket.close()
    await publish(site, 10)
    again = await heard(await site.socket(f"/ws?since={last}"), until=16)
    assert (numbers(again), again[0]["seq"]) == ([*range(4, 10), *range(10)], last + 1)

    fresh = await site.socket()  # it says nothing of the past, and begins now
    await publish(site, 1)
    assert (await heard(fresh, until=1))[0]["seq"] == events.last_seq

    here = {"epoch": events.epoch, "seq": events.last_seq}
    for query in ("since=999999", "since=1&epoch=another", "since=0&epoch=", f"since=999999&epoch={here['epoch']}"):
        socket = await site.socket(f"/ws?types=ACME_EVENT&{query}")
        assert await heard(socket, until=1) == [{"type": "RELOAD_NEEDED", "payload": here}], query
        assert numbers(await heard(socket, until=10)) == [*range(10)]
        await socket.close()
    socket = await site.socket(f"/ws?types=ACME_EVENT&since=0&epoch={here['epoch']}")
    assert numbers(await heard(socket, until=3)) == [0, 1, 2]
    assert EventBus().epoch != EventBus().epoch

    await publish(site, KEPT + 5)
    first = await (await site.socket(f"/ws?since={here['seq']}")).receive_json(timeout=60)
    assert (first["type"], first["payload"]["first"]) == ("GAP", here["seq"] + 1)
    for since in ("", "x", "-1", "1.5", "%C2%B2", "9" * 5000, "0x10"):
        answer = await site.get(f"/ws?since={since}")
        assert answer.status == 400, since
        assert (await answer.json())["error"].startswith("since must be the `seq` of the last message received")


async def test_what_is_not_json_leaves_the_rest(site: HttpClient) -> None:
    socket = await site.socket()
    await socket.send_json({"type": "ACME_PUBLISH", "payload": {"broken": True, "count": 2, "text": "ab"}})
    events = await heard(socket, until=2)
    assert [(one["payload"]["number"], one["payload"]["text"]) for one in events] == [(0, "ab"), (1, "ab")]


# --- what a socket wants --------------------------------------------------------------------------

_OF = [
    ("ACME_EVENT", {"number": 0}),
    ("ACME_EVENT", {"number": 1, "promptId": "run-1"}),
    ("ACME_EVENT", {"number": 2, "promptId": "run-2"}),
    ("ACME_EVENT", {"number": 3, "runId": "run-1", "profileId": "bard"}),
    ("ACME_EVENT", {"number": 4, "agentRunId": "agent-run-1", "profileId": "bard"}),
    ("ACME_EVENT", {"number": 5, "sceneRunId": "scene-1"}),
    ("ACME_EVENT", {"number": 6, "promptId": ["run-1"], "profileId": {"bard": 1}}),
    ("ACME_OTHER", {"number": 7, "promptId": "run-1"}),
    ("ACME_LAST", {"promptId": "run-1", "profileId": "bard", "agentRunId": "agent-run-1", "sceneRunId": "scene-1"}),
]
EVERYTHING: dict[str, list[str]] = {"runs": [], "agents": [], "types": []}
WANTED: list[tuple[dict[str, list[str]], list[int]]] = [
    ({}, [0, 1, 2, 3, 4, 5, 6, 7]),
    ({"runs": ["run-1"]}, [1, 3, 7]),
    ({"runs": ["agent-run-1", "scene-1"]}, [4, 5]),
    ({"agents": ["bard"]}, [3, 4]),
    ({"runs": ["run-1"], "agents": ["bard"]}, [1, 3, 4, 7]),
    ({"runs": ["run-1"], "types": ["ACME_E*", "ACME_LAST"]}, [1, 3]),
    ({"types": ["ACME_LAST"]}, []),
    ({"types": ["ACME_*"], "runs": [], "agents": []}, [0, 1, 2, 3, 4, 5, 6, 7]),
]


async def test_a_socket_hears_what_it_wants(site: HttpClient) -> None:
    events = site.host.events
    with Failures() as failures:
        for wanted, expected in WANTED:
            query = "&".join(f"{key}={name}" for key, names in wanted.items() for name in names)
            asked, told = await site.socket(f"/ws?{query}"), await site.socket()
            await told.send_json({"type": "SUBSCRIBE", "payload": wanted})
            since = {"epoch": events.epoch, "seq": events.last_seq}
            with failures.row(query):
                assert await told.receive_json(timeout=60) == {
                    "type": "SUBSCRIBED",
                    "payload": {**since, **EVERYTHING, **wanted},
                }
                events.publish_all(_OF)
                later = await site.socket(f"/ws?since={since['seq']}&epoch={since['epoch']}&{query}")
                for socket in (asked, told, later):
                    *seen, _ = await heard(socket, until="ACME_LAST")
                    assert [message["payload"]["number"] for message in seen] == expected


async def test_a_wrong_wish_is_told_its_place(site: HttpClient) -> None:
    wrong: list[tuple[Any, str]] = [
        ({"runs": "run-1"}, "runs"),
        ({"runs": [1]}, "runs[0]"),
        ({"runs": [""]}, "runs[0]"),
        ({"agents": ["x" * 201]}, "agents[0]"),
        ({"types": ["A*B"]}, "types[0]"),
        ({"types": ["ok", ""]}, "types[1]"),
        ({"types": ["A"] * 1001}, "types"),
        ({"run": ["run-1"]}, "run"),
    ]
    socket = await site.socket("/ws?types=NOTHING")
    with Failures() as failures:
        for payload, place in wrong:
            await socket.send_json({"type": "SUBSCRIBE", "payload": payload})
            with failures.row(str(payload)[:40]):
                answer = (await socket.receive_json(timeout=60))["payload"]
                assert answer["details"]["code"] == "invalid_input"
                assert answer["message"].startswith(f"the payload: $.{place}: ")
    await publish(site, 1)
    await socket.send_json({"type": "SUBSCRIBE"})  # it changes its mind, and hears all from now on
    assert (await socket.receive_json(timeout=60))["type"] == "SUBSCRIBED"
    await publish(site, 2)
    assert numbers(await heard(socket, until=2)) == [0, 1]
    answer = await site.get("/ws?types=A*B")
    assert (answer.status, (await answer.json())["error"][:23]) == (400, "the query: $.types[0]: ")


async def test_more_sockets_than_there_may_be_wait(site: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MOST_SOCKETS", 0)
    answer = await site.get("/ws")
    assert (answer.status, answer.headers["Retry-After"]) == (429, "5")
    assert (await answer.json())["code"] == "limit_reached"
    monkeypatch.undo()

    await (await site.socket()).close()


async def test_a_client_that_does_not_read_delays_nobody_and_is_cut_off(own_site: HttpClient) -> None:
    reader, writer = await opened_raw(own_site)
    reading = await own_site.socket()

    for number in range(200):
        own_site.host.events.publish("ACME_EVENT", {"number": number, "text": "x" * 100_000})
        assert numbers(await heard(reading, until=1)) == [number]
    await let_pass(websocket.SEND_DEADLINE)
    while await reader.read(1 << 20):
        pass
    writer.close()


async def test_a_slow_client_gets_pieces_joined(own_site: HttpClient) -> None:
    about = {"promptId": "run", "sourceNodeId": "n", "outputKey": "text"}
    events = own_site.host.events
    async with asyncio.timeout(60):
        reader, writer = await opened_raw(own_site)
        events.publish("ACME_EVENT", {"text": "x" * 12_000_000})  # stands in the way of what follows
        await until_idle()
        for number in range(6000):
            piece = {"type": "text_chunk", "content": f"{number},"}
            events.publish("NODE_YIELD", {**about, "yieldedContent": piece, "isLastChunk": number == 5999})
            if number % 1000 == 500:
                events.publish("EXECUTION_STATUS_UPDATE", {"promptId": "run", "status": str(number)})
                await asyncio.sleep(0)
        events.publish("ACME_EVENT", {})

        heard = []
        while not (heard and heard[-1]["seq"] == events.last_seq):
            size = (await reader.readexactly(2))[1]
            if size >= 126:
                size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8))
            heard.append(json.loads(await reader.readexactly(size)))
        writer.close()

    pieces = [one for one in heard if one["type"] == "NODE_YIELD"]
    text = "".join(one["payload"]["yieldedContent"]["content"] for one in pieces)
    assert text == "".join(f"{number}," for number in range(6000))
    assert len(pieces) < 2500
    assert [one["payload"]["isLastChunk"] for one in pieces] == [False] * (len(pieces) - 1) + [True]
    statuses = [one["payload"]["status"] for one in heard if one["type"] == "EXECUTION_STATUS_UPDATE"]
    assert statuses == ["500", "1500", "2500", "3500", "4500", "5500"]
    for one in heard:  # what is joined has the last number, and nothing is moved past a status
        if one["type"] == "EXECUTION_STATUS_UPDATE":
            before = [piece for piece in pieces if piece["seq"] < one["seq"]]
            assert before[-1]["payload"]["yieldedContent"]["content"].endswith(f"{one['payload']['status']},")


def test_only_pieces_of_one_stream_are_joined() -> None:
    def piece(content: Any, **more: Any) -> dict[str, Any]:
        return {"promptId": "r", "sourceNodeId": "n", "outputKey": "o", "yieldedContent": content} | more

    def text(said: str, **more: Any) -> dict[str, Any]:
        return {"type": "text_chunk", "content": said} | more

    whole = joined("NODE_YIELD", piece(text("a")), piece(text("b"), isLastChunk=True))
    assert whole == piece(text("ab"), isLastChunk=True)
    with Failures() as failures:
        for one, next in (
            (piece(text("a"), outputKey="p"), piece(text("b"))),
            (piece(text("a"), promptId="s"), piece(text("b"))),
            (piece(text("a"), isLastChunk=True), piece(text("b"))),
            (piece(text("a", mood="merry")), piece(text("b"))),
            (piece(text("a")), piece({"type": "error_chunk", "content": "b"})),
            (piece({"type": "custom", "content": 1}), piece({"type": "custom", "content": 2})),
            (piece(text("a" * 60_000)), piece(text("b" * 60_000))),
            (piece("a"), piece("b")),
            ({}, {}),
        ):
            with failures.row(str((one, next))[:100]):
                assert joined("NODE_YIELD", one, next) is None
    assert joined("ACME_EVENT", piece(text("a")), piece(text("b"))) is None


async def test_who_answers_no_ping_is_gone(site: HttpClient) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with site.client.ws_connect("/ws", headers=headers, autoping=False) as silent:
        types = [(await silent.receive(timeout=60)).type]
        while types[-1] not in (WSMsgType.CLOSE, WSMsgType.CLOSED):
            types.append((await silent.receive(timeout=60)).type)
    assert WSMsgType.PING in types  # beside events of what other tests have begun


async def test_nothing_is_left_of_sockets(own_site: HttpClient) -> None:
    events = own_site.host.events
    before = len(events._subscriptions)
    for socket in [await own_site.socket() for _ in range(10)]:
        await socket.close()
    await until(lambda: len(events._subscriptions) <= before, "nothing is subscribed to")
    await until(lambda: "forward events" not in [task.get_name() for task in asyncio.all_tasks()], "nothing forwards")

    socket = await own_site.socket()
    await publish(own_site, 1)
    await events.close()  # the host stops
    assert numbers(await heard(socket, until=1)) == [0]
    closed = await socket.receive(timeout=60)
    assert (closed.type, socket.close_code, closed.extra) == (WSMsgType.CLOSE, 1001, "the host stops")


async def test_a_prompt_runs_and_its_events_are_for_everybody(site: HttpClient) -> None:
    asking, watching = await site.socket(), await site.socket()
    prompt = {
        "nodes": [{"id": "up", "fullType": "core:UpperCase", "inputs": {"text": "hi"}}],
        "edges": [],
        "outputInterfaceMappings": {"said": {"sourceNodeId": "up", "sourceSlotKey": "text"}},
    }
    await asking.send_str(json.dumps({"type": "PROMPT_REQUEST", "payload": prompt}))

    def end(message: dict[str, Any]) -> bool:
        return message["type"] == "EXECUTION_STATUS_UPDATE" and message["payload"]["status"] == "complete"

    messages = []
    while not messages or not end(messages[-1]):
        messages += await heard(asking, until=1)
    accepted = next(m for m in messages if m["type"] == "PROMPT_ACCEPTED_RESPONSE")
    outputs = {m["payload"]["nodeId"]: m["payload"]["output"] for m in messages if m["type"] == "NODE_COMPLETE"}
    assert (outputs["up"], outputs["__WORKFLOW_INTERFACE_OUTPUTS__"]) == ({"text": "HI"}, {"said": "HI"})
    assert "seq" not in accepted
    events = [m for m in messages if m is not accepted]
    assert await heard(watching, until=len(events)) == events
    assert {m["payload"]["promptId"] for m in events if m["type"].startswith(("NODE_", "EXECUTION_"))} == {
        accepted["payload"]["promptId"]
    }
