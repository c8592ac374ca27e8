"""`ContextBuilder`: which messages a preset, a character, a world book and a conversation make."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.repetition import Failures
from node_bench import Nodes, check_refusals

from tavern_host import InvalidInput

CARD = {
    "name": "Ann",
    "description": "{{char}} keeps an inn. {{user}} is a guest.",
    "personality": "Warm.",
    "scenario": "Evening at <BOT>'s inn.",
    "first_mes": "Welcome, {{user}}!",
    "mes_example": "<START>\n{{user}}: hi\n{{char}}: hello\n<START>\n{{char}}: bye",
}
HISTORY = [
    {"role": "user", "content": "Is there a dragon?", "id": "m1"},
    {"role": "assistant", "content": "Perhaps."},
    {"role": "user", "content": "And the King?"},
]


def entry(content: str, *keys: str, **more: Any) -> dict[str, Any]:
    return {"keys": list(keys), "content": content, **more}


async def build(nodes: Nodes, **inputs: Any) -> list[dict[str, Any]]:
    outputs = await nodes.run("ContextBuilder", inputs)
    messages: list[dict[str, Any]] = outputs["finalMessages"]
    return messages


async def texts(nodes: Nodes, **inputs: Any) -> list[str]:
    return [message["content"] for message in await build(nodes, **inputs)]


ONLY_WORLD = {
    "prompts": [{"identifier": "chatHistory", "marker": True}],
    "prompt_order": [{"identifier": "worldInfoBefore"}, {"identifier": "worldInfoAfter"}],
}


async def called_up(nodes: Nodes, book: Any, history: Any = HISTORY) -> list[str]:
    """Return the texts of a world book before the conversation, by line."""
    messages = await build(nodes, presetData=ONLY_WORLD, worldBookData=book, historyMessages=history)
    return [line for message in messages if message["role"] == "system" for line in message["content"].split("\n")]


# --- the parts ----------------------------------------------------------------------------------------------


async def test_all_parts_come_in_the_usual_order_with_their_macros_filled_in(nodes: Nodes) -> None:
    world = {
        "entries": [entry("Dragons sleep.", "dragon"), entry("Kings rule.", "king", position="after_char")],
        "scan_depth": 3,
    }
    messages = await build(
        nodes,
        presetData={"user_name": "Bob", "persona": "Bob is tired.", "post_history_instructions": "Be brief, {{char}}."},
        worldBookData=world,
        characterData=CARD,
        historyMessages=HISTORY,
    )
    assert [(m["role"], m["content"]) for m in messages] == [
        ("system", "Write Ann's next reply in a conversation between Ann and Bob."),
        ("system", "Dragons sleep."),
        ("system", "Bob is tired."),
        ("system", "Ann keeps an inn. Bob is a guest."),
        ("system", "Warm."),
        ("system", "Evening at Ann's inn."),
        ("system", "Kings rule."),
        ("system", "An example of how Ann talks:\nBob: hi\nAnn: hello"),
        ("system", "An example of how Ann talks:\nAnn: bye"),
        ("user", "Is there a dragon?"),
        ("assistant", "Perhaps."),
        ("user", "And the King?"),
        ("system", "Be brief, Ann."),
    ]
    assert messages[9] == HISTORY[0]


async def test_macros_and_first_messages_are_filled_in(nodes: Nodes) -> None:
    """An empty conversation begins with the card's; macros that were said, or that macros bring in, are left alone."""
    assert (await build(nodes, characterData=CARD))[-1] == {"role": "assistant", "content": "Welcome, User!"}
    assert "Welcome, User!" not in await texts(nodes, characterData=CARD, historyMessages=HISTORY)
    said = [{"role": "user", "content": "{{char}} <USER>"}]
    assert (await texts(nodes, characterData=CARD, historyMessages=said))[-1] == "{{char}} <USER>"
    card = {"name": "{{char}}{{char}}", "description": "{{description}} {{Char}} {{what}} {{// no}}{{newline}}."}
    found = await texts(nodes, characterData=card)
    assert found[-1] == "{{description}} {{char}}{{char}} {{what}} \n."


async def test_the_cards_prompts_replace_the_presets_if_allowed(nodes: Nodes) -> None:
    card = {**CARD, "system_prompt": "{{original}} Rhyme.", "post_history_instructions": "End."}
    preset = {"system_prompt": "Write as {{char}}.", "post_history_instructions": "Go on."}
    found = await texts(nodes, presetData=preset, characterData=card, historyMessages=HISTORY)
    assert (found[0], found[-1]) == ("Write as Ann. Rhyme.", "End.")
    strict = {"prompts": [{"identifier": "main", "content": "Mine.", "forbid_overrides": True}]}
    assert await texts(nodes, presetData=strict, characterData=card) == ["Mine.", "Welcome, User!"]


