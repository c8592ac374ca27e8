"""A character's card is changed over HTTP, for the revision that was read, and an export gives it back changed."""

from __future__ import annotations

import io
import json
import zipfile

import pytest
from helpers.repetition import Failures

from tavern_agents.api.agents import AGENT_RUNTIME
from tavern_host.testing.http import HttpClient, served
from tests.agents.agent_bench import AgentBench
from tests.characters.card_files import DOT, MIRA, V2, V3, charx, dumped, jpeg, png, webp
from tests.knowledge.cards import cards_in, chunk, picture

pytestmark = pytest.mark.asyncio(loop_scope="module")

OTHER = picture(chunk(b"tIME", b"\x07\xea\x0b\x1e\x0a\x00\x00"))


async def made(client: HttpClient, id: str, content: bytes) -> str:
    """Import a card, and return the tag of it."""
    assert (await client.post(f"/api/characters?id={id}", data=content)).status == 201
    return (await client.get(f"/api/characters/{id}")).headers["ETag"]


async def test_an_export_gives_the_changed_card(bench: AgentBench) -> None:
    async with served(bench.host) as client:
        tag = await made(client, "changed", png(V3, "ccv3"))
        read = await (await client.get("/api/characters/changed")).json()
        assert read["firstMes"] == MIRA["first_mes"]
        assert read["alternateGreetings"] == V2["data"]["alternate_greetings"]
        nothing = await client.request("PATCH", "/api/characters/changed", json=read, headers={"If-Match": tag})
        assert (nothing.status, nothing.headers["ETag"]) == (200, tag)
        change = {"name": "Mira Hill", "alternateGreetings": ["又是你？", "Closed."], "creatorNotes": "Revised."}
        saved = await client.request("PATCH", "/api/characters/changed", json=change, headers={"If-Match": tag})
        assert (saved.status, await saved.json()) == (200, {**read, **change})
        exported = await client.get("/api/characters/changed/export")
        wanted = {"name": "Mira Hill", "alternate_greetings": ["又是你？", "Closed."], "creator_notes": "Revised."}
        assert await exported.json() == {**V3, "data": {**V3["data"], **wanted}}
        agent = await bench.host.services.get(AGENT_RUNTIME).get("changed")
        assert (agent.name, agent.description) == ("Mira Hill", "Revised.")


async def test_a_change_says_which_revision_it_is_for(bench: AgentBench) -> None:
    async with served(bench.host) as client:
        tag = await made(client, "shared", dumped(V2))
        url = "/api/characters/shared"
        assert (await client.request("PATCH", url, json={"scenario": "Sun."})).status == 428
        first = await client.request("PATCH", url, json={"scenario": "Sun."}, headers={"If-Match": tag})
        late = await client.request("PATCH", url, json={"scenario": "Snow."}, headers={"If-Match": tag})
        assert (first.status, late.status) == (200, 412)
        assert f'"{(await late.json())["details"]["revision"]}"' == first.headers["ETag"]
        tag = first.headers["ETag"]
        pictured = await client.request("PUT", f"{url}/picture", data=DOT, headers={"If-Match": tag})
        assert (pictured.status, (await pictured.json())["scenario"]) == (200, "Sun.")
        late = await client.request("PUT", f"{url}/picture", data=OTHER, headers={"If-Match": tag})
        assert (late.status, await (await client.get(f"{url}/picture")).read()) == (412, DOT)
        gone = await client.request("PATCH", "/api/characters/nobody", json={}, headers={"If-Match": "*"})
        assert gone.status == 404


async def test_what_is_no_change_is_refused(bench: AgentBench) -> None:
    async with served(bench.host) as client:
        await made(client, "strict", dumped(V2))
        rows: list[tuple[str, str, dict[str, object], str]] = [
            ("PATCH", "", {"json": {"name": "  "}}, "a character has a name"),
            ("PATCH", "", {"json": {"tags": "inn"}}, "tags"),
            ("PATCH", "", {"json": {"first_mess": "Hi"}}, "first_mess"),
            ("PATCH", "", {"data": dumped({"description": "x" * (8 << 20)})}, "at most 8 MiB"),
            ("PUT", "/picture", {"data": b"GIF89a"}, "is PNG, WebP or JPEG"),
            ("PUT", "/picture", {"data": b""}, "is PNG, WebP or JPEG"),
            ("PUT", "/picture", {"data": charx()}, "is PNG, WebP or JPEG"),
            ("PUT", "/picture", {"data": DOT[:40]}, "breaks off"),
        ]
        with Failures() as failures:
            for method, rest, body, part in rows:
                with failures.row(part):
                    url = f"/api/characters/strict{rest}"
                    answer = await client.request(method, url, headers={"If-Match": "*"}, **body)
                    assert (answer.status, part in await answer.text()) == (400, True)
        assert await (await client.get("/api/characters/strict/export")).json() == V2


