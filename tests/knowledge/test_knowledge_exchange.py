"""Lorebooks and character cards: imported, used and exported again."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from helpers.repetition import Failures, refused

from tavern_host import InvalidInput, TavernError
from tavern_host.testing.http import served
from tavern_knowledge.api.knowledge import ActivationRequest, ExportFormat, KnowledgeEntry
from tests.knowledge.cards import BOOK, V1, V2, V3, WORLD, cards_in, chunk, picture, text_chunk
from tests.knowledge.conftest import Bench

pytestmark = pytest.mark.asyncio(loop_scope="module")

OF_BOOK = ["entries.acme"]
ODD = [
    "entries.keys: /(/ is no regular expression (a group is opened with ( and not closed) and is looked for as a text",
    "entries.position: outlet",
    "entries.vectorized",
]
EMPTY = (None, "", [], {}, False)


def dumped(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


async def there_and_back(bench: Bench, content: bytes, format: ExportFormat) -> Any:
    await bench.kb.import_base("moved", content, replace=True)
    return json.loads((await bench.kb.export_base("moved", format=format)).content)


def missing(before: Any, after: Any, path: str = "$") -> list[str]:
    """Return where `after` lacks what `before` has; what is empty may be left out."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [gap for key in before for gap in missing(before[key], after.get(key), f"{path}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [gap for n, pair in enumerate(zip(before, after, strict=True)) for gap in missing(*pair, f"{path}[{n}]")]
    return [] if before == after or (before in EMPTY and after in EMPTY) else [f"{path}: {before!r} became {after!r}"]


async def test_documents_come_back_as_they_were(bench: Bench) -> None:
    rows: list[tuple[str, Any, ExportFormat]] = [
        ("world", WORLD, "world_info"),
        ("world that looks far back", {"entries": {"0": {"uid": 0, "key": ["a"], "scanDepth": 500}}}, "world_info"),
        ("book", BOOK, "character_book"),
        ("lorebook", {"spec": "lorebook_v3", "data": BOOK}, "lorebook_v3"),
        ("V1", V1, "card_v1"),
        ("V1 with a field of its own", {**V1, "mood": "odd"}, "card_v1"),
        ("V2", V2, "card_v2"),
        ("V2 with the fields of V1 above", {**V1, **V2, "avatar": "none"}, "card_v2"),
        ("V3", V3, "card_v3"),
    ]
    with Failures() as failures:
        for name, document, format in rows:
            with failures.row(name):
                assert missing(document, await there_and_back(bench, dumped(document), format)) == []


async def test_what_has_no_effect_is_kept_and_named(bench: Bench) -> None:
    rows: list[tuple[Any, list[str]]] = [
        (WORLD, []),
        ({"entries": {"0": {"content": "x", "key": ["/(/"], "vectorized": True, "position": 7}}}, ODD),
        (BOOK, OF_BOOK),
        (V1, []),
        (V3, ["assets", *(f"character_book.{name}" for name in OF_BOOK), "extensions"]),
    ]
    with Failures() as failures:
        for document, expected in rows:
            with failures.row(expected):
                report = await bench.kb.import_base("moved", dumped(document), replace=True)
                assert report.unsupported == expected
    with pytest.raises(TavernError, match="there is a base 'moved' already"):
        await bench.kb.import_base("moved", dumped(V1))


async def test_imported_entries_are_called_up(bench: Bench) -> None:
    await bench.kb.import_base("world", dumped(WORLD))
    rows: list[tuple[list[str], str, list[str]]] = [
        (["nothing"], "a", ["st-7"]),
        (["a dragon in a cave full of gold"], "c", ["st-0", "st-7"]),
        (["a dragon in a cave"], "c", ["st-7"]),
        (["那条红龙 cave gold"], "c", ["st-0", "st-7"]),
        (["innkeeper"], "a", ["st-7"]),
    ]
    with Failures() as failures:
        for messages, seed, expected in rows:
            with failures.row(messages):
                request = ActivationRequest(messages=messages, bases=["world"], seed=seed)
                found = await bench.kb.activate(request)
                assert [entry.id for entry in found.entries] == expected, found
                deep = [(entry.role, entry.depth_offset) for entry in found.entries if entry.id == "st-0"]
                assert deep in ([], [("assistant", 2)])
    (name,) = [base.name for base in await bench.kb.bases() if base.id == "world"]
    assert name == "余烬山谷"
    await bench.kb.import_base("elara", dumped(V2))
    found = await bench.kb.activate(ActivationRequest(messages=["Hello"], bases=["elara"]))
    about = [V1[key] for key in ("description", "personality", "scenario")]
    assert [entry.text for entry in found.entries] == [*about, "Stay in the shop."]
    (hit,) = await bench.kb.search("药草", bases=["elara"])
    assert hit.name == "Moonwort"


