"""Character cards of every version, in every kind of file: an agent is made of each, and the card comes back."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_characters.api.characters import CHARACTERS, Characters, Persona
from tavern_host import InvalidInput, NotFound, TavernError
from tavern_host.contracts.errors import Conflict
from tavern_host.testing.http import served
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE
from tests.agents.agent_bench import AgentBench
from tests.characters.card_files import (
    BOOK,
    DOT,
    MIRA,
    V2,
    V3,
    apng,
    charx,
    dumped,
    jpeg,
    jpeg_with_comment,
    png,
    webp,
)
from tests.knowledge.cards import cards_in, chunk, picture, text_chunk

pytestmark = pytest.mark.asyncio(loop_scope="module")

BROKEN = chunk(b"tEXt", b"ccv3\0" + b"eyJicm9rZW4=")
FILES: list[tuple[str, bytes, Any, str | None]] = [
    ("V1", dumped(MIRA), MIRA, None),
    ("V2", dumped(V2), V2, None),
    ("V3", dumped(V3), V3, None),
    ("with a mark of the order of bytes", b"\xef\xbb\xbf" + dumped(V2), V2, None),
    ("without data", dumped({"spec": "chara_card_v2", **MIRA}), {"spec": "chara_card_v2", **MIRA}, None),
    ("without a spec", dumped({"data": V2["data"]}), {"data": V2["data"]}, None),
    ("PNG", png(), V2, "image/png"),
    ("PNG, packed", png(V2, "chara", b"zTXt"), V2, "image/png"),
    ("PNG, V3", png(V3, "ccv3"), V3, "image/png"),
    ("PNG, of both the first", picture(text_chunk("chara", MIRA), text_chunk("ccv3", V3)), V3, "image/png"),
    ("PNG, of both the one that is whole", picture(BROKEN, text_chunk("chara", V2)), V2, "image/png"),
    ("animated PNG", apng(), V2, "image/png"),
    ("WebP", webp(), V2, "image/webp"),
    ("JPEG", jpeg(), V2, "image/jpeg"),
    ("JPEG, in a comment", jpeg_with_comment(), V2, "image/jpeg"),
    ("CHARX", charx(), V3, "image/png"),
    ("CHARX behind a JPEG picture", b"\xff\xd8\xff\xd9" + charx(), V3, "image/png"),
]


def characters(bench: AgentBench) -> Characters:
    return bench.host.services.get(CHARACTERS)


async def test_a_card_comes_back_as_it_was(bench: AgentBench) -> None:
    await characters(bench).import_card(dumped(MIRA), character="moved")
    with Failures() as failures:
        for name, content, document, picture_type in FILES:
            with failures.row(name):
                made = await characters(bench).import_card(content, name="card.any", character="moved", replace=True)
                assert (made.id, made.name, made.picture) == ("moved", "Mira Vale", picture_type)
                back = await characters(bench).export_card("moved")
                assert json.loads(back.content) == document
                again = await characters(bench).import_card(back.content, character="moved", replace=True)
                assert again.model_copy(update={"picture": picture_type}) == made


async def test_a_picture_and_an_archive_carry_it_again(bench: AgentBench) -> None:
    with_note = png(V3, "ccv3")
    made = await characters(bench).import_card(with_note, character="pictured")
    assert made.picture == "image/png"
    found = await characters(bench).export_card("pictured", format="png")
    cards = cards_in(found.content)
    assert cards["ccv3"] == V3
    assert cards["chara"]["data"]["first_mes"] == MIRA["first_mes"]
    assert (await characters(bench).picture("pictured")).content == DOT
    archived = await characters(bench).export_card("pictured", format="charx")
    with zipfile.ZipFile(io.BytesIO(archived.content)) as archive:
        assert json.loads(archive.read("card.json"))["data"]["assets"][0]["uri"] == "embeded://assets/icon/main.png"
        assert archive.read("assets/icon/main.png") == DOT
    await characters(bench).import_card(charx(**{"assets/other.bin": b"kept"}), character="archived")
    archived = await characters(bench).export_card("archived", format="charx")
    with zipfile.ZipFile(io.BytesIO(archived.content)) as archive:
        assert (archive.read("assets/other.bin"), json.loads(archive.read("card.json"))) == (b"kept", V3)
    older = await characters(bench).export_card("archived", format="card_v1")
    assert json.loads(older.content) == MIRA
    assert {"nickname", "character_book", "acme_field"} <= set(older.unsupported)


async def test_wrong_fields_are_named_and_passed_over(bench: AgentBench) -> None:
    odd = {
        **{"name": "Odd", "first_mes": None, "description": 7, "personality": ["a", "b"], "alternate_greetings": "Hi."},
        **{"tags": {"a": 1}, "extensions": [], "character_book": None, "mes_example": {"no": 1}, "scenario": "A room."},
    }
    document = {"spec": "chara_card_v2", "spec_version": 2, "data": odd}
    made = await characters(bench).import_card(dumped(document), character="odd")
    wrong = ("alternate_greetings", "description", "extensions", "mes_example", "personality", "tags")
    assert made.unsupported == [f"{key}: of the wrong type" for key in wrong]
    begun = await characters(bench).begin("odd")
    assert (begun.greeting, begun.greetings) == ("Hi.", 1)
    assert json.loads((await characters(bench).export_card("odd")).content) == document


async def test_files_that_are_no_cards_are_named_for_what_they_are(bench: AgentBench) -> None:
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("card.json", b" " * (60 << 20))
    empty = io.BytesIO()
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("note.txt", "x")
    packed = chunk(b"zTXt", b"chara\0\0" + zlib.compress(b"A" * (40 << 20)))
    chat = dumped({"user_name": "Ada", "character_name": "Mira", "chat_metadata": {}}) + b'\n{"mes": "Hi"}\n'
    rows = [
        (dumped({"entries": {"0": {"key": ["a"], "content": "x"}}}), "is a lorebook of SillyTavern; tavern kb import"),
        (dumped({"lorebookVersion": 5, "entries": []}), "is a lorebook of NovelAI; tavern kb import"),
        (dumped({"prompts": [], "prompt_order": []}), "is a preset of SillyTavern"),
        (chat, "is a chat of SillyTavern; tavern character import-chat"),
        (b"{}", "it is no character card"),
        (b"[1]", "a character card is an object"),
        (b"nonsense", "x.card"),
        (b'{"name": "A", "first_mes": NaN}', "x.card"),
        (DOT, "holds no character card"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "this WEBP picture holds no character card"),
        (b"\xff\xd8\xff\xd9", "this JPEG picture holds no character card"),
        (b"PK\x03\x04broken", "the archive is damaged"),
        (empty.getvalue(), "there is no card.json in it"),
        (bomb.getvalue(), "card.json in the archive has more than 8 MiB"),
        (picture(packed), "too large"),
        (b" " * (17 << 20), "at most 16 MiB"),
        (b'{"name": "A", "description": "' + b"x" * (9 << 20) + b'", "first_mes": ""}', "at most 8 MiB"),
        (b"[" * 100_000, "x.card"),
    ]
    with Failures() as failures:
        for content, part in rows:
            with failures.row(part):
                with pytest.raises(TavernError) as caught:
                    await characters(bench).import_card(content, name="x.card")
                assert caught.value.info.code == InvalidInput.code
                assert part in caught.value.message


async def test_what_is_there_is_not_replaced_unasked(bench: AgentBench) -> None:
    first = await characters(bench).import_card(dumped(MIRA), name="a.json")
    second = await characters(bench).import_card(dumped(MIRA), name="a.json")
    assert (first.id, second.id) == ("mira-vale", "mira-vale-2")
    with pytest.raises(Conflict, match="there is an agent, character or base 'keeper' already"):
        bench.project.write(
            "agents/keeper.json",
            {
                "id": "keeper",
                "name": "K",
                "version": "1",
                "schema_version": "1.0",
                "core_deliberation_workflow_id": "think",
            },
        )
        await characters(bench).import_card(dumped(MIRA), character="keeper", replace=True)
    for wrong in ("../up", "a b", ".hidden", "a/b", "x" * 300):
        with pytest.raises(TavernError):
            await characters(bench).import_card(dumped(MIRA), character=wrong)
    with pytest.raises(NotFound, match="there is no character 'mira-val'"):
        await characters(bench).begin("mira-val")
    with pytest.raises(InvalidInput, match="1 to 200 characters"):
        await characters(bench).begin("mira-vale", conversation_id="x" * 300)
    odd = await characters(bench).import_card(dumped({**MIRA, "name": " Ann\n\0 Lee "}))
    assert (odd.id, odd.name) == ("ann-lee", "Ann Lee")
    profile = await bench.runtime.get("mira-vale")
    assert profile.knowledge_base_references == []
    assert await bench.runtime.check("mira-vale") == []


async def test_over_http(bench: AgentBench) -> None:
    async with served(bench.host) as client:
        made = await client.post("/api/characters?name=mira.png&id=by-http", data=png(V3, "ccv3"))
        assert (made.status, (await made.json())["id"]) == (201, "by-http")
        found = await client.get("/api/characters/by-http/picture")
        assert (found.status, found.content_type, await found.read()) == (200, "image/png", DOT)
        kept = await client.request("PUT", "/api/persona", json={"name": "Ada", "description": "A baker."})
        assert (kept.status, await (await client.get("/api/persona")).json()) == (200, await kept.json())
        assert (await client.request("PUT", "/api/persona", json={"name": "  "})).status == 400
        begun = await (await client.post("/api/characters/by-http/conversations")).json()
        assert begun["greeting"] == "*Mira looks up.* Come in, Ada!\nIt is late."
        card = await client.get("/api/characters/by-http/export?format=png")
        assert cards_in(await card.read())["ccv3"] == V3
        assert (await client.get("/api/characters/nobody/export")).status == 404
        assert (await client.get("/api/characters/by-http/export?format=webp")).status == 400
        assert "by-http" in [one["id"] for one in await (await client.get("/api/characters")).json()]
    bases = {one.id: one.entries for one in await bench.host.services.get(KNOWLEDGE_BASE).bases()}
    assert bases["by-http"] == len(BOOK["entries"])
    assert await characters(bench).persona() == Persona(name="Ada", description="A baker.")
