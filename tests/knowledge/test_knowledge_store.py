"""Bases and their entries: files that people write, and what is written through the service."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures, refused

from tavern_host import Folders, Host, InvalidInput, NotFound
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import Conflict, PermissionDenied
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE, NODES, TOOLS, BaseHeader, KnowledgeEntry
from tests.knowledge.conftest import Bench

pytestmark = pytest.mark.asyncio(loop_scope="module")

DRAGON = {
    **{"id": "dragon", "version": 1, "entry_type": "lore_detail", "displayName": "红龙"},
    "content": {"mime_type": "text/plain", "value": "余烬山上住着一条红色的巨龙。", "path": None, "tone": "dark"},
    "activation_criteria": {"keywords": ["dragon", "red scales"], "key_groups": [{"keys": ["cave"], "note": 1}]},
    "usage_metadata": {"priority": 10, "role": "null"},
    "management_metadata": {"tags": ["creature"], "mood": None},
    "extensions": {"acme": {"x": [1, 2]}},
}
INN = {"id": "inn", "content": {"value": "A quiet inn; its owner brews TavernAle2 and keeps a ledger of debts."}}
OFF = {"id": "off", "content": {"value": "Nobody finds the ledger."}, "management_metadata": {"is_enabled": False}}
HEADER = {
    **{"kb_id": "kb_lore", "kb_version": "1.1.0", "schema_version": "1.0", "kb_displayName": "Lore of the valley"},
    **{"tags": ["lore"], "shelf": 7},
}
LORE: dict[str, Any] = {**HEADER, "entries": [DRAGON, INN, OFF]}


@pytest.fixture(autouse=True)
def lore(bench: Bench) -> None:
    """Begin each test with the base `lore` as it is above."""
    bench.write("knowledge/lore.json", LORE)


def entry(id: str, value: str = "", **more: Any) -> KnowledgeEntry:
    return KnowledgeEntry.model_validate({"id": id, "content": {"value": value}, **more})


async def test_a_file_of_the_project_is_a_base(bench: Bench) -> None:
    bench.write("knowledge/lore.json", "// what the valley knows\n" + json.dumps(LORE))
    (base, *_) = await bench.kb.bases()
    assert (base.id, base.name, base.entries, base.writable) == ("lore", "Lore of the valley", 3, "yes")
    assert (await bench.kb.header("lore")).to_json()["shelf"] == 7
    page = await bench.kb.list_entries("lore", limit=2)
    assert ([one.entry.id for one in page.entries], page.total) == (["dragon", "inn"], 3)
    rows: list[tuple[str, str | None]] = [
        *((query, "dragon") for query in ("红龙", "巨龙", "龙", "山", "ＲＥＤ scales", "creature")),
        *((query, "inn") for query in ("who brews ale", "tavern", "debt")),
        *((query, None) for query in ("凤凰", '" OR * NEAR( -', "")),
    ]
    with Failures() as failures:
        for query, expected in rows:
            with failures.row(query):
                found = await bench.kb.search(query)
                assert next((hit.id for hit in found), None) == expected
    assert [hit.id for hit in await bench.kb.search("ledger 红龙", tags=["creature"])] == ["dragon"]
    assert [hit.id for hit in await bench.kb.search("ledger 红龙", entry_types=["fact"])] == ["inn"]
    assert await bench.kb.search("ledger", bases=["other"]) == []


async def test_what_is_not_changed_comes_back_as_it_was(bench: Bench) -> None:
    (written,) = await bench.kb.put("lore", [entry("well", "The well is dry.")])
    kept = bench.read("lore")
    assert {key: value for key, value in kept.items() if key not in ("entries", "updated_at", "created_at")} == HEADER
    assert (kept["entries"][:3], kept["entries"][3]["id"]) == (LORE["entries"], "well")
    assert (await bench.kb.get("lore", "well")).revision == written.revision
    assert await bench.kb.delete("lore", ["well", "well", "nothing"]) == 1
    assert bench.read("lore")["entries"] == LORE["entries"]
    assert await bench.kb.search("well dry") == []


async def test_two_writers_lose_nothing(bench: Bench) -> None:
    (first,) = await bench.kb.put("lore", [entry("gate", "one")], revision="")
    await bench.kb.put("lore", [entry("gate", "two")], revision=first.revision)
    late = [bench.kb.put("lore", [entry("gate", "three")], revision=revision) for revision in (first.revision, "")]
    await refused([(act, Conflict, "read it again") for act in late])
    await asyncio.gather(*(bench.kb.put("lore", [entry(f"n{n}", f"number {n}")]) for n in range(20)))
    assert {one["id"] for one in bench.read("lore")["entries"]} >= {f"n{n}" for n in range(20)}
    await refused([(bench.kb.put("lore", [entry("a"), entry("a")]), InvalidInput, "same id")])
    await bench.kb.delete("lore", ["gate", *(f"n{n}" for n in range(20))])


async def test_edits_of_the_file_count_at_once(bench: Bench) -> None:
    await bench.kb.search("inn")  # reads what was written before
    events = bench.host.events.subscribe("tavern-knowledge.*")
    kept = bench.read("lore")
    kept["entries"][1]["content"]["value"] = "A loud inn."
    bench.write("knowledge/lore.json", kept)
    assert [hit.id for hit in await bench.kb.search("loud")] == ["inn"]
    assert await bench.kb.search("quiet") == []
    event = await anext(aiter(events))
    assert getattr(event, "payload", None) == {"base": "lore", "entries": ["inn"], "removed": False}
    await events.close()
    bench.remove("lore")
    assert [base.id for base in await bench.kb.bases()] == [NODES, TOOLS]
    bench.write("knowledge/lore.json", LORE)
    assert len(await bench.kb.bases()) == 3


async def test_a_wrong_file_is_named_and_never_overwritten(bench: Bench) -> None:
    long = "x" * ((1 << 20) + 1)
    rows: list[tuple[Any, str]] = [
        ("{", "line 1, column 2: expected a key"),
        ('{"entries": [1,]}', "line 1, column 16"),
        ("[]", "expected '{'"),
        ('{"entries": [], 1: 2}', "column 17: expected a key"),
        ('{"entries": []} x', "expected the end"),
        ({"entries": {}}, "$.entries: expected an array, got an object"),
        ({"entries": [{"content": {}}, {"id": "a", "content": 7}]}, "$.entries[0]: $.id: it has none; $.entries[1]"),
        ({"entries": [{"id": "a"}, {"id": "a"}]}, "$.entries[1].id: 'a' is the id of another entry"),
        ({"entries": [{"id": "a", "content": {"value": long}}]}, "more than 1 MiB"),
        ('{"entries": [{"id": "a", "n": NaN}]}', "must be finite"),
        ('{"entries": [{"id": "a", "n": ' + "[" * 5000 + "]" * 5000 + "}]}", "levels deep"),
        ({"entries": [], "kb_extensions": {"access": {"read": "me"}}}, "valid list"),
        (b"\xff\xfe".decode("latin-1"), "expected '{'"),
    ]
    with Failures() as failures:
        for content, problem in rows:
            with failures.row(problem):
                bench.write("knowledge/wrong.json", content)
                before = bench.content("wrong")
                (told,) = [base for base in await bench.kb.bases() if base.id == "wrong"]
                assert problem in str(told.problem)
                save = bench.kb.save_base(BaseHeader(kb_id="wrong"))
                acts = (bench.kb.put("wrong", [entry("a")]), save, bench.kb.get("wrong", "a"))
                await refused([(act, InvalidInput, "knowledge/wrong.json") for act in acts])
                assert bench.content("wrong") == before
    assert [hit.id for hit in await bench.kb.search("inn")] == ["inn"]
    assert await bench.kb.delete_base("wrong")
    if not bench.has_files:
        return
    outside = bench.write("outside.json", LORE)
    (bench.root / "knowledge" / "link.json").symlink_to(outside)
    (link,) = [base for base in await bench.kb.bases() if base.id == "link"]
    assert "links are not followed" in str(link.problem)
    assert await bench.kb.delete_base("link")
    assert outside.exists()


async def test_what_cannot_be_named_or_does_not_fit_is_refused(bench: Bench) -> None:
    big, large = entry("big", "x" * (1 << 20)), [entry(f"e{n}", "y" * 900_000) for n in range(19)]
    headers = [BaseHeader(kb_id=name) for name in ("../up", "", "host:nodes")]
    access = BaseHeader(kb_id="a", kb_extensions={"access": 1})
    await refused(
        [
            *((bench.kb.save_base(header), InvalidInput, "name of a file") for header in headers),
            (bench.kb.save_base(access), InvalidInput, "access"),
            (bench.kb.put("lroe", [entry("a")]), NotFound, "did you mean"),
            (bench.kb.put("lore", [big]), InvalidInput, "more than 1 MiB"),
            (bench.kb.put("lore", []), InvalidInput, "give 1 to 1,000"),
            (bench.kb.get("lore", "none"), NotFound, "no entry 'none'"),
            (bench.kb.put("lore", large), InvalidInput, "more than 16 MiB"),
        ]
    )
    assert bench.read("lore")["entries"] == LORE["entries"]
    bench.write("knowledge/half.json", '{"entries": [{"id": "a", "content": {"value": "half \\ud83d"}}]}')
    assert (await bench.kb.get("half", "a")).entry.content.value == "half \ufffd"
    await bench.kb.delete_base("half")


async def test_agents_read_and_write_what_their_profiles_say(bench: Bench) -> None:
    await bench.kb.save_base(BaseHeader.model_validate({"kb_id": "diary", "kb_extensions": {"access": {"write": []}}}))
    keeper = bench.agent("keeper", ("kb_lore=world", ["read"]), ("diary", ["write_caiu"]))
    scribe = bench.agent("scribe", ("lore", ["read", "write_caiu"]))
    critic = bench.agent("critic", ("lore", ["read", "write_suggestions"]))
    nobody = CallContext(principal=Principal(kind="agent", id="nobody"))
    kb = bench.kb
    own = {NODES: "no", TOOLS: "no"}
    assert {base.id: base.writable for base in await kb.bases(call=keeper)} == {"lore": "no", "diary": "no", **own}
    assert {base.id: base.writable for base in await kb.bases(call=nobody)} == own
    assert (await kb.get("world", "inn", call=keeper)).base == "lore"
    for named in ("world", "lore", "kb_lore", "kb_*"):
        assert [hit.id for hit in await kb.search("inn", bases=[named], call=keeper)] == ["inn"]
    assert await kb.search("inn", call=nobody) == []
    denied = [
        kb.get("lore", "inn", call=nobody),
        kb.header("diary", call=scribe),
        kb.put("world", [entry("a")], call=keeper),
        kb.put("diary", [entry("a")], call=keeper),
        kb.delete("lore", ["inn"], call=critic),
        kb.save_base(BaseHeader(kb_id="lore"), call=scribe),
        kb.delete_base("lore", call=scribe),
    ]
    await refused([(act, PermissionDenied, "may not") for act in denied])
    await kb.put("lore", [entry("seen", "Scribes were here.")], call=scribe)
    (suggested,) = await kb.put("lore", [entry("inn", "A pirates' den.")], call=critic)
    assert suggested.entry.management_metadata.related_ids == ["inn"]
    assert await kb.search("pirates") == []
    assert [hit.id for hit in await kb.search("quiet inn")] == ["inn"]
    acme = CallContext(principal=Principal(kind="plugin", id="tavern-tools"))
    opened = {"kb_id": "diary", "kb_extensions": {"access": {"write": ["plugin:acme"]}}}
    acts = [
        kb.save_base(BaseHeader.model_validate(opened), call=acme),
        kb.import_base("diary", b'{"entries": {}}', replace=True, call=acme),
        kb.delete_base("diary", call=acme),
    ]
    await refused([(act, PermissionDenied, "may not change") for act in acts])
    await kb.save_base(BaseHeader(kb_id="acme"), call=acme)
    await kb.delete_base("acme", call=acme)
    await kb.delete_base("diary")


async def test_common_words_find_entries_in_a_large_index(bench: Bench) -> None:
    for base, count in (("large", 2_100), ("small", 3)):
        await bench.kb.save_base(BaseHeader(kb_id=base))
        rest = "the harbour of the old town"
        every = [entry(f"{base}{n}", f"{rest}, {n % 50} lanterns and {base} number{n}") for n in range(count)]
        for begin in range(0, count, 1_000):
            await bench.kb.put(base, every[begin : begin + 1_000])
    rows: list[tuple[str, list[str] | None, int, str]] = [
        ("harbour town", None, 5, ""),
        ("harbour town number1999", None, 5, "large1999"),
        ("number7 harbour", ["small"], 3, "small"),
        ("harbour large town", ["small"], 3, "small"),
        ("lanterns small", None, 5, "small"),
    ]
    with Failures() as failures:
        for query, bases, count, first in rows:
            with failures.row(query):
                found = await bench.kb.search(query, bases=bases)
                assert (len(found), found[0].id.startswith(first)) == (count, True)
    await bench.kb.delete_base("large")
    await bench.kb.delete_base("small")


async def test_a_lost_or_damaged_index_is_made_again(bench: Bench, tmp_path: Path) -> None:
    root, folders = tmp_path / "again", Folders(tmp_path / "config", tmp_path / "state", tmp_path / "data")
    if not bench.has_files:
        pytest.skip("its index is as that of a base in a file")
    shutil.copytree(bench.root / "knowledge", root / "knowledge")
    for number in range(3):
        async with Host(root, folders=folders) as host:
            kb = host.services.get(KNOWLEDGE_BASE)
            assert [hit.id for hit in await kb.search("红龙")] == ["dragon"]
            (index,) = folders.state.rglob("knowledge.sqlite3")
            index.unlink()
            assert [hit.id for hit in await kb.search("红龙")] == ["dragon"]
            index.unlink()
            await kb.put("lore", [entry(f"more{number}", "Another one.")])
            assert len(await kb.search("another")) == number + 1
        index.write_bytes(b"no database" * 1000)