async def test_a_preset_orders_its_prompts_and_the_places(nodes: Nodes) -> None:
    deep = {"role": "assistant", "content": "Deep.", "injection_position": 1, "injection_depth": 1}
    order = ["mine", "chatHistory", "charPersonality", "off", "deep", "main", "unknown"]
    preset = {
        "prompts": [
            {"identifier": "main", "role": "system", "content": "Main."},
            {"identifier": "mine", "role": "user", "content": "Mine of {{char}}."},
            {"identifier": "off", "role": "user", "content": "Off."},
            {"identifier": "deep", **deep},
            {"identifier": "charPersonality", "marker": True},
            {"identifier": "chatHistory", "marker": True},
        ],
        "prompt_order": [
            {"character_id": 100000, "order": [{"identifier": "off", "enabled": True}]},
            {"character_id": 100001, "order": [{"identifier": name, "enabled": name != "off"} for name in order]},
        ],
        "personality_format": "{{char}} is: {{personality}}",
    }
    said = ["Is there a dragon?", "Perhaps.", "Deep.", "And the King?"]
    found = await texts(nodes, presetData=preset, characterData=CARD, historyMessages=HISTORY)
    assert found == ["Mine of Ann.", *said, "Ann is: Warm.", "Main."]


# --- world books --------------------------------------------------------------------------------------------


RECURSIVE = [
    entry("The king has a Sword.", "king"),
    entry("The sword is of Iron.", "sword"),
    entry("Iron rusts.", "iron"),
    entry("Never.", "rusts", excludeRecursion=True),
    entry("Silent gold.", "iron", preventRecursion=True),
    entry("Gold shines.", "gold"),
]
SAID = [entry("A", "dragon"), entry("B", "perhaps"), entry("C", "dragon", scan_depth=9), entry("D", "king")]
BOOKS: list[tuple[str, list[dict[str, Any]], dict[str, Any], list[str]]] = [
    ("an entry comes in when a key of it was said",
        [entry("A", "dragon"), entry("B", "unicorn"), entry("C", constant=True), entry("D", "unicorn", "PERHAPS")],
        {"scan_depth": 3}, ["A", "C", "D"]),
    ("two messages are searched by default", SAID, {}, ["B", "C", "D"]),
    ("so many messages are searched", SAID, {"scan_depth": 1}, ["C", "D"]),
    ("no message is searched", SAID, {"scan_depth": 0}, ["C"]),
    ("case and whole words count where the entry says so",
        [entry("A", "king", case_sensitive=True), entry("B", "King", case_sensitive=True),
            entry("C", "kin", matchWholeWords=True), entry("D", "KING", matchWholeWords=True), entry("E", "kin")],
        {}, ["B", "D", "E"]),
    ("a key may be a pattern",
        [entry("A", "/k.ng/i"), entry("B", "/k.ng/"), entry("C", "^and", use_regex=True), entry("D", "^and")],
        {"scan_depth": 1}, ["A", "C"]),
    ("entries that are switched off or never happen stay out",
        [entry("A", "king", enabled=False), entry("B", "king", disable=True), entry("C", "king", probability=0),
            entry("D", "king", probability=0, useProbability=False), entry("E", "king", probability=50)],
        {}, ["D", "E"]),
    ("entries stand by their order",
        [entry("A", "king", insertion_order=9), entry("B", "king", order=-1), entry("C", "king")], {}, ["B", "A", "C"]),
    ("a book is not recursive by default", RECURSIVE, {}, ["The king has a Sword."]),
    ("entries of a recursive book call up others", RECURSIVE, {"recursive_scanning": True},
        ["The king has a Sword.", "The sword is of Iron.", "Iron rusts.", "Silent gold."]),
    ("a token budget keeps what matters most",
        [entry("a" * 8, "king", priority=1), entry("b" * 8, "king", priority=9), entry("c" * 8, constant=True),
            entry("d" * 40, "king", priority=10)],
        {"token_budget": 5}, ["b" * 8, "c" * 8]),
]  # fmt: skip
SECONDARY = [
    *((0, ["perhaps", "no"], True), (0, ["no"], False), (1, ["perhaps", "no"], True), (1, ["perhaps", "the"], False)),
    *((2, ["no"], True), (2, ["no", "the"], False), (3, ["perhaps", "the"], True), (3, ["perhaps", "no"], False)),
]


