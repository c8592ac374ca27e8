"""Conversations with branches: what is kept, what moves, and what nobody can lose."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from helpers.postgres import shared_server
from helpers.repetition import refused
from helpers.workflow_documents import function

from tavern_agents.api.histories import ChatHistory, HistoryExport
from tavern_agents.schema import AGENTS
from tavern_host import EXECUTION_ENGINE
from tavern_host.contracts.errors import Conflict, InvalidInput, Misconfigured, NotFound, TavernError
from tavern_host.contracts.events import Event
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_llm.api.llm import ChatMessage, LlmToolCall
from tests.agents.agent_bench import AgentBench, agent_bench

pytestmark = pytest.mark.asyncio(loop_scope="module")


DATABASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "sqlite": lambda folder: {},
    "postgres": lambda folder: {
        "extensions.tavern-postgres.url": shared_server(),
        "extensions.tavern-postgres.schema": folder.name,
    },
}
"""The settings with which a host has the databases that the tests of this file are about."""


@pytest.fixture(scope="module")
def settings_of(request: pytest.FixtureRequest) -> Callable[[Path], dict[str, Any]]:
    """Return the maker of settings for a folder: `real/test_histories_on_postgres` has the same tests."""
    return DATABASES["postgres" if request.module.__name__.endswith("_on_postgres") else "sqlite"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(
    settings_of: Callable[[Path], dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[AgentBench]:
    """Give one host for all tests of this file."""
    folder = tmp_path_factory.mktemp("histories")
    async with agent_bench(folder, settings=settings_of(folder)) as made:
        yield made


@pytest.fixture
def kept(bench: AgentBench) -> ChatHistory:
    """Return the service; the tests that take it know the interface alone."""
    return bench.histories


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


def answer(text: str) -> ChatMessage:
    return ChatMessage(role="assistant", content=text)


def calling(text: str, id: str) -> list[ChatMessage]:
    """Return a turn with a native call and one in text."""
    call = LlmToolCall(id=id, name="shout", arguments='{"text": "ale"}', extra={"signature": "s"})
    return [
        ChatMessage(role="assistant", content=text, tool_calls=[call], reasoning="hm"),
        ChatMessage(role="tool", content="ALE", tool_call_id=id),
        answer(f"{text} <|[REQUEST_TOOL]|>"),
        user("<OBSERVATION>\nALE\n</OBSERVATION>"),
        answer(f"{text} done"),
    ]


async def texts(kept: ChatHistory, history: str, *at: str, **more: Any) -> list[str]:
    return [one.message.content for one in await kept.load_branch(history, *at, **more)]


async def head_of(kept: ChatHistory, history: str, branch: str | None = None) -> str:
    details = await kept.get_history(history)
    return next(one.head for one in details.branches if one.name == (branch or details.active))


async def test_an_edit_and_a_swipe_stand_beside_the_old(kept: ChatHistory) -> None:
    first = await kept.append("a", [user("1"), *calling("2", "c1"), user("3"), *calling("4", "c2")])
    old = await texts(kept, "a")
    new = await kept.swipe("a", first[-2].id, [answer("4b")], head=first[-1].id)
    assert await texts(kept, "a") == [*old[:7], "4b"]
    assert [c.message.content for c in await kept.children("a", first[6].id)] == ["4", "4b"]
    (edited,) = await kept.edit("a", first[0].id, "1b", head=new[-1].id)
    assert await texts(kept, "a") == ["1b"]
    assert edited.parent_id is None
    (again,) = await kept.edit("a", first[0].id, "1c", head=edited.id, branch="main")
    details = await kept.activate("a", message_id=first[0].id, head=again.id)
    assert details.branches[0].head == new[-1].id
    assert (details.messages, details.branches[0].messages) == (15, 8)
    await kept.activate("a", message_id=first[-1].id, head=new[-1].id)
    assert await texts(kept, "a") == old
    assert await texts(kept, "a", leaf=new[-1].id) == [*old[:7], "4b"]
    copies = await kept.edit("a", first[4].id, "changed", head=first[-1].id, keep_rest=True)
    assert [one.message.content for one in copies] == ["changed", *old[5:]]
    assert await texts(kept, "a") == [*old[:4], "changed", *old[5:]]
    await kept.activate("a", message_id=first[2].id, head=copies[-1].id, exactly=True)
    assert await texts(kept, "a", last=2) == old[1:3]
    assert [one.message.content for one in await kept.children("a")] == ["1", "1b", "1c"]
    nodes = await kept.tree("a")
    assert len(nodes) == (await kept.get_history("a")).messages == 23
    assert [node.calls for node in nodes[:2]] == [[], ["shout"]]
    assert [node.id for node in await kept.tree("a", limit=2, offset=6)] == [first[6].id, first[7].id]


async def test_a_first_answer_is_swiped_too(kept: ChatHistory) -> None:
    (greeting,) = await kept.append("greeting", [answer("Hello!")])
    (other,) = await kept.swipe("greeting", greeting.id, [answer("Good day!")], head=greeting.id)
    assert (other.parent_id, await texts(kept, "greeting")) == (None, ["Good day!"])


async def test_branches_are_made_named_and_forgotten(kept: ChatHistory) -> None:
    one, two, three = await kept.append("b", [user("1"), answer("2"), user("3")])
    details = await kept.fork("b", " side ", message_id=two.id)
    assert [(b.name, b.head, b.messages) for b in details.branches] == [("main", three.id, 3), ("side", two.id, 2)]
    assert details.active == "main"
    await kept.add("b", [user("3b")], branch="side")
    assert await texts(kept, "b", "side") == ["1", "2", "3b"]
    assert await texts(kept, "b") == ["1", "2", "3"]
    await kept.activate("b", "side")
    assert await texts(kept, "b") == [m.message.content for m in await kept.load("b")] == ["1", "2", "3b"]
    details = await kept.rename_branch("b", "side", "other")
    assert (details.active, sorted(b.name for b in details.branches)) == ("other", ["main", "other"])
    await kept.delete_branch("b", "main")
    assert await texts(kept, "b", leaf=three.id) == ["1", "2", "3"]
    copied = await kept.fork_history("b", "b2", message_id=three.id)
    assert (copied.active, copied.messages, await texts(kept, "b2")) == ("main", 3, ["1", "2", "3"])
    assert {m.id for m in await kept.load("b2")}.isdisjoint({one.id, two.id, three.id})
    assert await kept.delete("b") and not await kept.delete("b")
    assert await texts(kept, "b2") == ["1", "2", "3"]
    assert await kept.load("b") == []


async def test_who_moves_a_branch_names_its_head(kept: ChatHistory) -> None:
    one, two = await kept.append("c", [user("1"), answer("2")])
    (three,) = await kept.append("c", [user("3")], parent_id=two.id)
    rows: list[tuple[Any, type[TavernError], str]] = [
        (kept.append("c", [user("x")], parent_id=two.id), Conflict, f"is {three.id}, not {two.id}"),
        (kept.append("new", [user("x")], parent_id=two.id), Conflict, "no messages yet"),
        (kept.add("c", [user("x")], parent_id=two.id), Conflict, "load it again"),
        (kept.add("c", [user("x")], parent_id=two.id, head=two.id), Conflict, "load it again"),
        (kept.edit("c", one.id, "x", head=two.id), Conflict, "load it again"),
        (kept.swipe("c", two.id, [answer("x")], head=two.id), Conflict, "load it again"),
        (kept.activate("c", message_id=one.id, exactly=True), Conflict, "load it again"),
        (kept.activate("c", message_id=one.id, head=two.id), Conflict, "load it again"),
        (kept.fork("c", "main"), Conflict, "a branch 'main' already"),
        (kept.fork_history("c", "c"), Conflict, "a conversation 'c' already"),
        (kept.delete_branch("c", "main"), Conflict, "activate another"),
        (kept.load_branch("c", "mian"), NotFound, "it has main"),
        (kept.add("c", [user("x")], branch="side"), NotFound, "it has main"),
        (kept.load_branch("c", leaf="msg_0"), NotFound, "has no message 'msg_0'"),
        (kept.edit("c", "msg_0", "x", head=three.id), NotFound, "has no message"),
        (kept.get_history("never"), NotFound, "tavern history list"),
        (kept.tree("never"), NotFound, "no conversation 'never'"),
        (kept.activate("never"), NotFound, "no conversation 'never'"),
        (kept.add("never", [user("x")], parent_id=one.id), NotFound, "no conversation 'never'"),
        (kept.rename_branch("c", "main", " "), InvalidInput, "the name of a branch"),
        (kept.append("", [user("x")]), InvalidInput, "the id of a conversation"),
        (kept.append("c", [user("x" * (5 << 20))]), InvalidInput, "too large"),
    ]
    await refused(rows)
    with pytest.raises(Conflict) as moved:
        await kept.add("c", [user("x")], head=one.id)
    assert moved.value.info.details["head"] == three.id
    assert await texts(kept, "c") == ["1", "2", "3"]
    (beside,) = await kept.add("c", [user("3b")], parent_id=two.id, head=three.id)
    assert (await texts(kept, "c"), beside.parent_id) == (["1", "2", "3b"], two.id)


async def test_each_change_is_an_event(bench: AgentBench, kept: ChatHistory) -> None:
    bench.answers()
    events = bench.host.events.subscribe("CHAT_HISTORY")
    (one,) = await kept.append("e", [user("1")])
    await kept.edit("e", one.id, "2", head=one.id)
    await kept.fork("e", "side")
    await kept.delete("e")
    await events.close()
    found = [event.payload async for event in events if isinstance(event, Event)]
    assert found == [{"historyId": "e", "change": what} for what in ("added", "edited", "forked", "deleted")]


async def test_clients_of_two_hosts_lose_nothing(tmp_path: Path, settings_of: Callable[[Path], dict[str, Any]]) -> None:
    settings = settings_of(tmp_path)
    async with agent_bench(tmp_path, settings=settings) as one, agent_bench(tmp_path, settings=settings) as two:
        (first,) = await one.histories.append("d", [user("0")])
        await one.histories.fork("d", "side")
        written: dict[str, list[str]] = {"main": [], "side": []}

        async def client(kept: ChatHistory, name: str, branch: str) -> int:
            refused = 0
            for number in range(15):
                (head,) = await kept.load_branch("d", branch, last=1)
                try:
                    if number % 5:
                        await kept.add("d", [user(f"{name}{number}")], branch=branch, head=head.id)
                    else:
                        await kept.edit("d", head.id, f"{name}{number}", branch=branch, head=head.id)
                except Conflict:
                    refused += 1
                    continue
                written[branch].append(f"{name}{number}")
            return refused

        mains = [client(bench.histories, name, "main") for bench, name in ((one, "a"), (one, "b"), (two, "c"))]
        *refused, alone = await asyncio.gather(*mains, client(two.histories, "d", "side"))
        assert (alone, sum(refused)) == (0, 45 - len(written["main"]))
        assert sum(refused) > 0
        for bench in (one, two):
            everything = [node.text for node in await bench.histories.tree("d")]
            assert sorted(everything) == sorted(["0", *written["main"], *written["side"]])
        blind = [(one, two)[n % 2].histories.append("d", [user(f"blind {n}")]) for n in range(20)]
        await asyncio.gather(*blind)
        assert sorted(await texts(two.histories, "d", last=20)) == sorted(f"blind {n}" for n in range(20))
        assert (await one.histories.tree("d"))[0].id == first.id
    assert bool([*tmp_path.rglob("agents.sqlite3")]) is not bool(settings)


async def test_a_failed_read_overwrites_nothing(tmp_path: Path) -> None:
    async with agent_bench(tmp_path) as bench:
        await bench.histories.append("i", [user("1")])
    (path,) = tmp_path.rglob("agents.sqlite3")
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    save = {"history_id": "i", "user_message": "2"}
    node = {"n": {"type": "core:SaveChatHistory", "inputValues": save}}
    document = function("w", node, "n.count > out.count", takes={}, gives={"count": "INTEGER"})
    async with agent_bench(tmp_path, lambda project: project.profile()) as bench:
        acts = (bench.histories.load("i"), bench.histories.append("i", [user("x")]), bench.run(conversation_id="i"))
        await refused([(act, Misconfigured, "another version of the program") for act in acts])
        asked = RunRequest(workflow=Workflow.model_validate(document))
        assert (await bench.host.services.get(EXECUTION_ENGINE).run(asked)).status is RunStatus.ERROR
    assert path.read_bytes() == before


# --- as JSON ------------------------------------------------------------------------------------------


async def test_what_is_imported_is_what_was_exported(kept: ChatHistory) -> None:
    first = await kept.append("f", [user("1"), *calling("2", "c1")], run_id="run_1")
    await kept.swipe("f", first[-1].id, [answer("2b")], head=first[-1].id)
    await kept.fork("f", "side", message_id=first[2].id)
    await kept.activate("f", "side")
    exported = HistoryExport.model_validate_json(json.dumps((await kept.export_history("f")).to_json()))
    with pytest.raises(Conflict, match="import it under another id"):
        await kept.import_history(exported)
    await kept.import_history(exported, history_id="f2")
    other = await kept.export_history("f2")
    assert {m.id for m in other.messages}.isdisjoint(m.id for m in exported.messages)
    assert [m.message for m in other.messages] == [m.message for m in exported.messages]
    await kept.delete("f")
    await kept.import_history(exported)
    assert await kept.export_history("f") == exported
    assert [m.message for m in await kept.load("f")] == [m.message for m in exported.messages[:3]]


async def test_a_wrong_import_changes_nothing(kept: ChatHistory) -> None:
    await kept.append("g", [user("1"), answer("2")])
    whole = (await kept.export_history("g")).to_json()
    one, two = whole["messages"]
    branch = whole["branches"][0]
    rows: list[tuple[dict[str, Any], str]] = [
        ({"messages": [two, one]}, "messages[0].parentId"),
        ({"messages": [{**one, "parentId": two["id"]}, two]}, "messages[0].parentId"),
        ({"messages": [one, {**two, "id": one["id"]}]}, "messages[1].id"),
        ({"messages": [one, {**two, "id": ""}]}, "messages[1].id"),
        ({"messages": [one]}, "branches[0]"),
        ({"branches": [branch, branch]}, "branches[1]"),
        ({"active": "side"}, "no branch 'side'"),
        ({"summaries": [{"until": "msg_0", "text": "x"}]}, "summaries[0].until"),
        ({"summaries": [{"until": one["id"], "text": text} for text in "xy"]}, "summaries[1].until"),
        ({"memories": [{"messageId": "msg_0", "agents": {}}]}, "memories[0].messageId"),
        ({"memories": [{"messageId": one["id"], "agents": {}}] * 2}, "memories[1].messageId"),
    ]
    changed = [(HistoryExport.model_validate({**whole, **changes}), part) for changes, part in rows]
    await refused([(kept.import_history(one, history_id="g2"), InvalidInput, part) for one, part in changed])
    assert await kept.load("g2") == []
    await refused([(kept.get_history("g2"), NotFound, "no conversation 'g2'")])


# --- files of before ----------------------------------------------------------------------------------


async def test_linear_histories_are_taken_over(tmp_path: Path) -> None:
    async with agent_bench(tmp_path) as bench:
        await bench.histories.append("x", [user("x")])
    (path,) = tmp_path.rglob("agents.sqlite3")
    for one in path.parent.glob("agents.sqlite3*"):
        one.unlink()
    old = sqlite3.connect(path)
    for statement in AGENTS.migrations[0]:
        old.execute(statement)
    said = [("p", "1", None), ("q", "a", None), ("p", "2", 1), ("q", "b", 2), ("p", "3", 3)]
    for number, (history, text, parent) in enumerate(said, 1):
        body = json.dumps({"role": "user", "content": text}).encode()
        row = (number, f"m{number}", history, parent, number, None, body)
        old.execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    old.executemany("INSERT INTO histories VALUES (?, ?, ?, ?, ?)", [("p", 1, 5, 3, 5), ("q", 2, 4, 2, 4)])
    old.execute("INSERT INTO summaries VALUES ('p', 1, 'One was said.')")
    old.execute("PRAGMA user_version = 1")
    old.commit()
    old.close()
    async with agent_bench(tmp_path) as bench:
        kept = bench.histories
        assert await texts(kept, "p") == ["1", "2", "3"]
        assert await texts(kept, "q", last=1) == ["b"]
        details = await kept.get_history("p")
        assert [(b.name, b.head, b.messages) for b in details.branches] == [("main", "m5", 3)]
        assert [node.depth for node in await kept.tree("q")] == [1, 2]
        exported = await kept.export_history("p")
        assert [(s.until, s.text) for s in exported.summaries] == [("m1", "One was said.")]
        await kept.append("p", [user("4")], parent_id="m5")
        assert await texts(kept, "p") == ["1", "2", "3", "4"]


async def test_a_conversation_is_called_after_what_was_said_first_or_as_somebody_wants(kept: ChatHistory) -> None:
    said = ChatMessage(role="user", content="Greet  Ada,\nplease " + "x" * 100 + "\n\nnotes.md")
    await kept.append("titled", [said])
    (summary,) = [one for one in await kept.list_histories(limit=1000) if one.id == "titled"]
    assert summary.title == "Greet Ada, please " + "x" * 61 + "…"
    assert (await kept.rename_history("titled", " For Ada ")).title == "For Ada"
    await kept.append("titled", [ChatMessage(role="assistant", content="Good morning, Ada.")])
    exported = await kept.export_history("titled")
    assert (await kept.import_history(exported, history_id="titled-2")).title == "For Ada"
    assert (await kept.rename_history("titled", None)).title == summary.title
    with pytest.raises(InvalidInput, match="the title of a conversation must have 1 to 200"):
        await kept.rename_history("titled", " ")
    with pytest.raises(NotFound):
        await kept.rename_history("not there", "x")
