"""Webhooks: who may send them, once; what they are answered with; and the routes of triggers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from helpers.repetition import Failures
from helpers.waiting import until

from tavern_host import clock
from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.contracts.errors import InvalidInput
from tavern_host.testing.http import HttpClient, served
from tests.triggers.trigger_bench import TriggerBench, trigger_bench

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = b"a secret of some thirty-two bytes"
GIVEN = "whsec_" + base64.b64encode(KEY).decode()


@dataclass
class Desk:
    """A served project."""

    bench: TriggerBench
    client: HttpClient

    async def send(self, path: str, body: bytes = b"{}", **headers: str) -> tuple[int, Any]:
        """Send a webhook as another program does; return the status and what it is answered."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        asked = {"Authorization": None, "Content-Type": "application/json", **named}
        answer = await self.client.post(path, data=body, headers=asked)
        return answer.status, await answer.json()

    async def fired(self, id: str) -> int:
        """Return how often a trigger has fired."""
        return len(await self.bench.firings(id))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    """Serve one project for all tests of this file."""
    async with trigger_bench(tmp_path_factory.mktemp("hooks")) as bench, served(bench.host) as client:
        yield Desk(bench, client)


def signed(body: bytes, message_id: str = "msg_1", at: float = 0.0, key: bytes = KEY) -> dict[str, str]:
    """Return the headers of a message of Standard Webhooks, sent `at` seconds from now."""
    timestamp = str(int(clock.seconds() + at))
    content = b".".join((message_id.encode(), timestamp.encode(), body))
    signature = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return {"webhook_id": message_id, "webhook_timestamp": timestamp, "webhook_signature": f"v1,AAAA v1,{signature}"}


