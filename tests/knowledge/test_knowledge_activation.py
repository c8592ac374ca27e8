"""Which entries a conversation brings into a prompt, and the reasons that are given."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.repetition import Failures
from helpers.workflow_documents import function

from tavern_host import EXECUTION_ENGINE
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_host.testing.http import served
from tavern_knowledge.api.knowledge import Activation, ActivationRequest, KnowledgeEntry
from tests.knowledge.conftest import Bench

pytestmark = pytest.mark.asyncio(loop_scope="module")


def entry(id: str, criteria: dict[str, Any], usage: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    about = {"activation_criteria": criteria, "usage_metadata": usage or {}, "content": {"value": f"Text of {id}."}}
    return {"id": id, **about, **more}


def keys(*words: str, **more: Any) -> dict[str, Any]:
    return {"keywords": list(words), **more}


def group(logic: str, *words: str, required: bool = False) -> dict[str, Any]:
    return {"group_id": "g", "keys": list(words), "logic": logic, "required": required}


def check(variable: str, value: Any, operator: str = "equals") -> dict[str, Any]:
    condition = {"type": "variable_check", "variable": variable, "operator": operator, "value": value}
    return {"trigger_conditions": [condition]}


async def activated(bench: Bench, entries: list[dict[str, Any]], *messages: str, **more: Any) -> Activation:
    bench.write("knowledge/book.json", {"entries": entries})
    return await bench.kb.activate(ActivationRequest(messages=list(messages), bases=["book"], **more))


def rule(*groups: dict[str, Any]) -> dict[str, Any]:
    return {"key_groups": [*groups]}


# name, criteria, messages, what else is asked with, and a part of the reason; None where it is not called up
MATCHES: list[tuple[str, dict[str, Any], list[str], dict[str, Any], str | None]] = [
    ("a word", keys("dragon"), ["A Dragon!"], {}, "keyword 'dragon' in message 1"),
    ("no part of a word", keys("art"), ["the artist"], {}, None),
    ("a part, where it says so", keys("art", whole_words=False), ["the artist"], {}, "keyword 'art' in message 1"),
    ("a word after a Chinese one", keys("dragon"), ["那条dragon在哪"], {}, "keyword 'dragon' in message 1"),
    ("part of a Chinese text", keys("红龙"), ["山上的红龙睡了"], {}, "keyword '红龙' in message 1"),
    ("full width", keys("ＤＲＡＧＯＮ"), ["dragon"], {}, "keyword 'ＤＲＡＧＯＮ' in message 1"),
    ("case that counts", keys("Rose", case_sensitive=True), ["a rose"], {}, None),
    ("case that counts and fits", keys("Rose", case_sensitive=True), ["Rose"], {}, "keyword 'Rose' in message 1"),
    ("the newest message first", keys("inn"), ["inn", "inn", "bed"], {}, "keyword 'inn' in message 2"),
    ("beyond the scan depth", keys("inn"), ["inn", "a", "b"], {"scan_depth": 2}, None),
    ("its own depth", keys("inn", scan_depth=3), ["inn", "a", "b"], {"scan_depth": 1}, "keyword 'inn' in message 1"),
    ("no depth", keys("inn"), ["inn"], {"scan_depth": 0}, None),
    ("a blank key", keys(" "), ["   "], {}, None),
    ("all of a group", rule(group("AND", "cave", "gold")), ["gold", "cave"], {}, "key group g (AND of"),
    ("not all of a group", rule(group("AND", "cave", "gold")), ["gold"], {}, None),
    ("one of a group", rule(group("OR", "cave", "gold")), ["gold"], {}, "key group g (OR of"),
    ("none of a group", rule(group("NOT", "cave")), ["gold"], {}, "key group g (NOT of"),
    ("a required one", {**keys("inn"), **rule(group("OR", "bed", required=True))}, ["inn bed"], {}, "required key"),
    ("without a required one", {**keys("inn"), **rule(group("NOT", "bed", required=True))}, ["inn bed"], {}, None),
    ("not all required", {**keys("inn"), **rule(group("NOT_ALL", "a", "b", required=True))}, ["inn a"], {}, "NOT_ALL"),
    ("always", {"trigger_conditions": [{"type": "always"}]}, [], {}, "always"),
    ("a variable", check("night", True), [], {"variables": {"night": True}}, "condition on night"),
    ("another value", check("night", True), [], {"variables": {"night": False}}, None),
    ("a number", check("mood", 3, "greater_than"), [], {"variables": {"mood": 4}}, "condition on mood"),
    ("a number that is text", check("mood", 3, "less_than"), [], {"variables": {"mood": "x"}}, None),
    ("part of a list", check("bag", "rope", "contains"), [], {"variables": {"bag": ["rope"]}}, "condition on bag"),
    ("a keyword and a variable", {**keys("inn"), **check("night", True)}, ["inn"], {"variables": {}}, None),
    ("nothing to call it up", {}, ["anything"], {}, None),
]


async def test_entries_are_called_up_by_what_they_say(bench: Bench) -> None:
    with Failures() as failures:
        for name, criteria, messages, request, reason in MATCHES:
            with failures.row(name):
                found = await activated(bench, [entry("a", criteria)], *messages, **request)
                assert [one.id for one in found.entries] == ([] if reason is None else ["a"])
                if reason is not None:
                    assert any(reason in why for why in found.entries[0].why), found.entries[0].why


async def test_what_stays_out_is_told_with_the_reason(bench: Bench) -> None:
    entries = [
        entry("once", keys("inn"), {"once_per_session": True}),
        entry("never", keys("inn", trigger_probability=0)),
        entry("night", {**keys("inn"), **check("night", True)}),
        entry("script", keys("inn", trigger_conditions=[{"type": "script"}])),
        entry("off", keys("inn"), management_metadata={"is_enabled": False}),
        entry("last", keys("inn"), {"priority": 1, "prefix": {"text": "<", "is_enabled": True}}),
        entry("long", keys("inn"), {"priority": 50}, content={"value": "字" * 30}),
        entry("first", keys("inn"), {"priority": 200, "role": "null", "depth_offset": 2}),
    ]
    found = await activated(bench, entries, "inn", budget=20)
    assert [(one.id, one.text, one.tokens) for one in found.entries] == [
        ("first", "Text of first.", 4),
        ("once", "Text of once.", 4),
        ("last", "<Text of last.", 4),
    ]
    assert (found.entries[0].role, found.entries[0].depth_offset, found.tokens) == (None, 2, 12)
    assert found.used == ["book/once"]
    reasons = {one.id: one.why for one in found.left_out}
    assert reasons.pop("never").endswith("is not below 0")
    assert reasons == {
        "night": "the variable 'night' is not given",
        "script": "the condition 'script' is not known here",
        "long": "needs 30 tokens, and 12 of 20 are left",
    }
    again = await activated(bench, entries, "inn", used=found.used, budget=20)
    assert [one.id for one in again.entries] == ["first", "last"]
    assert "was in before in this session" in {one.why for one in again.left_out}


async def test_the_same_seed_gives_the_same_entries(bench: Bench) -> None:
    entries = [entry(f"e{n}", keys("inn", trigger_probability=0.5)) for n in range(200)]
    chosen = {seed: [one.id for one in (await activated(bench, entries, "inn", seed=seed)).entries] for seed in "aabc"}
    once_more = await activated(bench, entries[::-1], "inn", seed="a")
    assert [one.id for one in once_more.entries] == chosen["a"] != chosen["b"] != chosen["c"]
    assert all(70 < len(ids) < 130 for ids in chosen.values())
    assert all("is below 0.5" in one.why[-1] for one in once_more.entries)


async def test_an_edit_of_keys_counts_at_once(bench: Bench) -> None:
    await activated(bench, [entry("a", keys("inn"))], "inn")
    stored = (await bench.kb.get("book", "a")).entry
    criteria = stored.activation_criteria.model_copy(update={"keywords": ["tower"]})
    await bench.kb.put("book", [stored.model_copy(update={"activation_criteria": criteria})])
    request = ActivationRequest(messages=["the tower"])
    assert [one.id for one in (await bench.kb.activate(request)).entries] == ["a"]
    nobody = bench.agent("nobody")
    assert (await bench.kb.activate(request, call=nobody)).entries == []


async def test_the_node_puts_entries_where_they_belong(bench: Bench) -> None:
    entries = [
        entry("deep", keys("inn"), {"depth_offset": 1, "role": "assistant"}),
        entry("deeper", keys("inn"), {"depth_offset": 99}),
        entry("plain", keys("inn")),
    ]
    bench.write("knowledge/book.json", {"entries": [KnowledgeEntry.model_validate(e).model_dump() for e in entries]})
    gives = {"text": "STRING", "messages": "ARRAY", "entries": "ARRAY", "left_out": "ARRAY", "used": "ARRAY"}
    wires = [f"a.{key} > out.{key}" for key in gives]
    node = {"type": "core:ActivateKnowledge", "inputValues": {"bases": ["book"]}}
    document = function("w", {"a": node}, "in.messages > a.messages", *wires, takes={"messages": "ARRAY"}, gives=gives)
    said = [{"role": "user", "content": "An inn?"}, {"role": "assistant", "content": "Yes."}]
    request = RunRequest(workflow=Workflow.model_validate(document), inputs={"messages": said})
    run = await bench.host.services.get(EXECUTION_ENGINE).run(request)
    assert (run.status, run.error) == (RunStatus.COMPLETE, None)
    assert run.outputs["text"] == "Text of plain."
    assert run.outputs["messages"] == [
        {"role": "system", "content": "Text of deeper."},
        said[0],
        {"role": "assistant", "content": "Text of deep."},
        said[1],
    ]
    async with served(bench.host) as web:
        answer = await web.post("/api/knowledge-activate", json={"messages": ["inn"], "bases": ["book"]})
        assert {one["id"] for one in (await answer.json())["entries"]} == {"deep", "deeper", "plain"}
        assert (await web.post("/api/knowledge-activate", json={"messages": "inn"})).status == 400
