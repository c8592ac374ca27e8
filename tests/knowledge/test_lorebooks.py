"""Books of several programs, and what their settings do in a conversation: time, other entries, groups, patterns."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host import InvalidInput, TavernError
from tavern_knowledge.api.forms import recognise
from tavern_knowledge.api.knowledge import Activation, ActivationRequest, KnowledgeEntry
from tests.knowledge.cards import BOOK, V2, WORLD, picture, text_chunk
from tests.knowledge.conftest import Bench

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOVELAI = {
    "lorebookVersion": 5,
    "entries": [
        {
            **{"text": "A red dragon sleeps.", "displayName": "Dragon", "id": "a1", "keys": ["dragon", "/wyrm/i"]},
            **{"searchRange": 1000, "enabled": True, "forceActivation": False, "keyRelative": False},
            **{"contextConfig": {"budgetPriority": 400, "prefix": "", "suffix": "\n"}, "category": ""},
        },
        {
            "text": "Always cold.",
            "displayName": "Cold",
            "id": "a2",
            "keys": [],
            "enabled": True,
            "forceActivation": True,
        },
    ],
    "settings": {"orderByKeyLocations": False},
    "categories": [],
}
AGNAI = {
    **{"kind": "memory", "name": "Valley", "description": "", "_id": "x"},
    "entries": [
        {
            "name": "Dragon",
            "entry": "A red dragon sleeps.",
            "keywords": ["dragon"],
            "priority": 5,
            "weight": 3,
            "enabled": True,
        },
        {"name": "Off", "entry": "Nothing.", "keywords": ["inn"], "priority": 5, "weight": 1, "enabled": False},
    ],
}
RISU = {
    **{"type": "risu", "ver": 1},
    "data": [
        {"key": "", "secondkey": "", "insertorder": 1, "comment": "A folder", "content": "", "mode": "folder"},
        {
            "key": "dragon, wyrm",
            "secondkey": "",
            "insertorder": 100,
            "comment": "Dragon",
            "content": "A red dragon sleeps.",
            "mode": "normal",
            "alwaysActive": False,
            "selective": False,
            "activationPercent": None,
        },
        {"key": "x", "secondkey": "", "insertorder": 5, "comment": "", "content": "Always cold.", "alwaysActive": True},
    ],
}
CHUB = {
    **{"name": "Valley", "description": "", "is_creation": False, "scan_depth": 1, "token_budget": 200},
    "entries": {
        "1": {
            "uid": 1,
            "key": ["dragon"],
            "keysecondary": [],
            "keys": ["dragon"],
            "secondary_keys": [],
            "comment": "Dragon",
            "content": "A red dragon sleeps.",
            "enabled": True,
            "insertion_order": 10,
            "priority": 10,
            "extensions": {},
            "constant": False,
            "selective": False,
            "order": 10,
            "position": 0,
            "probability": 100,
        },
    },
}
ONLY_V2_NAMES = {
    "entries": {"1": {"keys": ["dragon"], "content": "A red dragon sleeps.", "enabled": True, "extensions": {}}}
}


def dumped(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


def entry(id: str, *keys: str, text: str = "", priority: float = 100, **criteria: Any) -> dict[str, Any]:
    return {
        "id": id,
        "content": {"value": text or f"Text of {id}."},
        "activation_criteria": {"keywords": list(keys), **criteria},
        "usage_metadata": {"priority": priority},
    }


async def activated(
    bench: Bench, entries: list[dict[str, Any]], *messages: str, activation: Any = None, **more: Any
) -> Activation:
    bench.write("knowledge/book.json", {"entries": entries, "kb_extensions": {"activation": activation or {}}})
    return await bench.kb.activate(ActivationRequest(messages=list(messages), bases=["book"], **more))


def ids(found: Activation) -> list[str]:
    return sorted(one.id for one in found.entries)


async def test_books_of_other_programs_are_converted(bench: Bench) -> None:
    rows = [
        ("novelai", NOVELAI, "a WYRM", ["A red dragon sleeps.", "Always cold."]),
        ("agnai", AGNAI, "the dragon at the inn", ["A red dragon sleeps."]),
        ("risu", RISU, "a wyrm", ["A red dragon sleeps.", "Always cold."]),
        ("world_info", CHUB, "a dragon", ["A red dragon sleeps."]),
        ("world_info", ONLY_V2_NAMES, "a dragon", ["A red dragon sleeps."]),
    ]
    with Failures() as failures:
        for format, document, said, texts in rows:
            with failures.row(format):
                report = await bench.kb.import_base("of-others", dumped(document), replace=True)
                assert report.format == format
                request = ActivationRequest(messages=[said], bases=["of-others"])
                assert sorted(one.text for one in (await bench.kb.activate(request)).entries) == texts
                made = json.loads((await bench.kb.export_base("of-others")).content)
                assert {one["content"] for one in made["entries"].values()} >= set(texts)


async def test_what_has_no_effect_is_named_by_entry(bench: Bench) -> None:
    report = await bench.kb.import_base("of-others", dumped(NOVELAI), replace=True)
    assert (report.unsupported, report.by_entry) == ([], {})
    odd = {"entries": {"0": {"uid": 3, "key": ["a"], "content": "x", "vectorized": True, "triggers": ["swipe"]}}}
    report = await bench.kb.import_base("of-others", dumped(odd), replace=True)
    assert report.by_entry == {"st-3": ["triggers", "vectorized"]}
    assert report.unsupported == ["entries.triggers", "entries.vectorized"]


async def test_no_text_of_an_entry_is_lost(bench: Bench) -> None:
    rows: list[tuple[Any, str]] = [
        (
            {"entries": [{"body": "A whole story."}]},
            "$.entries[0]: it has no content, and its text would be lost: there is",
        ),
        ({"entries": {"0": {"key": ["a"], "value": "A story."}}}, "there is 'value'"),
        (
            {"entries": {"0": {"key": ["a"], "content": "", "prose": "A story that is long enough."}}},
            "there is 'prose'",
        ),
        ({"entries": [7]}, "$.entries[0]: expected an object"),
        ({"prompts": [], "prompt_order": []}, "is a preset of SillyTavern"),
        ({"user_name": "A", "character_name": "B"}, "is a chat of SillyTavern; tavern character import-chat"),
        ({"kb_id": "x", "entries": [{"content": {"value": "x"}}]}, "is a knowledge base of this program"),
    ]
    with Failures() as failures:
        for document, part in rows:
            with failures.row(part):
                with pytest.raises(TavernError) as caught:
                    await bench.kb.import_base("refused", dumped(document))
                assert (caught.value.info.code, part in caught.value.message) == (InvalidInput.code, True), caught.value
    await bench.kb.import_base("empty", dumped({"entries": {"0": {"key": ["a"], "content": ""}}}))  # it said nothing


async def test_a_changed_entry_comes_back_with_what_has_no_place_here(bench: Bench) -> None:
    await bench.kb.import_base("changed", dumped(WORLD), replace=True)
    stored = await bench.kb.get("changed", "st-0")
    text = stored.entry.content.model_copy(update={"value": "Two dragons."})
    await bench.kb.put("changed", [stored.entry.model_copy(update={"content": text})])
    made = json.loads((await bench.kb.export_base("changed")).content)["entries"]
    before = WORLD["entries"]["0"]
    assert made["7"] == WORLD["entries"]["7"]
    assert {**before, "content": "Two dragons."} == {key: made["0"][key] for key in before} | {"caseSensitive": None}


async def test_regular_expressions_call_entries_up(bench: Bench) -> None:
    rows = [
        ("/drag(on|oon)s?/", "two dragoons", True),
        ("/DRAGON/", "a dragon", False),
        ("/DRAGON/i", "a dragon", True),
        ("/^the end$/", "the end", True),
        ("/^the end$/", "not the end", False),
        ("/红.龙/u", "红色龙", True),
        ("/(/", "a (/ b", False),
        ("/(/", "say /(/ now", True),
    ]
    with Failures() as failures:
        for key, said, expected in rows:
            with failures.row((key, said)):
                found = await activated(bench, [entry("a", key, whole_words=False)], said)
                assert ids(found) == (["a"] if expected else [])


async def test_an_endless_pattern_ends(bench: Bench) -> None:
    entries = [entry("slow", "/(a+)+$/"), entry("quick", "aab")]
    began = time.process_time()
    found = await activated(bench, entries, "a" * 5_000 + "! aab")
    assert ids(found) == ["quick"]
    assert time.process_time() - began < 60, "the time of the patterns ends"


async def test_time(bench: Bench) -> None:
    talk = ["hello", "yes?", "a dragon", "where?", "b", "c", "d", "e", "f", "g", "h"]
    rows: list[tuple[str, dict[str, Any], list[int], list[int]]] = [
        ("sticky", {"sticky": 4}, [3, 5], [1, 7, 9]),
        ("not sticky", {}, [3], [1, 5]),
        ("cooldown", {"cooldown": 10}, [3], []),
        ("delay", {"delay": 5}, [], [3]),
        ("delay is over", {"delay": 3}, [3], []),
    ]
    with Failures() as failures:
        for name, criteria, inside, outside in rows:
            for count in (*inside, *outside):
                with failures.row((name, count)):
                    found = await activated(bench, [entry("a", "dragon", scan_depth=1, **criteria)], *talk[:count])
                    assert (ids(found) == ["a"]) == (count in inside), found
    again = ["a dragon", "x", "a dragon", "y", "a dragon"]
    found = await activated(bench, [entry("a", "dragon", scan_depth=1, cooldown=3)], *again[:3])
    assert [one.why for one in found.left_out] == ["its cooldown is not over"]
    assert ids(await activated(bench, [entry("a", "dragon", scan_depth=1, cooldown=3)], *again)) == ["a"]


async def test_entries_call_up_others_where_the_base_says_so(bench: Bench) -> None:
    def chain(**second: Any) -> list[dict[str, Any]]:
        return [
            entry("a", "inn", text="The inn has a cellar."),
            entry("b", "cellar", text="In the cellar is wine.", **second),
            entry("c", "wine", text="Wine."),
        ]

    rows: list[tuple[str, list[dict[str, Any]], bool, list[str]]] = [
        ("not recursive", chain(), False, ["a"]),
        ("recursive", chain(), True, ["a", "b", "c"]),
        ("excluded", chain(exclude_recursion=True), True, ["a"]),
        ("prevents", chain(prevent_recursion=True), True, ["a", "b"]),
        ("a circle", [entry("a", "inn", text="b"), entry("b", "b", text="inn")], True, ["a", "b"]),
        ("delayed", [entry("a", "inn", text="x"), entry("d", "inn", delay_until_recursion=1)], True, ["a", "d"]),
        ("delayed and nothing recurses", [entry("d", "inn", delay_until_recursion=1)], False, ["d"]),
        ("delayed and excluded", [entry("d", "inn", delay_until_recursion=1, exclude_recursion=True)], True, []),
    ]
    with Failures() as failures:
        for name, entries, is_recursive, expected in rows:
            with failures.row(name):
                found = await activated(bench, entries, "To the inn!", activation={"recursive": is_recursive})
                assert ids(found) == expected


async def test_of_a_group_one_comes_in(bench: Bench) -> None:
    def three(**of_b: Any) -> list[dict[str, Any]]:
        return [entry(id, "inn", group=["g"], **(of_b if id == "b" else {})) for id in "abc"]

    drawn = {str(seed): ids(await activated(bench, three(), "inn", seed=str(seed))) for seed in range(12)}
    assert all(len(found) == 1 for found in drawn.values())
    assert len({found[0] for found in drawn.values()}) > 1
    assert ids(await activated(bench, three(), "inn", seed="3")) == drawn["3"]
    assert ids(await activated(bench, three(group_override=True), "inn")) == ["b"]
    heavy = [entry("a", "inn", group=["g"], group_weight=0), entry("b", "inn", group=["g"], group_weight=1)]
    assert ids(await activated(bench, heavy, "inn", seed="x")) == ["b"]
    scored = [
        entry("a", "inn", group=["g"], group_scoring=True),
        entry("b", "inn", "bed", group=["g"], group_scoring=True),
    ]
    assert ids(await activated(bench, scored, "a bed in the inn")) == ["b"]
    found = await activated(bench, three(group_override=True), "inn")
    assert [one.why for one in found.left_out] == ["another entry of the group 'g' was chosen"] * 2


async def test_a_base_has_a_depth_and_a_budget_of_its_own(bench: Bench) -> None:
    entries = [entry("a", "inn", text="x" * 40, priority=2), entry("b", "inn", text="y" * 40, priority=1)]
    found = await activated(bench, entries, "inn", activation={"token_budget": 15})
    assert (ids(found), found.left_out[0].why) == (["a"], "needs 10 tokens, and 5 of 15 are left")
    assert ids(await activated(bench, entries, "inn", "x", activation={"scan_depth": 1})) == []
    assert ids(await activated(bench, entries, "inn", "x", activation={"scan_depth": "wrong"})) == ["a", "b"]
    await bench.kb.import_base("own", dumped(BOOK), replace=True)
    header = await bench.kb.header("own")
    assert (header.activation.scan_depth, header.activation.token_budget) == (4, 500)


async def test_chance_is_drawn_again_with_each_message(bench: Bench) -> None:
    entries = [entry("a", "inn", trigger_probability=0.5)]
    drawn = [ids(await activated(bench, entries, *["inn"] * count, seed="s")) for count in range(1, 13)]
    assert {tuple(one) for one in drawn} == {("a",), ()}
    assert ids(await activated(bench, entries, "inn", "inn", seed="s")) == drawn[1]


async def test_files_are_known_by_their_marks() -> None:
    chat = dumped({"user_name": "A", "character_name": "B", "chat_metadata": {}}) + b'\n{"mes": "Hi"}\n'
    rows = [
        (dumped(NOVELAI), "novelai"),
        (dumped(AGNAI), "agnai"),
        (dumped(RISU), "risu"),
        (dumped(WORLD), "silly"),
        (dumped(BOOK), "character_book"),
        (dumped({"spec": "lorebook_v3", "data": BOOK}), "lorebook_v3"),
        (dumped(V2), "card"),
        (picture(text_chunk("chara", V2)), "card"),
        (chat, "chat"),
        (dumped({"prompts": [], "prompt_order": []}), "preset"),
        (dumped({"nodes": [], "edges": []}), None),
        (dumped({"name": "x", "description": "a package", "version": "1"}), None),
        (picture(), None),
        (b"\xff\xfe\x00", None),
        (b"[" * 100_000, None),
        (b"", None),
    ]
    with Failures() as failures:
        for content, family in rows:
            with failures.row((family, content[:40])):
                found = recognise(content)
                assert (None if found is None else found.family) == family


async def test_an_entry_is_written_with_the_fields_that_it_has() -> None:
    written = KnowledgeEntry.model_validate(entry("a", "inn", sticky=2)).model_dump(mode="json", exclude_unset=True)
    assert written["activation_criteria"] == {"keywords": ["inn"], "sticky": 2}
