"""Chats of SillyTavern become conversations with their swipes, are continued, and go back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from helpers.command_line import tavern
from helpers.repetition import Failures
from helpers.stub_llm import said

from tavern_characters.api.characters import CHARACTERS, Characters
from tavern_characters.chats import read_chat
from tavern_host import TavernError
from tavern_host.testing.http import served
from tests.agents.agent_bench import AgentBench
from tests.characters.card_files import MIRA, dumped

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEAD = {"user_name": "Ada", "character_name": "Mira Vale", "create_date": "2026-01-02@10h00m00s", "chat_metadata": {}}


def line(name: str, text: str, at: Any = "2026-01-02T10:00:00.000Z", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "is_user": name == "Ada",
        "is_system": False,
        "send_date": at,
        "mes": text,
        "extra": {},
        **more,
    }


CHAT = [
    HEAD,
    line("Mira Vale", "Come in!", swipe_id=0, swipes=["Come in!", "Closed."]),
    line("Ada", "Soup?"),
    line("Mira Vale", "Bread.", swipe_id=1, swipes=["Soup.", "Bread."]),
    line("Ada", "Thanks."),
    line("Mira Vale", "The night falls.", swipe_id=0, swipes=["The night falls."]),
]


def lines(*objects: Any) -> bytes:
    return "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in objects).encode()


def characters(bench: AgentBench) -> Characters:
    return bench.host.services.get(CHARACTERS)


async def test_a_chat_is_continued_and_goes_back(bench: AgentBench) -> None:
    await characters(bench).import_card(dumped(MIRA), character="mira")
    made = await characters(bench).import_chat(b"\xef\xbb\xbf" + lines(*CHAT))
    assert (made.agent, made.messages, made.unsupported) == ("mira", 7, [])
    back = await characters(bench).export_chat(made.id)
    assert [json.loads(one) for one in back.content.splitlines()][1:] == CHAT[1:]
    firsts = await bench.histories.children(made.id)
    assert [one.message.content for one in firsts] == ["Come in!", "Closed."]
    model = bench.answers(said("Good night, Ada."))
    await bench.run("I go to bed.", "mira", conversation_id=made.id)
    asked = [one.content for one in model.asked[0].messages]
    assert "Mira Vale keeps the inn. Ada is her guest." in asked
    assert asked[-6:] == ["Come in!", "Soup?", "Bread.", "Thanks.", "The night falls.", "I go to bed."]
    again = await characters(bench).import_chat((await characters(bench).export_chat(made.id)).content)
    assert again.messages == 9


async def test_odd_chats(bench: AgentBench) -> None:
    hidden = line("Mira Vale", "no", is_system=True)
    narrated = line("System", "It rains.", extra={"type": "narrator"})
    edited = line("Mira Vale", "New.", swipe_id=0, swipes=["Old.", "Other."])
    lost = line("Mira Vale", "Said.", swipe_id=9, swipes=["Other."], gen_id=7)
    chat = read_chat(lines(HEAD, hidden, narrated, edited, lost))
    found = [([one.content for one in versions], shown, versions[0].role) for versions, shown, _ in chat.messages]
    assert found == [
        (["It rains."], 0, "system"),
        (["New.", "Other."], 0, "assistant"),
        (["Other.", "Said."], 1, "assistant"),
    ]
    assert chat.unsupported == ["extra: 1", "gen_id: 1", "hidden messages: 1"]
    times = {
        "June 19, 2023 2:20pm": "2023-06-19T14:20:00+00:00",
        "2023-6-19 @14h 20m 33s 123ms": "2023-06-19T14:20:33+00:00",
        1687184433000: "2023-06-19T14:20:33+00:00",
        "2023-06-19T14:20:33.500Z": "2023-06-19T14:20:33.500000+00:00",
    }
    for at, expected in times.items():
        assert read_chat(lines(HEAD, line("Ada", "x", at))).messages[0][2].isoformat() == expected
    for at in ("yesterday", None, True, 1e300, {}):
        assert read_chat(lines(HEAD, line("Ada", "x", at))).messages
    rows = [
        (b"", "the file is no chat"),
        (lines({"a": 1}), "the file is no chat"),
        (lines(HEAD) + b"{", "line 2"),
        (lines(HEAD, [1]), "line 2: expected an object"),
        (lines(HEAD, line("Mira Vale", "x", swipes=[1], swipe_id=0)), "line 2: swipes: expected a list of texts"),
        (lines({**HEAD, "user_name": 7}), "line 1: user_name: expected text"),
        (lines(HEAD), "nothing was said in this chat"),
        (lines({**HEAD, "character_name": "Nobody"}, line("Ada", "x")), "there is no character 'Nobody'"),
        (b"\xff", "is not UTF-8"),
    ]
    with Failures() as failures:
        for content, part in rows:
            with failures.row(part):
                with pytest.raises(TavernError) as caught:
                    await characters(bench).import_chat(content)
                assert part in caught.value.message


async def test_over_http_and_at_the_terminal(bench: AgentBench) -> None:
    await characters(bench).import_card(dumped(MIRA), character="other")
    async with served(bench.host) as client:
        made = await client.post("/api/character-chats?character=other&id=by-http", data=lines(*CHAT))
        assert (made.status, (await made.json())["id"]) == (201, "by-http")
        assert (await client.post("/api/character-chats?id=by-http&character=other", data=lines(*CHAT))).status == 409
        found = await client.get("/api/character-chats/by-http")
        assert (found.content_type, (await found.read()).count(b"\n")) == ("application/jsonl", 6)
        assert (await client.get("/api/character-chats/by-http?branch=none")).status == 404
        assert (await client.get("/api/character-chats/nothing")).status == 404
    file = bench.project.root.parent / "chat.jsonl"
    file.write_bytes(lines(*CHAT))
    card = bench.project.root.parent / "card.json"
    card.write_bytes(dumped({**MIRA, "name": "Terminal"}))
    project = ("--project", str(bench.project.root))

    def run() -> None:
        begun = tavern(*project, "character", "import", card)
        assert "Terminal is the agent terminal (card_v1)" in begun.out + begun.err
        assert "*Terminal looks up.* Come in, User!" in begun.out
        asked = json.loads(tavern(*project, "character", "import-chat", file, "--character", "terminal", "--json").out)
        assert asked["messages"] == 7
        target = bench.project.root.parent / "out.jsonl"
        assert tavern(*project, "character", "export-chat", asked["id"], "--output", target).code == 0
        assert [json.loads(one) for one in target.read_text().splitlines()][1:] == CHAT[1:]
        assert "Bob: Tall." in tavern(*project, "character", "persona", "--name", "Bob", "--description", "Tall.").out
        wrong = tavern(*project, "character", "import", file)
        assert "of the kind “chat of SillyTavern”: `tavern import chat.jsonl` takes it" in wrong.err
        wrong = tavern(*project, "kb", "import", file)
        assert "of the kind “chat of SillyTavern”: `tavern import chat.jsonl` takes it" in wrong.err
        wrong = tavern(*project, "history", "import", card)
        assert "of the kind “character card”: `tavern import card.json` takes it" in wrong.err
        assert "terminal" in tavern(*project, "character", "list").out
        exported = bench.project.root.parent / "again.png"
        assert tavern(*project, "character", "export", "terminal", "--format", "png", "--output", exported).code == 0
        assert exported.read_bytes().startswith(b"\x89PNG")

    import asyncio

    await asyncio.to_thread(run)