async def test_pictures_carry_cards(bench: Bench) -> None:
    note = chunk(b"tEXt", b"Comment\0kept")
    rows = [
        ("V2", picture(text_chunk("chara", V2), note), "card_v2"),
        ("V3 before V2", picture(text_chunk("chara", V1), text_chunk("ccv3", V3)), "card_v3"),
        ("packed", picture(text_chunk("chara", V2, b"zTXt")), "card_v2"),
        ("in lines", picture(chunk(b"tEXt", b"chara\0" + base64.encodebytes(dumped(V2)))), "card_v2"),
        ("beside an empty one", picture(chunk(b"tEXt", b"ccv3\0"), text_chunk("chara", V2)), "card_v2"),
        ("without a spec", picture(text_chunk("chara", {"data": V2["data"]})), "card_v2"),
        ("international and packed", picture(text_chunk("chara", V2, b"iTXt")), "card_v2"),
    ]
    with Failures() as failures:
        for name, png, format in rows:
            with failures.row(name):
                report = await bench.kb.import_base("pictured", png, replace=True)
                assert report.format == format
                made = (await bench.kb.export_base("pictured", format="png")).content
                cards, third = cards_in(made), V3 if "V3" in name else {"data": V2["data"]}
                assert (missing(V2, cards["chara"]), missing(third, cards["ccv3"])) == ([], [])
                assert (note in made) == (note in png)
                assert (bench.root / "knowledge" / "pictured.png").exists()
    await bench.kb.import_base("plain", dumped(V1))
    made = (await bench.kb.export_base("plain", format="png")).content
    assert cards_in(made)["chara"]["data"]["name"] == "Elara"
    assert await bench.kb.delete_base("pictured")
    assert not (bench.root / "knowledge" / "pictured.png").exists()


async def test_documents_that_are_wrong_are_refused(bench: Bench) -> None:
    whole = picture(text_chunk("chara", V2))
    bomb = chunk(b"zTXt", b"chara\0\0" + zlib.compress(b"A" * (17 << 20)))
    rows = [
        (b"{}", "neither a lorebook nor a character card"),
        (b"[nonsense", "is not JSON"),
        (b'{"entries": {"0": {"depth": NaN}}}', '$.entries["0"].depth: a number must be finite'),
        (dumped({"entries": {"0": 7}}), "$.entries[0]: expected an object"),
        (dumped({"entries": {"0": {"key": 7}}}), "$.entries[0].key: expected a list of texts"),
        (dumped({"entries": {"0": {"content": []}}}), "expected text, got an array"),
        (dumped({"entries": {"0": {"order": "high"}}}), "expected a number, got text"),
        (dumped({"entries": {str(n): {} for n in range(10_001)}}), "at most 10,000 entries"),
        (picture(), "no text ccv3 or chara"),
        (picture(chunk(b"tEXt", b"chara\0!!!")), "is not JSON"),
        (picture(chunk(b"tEXt", b"chara\0abcde")), "is not Base64"),
        (picture(bomb), "a compressed text in the picture is too large"),
        (picture(chunk(b"zTXt", b"chara\0\0nonsense")), "a compressed text in the picture is damaged"),
        (whole[:-20], "breaks off in the middle"),
        (whole.replace(b"tEXtchara", b"tEXtcharb"), "wrong checksum"),
    ]
    await refused([(bench.kb.import_base("wrong", content), InvalidInput, problem) for content, problem in rows])
    assert "wrong" not in {base.id for base in await bench.kb.bases()}


async def test_what_a_format_cannot_hold_is_named(bench: Bench) -> None:
    bench.write("knowledge/own.json", {"entries": []})
    conditions = [{"type": "variable_check", "variable": "v", "value": 1}]
    criteria = {"keywords": ["a"], "key_groups": [{"keys": ["b"]}], "trigger_conditions": conditions}
    usage = {"once_per_session": True, "prefix": {"text": "<", "is_enabled": True}}
    about = {"id": "a", "content": {"value": "x", "mime_type": "image/png"}, "usage_metadata": usage}
    await bench.kb.put("own", [KnowledgeEntry.model_validate({**about, "activation_criteria": criteria})])
    made = await bench.kb.export_base("own", format="world_info")
    assert made.unsupported == [
        *(f"entries.activation_criteria.{name}" for name in ("key_groups", "trigger_conditions")),
        *("entries.content: media", "entries.usage_metadata.once_per_session", "entries.usage_metadata.prefix"),
    ]
    await bench.kb.import_base("moved", dumped(V3), replace=True)
    lost = (await bench.kb.export_base("moved", format="card_v1")).unsupported
    assert {"assets", "nickname", "character_book", "alternate_greetings", "tags"} <= set(lost)
    assert "nickname" in (await bench.kb.export_base("moved", format="card_v2")).unsupported


async def test_routes_move_documents(bench: Bench) -> None:
    async with served(bench.host) as web:
        path = "/api/knowledge/posted"
        assert (await web.post(f"{path}/import", data=dumped(WORLD))).status == 200
        assert (await web.post(f"{path}/import", data=dumped(WORLD))).status == 409
        assert (await web.post(f"{path}/import?replace=true", data=dumped(V2))).status == 200
        answer = await web.get(f"{path}/export?format=card_v1")
        assert (json.loads(await answer.read())["name"], answer.status) == ("Elara", 200)
        assert "character_book" in answer.headers["X-Unsupported"]
        assert (await web.get(f"{path}/export?format=png")).content_type == "image/png"
        assert (await web.get(f"{path}/export?format=docx")).status == 400