async def test_a_new_picture_is_in_every_export(bench: AgentBench) -> None:
    async with served(bench.host) as client:
        with Failures() as failures:
            for name, card in [("png", png(V3, "ccv3")), ("webp", webp()), ("charx", charx()), ("json", dumped(V2))]:
                with failures.row(name):
                    tag = await made(client, f"with-{name}", card)
                    url = f"/api/characters/with-{name}"
                    changed = png(V2) if name == "json" else OTHER  # the card in a picture is not looked at
                    pixels = DOT if name == "json" else OTHER
                    answer = await client.request("PUT", f"{url}/picture", data=changed, headers={"If-Match": tag})
                    assert answer.status == 200
                    assert await (await client.get(f"{url}/picture")).read() == pixels
                    carrying = await (await client.get(f"{url}/export?format=png")).read()
                    assert cards_in(carrying)["ccv3"]["data"]["name"] == "Mira Vale"
                    assert (chunk(b"tIME", b"\x07\xea\x0b\x1e\x0a\x00\x00") in carrying) is (name != "json")
                    archived = await (await client.get(f"{url}/export?format=charx")).read()
                    with zipfile.ZipFile(io.BytesIO(archived)) as archive:
                        icon = json.loads(archive.read("card.json"))["data"]["assets"][0]["uri"]
                        assert archive.read(icon.removeprefix("embeded://")) == pixels
        tag = (await client.get("/api/characters/with-png")).headers["ETag"]
        answer = await client.request("PUT", "/api/characters/with-png/picture", data=jpeg(), headers={"If-Match": tag})
        assert (answer.status, (await client.get("/api/characters/with-png/picture")).content_type) == (
            200,
            "image/jpeg",
        )


async def test_a_picture_is_taken_away_by_who_has_seen_it(bench: AgentBench) -> None:
    async with served(bench.host) as client:
        old = await made(client, "plain", png(V3, "ccv3"))
        url = "/api/characters/plain"
        answer = await client.request("PUT", f"{url}/picture", data=jpeg(), headers={"If-Match": old})
        assert (await client.request("DELETE", f"{url}/picture", headers={"If-Match": old})).status == 412
        assert (await client.get(f"{url}/picture")).status == 200
        tag = answer.headers["ETag"]
        answer = await client.request("DELETE", f"{url}/picture", headers={"If-Match": tag})
        assert answer.status == 200 and answer.headers["ETag"] not in (old, tag)
        assert (await client.get(f"{url}/picture")).status == 404
        known = {one["id"]: one for one in await (await client.get("/api/characters")).json()}
        assert known["plain"].get("picture") is None
        assert await (await client.get(f"{url}/export")).json() == V3
        again = await client.request("DELETE", f"{url}/picture", headers={"If-Match": answer.headers["ETag"]})
        assert again.status == 200  # there is none, as was asked for


async def test_older_and_odd_cards_take_changes(bench: AgentBench) -> None:
    doubled = {**V2, "name": "Mira Vale", "description": "Old.", "fav": False}
    odd = {"spec": "chara_card_v2", "data": {"name": "Odd", "first_mes": None, "description": 7, "tags": "inn"}}
    async with served(bench.host) as client:
        with Failures() as failures:
            for id, document, wanted in [
                ("old", MIRA, {**MIRA, "system_prompt": "New."}),
                ("doubled", doubled, {**doubled, "data": {**V2["data"], "system_prompt": "New."}}),
                ("odd", odd, {**odd, "data": {**odd["data"], "system_prompt": "New."}}),
            ]:
                with failures.row(id):
                    tag = await made(client, id, dumped(document))
                    said = await (await client.get(f"/api/characters/{id}")).json()
                    change = {**said, "systemPrompt": "New."}
                    url = f"/api/characters/{id}"
                    assert (await client.request("PATCH", url, json=change, headers={"If-Match": tag})).status == 200
                    assert await (await client.get(f"{url}/export")).json() == wanted
        renamed = await client.request(
            "PATCH", "/api/characters/doubled", json={"description": "Young."}, headers={"If-Match": "*"}
        )
        assert renamed.status == 200
        card = await (await client.get("/api/characters/doubled/export")).json()
        assert (card["description"], card["data"]["description"]) == ("Young.", "Young.")


async def test_an_agent_keeps_the_name_that_it_was_given(bench: AgentBench) -> None:
    async with served(bench.host) as client:
        await made(client, "named", dumped(V2))
        agent = await (await client.get("/api/agents/named")).json()
        own = {**agent, "name": "Innkeeper"}
        assert (await client.request("PUT", "/api/agents/named", json=own, headers={"If-Match": "*"})).status == 200
        change = {"name": "Mira Hill", "creatorNotes": "Revised."}
        answer = await client.request("PATCH", "/api/characters/named", json=change, headers={"If-Match": "*"})
        assert answer.status == 200
        agent = await (await client.get("/api/agents/named")).json()
        assert (agent["name"], agent["description"]) == ("Innkeeper", "Revised.")
