"""Conversations that continue from memory: only as they are stored, and within a size."""

from __future__ import annotations

import sqlite3

import pytest
from helpers.stub_llm import said

from tavern_agents.api.agents import AgentTrace
from tavern_agents.conversation import Conversation, estimate
from tavern_agents.recent import RecentConversations
from tavern_agents.rows import Kept, keep_steps, read_steps
from tavern_llm.api.llm import ChatMessage, LlmToolCall
from tests.agents.agent_bench import AgentBench

pytestmark = pytest.mark.asyncio(loop_scope="module")


def kept(*texts: str) -> list[Kept]:
    return [Kept(seq, f"m{seq}", ChatMessage(role="user", content=text)) for seq, text in enumerate(texts, 1)]


async def asked(bench: AgentBench, history: str, *answers: str) -> list[str]:
    """Return what a model read last, after it gave these answers."""
    model = bench.answers(*map(said, answers))
    for answer in answers:
        await bench.run(f"To {answer}", conversation_id=history)
    return [message.content for message in model.asked[-1].messages[1:]]


async def test_the_messages_in_memory_are_not_read(bench: AgentBench) -> None:
    await asked(bench, "near", "One.")
    broken = "UPDATE messages SET body = '' WHERE history = 'near'"
    await bench.state.store.database.write(lambda connection: connection.execute(broken))
    assert await asked(bench, "near", "Two.") == ["To One.", "One.", "To Two."]


async def test_a_summary_of_another_host_counts_from_the_next_turn_on(bench: AgentBench) -> None:
    await asked(bench, "far", "One.", "Two.")
    store = bench.state.store
    query = "SELECT seq FROM messages WHERE history = 'far' ORDER BY seq"
    numbers = await store.database.read(lambda connection: [seq for (seq,) in connection.execute(query)], [])
    for text in ("It began.", "It began well."):  # the second takes the place of the first
        await store.summarise(numbers[1], text)
        read = await asked(bench, "far", "More.")
        assert read[0].endswith(text)
        assert read[1:3] == ["To Two.", "Two."]


async def test_what_is_forgotten_is_not_in_memory(bench: AgentBench) -> None:
    recent = bench.state.store.recent
    before = recent.size
    await asked(bench, "gone", "One.")
    assert recent.size > before
    assert await bench.histories.delete("gone")
    assert recent.size == before
    assert await asked(bench, "gone", "Two.") == ["To Two."]


async def test_conversations_make_room_for_others() -> None:
    one, other = Conversation("", kept("x" * 3000)), Conversation("", kept("a", "y" * 3000))
    recent = RecentConversations(one.bytes + other.bytes - 1)
    recent.put("one", one)
    recent.put("other", other)
    assert recent.size == other.bytes
    recent.put("large", Conversation("", kept("a", "b", "z" * 30_000)))
    assert recent.size == other.bytes, "one that is too large for itself takes no room"


async def test_results_that_come_late_are_counted_in_their_place() -> None:
    call = LlmToolCall(id="c", name="shout")
    said = [ChatMessage(role="assistant", tool_calls=(call, call)), ChatMessage(role="user", content="And?")]
    said += [ChatMessage(role="tool", content=text, tool_call_id="c") for text in ("first", "second", "third")]
    found = Conversation()
    for number, message in enumerate(said):
        found.extend([Kept(number, f"m{number}", message)])
    assert [message.content for message in found.messages()] == ["", "first", "second", "And?"]
    assert found.size == sum(map(estimate, found.messages()))


async def test_a_turn_is_four_transactions_and_reads_nothing_else(bench: AgentBench) -> None:
    database, seen = bench.state.store.database, list[str]()
    await asked(bench, "turns", "One.")
    await database.run(lambda: database._database.get().set_trace_callback(seen.append))
    bench.answers(said("", ("shout", {"text": "hi"})), said("Loud."))
    reply = await bench.run(conversation_id="turns")
    await database.run(lambda: database._database.get().set_trace_callback(None))
    ends = [statement for statement in seen if statement.startswith(("BEGIN", "COMMIT"))]
    assert ends == ["BEGIN IMMEDIATE", "COMMIT"] * 4
    assert (seen[0], seen[-1]) == (ends[0], ends[-1])
    read = [seen[number + 1] for number, statement in enumerate(seen[:-1]) if statement == "COMMIT"]
    assert read == ["BEGIN IMMEDIATE"] * 3, "nothing is read in between"
    assert await bench.runtime.wait(reply.agent_run_id) == reply, "it is what is stored"


async def test_steps_that_were_kept_one_by_one_are_read_with_those_kept_at_once() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE steps (run TEXT, seq INTEGER, body BLOB, PRIMARY KEY (run, seq))")
    about = {"agent_run_id": "r", "profile_id": "p", "conversation_id": "c", "step": 1, "kind": "thinking"}
    steps = [AgentTrace.model_validate({**about, "seq": seq, "at": seq, "text": f"{seq}"}) for seq in range(1, 7)]
    for step in steps[:2]:
        connection.execute("INSERT INTO steps VALUES ('r', ?, ?)", (step.seq, step.model_dump_json().encode()))
    keep_steps(connection, "r", steps[2:4])
    keep_steps(connection, "r", steps[2:])  # the first time, it was not known that they were kept
    for after in range(7):
        assert read_steps(connection, "r", after) == steps[after:]