async def test_a_secret_address_fires_and_no_other_does(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    secret = await desk.bench.on("path", "webhook", {"auth": "path"})
    state = await desk.bench.triggers.get("path")
    assert (len(secret) >= 40, state.address) == (True, f"/api/hooks/path?projectId={desk.bench.host.project.id}")
    with caplog.at_level(logging.DEBUG, "tavern.server"):
        status, answer = await desk.send(f"/api/hooks/path/{secret}", b'{"text": "Hello", "projectId": "none"}')
        encoded = "".join(f"%{ord(letter):02X}" for letter in secret)
        assert (await desk.send(f"/api/hooks/path/{encoded}"))[0] == 202
        wrong = [secret[:-1], secret + "x", f"{secret}/", f"{secret}/x", f"x/{secret}", "", secret.swapcase()]
        statuses = {(await desk.send(f"/api/hooks/path/{end}"))[0] for end in [*wrong, quote(secret[:-1] + "é")]}
    assert (status, answer["status"] in ("running", "complete"), statuses) == (202, True, {401, 404})
    assert (await desk.send(f"/api/hooks/other/{secret}"))[0] == 404
    assert secret not in caplog.text
    assert encoded not in caplog.text
    await desk.bench.until_fired("path", 2)
    assert await desk.fired("path") == 2
    run = await desk.client.get(f"/api/runs/{answer['runId']}")
    assert (await run.json())["outputs"] == {"text": "HELLO"}


async def test_the_same_idempotency_key_fires_once(desk: Desk) -> None:
    secret = await desk.bench.on("key", "webhook", {})
    answers = [await desk.send(f"/api/hooks/key/{secret}", Idempotency_Key="a") for _ in range(3)]
    assert len({answer["firingId"] for _, answer in answers}) == 1
    assert await desk.fired("key") == 1


async def test_standard_webhooks_are_checked_and_seen_once(desk: Desk) -> None:
    await desk.bench.save("standard", "webhook", {"auth": "standard"}, overlap="parallel")
    assert (await desk.bench.triggers.enable("standard", secret=GIVEN)).secret == ""
    body, path = b'{"text": "a"}', "/api/hooks/standard"
    with Failures() as failures:
        for name, headers in {
            "none": {},
            "wrong key": signed(body, key=b"x" * 32),
            "other body": signed(b"{}"),
            "old": signed(body, at=-301),
            "of the future": signed(body, at=301),
            "other id": {**signed(body), "webhook_id": "msg_2"},
            "other time": {**signed(body), "webhook_timestamp": str(int(clock.seconds()) - 5)},
            "no number": {**signed(body), "webhook_timestamp": "now"},
            "no version": {**signed(body), "webhook_signature": signed(body)["webhook_signature"].replace("v1,", "")},
            "no base64": {**signed(body), "webhook_signature": "v1,é v1,%"},
        }.items():
            with failures.row(name):
                assert (await desk.send(path, body, **headers))[0] == 401
    assert (await desk.send(path + "/" + GIVEN, body, **signed(body)))[0] == 404
    assert await desk.fired("standard") == 0
    first, replayed, later = [
        await desk.send(path, body, **signed(body, id, at)) for id, at in (("m1", 0), ("m1", 200), ("m2", -200))
    ]
    assert (first[0], first[1]["firingId"]) == (202, replayed[1]["firingId"])
    assert later[1]["firingId"] != first[1]["firingId"]


async def test_a_signature_of_github_is_checked_and_a_body_fires_once(desk: Desk) -> None:
    secret = await desk.bench.on("github", "webhook", {"auth": "github"}, take={"text": "/repository/full_name"})
    body = json.dumps({"repository": {"full_name": "ada/inn"}}).encode()

    async def send(sent: bytes, key: str, delivery: str) -> tuple[int, Any]:
        signature = "sha256=" + hmac.new(key.encode(), sent, hashlib.sha256).hexdigest()
        named = {"X_Hub_Signature_256": signature, "X_GitHub_Delivery": delivery, "X_GitHub_Event": "push"}
        return await desk.send("/api/hooks/github", sent, **named)

    assert [(await send(body, secret + "x", "1"))[0], (await desk.send("/api/hooks/github", body))[0]] == [401, 401]
    (one, first), (_, again) = await send(body, secret, "1"), await send(body, secret, "2")
    assert (one, first["firingId"]) == (202, again["firingId"])
    await desk.bench.until_fired("github")
    assert desk.bench.marks()[-1] == "ada/inn"


async def test_a_webhook_is_answered_with_the_result_where_it_is_there_in_time(desk: Desk) -> None:
    quick = await desk.bench.on("quick", "webhook", {"answer": "result"})
    slow = await desk.bench.on("slow", "webhook", {"answer": "result", "seconds": 2}, workflow="long")
    broken = await desk.bench.on("broken", "webhook", {"answer": "result"}, workflow="broken", inputs={})
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    status, answer = await desk.send(f"/api/hooks/quick/{quick}", b"text=Bob", **form)
    assert (status, answer["status"], answer["outputs"]) == (200, "complete", {"text": "BOB"})
    status, answer = await desk.send(f"/api/hooks/slow/{slow}")
    assert (status, answer["status"], answer["outputs"]) == (202, "running", {})
    status, answer = await desk.send(f"/api/hooks/broken/{broken}")
    assert (status, answer["status"], bool(answer["reason"])) == (200, "error", True)
    assert (await desk.send(f"/api/hooks/quick/{quick}", b"{"))[0] == 400
    assert (await desk.send(f"/api/hooks/quick/{quick}", b"x" * 70_000))[0] == 413


async def test_a_secret_is_shown_once_and_kept_encrypted(desk: Desk) -> None:
    secret = await desk.bench.on("kept", "webhook", {})
    assert (await desk.bench.triggers.enable("kept")).secret == ""
    assert (await desk.send(f"/api/hooks/kept/{secret}"))[0] == 202
    shown = await (await desk.client.get("/api/triggers")).text() + await (await desk.client.get("/api/audit")).text()
    assert secret not in shown
    folder = desk.bench.host.folders.project_state(desk.bench.host.project)
    assert not [file for file in folder.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]
    other = (await desk.bench.triggers.enable("kept", rotate=True)).secret
    assert [(await desk.send(f"/api/hooks/kept/{one}"))[0] for one in (secret, other)] == [404, 202]
    with pytest.raises(InvalidInput, match="24 to 500"):
        await desk.bench.triggers.enable("kept", secret="short")


async def test_one_that_is_off_or_whose_file_is_changed_is_not_there(desk: Desk) -> None:
    secret = await desk.bench.on("off", "webhook", {})
    await desk.bench.triggers.disable("off")
    assert (await desk.send(f"/api/hooks/off/{secret}"))[0] == 404
    await desk.bench.triggers.enable("off")
    assert (await desk.send(f"/api/hooks/off/{secret}"))[0] == 202
    await desk.bench.save("off", "webhook", {}, name="Other")
    assert (await desk.send(f"/api/hooks/off/{secret}"))[0] == 404


async def test_a_webhook_acts_for_who_enabled_it_and_ends_with_that_right(desk: Desk) -> None:
    accounts = desk.bench.host.services.get(ACCOUNTS)
    await accounts.add_user("ada", "good evening")
    token = (await accounts.make_token("ada", "test")).token
    await desk.bench.save("hers", "webhook", {})
    by = {"headers": {"Authorization": f"Bearer {token}"}}
    enabled = await (await desk.client.post("/api/triggers/hers/enable", **by)).json()
    assert (enabled["status"], enabled["by"]) == ("on", "user:ada")
    _, answer = await desk.send(f"/api/hooks/hers/{enabled['secret']}")
    assert (await (await desk.client.get(f"/api/runs/{answer['runId']}")).json())["principal"]["id"] == "ada"
    await accounts.remove_user("ada")
    assert (await desk.send(f"/api/hooks/hers/{enabled['secret']}"))[0] == 404


async def test_the_routes_write_enable_fire_and_delete(desk: Desk) -> None:
    about = {"name": "Mornings", "kind": "schedule", "config": {"cron": "0 7 * * *"}, "workflow": "note"}
    await desk.bench.save("secretive", "webhook", {}, inputs={"text": "a", "apiKey": "s3cret"})
    client, path = desk.client, "/api/triggers/mornings"
    saved = await client.request("PUT", path, json=about)
    assert (saved.status, (await saved.json())["status"]) == (200, "off")
    assert (await (await client.post(path + "/enable")).json())["next"][0].endswith("07:00:00Z")
    fired = await client.post(path + "/fire", json={"payload": {"text": "now"}})
    assert fired.status == 202
    await until(lambda: "now" in desk.bench.marks())
    (firing,) = await (await client.get(path + "/firings?limit=5")).json()
    assert (firing["id"], firing["by"]) == ((await fired.json())["id"], "user:operator")
    times = await client.post("/api/trigger-times", json={"everySeconds": 60})
    assert len((await times.json())["times"]) == 3
    assert "schedule" in [kind["name"] for kind in await (await client.get("/api/trigger-kinds")).json()]
    accounts = desk.bench.host.services.get(ACCOUNTS)
    await accounts.add_user("eve", "good evening", role="viewer")
    viewer = {"headers": {"Authorization": f"Bearer {(await accounts.make_token('eve', 'test')).token}"}}
    assert "s3cret" not in await (await client.get("/api/triggers/secretive", **viewer)).text()
    assert (await client.post(path + "/enable", **viewer)).status == 403
    assert (await client.request("DELETE", path)).status == 204
    assert (await client.get(path)).status == 404