async def test_books_call_up_their_entries(nodes: Nodes) -> None:
    with Failures() as failures:
        for name, book, config, called in BOOKS:
            with failures.row(name):
                assert await called_up(nodes, {"entries": book, **config}) == called


async def test_secondary_keys_decide_too(nodes: Nodes) -> None:
    for logic, secondary, comes in SECONDARY:
        one = {"key": ["king"], "keysecondary": secondary, "selectiveLogic": logic, "content": "A", "selective": True}
        assert await called_up(nodes, {"entries": {"0": one}}) == (["A"] if comes else [])
        assert await called_up(nodes, {"entries": {"0": {**one, "selective": False}}}) == ["A"]


async def test_an_entry_may_stand_within_the_conversation(nodes: Nodes) -> None:
    book = [
        {"key": "king", "content": "end", "position": 4, "depth": 0},
        {"key": ["king"], "content": "deep", "position": 4, "depth": 2, "role": 1},
        {"key": ["king"], "content": "first", "position": 4, "depth": 99, "role": 2},
        entry("card", "king", position="after_char", extensions={"position": 4, "depth": 1}),
    ]
    messages = await build(nodes, presetData=ONLY_WORLD, worldBookData={"entries": book}, historyMessages=HISTORY)
    assert [(m["role"], m["content"]) for m in messages] == [
        ("assistant", "first"),
        ("user", "Is there a dragon?"),
        ("user", "deep"),
        ("assistant", "Perhaps."),
        ("system", "card"),
        ("user", "And the King?"),
        ("system", "end"),
    ]


async def test_the_book_of_the_card_comes_in_too_with_macros(nodes: Nodes) -> None:
    card = {**CARD, "character_book": {"entries": [entry("{{char}} fears the king.", "king", insertion_order=1)]}}
    world = {"entries": [entry("Kings rule.", "king", insertion_order=2)]}
    found = await texts(nodes, characterData=card, worldBookData=world, historyMessages=HISTORY)
    assert "Ann fears the king.\nKings rule." in found


# --- bad input ----------------------------------------------------------------------------------------------


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"presetData": 3}, "presetData: a preset is an object, not a number"),
    ({"presetData": {"system_prompt": 3}}, "presetData.system_prompt: expected text, not a number"),
    ({"presetData": {"prompts": [{"role": "bard"}]}}, "presetData.prompts[0].role: expected one of system, user, "
        "assistant"),
    ({"presetData": {"prompts": [], "prompt_order": 3}}, "presetData.prompt_order: expected a list of objects"),
    ({"worldBookData": {"entries": [3]}}, "worldBookData.entries[0]: expected an object with keys and content, not "
        "a number"),
    ({"worldBookData": {"entries": [{"order": "x"}]}}, "worldBookData.entries[0].insertion_order: expected a "
        "number, not 'x'"),
    ({"worldBookData": {"entries": [entry("a", "/(/")]}}, "worldBookData.entries[0]: the key '(' is no regular "
        "expression: a group is opened with ( and not closed"),
    ({"worldBookData": {"entries": [{}] * 10_001}}, "worldBookData: 10,001 entries are too many; at most 10,000 "
        "are possible"),
    ({"characterData": {"a": 1}}, "characterData: this is no character card; it has no name, description or other "
        "field of one"),
    ({"historyMessages": [{"role": "user"}]}, "historyMessages[0].content: expected text, not nothing"),
]  # fmt: skip


async def test_what_is_wrong_is_told_by_its_place(nodes: Nodes) -> None:
    await check_refusals(nodes, (("ContextBuilder", inputs, {}, message) for inputs, message in WRONG))


async def test_prompts_that_multiply_stay_in_bounds(nodes: Nodes) -> None:
    prompts = [{"identifier": str(n), "content": "{{description}}" * 300} for n in range(900)]
    rows: list[dict[str, Any]] = [
        {"presetData": {"system_prompt": "{{description}}" * 1000}},
        {"presetData": {"prompts": prompts}},
        {"worldBookData": [entry("{{description}}" * 300, constant=True)] * 900},
        {"worldBookData": [entry("a" * 3000, constant=True)], "presetData": {"wi_format": "{0}" * 1_000_000}},
    ]
    for inputs in rows:
        with pytest.raises(InvalidInput, match="ContextBuilder: the result would have .* characters; at most "):
            await build(nodes, characterData={**CARD, "description": "z" * 10_000}, **inputs)
